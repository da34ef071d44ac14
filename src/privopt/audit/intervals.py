"""Entries of the audit that say how sure released numbers are."""

from __future__ import annotations

from typing import Any

import numpy as np

import privopt
from privopt.losses import Huber
from privopt.noise import Generator
from privopt.privacy import Budget, Refused

N = 40
"""Public number of records."""

Made = tuple[Any, Any, str]
"""A run, its pairs of neighbours, and what is said of them."""


def by_parts(budget: Budget, generator: Generator, pairs: Any) -> Made:
    """The mean of fits to disjoint parts."""
    parts = int(generator.integers(3, 6))
    problem = privopt.Problem(Huber(0.5), data_norm=1.0)

    def run(X: np.ndarray, y: np.ndarray, source: Any) -> Any:
        inner = privopt.PrivateERM(
            problem,
            budget.epsilon,
            budget.delta,
            neighbouring=budget.neighbouring,
            solver="objective_perturbation",
            n_public=N,
            nan_policy="empty",
            random_state=int(source.noise.integers(2**31)),
        )
        model = privopt.IntervalsByParts(inner, parts).fit(X, np.nan_to_num(y))
        return model.coef_, model.conf_int(), model.privacy_.to_json()

    return run, pairs, f"IntervalsByParts, {parts} parts, {budget}"


def band(budget: Budget, generator: Generator, pairs: Any) -> Made:
    """A quantile of residuals of a model that is public."""
    if not budget.pure or budget.neighbouring == "add_remove":
        raise Refused("prediction intervals are pure and know how many records there are.")
    pairs = [pair for pair in pairs if len(pair.first[0]) > 7]
    X = generator.normal(size=(200, 4))
    model = privopt.Ridge(8.0, target_bounds=(-2.0, 2.0), random_state=0, nan_policy="empty")

    def run(rows: np.ndarray, y: np.ndarray, source: Any) -> Any:
        fitted = model.fit(X[:, : rows.shape[1]], X[:, 0])
        found = privopt.prediction_intervals(
            fitted,
            rows,
            y,
            level=0.05,
            epsilon=40 + budget.epsilon,  # pairs are small: less would be refused for it
            neighbouring=budget.neighbouring,
            random_state=source,
        )
        return found.half_width, found.privacy_.to_json()

    return run, pairs, f"prediction_intervals, {budget}"
