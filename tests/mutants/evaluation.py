"""Planted bugs in private evaluation, and the checks that notice."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np

from privopt import evaluate
from privopt.audit import hostile_pairs, record, replay
from privopt.evaluation.many_classes import ManyClasses
from privopt.evaluation.numbers import Numbers
from privopt.evaluation.two_classes import TwoClasses
from privopt.oracle import Shares, shares
from tests.evaluation.models import Centred, Failing, Fixed, Line

from .mutant import Check, Mutant

evaluate_module = import_module("privopt.evaluation.evaluate")
THREE = (-1.0, 1.0, 2.0)


class Three(Fixed):
    """Three classes."""

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        found = super().predict_proba(X)
        return np.column_stack([0.9 * found, np.full(len(found), 0.1)])

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]


def replayed(relation: Any, model: Any, delta: float = 0.0, **more: Any) -> Check:
    """One record moves the released vector by at most what is declared."""

    def check() -> str | None:
        def run(X: np.ndarray, y: np.ndarray) -> str:
            found = evaluate(model, X, y, 1.0, delta, neighbouring=relation, random_state=0, **more)
            return found.to_json()

        for pair in hostile_pairs(relation, classification=not isinstance(model, Line)):
            found = replay(run, pair)
            if found:
                return found[0]
        return None

    return check


def declared() -> str | None:
    """The noise in the log is what epsilon and the most rows of one user ask for."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)), np.ones(40)
    users = {"user_ids": np.arange(40) // 2, "rows_per_user": 2}
    _, tape = record(lambda X, y: evaluate(Fixed(), X, y, 1.0, random_state=0, **users), (X, y))
    (release,) = tape.releases
    lost = 2 / release.mechanism.multiplier
    return None if lost <= 1 + 1e-9 else f"a user loses {lost:.3g}"


TWO = replayed("zero_out", Fixed(), one_at_a_time=False)
SWAPPED = replayed("replace_one", Fixed(), one_at_a_time=False)
RANKED = replayed("zero_out", Three(classes=THREE), one_vs_rest=True, one_at_a_time=False)
BENT = replayed("replace_one", Three(classes=THREE), 1e-2, one_vs_rest=True, one_at_a_time=False)
NUMBERS = replayed("zero_out", Line(), one_at_a_time=False)


def _uncut(given: Shares, norm: str, step: float) -> np.ndarray:
    weights = np.nan_to_num(np.maximum(given.weights, 0.0), posinf=2.0)
    return np.trunc(np.minimum(weights, 2.0) / step).astype(np.int64)


def _twice(self: TwoClasses, answers: np.ndarray, labels: np.ndarray) -> Shares:
    found = _SHARES(self, answers, labels)
    return Shares(found.places, 2 * found.weights, found.width)


def _whole(self: ManyClasses) -> dict[str, float]:
    return dict.fromkeys(self.sizes, 1.0)


def _no_share(self: Numbers, answers: np.ndarray, targets: np.ndarray) -> Shares:
    found = _NUMBERS(self, answers, targets)
    return Shares(found.places, found.weights / 0.4, found.width)


def _everybody_counts(self: TwoClasses, answers: np.ndarray, labels: np.ndarray) -> Shares:
    """A label that is missing shifts all records behind it to other cells."""
    return _SHARES(self, answers[np.cumsum(labels >= 0) - 1], labels)


def _together(speech: Any, model: Any, X: Any, width: int) -> np.ndarray:
    found = np.full((len(X), width), np.nan)
    X = np.nan_to_num(X, posinf=0.0, neginf=0.0)
    found[:] = speech.ask(np.clip(X, -1e6, 1e6))
    return found


def _no_rest(speech: Any, model: Any, X: Any, width: int) -> np.ndarray:
    """One record that the model does not take empties its block."""
    try:
        return speech.ask(np.nan_to_num(X))
    except ValueError:
        return np.full((len(X), width), np.nan)


_SHARES, _NUMBERS = TwoClasses.shares, Numbers.shares


def evaluation() -> Iterator[Mutant]:
    uncut = (shares, "_steps", _uncut)
    one = "evaluation: "
    for name, patches, check in (
        ("records twice as long", ((TwoClasses, "shares", _twice), uncut), TWO),
        (
            "a replaced record moves as one more",
            ((shares, "records_moved", lambda relation: 1),),
            SWAPPED,
        ),
        (
            "a replaced record moves by 1 in l2",
            ((shares, "shares_radius", lambda relation, norm: 1.0),),
            BENT,
        ),
        ("a whole record for each table", ((ManyClasses, "weights", property(_whole)), uncut),
         RANKED),
        ("residuals and targets at the whole budget", ((Numbers, "shares", _no_share), uncut),
         NUMBERS),
        ("cells by the records there are", ((TwoClasses, "shares", _everybody_counts),), TWO),
        (
            "a model that mixes rows, asked all at once",
            (
                (evaluate_module, "answers", _together),
                (evaluate_module, "check_apart", lambda speech, X: None),
            ),
            replayed("zero_out", Centred()),
        ),
        (
            "one row that fails takes others along",
            ((evaluate_module, "answers", _no_rest),),
            replayed("zero_out", Failing(0.01), one_at_a_time=False),
        ),
    ):  # fmt: skip
        yield Mutant(one + name, patches, check, "replay")
    yield Mutant(
        one + "noise for one record of a user",
        ((evaluate_module, "_noise", lambda layout, budget, group: _NOISE(layout, budget, 1)),
         (import_module("privopt.mechanisms.run"), "grouped", lambda spend, *_, **how: spend),
         (import_module("privopt.privacy.certificate"), "grouped", lambda spend, *_, **how: spend)),
        declared,
        "charge",
    )  # fmt: skip
    yield Mutant(
        one + "noise of half the scale",
        (
            (evaluate_module, "_noise", _half),
            (import_module("privopt.mechanisms.run"), "Accountant", _Blind),
            (import_module("privopt.privacy.certificate"), "Accountant", _Blind),
        ),
        declared,
        "charge",
    )


def _half(layout: Any, budget: Any, group: int) -> Any:
    mechanism, layout, budget = _NOISE(layout, budget, group)
    return type(mechanism)(mechanism.multiplier / 2), layout, budget


class _Blind:
    """An accountant that finds whatever is asked for."""

    def __init__(self, relation: Any) -> None:
        pass

    def epsilon(self, spend: Any, delta: float) -> float:
        return 1e-9


_NOISE = evaluate_module._noise
