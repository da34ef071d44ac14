"""Each loss against its textbook formula."""

import mpmath
import numpy as np
import pytest

from privopt.losses import Absolute, Hinge, Huber, Logistic, Quantile, SmoothedHinge, Squared

Z = np.linspace(-5.0, 5.0, 101)


@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_logistic_against_high_precision(y):
    loss = Logistic()
    z = np.array([-745.0, -100.0, -30.0, -1.0, -1e-8, 0.0, 1e-8, 2.0, 36.0, 100.0, 700.0])
    with mpmath.workdps(400):
        exact = [mpmath.log1p(mpmath.exp(-y * mpmath.mpf(t))) for t in z]
        slope = [-y / (1 + mpmath.exp(y * mpmath.mpf(t))) for t in z]
    np.testing.assert_allclose(loss.value(z, y), np.array(exact, dtype=float), rtol=1e-14)
    np.testing.assert_allclose(loss.slope(z, y), np.array(slope, dtype=float), atol=2e-16)
    np.testing.assert_allclose(loss.value(np.array([-1e300 * y]), y), 1e300)
    np.testing.assert_array_equal(loss.value(np.array([1e300 * y]), y), 0.0)


@pytest.mark.parametrize("y", [-0.7, 0.0, 1.2])
def test_residual_losses(y):
    r = Z - y
    np.testing.assert_allclose(Squared().value(Z, y), r**2 / 2)
    np.testing.assert_allclose(Absolute().value(Z, y), np.abs(r))
    for w in (0.5, 2.0):
        huber = np.where(np.abs(r) <= w, r**2 / 2, w * np.abs(r) - w**2 / 2)
        np.testing.assert_allclose(Huber(w).value(Z, y), huber, atol=1e-14)
        np.testing.assert_allclose(Squared(residual_clip=w).value(Z, y), huber, atol=1e-14)
        np.testing.assert_array_equal(Squared(residual_clip=w).slope(Z, y), np.clip(r, -w, w))
    for q in (0.2, 0.5, 0.9):
        pinball = (1 - q) * np.maximum(r, 0) + q * np.maximum(-r, 0)
        np.testing.assert_allclose(Quantile(q).value(Z, y), pinball, atol=1e-15)


@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_hinges(y):
    m = y * Z
    np.testing.assert_array_equal(Hinge().value(Z, y), np.maximum(0, 1 - m))
    for w in (0.1, 0.5, 2.0):
        middle = (1 + w - m) ** 2 / (4 * w)
        expected = np.where(m >= 1 + w, 0.0, np.where(m > 1 - w, middle, 1 - m))
        np.testing.assert_allclose(SmoothedHinge(w).value(Z, y), expected, atol=1e-14)


def test_a_constant_fit_of_the_quantile_loss_is_the_quantile():
    sample = np.sort(np.random.default_rng(0).normal(size=101))
    risks = [Quantile(0.8).value(np.full(101, t), sample).sum() for t in sample]
    assert sample[int(np.argmin(risks))] == np.quantile(sample, 0.8)
