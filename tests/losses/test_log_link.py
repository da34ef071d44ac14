"""Losses of counts and amounts under the log link: derivatives, and every constant privacy uses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from array_api_compat import torch as xp
from scipy.special import xlogy

from privopt.losses import Gamma, Poisson

LOSSES = [
    Poisson(),
    Poisson(slope_clip=0.8, rate_cap=3.0),
    Poisson(slope_clip=4.0, rate_cap=1.2),
    Gamma(1.0),
    Gamma(2.5),
]
LABELS = (-2.0, 0.0, 0.3, 1.0, 2.9, 3.3, 7.0, 1e6)
GRID = np.linspace(-12.0, 18.0, 120_001)
every = pytest.mark.parametrize("loss", LOSSES, ids=repr)


def plain(loss, z, y):
    """Value and slope without a clip, as textbooks write them."""
    y = max(y, 0.0)
    if isinstance(loss, Gamma):
        return y * np.exp(-z) + z, 1 - y * np.exp(-z)
    rate = np.minimum(np.exp(z), loss.rate_cap)
    line = loss.rate_cap * np.maximum(z - math.log(loss.rate_cap), 0.0)
    return rate + line - y * z, rate - y


@every
@pytest.mark.parametrize("y", LABELS)
def test_slope_is_the_clipped_one_and_the_value_its_integral(loss, y):
    _, steep = plain(loss, GRID, y)
    slope = loss.slope(GRID, y)
    np.testing.assert_allclose(slope, np.clip(steep, -loss.clip, loss.clip), atol=1e-11)
    assert (np.diff(slope) >= -1e-13).all()  # convex
    middle = 0.5 * (slope[1:] + slope[:-1]) * np.diff(GRID)
    found = loss.value(GRID, y)
    np.testing.assert_allclose(np.diff(found), middle, atol=1e-6)
    where = (np.abs(steep) < loss.clip) & (np.abs(slope - steep) < 1e-12)
    exact, _ = plain(loss, GRID, y)
    if where.any():  # the value itself, not only its differences, where nothing is clipped
        np.testing.assert_allclose(found[where], exact[where], rtol=1e-12, atol=1e-12)


@every
@pytest.mark.parametrize("y", LABELS)
def test_lipschitz_and_smoothness_are_never_exceeded(loss, y):
    """What privacy uses, for hostile labels too."""
    slope, curvature = loss.slope(GRID, y), loss.curvature(GRID, y)
    assert np.abs(slope).max() <= loss.lipschitz
    assert np.abs(np.diff(slope) / np.diff(GRID)).max() <= loss.smoothness * (1 + 1e-9)
    assert curvature.min() >= 0
    assert curvature.max() <= loss.smoothness
    for z in (-1e300, -1e10, 1e10, 1e300):
        at = np.array([z])
        assert abs(loss.slope(at, y)[0]) <= loss.lipschitz
        assert np.isfinite(loss.value(at, y)).all()
        assert loss.curvature(at, y)[0] <= loss.smoothness


@every
def test_lipschitz_and_smoothness_are_attained(loss):
    labels = np.linspace(0, 10, 401)
    assert max(np.abs(loss.slope(GRID, y)).max() for y in labels) == pytest.approx(loss.lipschitz)
    steepest = max(loss.curvature(GRID, y).max() for y in labels)
    assert steepest == pytest.approx(loss.smoothness, rel=1e-3)
    slopes = [loss.slope(GRID, y) for y in labels]
    assert any((s > 0).any() and (s < 0).any() for s in slopes)  # two-signed
    assert not loss.one_signed


@every
def test_curvature_is_the_derivative_of_the_slope(loss):
    h = 1e-6
    for y in (0.0, 0.7, 2.0):
        apart = (loss.slope(GRID + h, y) - loss.slope(GRID - h, y)) / (2 * h)
        smooth = np.abs(loss.curvature(GRID + 2 * h, y) - loss.curvature(GRID - 2 * h, y)) < 1e-4
        np.testing.assert_allclose(
            loss.curvature(GRID, y)[smooth], apart[smooth], rtol=1e-5, atol=1e-6
        )


@every
@pytest.mark.parametrize("margin", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("label", [0.0, 0.5, 1.0, 4.0])
def test_range_is_the_largest_over_the_labels(loss, margin, label):
    z = np.linspace(-margin, margin, 4001)
    ranges = [np.ptp(loss.value(z, y)) for y in np.linspace(-label, label, 41)]
    assert max(ranges) == pytest.approx(loss.range_on(margin, label), rel=1e-5)
    assert loss.range_on(margin, math.inf) == 2 * margin * loss.lipschitz


def test_half_the_deviance():
    """Up to a constant, where no clip is reached."""
    z = np.linspace(-2, 2, 9)
    for y in (0.5, 1.0, 3.0):
        deviance = 2 * (xlogy(y, y / np.exp(z)) - y + np.exp(z))
        wide = Poisson(slope_clip=50.0, rate_cap=50.0)
        gap = wide.value(z, y) - deviance / 2
        np.testing.assert_allclose(gap, gap[0], atol=1e-12)
        deviance = 2 * (y / np.exp(z) - 1 - np.log(y / np.exp(z)))
        gap = Gamma(60.0).value(z, y) - deviance / 2
        np.testing.assert_allclose(gap, gap[0], atol=1e-12)


@every
def test_torch_tensors_give_the_same_numbers(loss):
    z, y = np.linspace(-4, 4, 33), np.linspace(-1, 5, 33)
    for name in ("value", "slope", "curvature"):
        found = getattr(loss, name)(xp.asarray(z), xp.asarray(y))
        np.testing.assert_allclose(np.asarray(found), getattr(loss, name)(z, y), atol=1e-12)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Poisson(slope_clip=0.0), "positive finite slope_clip"),
        (lambda: Poisson(rate_cap=math.inf), "positive finite rate_cap"),
        (lambda: Gamma(0.5), "slope_clip of at least 1"),
        (lambda: Gamma(math.nan), "slope_clip of at least 1"),
    ],
)
def test_bad_parameters(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_a_standard_form_whose_smoothness_is_in_the_plan():
    """Only the Lipschitz constant may follow from released moments."""
    for loss in (Poisson(), Gamma()):
        for plenty in (0.5, 30.0, 500.0, 1e5):
            forms = [
                loss.standard(mean, deviation, plenty)
                for mean in (-0.5, 0.0, 1e-6, 0.2, 1.0)
                for deviation in (1e-3, 0.1, 1.0)
            ]
            constants = {form.loss.smoothness for form in forms}
            assert constants == {loss.typical(plenty).loss.smoothness}
            assert all(form.scale > 0 and math.isfinite(form.offset) for form in forms)
