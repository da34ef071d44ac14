"""Each loss against its textbook formula."""

import math

import mpmath
import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit

from privopt.losses import (
    Absolute,
    CappedExponential,
    CappedLogistic,
    Hinge,
    Huber,
    Logistic,
    Quantile,
    Smoothed,
    SmoothedHinge,
    SmoothedQuantile,
    Squared,
)

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


# ------------------------------------------------------------ the capped slope
@pytest.mark.parametrize("p", [1e-6, 0.02, 0.3, 0.5, 0.77, 0.9999])
def test_the_capped_exponential_is_least_at_the_log_odds(p):
    """And its slopes are u(z) sigmoid, with the largest u that a cap of one half allows."""
    loss, odds = CappedExponential(), np.array([math.log(p / (1 - p))])
    one = np.ones(1)
    balance = p * loss.slope(odds, one) + (1 - p) * loss.slope(odds, -one)
    assert abs(balance[0]) < 1e-16
    expected = p * loss.curvature(odds, one) + (1 - p) * loss.curvature(odds, -one)
    assert expected[0] == pytest.approx(min(p, 1 - p) / 2, rel=1e-9) or p == 0.5
    u = loss.slope(odds, -one) / expit(odds)
    assert u[0] == pytest.approx(1 / (2 * expit(abs(odds[0]))), rel=1e-12)


CAPS = (0.1, 0.3, 0.5, 0.7, 0.95, 1.0)
every_cap = pytest.mark.parametrize("cap", CAPS)


@every_cap
@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_capped_logistic_against_high_precision(cap, y):
    """Slope -y min(sigmoid(-m), cap); value its integral from infinity, where it vanishes."""
    loss = CappedLogistic(cap)
    z = np.array([-700.0, -30.0, -2.5, -1.0, -1e-8, 0.0, 1e-8, 0.4, 2.0, 36.0, 700.0])
    with mpmath.workdps(60):
        bend = mpmath.log(1 / mpmath.mpf(cap) - 1) if cap < 1 else -mpmath.inf
        slope, value = [], []
        for m in (mpmath.mpf(y * t) for t in z):
            slope.append(-y * min(1 / (1 + mpmath.exp(m)), mpmath.mpf(cap)))
            curved = max(m, bend)
            value.append(mpmath.log1p(mpmath.exp(-curved)) + cap * (curved - m))
    np.testing.assert_allclose(loss.slope(z, y), np.array(slope, dtype=float), atol=2e-16)
    np.testing.assert_allclose(loss.value(z, y), np.array(value, dtype=float), rtol=3e-14)


def test_a_cap_of_one_is_the_logistic_loss():
    z = np.array([-1e300, -700.0, *Z, 700.0, 1e300])
    for y in (-1.0, 1.0):
        for name in ("value", "slope", "curvature"):
            capped = getattr(CappedLogistic(1.0), name)(z, y)
            np.testing.assert_allclose(
                capped, getattr(Logistic(), name)(z, y), rtol=1e-14, atol=1e-16
            )
    assert CappedLogistic(1.0).lipschitz == Logistic().lipschitz
    assert CappedLogistic(1.0).smoothness == Logistic().smoothness
    np.testing.assert_allclose(CappedLogistic(1.0).probability(Z), expit(Z), rtol=1e-14)


def test_a_cap_of_one_half_keeps_the_gradient_at_zero():
    zero = np.zeros(1)
    for y in (-1.0, 1.0):
        assert CappedLogistic(0.5).slope(zero, y) == Logistic().slope(zero, y) == -y / 2
    assert CappedLogistic(0.5).lipschitz == Logistic().lipschitz / 2


@every_cap
def test_probability_is_the_inverse_link(cap):
    """For z >= 0: c / (c + sigmoid(-z)) with c = min(sigmoid(z), cap); mirrored below."""
    loss, z = CappedLogistic(cap), np.linspace(0.0, 30.0, 200)
    if cap >= 0.5:
        c = np.minimum(expit(z), cap)
        np.testing.assert_allclose(loss.probability(z), c / (c + expit(-z)), rtol=1e-13)
    np.testing.assert_allclose(loss.probability(z) + loss.probability(-z), 1.0, rtol=1e-14)
    assert (np.diff(loss.probability(np.linspace(-30, 30, 500))) >= 0).all()
    assert loss.probability(np.zeros(1)) == 0.5


