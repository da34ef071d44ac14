"""What all estimators share: containers, names, routed metadata, plain twins in scikit-learn."""

from __future__ import annotations

import inspect

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline

import privopt
from tests.estimators.every import CASES, X, fitted, made

NAMES = ["height", "age", "dose"]
CONTAINERS = {
    "pandas": lambda X: pd.DataFrame(X, columns=NAMES),
    "polars": lambda X: pl.DataFrame(X, schema=NAMES),
    "pyarrow": lambda X: pa.table({name: X[:, j] for j, name in enumerate(NAMES)}),
    "sparse": sp.csr_array,
}
ROWS = X[:40]
"""Within every bound: rows of the unit ball, entries below one half."""


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("name", CASES)
def test_containers_give_the_model_of_an_array(name, container):
    """Names are kept and checked; a sparse matrix gives the dense model up to rounding."""
    Z = CONTAINERS[container](X)
    model, y = made(name)
    model.fit(Z, y)
    # With bounds that do not contain 0 a sparse matrix would be refused; all of these do.
    expected = fitted(name)
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-6, atol=1e-12)
    found, known = model.predict(Z), expected.predict(X)
    if is_classifier(model):
        np.testing.assert_array_equal(found, known)
    else:
        np.testing.assert_allclose(found, known, rtol=1e-6, atol=1e-12)
    if container == "sparse":
        assert not hasattr(model, "feature_names_in_")
    else:
        assert model.feature_names_in_.tolist() == NAMES
        with pytest.raises(ValueError, match="feature names should match"):
            model.predict(pd.DataFrame(X, columns=NAMES[::-1]))


def test_every_public_estimator_is_a_case():
    """All but those that wrap another one."""
    named = {name: getattr(privopt, name) for name in privopt.__all__}
    public = {
        name
        for name, kind in named.items()
        if hasattr(kind, "predict") and "estimator" not in inspect.signature(kind).parameters
    }
    assert public == {case[1].__name__ for case in CASES.values()}


# ------------------------------------------------------------ plain twins
@pytest.mark.parametrize("name", CASES)
def test_the_plain_twin_predicts_alike(name):
    model = fitted(name)
    plain = model.to_sklearn()
    assert type(plain).__module__.startswith("sklearn.")
    assert is_classifier(plain) == is_classifier(model)
    assert is_regressor(plain) == is_regressor(model)
    last = plain[-1] if isinstance(plain, Pipeline) else plain  # after the bins of shaped columns
    width = model.coef_.shape[-1]
    np.testing.assert_array_equal(last.coef_[..., :width], model.coef_)
    if is_classifier(model):
        np.testing.assert_array_equal(plain.predict(ROWS), model.predict(ROWS))
        np.testing.assert_array_equal(plain.classes_, model.classes_)
    else:
        bounds = getattr(model, "target_bounds", (-np.inf, np.inf))
        clipped = np.clip(plain.predict(ROWS), *bounds)
        np.testing.assert_allclose(clipped, model.predict(ROWS), rtol=1e-9, atol=1e-12)
    kept = model.coef_.copy()
    last.coef_[:] = 0.0  # a copy: the private model keeps its own
    np.testing.assert_array_equal(model.coef_, kept)


def test_a_plain_twin_keeps_names_and_needs_a_fit():
    model, y = made("LinearRegression")
    with pytest.raises(NotFittedError):
        model.to_sklearn()
    frame = pd.DataFrame(X, columns=NAMES)
    plain = model.fit(frame, y).to_sklearn()
    assert plain.feature_names_in_.tolist() == NAMES
    with pytest.raises(ValueError, match="feature names should match"):
        plain.predict(frame[NAMES[::-1]])


def test_a_plain_twin_has_the_probabilities_of_an_uncapped_fit():
    model = fitted("LogisticRegression")
    found = model.to_sklearn().predict_proba(ROWS)
    np.testing.assert_allclose(found, model.predict_proba(ROWS), rtol=1e-9)


@pytest.mark.slow
def test_twins_take_over_what_means_the_same():
    ridge, y = made("Ridge", alpha=7.0, fit_intercept=False)
    plain = ridge.fit(X, y).to_sklearn()
    assert (plain.alpha, plain.fit_intercept) == (7.0, False)
    quantile, y = made("QuantileRegressor", quantile=0.8)
    assert quantile.fit(X, y).to_sklearn().quantile == 0.8


@pytest.mark.parametrize("name", CASES)
def test_every_estimator_can_be_cloned_and_routed(name):
    """Metadata routing is on in many pipelines: estimators answer what they take."""
    model, _ = made(name)
    with sklearn.config_context(enable_metadata_routing=True):
        router = clone(model).get_metadata_routing()
        assert ("sample_weight" in router.fit.requests) == ("max_weight" in model.get_params())
