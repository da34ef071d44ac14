"""Moments for least squares: the sum itself, and how far one record can move it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from privopt.noise import SilentSource
from privopt.numerics.trust_region import svec
from privopt.oracle import LeastSquaresMoments, Oracle, RowBounds
from privopt.oracle.sealed import KEY

BOUNDS = RowBounds(2.0, 0.5)


def moments(X, y, label_bound=1.5, neighbouring="zero_out"):
    oracle = Oracle.over(
        np.asarray(X, dtype=float),
        np.asarray(y, dtype=float),
        neighbouring=neighbouring,
        bounds=BOUNDS,
        source=SilentSource(),
        classification=False,
    )
    return oracle.everything().ask(LeastSquaresMoments(BOUNDS, label_bound))


def test_the_sum_of_clipped_records():
    rng = np.random.default_rng(0)
    X, y = 3 * rng.standard_normal((20, 3)), 2 * rng.standard_normal(20)
    rows = X * np.minimum(1, 2.0 / np.linalg.norm(X, axis=1, keepdims=True))
    rows = np.column_stack([rows, np.full(20, 0.5)])
    labels, size = np.clip(y, -1.5, 1.5), BOUNDS.size
    expected = np.concatenate([svec(rows.T @ rows) / size**2, labels @ rows / (1.5 * size)])
    np.testing.assert_allclose(moments(X, y).open(KEY), expected, rtol=1e-12)


def test_an_empty_record_contributes_nothing():
    X, y = np.array([[1.0, 2.0], [np.nan, 0.0], [1.0, 1.0]]), np.array([1.0, 1.0, np.inf])
    np.testing.assert_array_equal(moments(X, y).open(KEY), moments(X[:1], y[:1]).open(KEY))


def contribution(v, label_bound):
    """(svec(x x') / L^2, y x / (Y L)) of a row and a label given without clip."""
    x, y = v[:-1], np.clip(v[-1], -label_bound, label_bound)
    x = x * min(1.0, 1 / max(np.linalg.norm(x), 1e-300))
    return np.concatenate([svec(np.outer(x, x)), y / label_bound * x])


def test_the_declared_movements_are_attained_and_not_exceeded():
    """Largest contribution and largest difference of two, by search in three dimensions."""
    rng = np.random.default_rng(1)
    query = LeastSquaresMoments(BOUNDS, 1.5)
    far, apart = 0.0, 0.0
    for _ in range(10):
        one = minimize(lambda v: -np.linalg.norm(contribution(v, 1.5)), rng.standard_normal(4))
        far = max(far, -one.fun)
        two = minimize(
            lambda v: -np.linalg.norm(contribution(v[:4], 1.5) - contribution(v[4:], 1.5)),
            2 * rng.standard_normal(8),
            method="Nelder-Mead",
            options={"maxiter": 4000, "xatol": 1e-9, "fatol": 1e-12},
        )
        apart = max(apart, -two.fun)
    assert far == pytest.approx(query.radius(), rel=1e-6)
    assert apart == pytest.approx(query.diameter(), rel=1e-6)
    assert query.diameter() == pytest.approx(1.5 * query.radius(), rel=1e-15)
    assert query.radius() == math.sqrt(2)


def test_the_sensitivity_follows_the_relation():
    X, y = np.ones((3, 2)), np.ones(3)
    assert moments(X, y).sensitivity.radius == math.sqrt(2)
    replaced = moments(X, y, neighbouring="replace_one").sensitivity
    assert (replaced.radius, replaced.single) == (1.5 * math.sqrt(2), math.sqrt(2))


@pytest.mark.parametrize("label_bound", [0.0, math.inf, -1.0])
def test_bounds_are_needed(label_bound):
    with pytest.raises(ValueError, match="finite bounds"):
        LeastSquaresMoments(BOUNDS, label_bound)
