"""The trust-region solve against its optimality conditions, and the isometry svec."""

from __future__ import annotations

import math

import numpy as np
import pytest

from privopt.numerics.trust_region import minimise_quadratic, svec, unsvec


def convex_part(matrix, ridge):
    values, basis = np.linalg.eigh(matrix)
    return basis @ np.diag(np.maximum(values, 0.0) + ridge) @ basis.T


@pytest.mark.parametrize("seed", range(40))
def test_optimality_conditions(seed):
    """A theta + nu theta = u with nu >= 0, and nu > 0 only on the sphere."""
    rng = np.random.default_rng(seed)
    p = int(rng.integers(1, 9))
    raw = rng.standard_normal((p, p)) * 10 ** rng.uniform(-2, 2)
    matrix, linear = (raw + raw.T) / 2, rng.standard_normal(p) * 10 ** rng.uniform(-3, 3)
    ridge, radius = 10 ** rng.uniform(-2, 1), float(rng.choice([1e-3, 0.5, 10.0, math.inf]))
    theta = minimise_quadratic(matrix, linear, ridge, radius)
    A = convex_part(matrix, ridge)
    pull = linear - A @ theta
    free = np.linalg.solve(A, linear)
    if np.linalg.norm(free) <= radius:
        np.testing.assert_allclose(theta, free, rtol=1e-9, atol=1e-12)
        return
    assert np.linalg.norm(theta) == pytest.approx(radius, rel=1e-10)
    nu = pull @ theta / (theta @ theta)
    assert nu > 0
    assert np.linalg.norm(pull - nu * theta) <= 1e-8 * np.linalg.norm(linear)


def test_it_is_not_the_projection():
    """On a stretched quadratic the constrained minimiser lies elsewhere on the sphere."""
    matrix, linear = np.diag([100.0, 1.0]), np.array([100.0, 5.0])
    free = linear / np.array([101.0, 2.0])
    theta = minimise_quadratic(matrix, linear, 1.0, 1.0)
    projected = free / np.linalg.norm(free)
    value = [float(t @ (matrix + np.eye(2)) @ t / 2 - linear @ t) for t in (theta, projected)]
    assert value[0] < value[1] - 0.5


def test_negative_eigenvalues_count_as_zero():
    theta = minimise_quadratic(np.diag([-5.0, 2.0]), np.array([1.0, 1.0]), 0.5)
    np.testing.assert_allclose(theta, [2.0, 0.4])


def test_a_missing_ridge_is_refused():
    with pytest.raises(ValueError, match="ridge must be positive"):
        minimise_quadratic(np.eye(2), np.ones(2), 0.0)


def test_svec_is_an_isometry():
    rng = np.random.default_rng(0)
    x, raw = rng.standard_normal(5), rng.standard_normal((5, 5))
    matrix = raw + raw.T
    np.testing.assert_allclose(unsvec(svec(matrix)), matrix, rtol=1e-14)
    assert np.linalg.norm(svec(matrix)) == pytest.approx(np.linalg.norm(matrix), rel=1e-14)
    assert np.linalg.norm(svec(np.outer(x, x))) == pytest.approx(x @ x, rel=1e-14)
