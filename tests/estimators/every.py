"""One small fitted model of every kind, for the tests of what all estimators share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import privopt
from privopt.geometry import L1Ball, L2Ball
from privopt.losses import Huber, Logistic, SmoothedHinge, Squared

X = np.random.default_rng(5).uniform(-0.5, 0.5, (120, 3))
TWO = np.where(X[:, 0] + X[:, 1] > 0, "yes", "no")
THREE = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [-0.2, 0.2])]
NUMBER = X @ [0.5, -0.4, 0.2]
AMOUNT = 0.2 * np.exp(NUMBER)
GROUPS = {"two": TWO, "three": THREE, "number": NUMBER, "amount": AMOUNT}
GAUSSIAN = {"epsilon": 3.0, "delta": 1e-3, "random_state": 1}
PURE = {"epsilon": 3.0, "random_state": 1}
ONE_BATCH = {**GAUSSIAN, "n_steps": 3}

IN_A_BALL = privopt.Problem(Logistic(), L2Ball(3.0), intercept=0.3)
FLAT = privopt.Problem(SmoothedHinge(0.5), l2=0.01)
WIDE = privopt.Problem(Huber(0.2), intercept=1.0, data_norm=2.0)
OVER_L1 = privopt.Problem(Squared(residual_clip=1.0), L1Ball(1.0), column_bounds=0.5)

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
    "LogisticRegression, shapes": (
        "two",
        privopt.LogisticRegression,
        {**GAUSSIAN, "bounds": (-1, 2), "features": [0, 1]},
    ),
    "LogisticRegression, three": ("three", privopt.LogisticRegression, {**PURE, "bounds": (-1, 1)}),
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
    "LinearSVC, three": ("three", privopt.LinearSVC, PURE),
    "SparseLogisticRegression": ("two", privopt.SparseLogisticRegression, GAUSSIAN),
    "LinearRegression": ("number", privopt.LinearRegression, {**GAUSSIAN, "bounds": (-1, 2)}),
    "LinearRegression, shapes": (
        "number",
        privopt.LinearRegression,
        {**GAUSSIAN, "bounds": (-1, 2), "features": [0, 1]},
    ),
    "Ridge": ("number", privopt.Ridge, {**GAUSSIAN, "alpha": 1.0}),
    "HuberRegressor": ("number", privopt.HuberRegressor, {**GAUSSIAN, "bounds": (-1, 2)}),
    "QuantileRegressor": ("number", privopt.QuantileRegressor, {**GAUSSIAN, "bounds": (-1, 2)}),
    "PoissonRegressor": ("amount", privopt.PoissonRegressor, {**GAUSSIAN, "bounds": (-1, 2)}),
    "PoissonRegressor, shapes": (
        "amount",
        privopt.PoissonRegressor,
        {**GAUSSIAN, "bounds": (-1, 2), "features": "splines"},
    ),
    "PoissonRegressor, no bounds": ("amount", privopt.PoissonRegressor, PURE),
    "GammaRegressor": ("amount", privopt.GammaRegressor, {**GAUSSIAN, "bounds": (-1, 2)}),
    "QuantileRegressor, constant": (
        "number",
        privopt.QuantileRegressor,
        {"random_state": 1, "intercept_only": True},
    ),
    "Lasso": ("number", privopt.Lasso, {**GAUSSIAN, "feature_bounds": 0.5}),
    "ElasticNet": ("number", privopt.ElasticNet, {**GAUSSIAN, "fit_intercept": True}),
    "PrivateERM": ("two", privopt.PrivateERM, {**GAUSSIAN, "problem": IN_A_BALL}),
    "PrivateERM, three": ("three", privopt.PrivateERM, {**PURE, "problem": FLAT}),
    "PrivateERM, numbers": ("number", privopt.PrivateERM, {**GAUSSIAN, "problem": WIDE}),
    "PrivateERM, l1": ("number", privopt.PrivateERM, {**GAUSSIAN, "problem": OVER_L1}),
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
