"""The certificate of Wolfe's algorithm."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from privopt.numerics.nearest_point import nearest_weights


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    m=st.integers(1, 25),
    p=st.integers(1, 8),
    distance=st.sampled_from([0.0, 0.3, 3.0, 1e3, 1e8]),
    grid=st.booleans(),
)
def test_weights_are_convex_and_the_gap_is_at_rounding_level(seed, m, p, distance, grid):
    rng = np.random.default_rng(seed)
    # Points on a small grid repeat and are affinely dependent in many ways.
    points = rng.integers(-1, 2, size=(m, p)) / 2.0 if grid else rng.normal(size=(m, p)) / 3.0
    x = distance * rng.normal(size=p)
    weights, gap = nearest_weights(points, x)
    assert weights.min() >= 0.0
    assert weights.sum() == pytest.approx(1.0, abs=1e-14)
    q = weights @ points
    assert gap == pytest.approx(
        max(0.0, ((points - q) @ (x - q)).max()), abs=1e-12 * (1 + distance)
    )
    assert gap <= 1e-13 * (1.0 + distance)


def test_nearest_point_agrees_with_nonnegative_least_squares():
    rng = np.random.default_rng(3)
    for _ in range(20):
        points, x = rng.normal(size=(15, 6)) / 3.0, rng.normal(size=6)
        weights, _ = nearest_weights(points, x)
        # A heavy extra row holds the sum of the weights at 1.
        heavy = 1e5
        system = np.vstack([points.T, np.full(15, heavy)])
        reference, _ = nnls(system, np.append(x, heavy))
        np.testing.assert_allclose(weights @ points, reference @ points, atol=1e-7)


def test_interior_point_is_its_own_projection():
    rng = np.random.default_rng(4)
    points = rng.normal(size=(200, 5))
    for x in rng.dirichlet(np.ones(200), size=20) @ points:
        weights, _ = nearest_weights(points, x)
        np.testing.assert_allclose(weights @ points, x, atol=1e-14)
        assert np.count_nonzero(weights) <= 6


def test_thin_hull_loses_no_digits():
    rng = np.random.default_rng(5)
    for _ in range(100):
        points = rng.normal(size=(30, 3)) * [1.0, 0.1, 1e-6] / 3.0
        x = rng.dirichlet(np.full(30, 0.2)) @ points
        weights, _ = nearest_weights(points, x)
        np.testing.assert_allclose(weights @ points, x, atol=1e-14)
