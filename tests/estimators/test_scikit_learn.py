"""The contract of scikit-learn: its own checks, and the places where estimators are passed on."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures

from privopt import LogisticRegression
from tests.covering import each_check


@each_check(
    LogisticRegression(),
    LogisticRegression(delta=1e-6, solver="objective_perturbation"),
    LogisticRegression(epsilon=5.0, random_state=3, fit_intercept=False),
    LogisticRegression(random_state=0, nan_policy="empty"),
)
def test_checks_of_scikit_learn(estimator, check):
    """No check is expected to fail."""
    check(estimator)


def test_in_a_pipeline(two):
    """Names of steps reach the parameters, and the model is the one of the transformed data."""
    X, y = two
    pipe = make_pipeline(FunctionTransformer(lambda X: X / 2), LogisticRegression(random_state=1))
    pipe.set_params(logisticregression__epsilon=3.0).fit(X, y)
    alone = LogisticRegression(epsilon=3.0, random_state=1).fit(X / 2, y)
    np.testing.assert_array_equal(pipe[-1].coef_, alone.coef_)
    np.testing.assert_array_equal(pipe.predict(X), alone.predict(X / 2))
    assert pipe[-1].privacy_.epsilon == pytest.approx(3.0, rel=1e-6)


def test_in_a_pipeline_that_makes_sparse_columns(two):
    X, y = two
    pipe = make_pipeline(PolynomialFeatures(), LogisticRegression(epsilon=5.0, random_state=0))
    assert pipe.fit(X, y).score(X, y) > 0.6
    assert pipe[-1].n_features_in_ == 10


@pytest.mark.filterwarnings("ignore:.* may fit this model several times")
def test_in_a_grid_search(two):
    """Every candidate is a clone with its own budget; the better budget scores better."""
    X, y = two
    search = GridSearchCV(
        LogisticRegression(random_state=0, classes=["no", "yes"]),
        {"epsilon": [0.001, 50.0], "fit_intercept": [False]},
        cv=3,
    ).fit(X, y)
    assert search.best_params_["epsilon"] == 50.0
    assert search.best_estimator_.privacy_.epsilon == pytest.approx(50.0, rel=0.02)
    assert search.best_score_ > 0.9


@pytest.mark.filterwarnings("ignore:.* may fit this model several times")
def test_cross_validation(two):
    X, y = two
    scores = cross_val_score(LogisticRegression(epsilon=10.0, random_state=0), X, y, cv=4)
    assert scores.min() > 0.8


def test_clone_keeps_parameters_and_forgets_the_fit(two):
    X, y = two
    model = LogisticRegression(0.7, 1e-7, data_norm=2.0, classes=["no", "yes"], random_state=5)
    model.fit(X, y)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not [name for name in vars(copy) if name.endswith("_")]
    np.testing.assert_array_equal(copy.fit(X, y).coef_, model.coef_)


@pytest.mark.parametrize("random_state", [None, 0])
def test_pickle_round_trip(two, random_state):
    """Model, plan and certificate travel; the secure source does not, and is not needed."""
    X, y = two
    model = LogisticRegression(random_state=random_state).fit(X, y)
    back = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(back.predict_proba(X), model.predict_proba(X))
    assert back.privacy_ == model.privacy_
    assert back.privacy_.verify()
    assert back.plan_.name == model.plan_.name
    assert back.plan_.settings == model.plan_.settings


def test_repr_shows_only_what_was_changed():
    assert repr(LogisticRegression(epsilon=2.0)) == "LogisticRegression(epsilon=2.0)"
