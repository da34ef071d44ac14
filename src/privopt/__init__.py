"""Differentially private optimization: describe the problem, give a budget, get the best
algorithm, the answer, and a certificate that is right."""

from importlib import import_module
from importlib.metadata import version
from typing import Any

from privopt import geometry, losses
from privopt.estimators import (
    BoundedScaler,
    ElasticNet,
    HuberRegressor,
    Lasso,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    OnlineLinearRegression,
    OnlineLogisticRegression,
    PrivateERM,
    QuantileRegressor,
    Ridge,
    SparseLogisticRegression,
    check_pipeline,
    load,
    save,
)
from privopt.ledger import Ledger
from privopt.planner import plan, prefix_sums, quantile, solve
from privopt.privacy import Budget, Certificate, Participation, PrivacyWarning, Refused
from privopt.problem import Problem

__version__ = version("privopt")

__all__ = [
    "BoundedScaler",
    "Budget",
    "Certificate",
    "ElasticNet",
    "HuberRegressor",
    "Lasso",
    "Ledger",
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "OnlineLinearRegression",
    "OnlineLogisticRegression",
    "Participation",
    "PrivacyWarning",
    "PrivateERM",
    "Problem",
    "QuantileRegressor",
    "Refused",
    "Ridge",
    "SparseLogisticRegression",
    "__version__",
    "check_pipeline",
    "geometry",
    "load",
    "losses",
    "plan",
    "prefix_sums",
    "quantile",
    "save",
    "solve",
]


def __getattr__(name: str) -> Any:
    if name == "torch":  # loaded when it is asked for: it needs the extra of that name
        return import_module("privopt.torch")
    raise AttributeError(f"module 'privopt' has no attribute {name!r}")
