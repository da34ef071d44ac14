"""Public preprocessing: the scaler by declared bounds, and what is said of steps that learn."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import cross_validate
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    StandardScaler,
)
from sklearn.random_projection import GaussianRandomProjection
from sklearn.utils.estimator_checks import parametrize_with_checks

from privopt import BoundedScaler, LogisticRegression, PrivacyWarning, check_pipeline
from tests.estimators.every import CASES, TWO, X, made

NAMES = ["height", "age", "dose"]
BOUNDS = {"height": (-1, 1), "age": (0, 4), "dose": (2, 6)}


@parametrize_with_checks([BoundedScaler(), BoundedScaler((-5.0, 2.0))])
def test_checks_of_scikit_learn(estimator, check):
    """No check is expected to fail."""
    check(estimator)


# ------------------------------------------------------------ the scaler
def test_the_scaler_by_hand():
    frame = pd.DataFrame([[0.5, 2.0, 3.0], [-9.0, 8.0, np.nan]], columns=NAMES)
    scaler = BoundedScaler(BOUNDS).fit(frame)
    found = scaler.transform(frame)
    np.testing.assert_array_equal(found, [[0.5, 0.5, -0.5], [-1.0, 1.0, np.nan]])
    assert scaler.get_feature_names_out().tolist() == NAMES
    back = scaler.inverse_transform(found)
    np.testing.assert_array_equal(back, [[0.5, 2.0, 3.0], [-1.0, 4.0, np.nan]])


def test_frames_in_frames_out():
    frame = pd.DataFrame(X, columns=NAMES)
    found = BoundedScaler(BOUNDS).set_output(transform="pandas").fit_transform(frame)
    assert found.columns.tolist() == NAMES
    np.testing.assert_array_equal(
        found.to_numpy(), BoundedScaler(BOUNDS).fit(frame).transform(frame)
    )


def test_sparse_stays_sparse():
    scaler = BoundedScaler(([-2, 0, 0], [1, 1, 4]))
    Z = sp.random_array((50, 3), density=0.3, rng=np.random.default_rng(0), format="csr")
    found = scaler.fit_transform(Z)
    assert sp.issparse(found)
    np.testing.assert_allclose(found.toarray(), scaler.fit_transform(Z.toarray()))
    np.testing.assert_allclose(scaler.inverse_transform(found).toarray(), Z.toarray())
    with pytest.raises(ValueError, match="must contain 0"):
        BoundedScaler((1, 2)).fit_transform(Z)


def test_the_scaler_learns_nothing():
    one, other = BoundedScaler((0, 2)).fit(X), BoundedScaler((0, 2)).fit(100 * X)
    np.testing.assert_array_equal(one.transform(X), other.transform(X))
    assert vars(one) == vars(other)


@pytest.mark.parametrize("bounds", [(1, 0), (0, np.inf), 3.0, ([0, 0], [1, 1])])
def test_bad_bounds_get_one_sentence(bounds):
    with pytest.raises(ValueError, match="bounds must be"):
        BoundedScaler(bounds).fit(X)


# ------------------------------------------------------------ steps that learn
class Mine(TransformerMixin, BaseEstimator):
    """Somebody's own transformer: nobody knows what it learns."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X


QUIET = [
    BoundedScaler(),
    FunctionTransformer(np.tanh),
    Normalizer(),
    PolynomialFeatures(),
    GaussianRandomProjection(2, random_state=0),
    "passthrough",
    FeatureUnion([("a", BoundedScaler()), ("b", Normalizer())]),
    ColumnTransformer([("a", "passthrough", [0]), ("b", BoundedScaler(), [1])], remainder="drop"),
    Pipeline([("a", Normalizer()), ("b", BoundedScaler())]),
    OneHotEncoder(categories=[[0, 1]] * 3, handle_unknown="ignore"),
]
LOUD = {
    "StandardScaler": StandardScaler(),
    "KBinsDiscretizer": KBinsDiscretizer(3, quantile_method="averaged_inverted_cdf"),
    "Mine": Mine(),
    "OneHotEncoder": OneHotEncoder(handle_unknown="ignore"),
    "StandardScaler in a union": FeatureUnion([("a", Normalizer()), ("b", StandardScaler())]),
    "StandardScaler in columns": ColumnTransformer([("a", StandardScaler(), [0])]),
    "StandardScaler inside": Pipeline([("a", StandardScaler()), ("b", Normalizer())]),
}


@pytest.mark.parametrize("step", QUIET, ids=lambda step: type(step).__name__)
def test_steps_that_learn_nothing_are_not_warned_of(step):
    pipe = make_pipeline(step, LogisticRegression(random_state=0, classes=["no", "yes"]))
    assert check_pipeline(pipe) == []
    pipe.fit(X, TWO)  # a warning would be an error here
    assert pipe[-1].privacy_.assumptions == ()


@pytest.mark.parametrize("name", LOUD)
def test_steps_that_learn_are_named_in_a_warning_and_in_the_certificate(name):
    pipe = make_pipeline(LOUD[name], LogisticRegression(random_state=0, classes=["no", "yes"]))
    guilty = name.partition(" ")[0]
    assert check_pipeline(pipe) == [guilty]
    with pytest.warns(PrivacyWarning, match=f"^{guilty} before this model learns from the data"):
        pipe.fit(X, TWO)
    (assumed,) = pipe[-1].privacy_.assumptions
    assert assumed == f"what {guilty} learned from the data, without noise, is taken to be public"


@pytest.mark.parametrize("name", CASES)
def test_every_estimator_warns(name):
    model, y = made(name)
    pipe = make_pipeline(StandardScaler(), model)
    with pytest.warns(PrivacyWarning, match="StandardScaler before this model"):
        pipe.fit(X, y)
    assert any("StandardScaler" in text for text in pipe[-1].privacy_.assumptions)


def test_nested_and_searched_pipelines_are_seen():
    model = LogisticRegression(random_state=0, classes=["no", "yes"])
    nested = make_pipeline(StandardScaler(), make_pipeline(Normalizer(), model))
    assert check_pipeline(nested) == ["StandardScaler"]
    with pytest.warns(PrivacyWarning, match="^StandardScaler before"):
        nested.fit(X, TWO)
    with (
        pytest.warns(PrivacyWarning, match="^StandardScaler before"),
        pytest.warns(PrivacyWarning, match="^cross_validate may fit"),
    ):
        cross_validate(make_pipeline(StandardScaler(), model), X, TWO, cv=2)


def test_a_fit_outside_a_pipeline_says_nothing():
    scaled = StandardScaler().fit_transform(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LogisticRegression(random_state=0, classes=["no", "yes"]).fit(scaled, TWO)
    with pytest.raises(TypeError, match="check_pipeline takes a Pipeline"):
        check_pipeline(StandardScaler())
