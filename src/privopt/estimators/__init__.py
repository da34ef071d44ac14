"""Estimators with the interface of scikit-learn."""

from privopt.estimators.logistic_regression import LogisticRegression
from privopt.estimators.sparse_linear import Lasso, SparseLogisticRegression

__all__ = ["Lasso", "LogisticRegression", "SparseLogisticRegression"]