@every_cap
def test_probability_and_margin_are_inverse_to_each_other(cap):
    loss = CappedLogistic(cap)
    for share in (0.01, 0.05, 0.2, 0.4, 0.49, 0.51, 0.6, 0.85, 0.99):
        score = loss.margin(share)
        assert loss.probability(np.array([score]))[0] == pytest.approx(share, rel=1e-12)
        assert loss.margin(1 - share) == pytest.approx(-score, rel=1e-9, abs=1e-12)
    # Below the bend of a cap under one half every score in a band has probability one half.
    band = max(loss.bend, 0.0)
    for score in (-12.0, -3.0, -0.9, -0.1, 0.1, 0.9, 3.0, 12.0):
        share = float(loss.probability(np.array([score]))[0])
        if abs(score) > band:
            assert loss.margin(share) == pytest.approx(score, rel=1e-9)
        else:
            assert share == 0.5
    assert abs(loss.margin(0.5)) <= band + 1e-12


@every_cap
@pytest.mark.parametrize("share", [0.03, 0.3, 0.45, 0.55, 0.8, 0.98])
def test_the_margin_of_a_share_minimises_the_expected_loss(cap, share):
    loss = CappedLogistic(cap)

    def expected(score):
        z = np.array([score])
        return float(share * loss.value(z, 1.0)[0] + (1 - share) * loss.value(z, -1.0)[0])

    best = minimize_scalar(expected, bounds=(-15, 15), method="bounded", options={"xatol": 1e-10})
    score = loss.margin(share)
    assert expected(score) <= best.fun + 1e-12
    assert score == pytest.approx(best.x, abs=1e-4)
    # and back: the probability that a score states is the one for which it is the best.
    assert loss.probability(np.array([best.x]))[0] == pytest.approx(share, abs=1e-4)
    assert np.sign(score) == np.sign(share - 0.5)  # the class with the larger share wins


def test_a_constant_fit_of_the_quantile_loss_is_the_quantile():
    sample = np.sort(np.random.default_rng(0).normal(size=101))
    risks = [Quantile(0.8).value(np.full(101, t), sample).sum() for t in sample]
    assert sample[int(np.argmin(risks))] == np.quantile(sample, 0.8)


def test_smoothed_lines_are_the_smoothed_losses_that_have_a_name():
    for w in (0.05, 0.7):
        for y in (-1.0, 1.0):
            for one, other in (
                (Smoothed(Hinge(), w), SmoothedHinge(w)),
                (Smoothed(Quantile(0.3), w), SmoothedQuantile(0.3, w)),
            ):
                np.testing.assert_allclose(one.value(Z, y), other.value(Z, y), atol=1e-14)
                np.testing.assert_allclose(one.slope(Z, y), other.slope(Z, y), atol=1e-14)
                assert one.smoothness == pytest.approx(other.smoothness)


@pytest.mark.parametrize("loss", [Absolute(), Quantile(0.2), Hinge()], ids=repr)
def test_smoothing_adds_at_most_its_excess(loss):
    smooth = Smoothed(loss, 0.6)
    for y in (-1.0, 1.0):
        added = smooth.value(Z, y) - loss.value(Z, y)
        assert added.min() >= -1e-12
        kink = np.array([y])
        most = smooth.value(kink, kink) - loss.value(kink, kink)
        assert added.max() <= most[0] + 1e-12
        assert most[0] == pytest.approx(smooth.excess)


def test_only_two_lines_can_be_smoothed():
    with pytest.raises(ValueError, match="two lines"):
        Smoothed(Logistic(), 0.1)
    with pytest.raises(ValueError, match="positive finite width"):
        Smoothed(Hinge(), 0.0)
