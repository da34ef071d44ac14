"""Estimators with the interface of scikit-learn."""

from privopt.estimators.bounded_scaler import BoundedScaler
from privopt.estimators.chooser import auto
from privopt.estimators.elastic_net import ElasticNet
from privopt.estimators.gamma_regressor import GammaRegressor
from privopt.estimators.huber_regressor import HuberRegressor
from privopt.estimators.intervals_by_parts import IntervalsByParts
from privopt.estimators.linear_regression import LinearRegression
from privopt.estimators.linear_svc import LinearSVC
from privopt.estimators.logistic_regression import LogisticRegression
from privopt.estimators.online_linear_regression import OnlineLinearRegression
from privopt.estimators.online_logistic_regression import OnlineLogisticRegression
from privopt.estimators.persistence import load, save
from privopt.estimators.pipelines import check_pipeline
from privopt.estimators.poisson_regressor import PoissonRegressor
from privopt.estimators.private_erm import PrivateERM
from privopt.estimators.private_search_cv import PrivateSearchCV
from privopt.estimators.quantile_regressor import QuantileRegressor
from privopt.estimators.refit_stream import RefitStream
from privopt.estimators.ridge import Ridge
from privopt.estimators.sparse_linear import Lasso
from privopt.estimators.sparse_logistic_regression import SparseLogisticRegression
from privopt.estimators.spline_features import SplineFeatures

__all__ = [
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
]
