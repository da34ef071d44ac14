"""Differentially private optimization: describe the problem, give a budget, get the best
algorithm, the answer, and a certificate that is right."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privopt import engines, geometry, losses
    from privopt.estimators import (
        BoundedScaler,
        ElasticNet,
        GammaRegressor,
        HuberRegressor,
        IntervalsByParts,
        Lasso,
        LinearRegression,
        LinearSVC,
        LogisticRegression,
        OnlineLinearRegression,
        OnlineLogisticRegression,
        PoissonRegressor,
        PrivateERM,
        PrivateSearchCV,
        QuantileRegressor,
        RefitStream,
        Ridge,
        SparseLogisticRegression,
        SplineFeatures,
        auto,
        check_pipeline,
        load,
        save,
    )
    from privopt.evaluation import evaluate, prediction_intervals
    from privopt.ledger import Ledger
    from privopt.planner import plan, prefix_sums, quantile, select, solve
    from privopt.privacy import Budget, Certificate, Participation, PrivacyWarning, Refused
    from privopt.problem import Problem
    from privopt.sources import Dataset, dataset

__version__ = version("privopt")

__all__ = [
    "BoundedScaler",
    "Budget",
    "Certificate",
    "Dataset",
    "ElasticNet",
    "GammaRegressor",
    "HuberRegressor",
    "IntervalsByParts",
    "Lasso",
    "Ledger",
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "OnlineLinearRegression",
    "OnlineLogisticRegression",
    "Participation",
    "PoissonRegressor",
    "PrivacyWarning",
    "PrivateERM",
    "PrivateSearchCV",
    "Problem",
    "QuantileRegressor",
    "RefitStream",
    "Refused",
    "Ridge",
    "SparseLogisticRegression",
    "SplineFeatures",
    "__version__",
    "auto",
    "check_pipeline",
    "dataset",
    "engines",
    "evaluate",
    "geometry",
    "load",
    "losses",
    "plan",
    "prediction_intervals",
    "prefix_sums",
    "quantile",
    "save",
    "select",
    "solve",
]

# Where each name lives. Rooms are loaded when a name is asked for, so that `privopt --help` and a
# script that only accounts do not wait for the numerics of a fit.
_HOMES = {
    "privopt.estimators": (
        "BoundedScaler",
        "ElasticNet",
        "GammaRegressor",
        "HuberRegressor",
        "IntervalsByParts",
        "Lasso",
        "LinearRegression",
        "LinearSVC",
        "LogisticRegression",
        "OnlineLinearRegression",
        "OnlineLogisticRegression",
        "PoissonRegressor",
        "PrivateERM",
        "PrivateSearchCV",
        "QuantileRegressor",
        "RefitStream",
        "Ridge",
        "SparseLogisticRegression",
        "SplineFeatures",
        "auto",
        "check_pipeline",
        "load",
        "save",
    ),
    "privopt.evaluation": ("evaluate", "prediction_intervals"),
    "privopt.ledger": ("Ledger",),
    "privopt.planner": ("plan", "prefix_sums", "quantile", "select", "solve"),
    "privopt.privacy": ("Budget", "Certificate", "Participation", "PrivacyWarning", "Refused"),
    "privopt.problem": ("Problem",),
    "privopt.sources": ("Dataset", "dataset"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_ROOMS = ("engines", "geometry", "losses", "torch")  # the last needs the extra of that name


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"privopt.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'privopt' has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(_HOME[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
