"""Frames, tables, sparse matrices and plain lists give the model that NumPy arrays give."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

from privopt import LogisticRegression

NAMES = ["height", "age", "dose"]

WITH_NAMES = {
    "pandas": lambda X: pd.DataFrame(X, columns=NAMES),
    "polars": lambda X: pl.DataFrame(X, schema=NAMES),
    "pyarrow": lambda X: pa.table({name: X[:, j] for j, name in enumerate(NAMES)}),
}
WITHOUT_NAMES = {
    "csr array": sp.csr_array,
    "csr matrix": sp.csr_matrix,
    "csc": sp.csc_array,
    "lists": lambda X: X.tolist(),
    "fortran order": np.asfortranarray,
}
LABELS = {
    "list": lambda y: y.tolist(),
    "pandas series": pd.Series,
    "polars series": pl.Series,
    "pyarrow array": pa.array,
    "pyarrow chunks": lambda y: pa.chunked_array([y[:100].tolist(), y[100:].tolist()]),
    "object array": lambda y: y.astype(object),
}


def model(**parameters):
    return LogisticRegression(epsilon=2.0, random_state=4, **parameters)


@pytest.mark.parametrize("kind", [*WITH_NAMES, *WITHOUT_NAMES])
def test_features_in_every_container(two, kind):
    X, y = two
    expected = model().fit(X, y)
    Z = {**WITH_NAMES, **WITHOUT_NAMES}[kind](X)
    found = model().fit(Z, y)
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-9)
    np.testing.assert_allclose(found.intercept_, expected.intercept_, rtol=1e-9)
    np.testing.assert_array_equal(found.predict(Z), expected.predict(X))
    np.testing.assert_allclose(found.predict_proba(Z), expected.predict_proba(X), rtol=1e-9)
    assert found.n_features_in_ == 3


@pytest.mark.parametrize("kind", LABELS)
def test_labels_in_every_container(two, kind):
    X, y = two
    found = model().fit(X, LABELS[kind](y))
    assert found.classes_.tolist() == ["no", "yes"]
    np.testing.assert_array_equal(found.coef_, model().fit(X, y).coef_)


@pytest.mark.parametrize("kind", WITH_NAMES)
def test_column_names_are_kept_and_checked(two, kind):
    X, y = two
    Z = WITH_NAMES[kind](X)
    fitted = model().fit(Z, y)
    assert fitted.feature_names_in_.tolist() == NAMES
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(pd.DataFrame(X, columns=NAMES[::-1]))


def test_arrays_have_no_names(two):
    X, y = two
    assert not hasattr(model().fit(X, y), "feature_names_in_")


def test_lazy_frame_gets_one_sentence(two):
    X, y = two
    lazy = pl.DataFrame(X, schema=NAMES).lazy()
    sentence = r"^X is a polars LazyFrame: call \.collect\(\) on it first\.$"
    fresh = model()
    with pytest.raises(TypeError, match=sentence):
        fresh.fit(lazy, y)
    with pytest.raises(TypeError, match=sentence):
        model().fit(X, y).predict(lazy)
    with pytest.raises(TypeError, match=r"^y is a polars LazyFrame"):
        fresh.fit(X, pl.DataFrame({"y": y}).lazy())
    assert not hasattr(fresh, "coef_")


def test_record_batch(two):
    """A pyarrow RecordBatch is a table too."""
    X, y = two
    batch = pa.RecordBatch.from_arrays([pa.array(column) for column in X.T], names=NAMES)
    np.testing.assert_allclose(model().fit(batch, y).coef_, model().fit(X, y).coef_, rtol=1e-9)


@pytest.mark.parametrize("kind", ["numpy", "csr"])
def test_single_precision(two, kind):
    """Half the memory, the same model to single precision."""
    X, y = two
    Z = X.astype(np.float32)
    found = model().fit(sp.csr_array(Z) if kind == "csr" else Z, y)
    np.testing.assert_allclose(found.coef_, model().fit(X, y).coef_, rtol=1e-5)


def test_integers_and_booleans_are_numbers(two):
    X, y = two
    Z = (X > 0).astype(int)
    np.testing.assert_array_equal(model().fit(Z, y).coef_, model().fit(Z.astype(float), y).coef_)
    np.testing.assert_array_equal(model().fit(X > 0, y).coef_, model().fit(Z, y).coef_)


def test_the_data_is_not_changed(two):
    X, y = two
    X, before = 3 * X, 3 * X
    model(nan_policy="empty").fit(X, y).predict(X)
    np.testing.assert_array_equal(X, before)
    broken = X.copy()
    broken[5, 1] = np.nan
    model(nan_policy="empty").fit(broken, y)
    assert np.isnan(broken[5, 1])
