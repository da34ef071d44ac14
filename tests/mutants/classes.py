"""Planted bugs of the release of all classes together, and the checks that kill them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from privopt import Budget, Problem
from privopt.audit import hostile_pairs, replay
from privopt.facts import Facts
from privopt.losses import Logistic, Softmax
from privopt.noise import SeededSource, SilentSource
from privopt.oracle import ClassCounts, ClassGradient, Oracle, RowBounds, RowMap, dense, mapped
from privopt.oracle import outer_counts as counts_module
from privopt.oracle.sealed import KEY
from privopt.privacy import Accountant, Refused, spend
from privopt.solvers import Plan, catalogue, declare, execute, joint_softmax, row_bounds

from .mutant import Check, Mutant

DELTA = 1e-5


PROBLEMS = {
    "joint_softmax": Problem(Logistic(), intercept=0.5),
    "standardized_softmax": Problem(Logistic(), intercept=0.5, column_bounds=1.0),
}


def _plan(name: str, relation: Any = "zero_out") -> Plan:
    """Two steps on sixty records of four classes."""
    problem, solver, budget = PROBLEMS[name], catalogue()[name], Budget(1.0, DELTA, relation)
    facts = Facts(problem, 60, problem.dimension(4), relation, 4)
    return Plan(solver, facts, budget, solver.settings(facts, budget, n_iter=2))


# ---------------------------------------------------------------- checks
@cache
def replayed_classes(name: str, relation: Any = "zero_out") -> Check:
    """Hostile neighbours: movements within the sensitivity."""

    def check() -> str | None:
        plan = _plan(name, relation)

        def run(X: np.ndarray, y: np.ndarray) -> Any:
            source = SeededSource(0)
            oracle = Oracle.over(
                X,
                y,
                neighbouring=relation,
                bounds=row_bounds(plan),
                source=source,
                classification=False,
            )
            answer, certificate = execute(plan, [oracle], source)
            return np.stack(answer.thetas), certificate.to_json()

        for pair in hostile_pairs(relation, classification=False):
            with np.errstate(all="ignore"):
                found = replay(run, pair)
            if found:
                return f"{found[0]} ({pair.name})"
        return None

    return check


@cache
def within_classes_budget(name: str) -> Check:
    """What a run declares is within its budget."""

    def check() -> str | None:
        found = Accountant("zero_out").epsilon(spend(declare(_plan(name))), DELTA)
        return f"declares epsilon {found:.2f} of 1" if found > 1 + 1e-9 else None

    return check


def no_longer_than_steps() -> str | None:
    """Integers of single records are within the declared number of steps."""
    rng = np.random.default_rng(0)
    row_map = RowMap(np.full(4, 0.2), np.full(4, 3.0), 2.0, 3.0)
    try:
        for trial in range(100):
            oracle = Oracle.over(
                rng.normal(size=(1, 4)),
                np.array([float(trial % 3)]),
                neighbouring="zero_out",
                bounds=RowBounds(math.inf, 1.0),
                source=SilentSource(),
                classification=False,
            ).mapped(row_map)
            query, at = ClassGradient(Softmax(3), Softmax(3).cap), rng.normal(size=(3, 5)) * 5
            found = oracle.everything().ask_all(query, at, resolution=2.0**20).open(KEY)
            if sum(int(c) ** 2 for c in found) > 2**40:
                return "a record is longer than its sensitivity"
    except Refused as refusal:
        return str(refusal)
    return None


# ---------------------------------------------------------------- bugs
def _empty_ones_too(rows: Any, classes: int) -> np.ndarray:
    return np.bincount(counts_module.class_numbers(rows, classes), minlength=classes).astype(float)


def _without_root(*args: Any) -> Any:
    found = _SETTINGS(*args)
    return replace(found, noise_multiplier=found.noise_multiplier / math.sqrt(found.n_iter))


def _for_each_class(*args: Any) -> Any:
    found = _SETTINGS(*args)
    return replace(found, noise_multiplier=found.noise_multiplier / math.sqrt(found.classes))


class _Upward:
    """NumPy, cutting off away from zero."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def trunc(self, values: np.ndarray, out: np.ndarray) -> np.ndarray:
        np.copyto(out, np.sign(values) * np.ceil(np.abs(values)))
        return out


def _no_margin(dimension: int) -> float:
    return -1e-3


_SETTINGS = joint_softmax.joint_settings


def classes() -> Iterator[Mutant]:
    for name in PROBLEMS:
        yield Mutant(
            f"{name}: a gradient moves by half its clip",
            ((ClassGradient, "radius", lambda self: self.clip_norm / 2),),
            replayed_classes(name),
            "replay",
        )
        yield Mutant(
            f"{name}: a class count moves by a half",
            ((ClassCounts, "radius", lambda self: 0.5),),
            replayed_classes(name),
            "replay",
        )
    yield Mutant(
        "joint_softmax: replacing a record moves a gradient by its clip",
        ((ClassGradient, "diameter", lambda self: self.clip_norm),),
        replayed_classes("joint_softmax", "replace_one"),
        "replay",
    )
    yield Mutant(
        "joint_softmax: empty records count as a class",
        ((dense, "class_counts", _empty_ones_too), (mapped, "class_counts", _empty_ones_too)),
        replayed_classes("joint_softmax"),
        "replay",
    )
    for what, wrong in {
        "the root of the number of steps is dropped": _without_root,
        "every class has a budget of its own": _for_each_class,
    }.items():
        yield Mutant(
            f"joint_softmax: {what}",
            ((joint_softmax, "joint_settings", wrong),),
            within_classes_budget("joint_softmax"),
            "accountant",
        )
    yield Mutant(
        "outer counts: cut off away from zero",
        ((counts_module, "np", _Upward()),),
        no_longer_than_steps,
        "single records",
    )
    yield Mutant(
        "outer counts: the bound is not shortened",
        ((counts_module, "margin", _no_margin),),
        no_longer_than_steps,
        "single records",
    )
