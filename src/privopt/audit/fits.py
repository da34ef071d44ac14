"""Estimators as an audit runs them: whatever must be public is declared, never read from data."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import is_classifier

import privopt.estimators as room
from privopt.audit.neighbours import Pair
from privopt.geometry import L2Ball
from privopt.losses import Logistic
from privopt.noise import SeededSource
from privopt.privacy import Budget, Refused
from privopt.problem import Problem

Fit = Callable[[np.ndarray, np.ndarray, Any], Any]
"""From records and a source of noise to a fitted estimator."""

LABELS = (-1, 1)


def estimators() -> dict[str, type]:
    """Every estimator of the library that spends a budget and needs nothing else, by name."""
    found = {name: getattr(room, name) for name in room.__all__}
    return {name: one for name, one in found.items() if inspect.isclass(one) and _alone(one)}


def _alone(estimator: type) -> bool:
    known = inspect.signature(estimator).parameters
    given = all(one.default is not inspect.Parameter.empty for one in known.values())
    return given and {"epsilon", "random_state"} <= set(known)


def fitting(estimator: type, budget: Budget, n: int, **options: Any) -> Fit:
    """A fit of an estimator to n records, with every public constant declared.

    A record that cannot be read (NaN, or a label that was not declared) is an empty record where
    the estimator knows such records.
    """
    known = inspect.signature(estimator).parameters
    declared = {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "neighbouring": budget.neighbouring,
        "classes": list(LABELS),
        "n_public": n,
        "nan_policy": "empty",
        "problem": Problem(Logistic(), L2Ball(3.0)),
        **options,
    }
    declared = {name: value for name, value in declared.items() if name in known}
    classes = is_classifier(estimator(**declared))

    def fit(X: np.ndarray, y: np.ndarray, source: Any) -> Any:
        broken = ~(np.isin(y, LABELS) if classes else np.isfinite(y))
        if "nan_policy" in declared:
            X = np.where(broken[:, None], np.nan, X)
        y = np.where(broken, LABELS[0], y).astype(int if classes else float)
        model = estimator(**declared, random_state=source)
        if declared.get("max_weight") is None:
            return model.fit(X, y)
        # A weight is part of its record; some are beyond the bound.
        weights = np.minimum(np.nan_to_num(3 * np.abs(X[:, 0])), 9.0)
        return model.fit(X, y, sample_weight=weights)

    return fit


def settled(
    estimator: type, budget: Budget, data: tuple[np.ndarray, np.ndarray], **options: Any
) -> tuple[Fit, Any]:
    """A fit whose solver the first fit, which comes along, has chosen: plans are public."""
    n = len(data[0])
    first = fitting(estimator, budget, n, **options)(*data, SeededSource(0))
    if hasattr(first, "plan_"):
        options["solver"] = first.plan_.name
    return fitting(estimator, budget, n, **options), first


def harmless(p: int, n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Records that every estimator takes."""
    return np.eye(n, p), np.where(np.arange(n) % 2, 1.0, -1.0)


def readable(estimator: type, pair: Pair) -> bool:
    """Whether an estimator takes both data sets of a pair. Those that know no empty records refuse
    what is not a number, and none fits to no records at all."""
    if min(len(pair.first[0]), len(pair.second[0])) == 0:
        return False
    if "nan_policy" in inspect.signature(estimator).parameters:
        return True
    return all(np.isfinite(part).all() for side in (pair.first, pair.second) for part in side)


def takes(estimator: type, budget: Budget, pairs: list[Pair]) -> bool:
    """Whether an estimator takes one of the pairs, and the budget on harmless records."""
    if not any(readable(estimator, pair) for pair in pairs):
        return False
    X, y = harmless(pairs[0].first[0].shape[1])
    try:
        fitting(estimator, budget, len(X))(X, y, SeededSource(0))
    except (Refused, ValueError):
        return False
    return True
