"""Differentially private optimization: describe the problem, give a budget, get the best
algorithm, the answer, and a certificate that is right."""

from importlib.metadata import version

from privopt import geometry, losses
from privopt.estimators import (
    ElasticNet,
    HuberRegressor,
    Lasso,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    OnlineLinearRegression,
    OnlineLogisticRegression,
    QuantileRegressor,
    Ridge,
    SparseLogisticRegression,
)
from privopt.ledger import Ledger
from privopt.planner import plan, prefix_sums, quantile, solve
from privopt.privacy import Budget, Certificate, Participation, PrivacyWarning, Refused
from privopt.problem import Problem

__version__ = version("privopt")

__all__ = [
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
    "Problem",
    "QuantileRegressor",
    "Refused",
    "Ridge",
    "SparseLogisticRegression",
    "__version__",
    "geometry",
    "losses",
    "plan",
    "prefix_sums",
    "quantile",
    "solve",
]
