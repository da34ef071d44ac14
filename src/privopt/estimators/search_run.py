"""One run of a private search: fit a candidate, score it with noise on records it has not seen."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from sklearn.base import clone

from privopt.estimators.linear_model import LinearModel
from privopt.estimators.linear_regressor import LinearRegressor
from privopt.estimators.scoring import Scoring, each
from privopt.mechanisms import HOOK, Gaussian, Laplace, Run, Steps
from privopt.noise import Source
from privopt.oracle import sealed_total
from privopt.oracle.sensitivity import Sensitivity
from privopt.privacy import (
    Accountant,
    Budget,
    Certificate,
    PrivacyWarning,
    RandomCount,
    Refused,
    Tuned,
    charge_of,
)
from privopt.privacy.profiles import gaussian_mu
from privopt.privacy.tuning import Loss

Rows = tuple[Any, np.ndarray]


@dataclass(frozen=True)
class SearchRun:
    """Called by the mechanism that keeps the best run; sees data, and is sealed.

    ``losses``: what each candidate was declared to cost. A record of ``fitted`` pays for the fit,
    one of ``held_out`` for the score: the model is then public to it.
    """

    candidates: Sequence[LinearModel]
    losses: Sequence[frozenset[Loss]]
    fitted: Rows
    held_out: Rows
    scoring: Scoring | None
    epsilon: float
    delta: float
    assumptions: tuple[str, ...] = ()

    def __call__(self, which: int, source: Source) -> tuple[float, LinearModel]:
        state = None if source.private else int(source.noise.integers(2**31))
        model = self.candidates[which].set_params(random_state=state)
        outer = HOOK.set(None)  # what happens inside a release is no release
        try:
            # A fresh copy, so that no run sees what an earlier one has learned.
            model = cast(LinearModel, clone(model)).fit(*self.fitted)
            self._check(model.privacy_, which)
            X, y = self.held_out
            predicted, own = cast(Any, model).predict(X), default_score(model)
            scores = own(y, predicted) if self.scoring is None else each(self.scoring, y, predicted)
            total = self._score(np.asarray(scores, dtype=float), which, source)
        finally:
            HOOK.reset(outer)
        return total, model

    def _score(self, scores: np.ndarray, which: int, source: Source) -> float:
        """The noisy total, as a run inside the run of the search, which has paid for it."""
        mechanism = score_mechanism(self.epsilon, self.delta)
        declared = Steps.once(mechanism, nothing(mechanism.accepts))
        run = Run(Budget(self.epsilon, self.delta), declared, source, what="score")
        run.pay(None)
        sealed = run.read(lambda: sealed_total(scores, mechanism.accepts))
        total = run.gate.release(mechanism, sealed)
        self._check(run.certify(), which)
        return float(total[0])

    def _check(self, certificate: Certificate, which: int) -> None:
        if not losses_of(certificate) <= self.losses[which]:
            raise Refused("a candidate's run costs more than was declared for it.")


def default_score(model: LinearModel) -> Scoring:
    """1 where the class is right; one minus the error in units of the target bounds' width."""
    if not isinstance(model, LinearRegressor):
        return lambda y, predicted: y == predicted
    low, high = model._ends()
    return lambda y, predicted: 1 - np.abs(np.clip(y, low, high) - predicted) / (high - low)


# ---------------------------------------------------------------- what a run costs
def score_mechanism(epsilon: float, delta: float) -> Gaussian | Laplace:
    """Noise on a sum that one record moves by at most 1: as private as a fit with this budget."""
    if delta == 0:
        return Laplace(1 / epsilon)
    return Gaussian(1 / gaussian_mu(epsilon, delta))


def score_loss(epsilon: float, delta: float) -> Loss:
    mechanism = score_mechanism(epsilon, delta)
    return tuple((kind, 1) for kind in mechanism.kinds(nothing(mechanism.accepts)))


def nothing(norm: str) -> Sensitivity:
    """The public side of a total, from no scores."""
    return sealed_total(np.zeros(0), norm).sensitivity


def losses_of(certificate: Certificate) -> frozenset[Loss]:
    """What the records of each cell pay for one fit."""
    accountant = Accountant(certificate.neighbouring)
    return frozenset(
        tuple(sorted(accountant.resolve(charge).items(), key=repr))
        for _, charge in certificate.charges
    )


def together(losses: Sequence[frozenset[Loss]]) -> tuple[Loss, ...]:
    return tuple(sorted(frozenset().union(*losses), key=repr))


def fit_nothing(model: LinearModel, X: Any, y: np.ndarray) -> LinearModel:
    """A fit to a few empty records: its plan and its charges depend on public facts alone."""
    classes = getattr(model, "classes", None)
    labels = np.zeros(2) if classes is None else np.asarray(classes)
    if isinstance(model, LinearRegressor):
        labels = np.full(2, sum(model._ends()) / 2)
    elif classes is None:
        labels = np.unique(y)
    rows = _zeros_like(X, len(labels))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return model.set_params(random_state=0).fit(rows, labels)


def settled_solver(model: LinearModel, X: Any, y: np.ndarray) -> dict[str, str]:
    """What a plan for these public facts chose, where the choice was left open."""
    if model.get_params().get("solver") != "auto":
        return {}
    plan = getattr(fit_nothing(model, X, y), "plan_", None)
    return {} if plan is None else {"solver": plan.name}


def _zeros_like(X: Any, count: int) -> Any:
    """So many rows of zeros, in a frame where bounds by column names need one: no record of X."""
    if not hasattr(X, "columns"):
        return np.zeros((count, X.shape[1]))
    if hasattr(X, "column_names"):  # pyarrow
        return type(X).from_pydict({name: np.zeros(count) for name in X.column_names})
    return type(X)({name: np.zeros(count) for name in X.columns})


def calibrated(
    made: Callable[[int, float], LinearModel],
    candidates: int,
    rows: Rows,
    budget: Budget,
    count: RandomCount,
) -> tuple[float, list[frozenset[Loss]], tuple[str, ...]]:
    """Largest epsilon of one run within the budget, the losses of each candidate at it, and what
    their certificates assume."""
    accountant = Accountant(budget.neighbouring)
    assumed: dict[str, None] = {}

    def losses(epsilon: float, chosen: range) -> list[frozenset[Loss]]:
        score = score_loss(epsilon, budget.delta)
        fits = [fit_nothing(made(which, epsilon), *rows).privacy_ for which in chosen]
        assumed.update(dict.fromkeys(text for fit in fits for text in fit.assumptions))
        return [losses_of(fit) | {score} for fit in fits]

    def tuned(found: list[frozenset[Loss]]) -> Any:
        return charge_of(Tuned(count.law, count.parameter, count.eta, together(found)))

    def least(chosen: range, start: float) -> float:
        return accountant.calibrate(
            lambda inverse: tuned(losses(1 / inverse, chosen)),
            budget.epsilon,
            budget.delta,
            start=start,
            tolerance=2e-3,
        )

    # Candidates cost about the same: one sets the scale, and all are asked only if they differ.
    inverse = least(range(1), 3 / budget.epsilon)
    found = losses(1 / inverse, range(candidates))
    if not accountant.holds(tuned(found), budget.epsilon, budget.delta):
        inverse = least(range(candidates), inverse)
        found = losses(1 / inverse, range(candidates))
    return 1 / inverse, found, tuple(assumed)
