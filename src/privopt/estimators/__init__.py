"""Estimators with the interface of scikit-learn."""

from privopt.estimators.logistic_regression import LogisticRegression

__all__ = ["LogisticRegression"]
