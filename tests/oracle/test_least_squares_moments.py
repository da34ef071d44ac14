"""Moments for least squares: the sum itself, and how far one record can move it."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

import privopt.oracle.moments as room
from privopt.noise import SilentSource
from privopt.numerics.trust_region import svec
from privopt.oracle import LeastSquaresMoments, Oracle, RowBounds
from privopt.oracle.moments import FINE, onto
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


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("resolution", [2.0**20, 2.0**33])
def test_integers_are_the_sum_of_records_but_for_a_step(kind, resolution):
    """Within the shortening of each record, in any order, whatever the layout."""
    rng = np.random.default_rng(2)
    X, y = 3 * rng.standard_normal((300, 4)), 2 * rng.standard_normal(300)
    X[7], y[8] = np.nan, np.nan

    def counts(X, y):
        made = kind(np.nan_to_num(X)) if kind is sp.csr_array else kind(X)
        oracle = Oracle.over(
            made,
            np.where(np.isnan(X).any(axis=1), np.nan, y),
            neighbouring="zero_out",
            bounds=BOUNDS,
            source=SilentSource(),
            classification=False,
        )
        sealed = oracle.everything().ask(LeastSquaresMoments(BOUNDS, 1.5), resolution=resolution)
        return sealed.open(KEY), sealed.sensitivity.grid

    found, grid = counts(X, y)
    shortened = 2 * math.sqrt(found.size) * grid.step + 8 / FINE  # of each record, relatively
    np.testing.assert_allclose(
        found * grid.step, moments(X, y).open(KEY), atol=grid.step + 300 * shortened
    )
    order = rng.permutation(300)
    assert np.array_equal(counts(X[order], y[order])[0], found)
    assert np.array_equal(counts(np.asfortranarray(X), y)[0], found)
    parts = [counts(X[i : i + 1], y[i : i + 1])[0] for i in range(300)]
    assert np.abs(np.sum(parts, axis=0) - found).max() <= 301


def test_sums_come_onto_the_grid_within_one_step_of_what_they_are():
    """In floating point and, where that has no room, exactly; and by as much for a neighbour."""
    for size, factor in ((2**40, 2.0**-9 / 3), (2**60, 2.0**-3 / 3), (2**62, 0.1)):
        sums = np.array([size, size + 1, size + 1000, -size, 0, 1])
        found = onto(sums, np.full(6, factor))
        for one, other in zip(found.tolist(), sums.tolist(), strict=True):
            assert abs(one - other * Fraction(factor)) <= 1
        whole = onto(sums.astype(object), np.full(6, factor))
        assert np.array_equal(found, whole)


def test_blocks_add_up_whatever_their_number(monkeypatch):
    """So many that an integer of 64 bits would wrap are added up as Python's."""
    X, y = np.ones((40, 2)), np.ones(40)
    oracle = Oracle.over(
        X, y, neighbouring="zero_out", bounds=BOUNDS, source=SilentSource(), classification=False
    )

    def counts():
        query = LeastSquaresMoments(BOUNDS, 1.5)
        return oracle.everything().ask(query, resolution=2.0**20).open(KEY)

    plain = counts()
    monkeypatch.setattr(room, "HEIGHT", 3)
    assert np.array_equal(counts(), plain)
    monkeypatch.setattr(room, "MOST", 0.0)
    assert np.array_equal(counts(), plain)


@pytest.mark.slow
def test_integers_of_records_and_of_two_records_obey_their_bounds():
    """Unit rows at an angle of 60 degrees and opposite labels are the worst pair."""
    query, rng = LeastSquaresMoments(BOUNDS, 1.5), np.random.default_rng(3)

    def count(x, label, resolution=1024.0, relation="replace_one"):
        oracle = Oracle.over(
            np.atleast_2d(x),
            np.array([label]),
            neighbouring=relation,
            bounds=BOUNDS,
            source=SilentSource(),
            classification=False,
        )
        return oracle.everything().ask(query, resolution=resolution).open(KEY)

    worst = 0.0
    for _ in range(2000):
        one = rng.standard_normal(3)
        other = one + rng.uniform(0, 2) * rng.standard_normal(3)
        pair = count(9 * one, 9.0) - count(9 * other, -9.0)
        worst = max(worst, float(np.linalg.norm(pair)))
        assert np.linalg.norm(count(9 * one, 9.0, relation="zero_out")) <= 1024.0
    assert 0.85 * 1024 < worst <= 1024.0


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
