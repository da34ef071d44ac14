"""One small fitted model of every kind, for the tests of what all estimators share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import privopt

X = np.random.default_rng(5).uniform(-0.5, 0.5, (120, 3))
TWO = np.where(X[:, 0] + X[:, 1] > 0, "yes", "no")
THREE = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [-0.2, 0.2])]
NUMBER = X @ [0.5, -0.4, 0.2]
GROUPS = {"two": TWO, "three": THREE, "number": NUMBER}
GAUSSIAN = {"epsilon": 3.0, "delta": 1e-3, "random_state": 1}
ONE_BATCH = {**GAUSSIAN, "n_steps": 3}

CASES: dict[str, tuple[str, Callable[..., Any], dict[str, Any]]] = {
    "LogisticRegression": ("two", privopt.LogisticRegression, GAUSSIAN),
    "LogisticRegression, pure": (
        "two",
        privopt.LogisticRegression,
        {"random_state": 1, "classes": ["no", "yes"]},
    ),
    "LogisticRegression, bounds": (
        "two",
        privopt.LogisticRegression,
        {**GAUSSIAN, "bounds": (-1, 2)},
    ),
    "LogisticRegression, three": (
        "three",
        privopt.LogisticRegression,
        {**GAUSSIAN, "bounds": (-1, 1)},
    ),
    "LogisticRegression, private norm": (
        "two",
        privopt.LogisticRegression,
        {**GAUSSIAN, "data_norm": "private"},
    ),
    "LogisticRegression, noisy_sgd": (
        "two",
        privopt.LogisticRegression,
        {**GAUSSIAN, "solver": "noisy_sgd"},
    ),
    "LinearSVC": ("two", privopt.LinearSVC, {**GAUSSIAN, "bounds": (-1, 2)}),
    "LinearSVC, three": ("three", privopt.LinearSVC, GAUSSIAN),
    "SparseLogisticRegression": ("two", privopt.SparseLogisticRegression, GAUSSIAN),
    "LinearRegression": ("number", privopt.LinearRegression, {**GAUSSIAN, "bounds": (-1, 2)}),
    "Ridge": ("number", privopt.Ridge, {**GAUSSIAN, "alpha": 1.0}),
    "HuberRegressor": ("number", privopt.HuberRegressor, {**GAUSSIAN, "bounds": (-1, 2)}),
    "QuantileRegressor": ("number", privopt.QuantileRegressor, {**GAUSSIAN, "bounds": (-1, 2)}),
    "QuantileRegressor, constant": (
        "number",
        privopt.QuantileRegressor,
        {"random_state": 1, "intercept_only": True},
    ),
    "Lasso": ("number", privopt.Lasso, {**GAUSSIAN, "feature_bounds": 0.5}),
    "ElasticNet": ("number", privopt.ElasticNet, {**GAUSSIAN, "fit_intercept": True}),
    "OnlineLogisticRegression": ("two", privopt.OnlineLogisticRegression, ONE_BATCH),
    "OnlineLinearRegression": ("number", privopt.OnlineLinearRegression, ONE_BATCH),
}
"""Name, target, class, parameters."""


def made(name: str, **parameters: Any) -> tuple[Any, np.ndarray]:
    """An estimator that is not fitted yet, and the target it is for."""
    group, kind, own = CASES[name]
    return kind(**{**own, **parameters}), GROUPS[group]


def fitted(name: str, **parameters: Any) -> Any:
    model, y = made(name, **parameters)
    return model.fit(X, y)
