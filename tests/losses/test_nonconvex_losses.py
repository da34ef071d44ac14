"""Losses that are not convex: derivatives, constants in closed form, and each constant attained."""

import math
import pickle
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from privopt import Problem
from privopt.facts import Facts
from privopt.losses import Absolute, Huber, PhaseRetrieval, TukeyBiweight, Welsch

LOSSES = [Welsch(), Welsch(0.5), TukeyBiweight(), TukeyBiweight(2.5), PhaseRetrieval(1.5)]
LABELS = (-0.7, 0.0, 0.4, 2.0)
GRID = np.linspace(-6.0, 6.0, 120_001)
every = pytest.mark.parametrize("loss", LOSSES, ids=repr)


def away_from_kinks(loss, y):
    kinks = [y - loss.width, y + loss.width] if isinstance(loss, TukeyBiweight) else []
    if isinstance(loss, PhaseRetrieval):
        kinks = [-loss.margin_clip, loss.margin_clip, math.sqrt(max(y, 0)), -math.sqrt(max(y, 0))]
    far = [np.abs(GRID - kink) > 1e-3 for kink in kinks]
    return GRID[np.all(far, axis=0)] if far else GRID


@every
def test_slope_and_curvature_are_derivatives(loss):
    h = 1e-6
    for y in LABELS:
        z = away_from_kinks(loss, y)
        rise = (loss.value(z + h, y) - loss.value(z - h, y)) / (2 * h)
        np.testing.assert_allclose(loss.slope(z, y), rise, atol=1e-8)
        bend = (loss.slope(z + h, y) - loss.slope(z - h, y)) / (2 * h)
        np.testing.assert_allclose(loss.curvature(z, y), bend, atol=2e-7)


@pytest.mark.parametrize("width", [0.5, 1.0, 2.5])
def test_constants_in_closed_form(width):
    assert Welsch(width).lipschitz == pytest.approx(width / math.sqrt(2 * math.e))
    assert Welsch(width).weak_convexity == pytest.approx(2 * math.exp(-1.5))
    assert TukeyBiweight(width).lipschitz == pytest.approx(16 * width / (25 * math.sqrt(5)))
    assert TukeyBiweight(width).weak_convexity == 0.8
    assert PhaseRetrieval(width).lipschitz == 2 * width
    assert PhaseRetrieval(width).weak_convexity == 2.0
    assert PhaseRetrieval(width).smoothness == math.inf
    assert Welsch(width).smoothness == TukeyBiweight(width).smoothness == 1.0
    # The limits of the robust losses, and |z^2 - y| where nothing is clipped.
    far = np.array([1e3])
    assert Welsch(width).value(far, 0 * far)[0] == pytest.approx(width**2 / 2)
    assert TukeyBiweight(width).value(far, 0 * far)[0] == pytest.approx(width**2 / 6)
    near = np.linspace(-width, width, 11)
    np.testing.assert_allclose(PhaseRetrieval(width).value(near, 0.3), np.abs(near**2 - 0.3))


@every
def test_lipschitz_and_smoothness_are_attained_and_never_exceeded(loss):
    for y in LABELS:
        slope = loss.slope(GRID, y)
        assert np.abs(slope).max() == pytest.approx(loss.lipschitz, rel=1e-6)
        assert np.abs(slope).max() <= loss.lipschitz
        quotients = np.abs(np.diff(slope) / np.diff(GRID))
        if loss.smooth:
            assert quotients.max() == pytest.approx(loss.smoothness, rel=1e-3)
            assert quotients.max() <= loss.smoothness * (1 + 1e-9)
        elif y > 0:
            assert quotients.max() > 100.0


@every
def test_weak_convexity_is_attained_and_enough(loss):
    """f + w z^2/2 has chords above the graph; with a constant one percent smaller it has not."""
    assert not loss.convex
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-4, 4, size=(2, 200_000))
    b[::2] = a[::2] + 0.05 * rng.standard_normal(100_000)

    def least(w):
        def lifted(z):
            return loss.value(z, 0.4) + w * z * z / 2

        return ((lifted(a) + lifted(b)) / 2 - lifted((a + b) / 2)).min()

    assert least(loss.weak_convexity) >= -1e-13
    assert least(0.99 * loss.weak_convexity) < -1e-9


@every
@pytest.mark.parametrize("margin", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("label", [0.0, 0.5, 4.0, math.inf])
def test_range_is_the_largest_over_the_labels(loss, margin, label):
    z = np.linspace(-margin, margin, 2001)
    labels = np.linspace(0, min(label, 6.0), 1201)
    ranges = [np.ptp(loss.value(z, y)) for y in labels]
    claimed = loss.range_on(margin, label)
    assert max(ranges) <= claimed * (1 + 1e-12)
    assert max(ranges) == pytest.approx(claimed, rel=1e-4)


@every
def test_ranges_without_bounds(loss):
    limit = {Welsch: 1 / 2, TukeyBiweight: 1 / 6}.get(type(loss))
    whole = math.inf if limit is None else limit * loss.width**2
    assert loss.range_on(math.inf, 1.0) == pytest.approx(whole)
    assert loss.range_on(0.0, math.inf) == 0.0


@every
@pytest.mark.parametrize("size", [40.0, 1e10, 1e154, 1e300])
def test_extreme_margins_stay_finite(loss, size):
    z = np.array([-size, size])
    for y in (*LABELS, 1e300):
        slope = loss.slope(z, np.full(2, y))
        assert np.isfinite(slope).all()
        assert np.isfinite(loss.curvature(z, np.full(2, y))).all()
        assert np.abs(slope).max() <= loss.lipschitz
        assert not np.isnan(loss.value(z, np.full(2, y))).any()


@every
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_types_torch_and_pickles(loss, dtype):
    torch = pytest.importorskip("torch")
    z = np.linspace(-4, 4, 101, dtype=dtype)
    for y in (np.ones_like(z), np.where(z > 0.2, 1, -1).astype(np.int8)):
        for name in ("value", "slope", "curvature"):
            expected = getattr(loss, name)(z, y)
            assert expected.dtype == dtype
            found = getattr(loss, name)(torch.from_numpy(z), torch.from_numpy(y))
            rtol = 1e-5 if dtype == "float32" else 1e-13
            np.testing.assert_allclose(found.numpy(), expected, rtol=rtol, atol=rtol)
    assert pickle.loads(pickle.dumps(loss)) == loss


@pytest.mark.parametrize("kind", [Welsch, TukeyBiweight, PhaseRetrieval])
@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_invalid_losses_are_refused(kind, bad):
    with pytest.raises(ValueError, match="positive finite"):
        kind(bad)


@dataclass(frozen=True)
class Undeclared(Absolute):
    """Says that it is not convex, and no more."""

    convex: ClassVar[bool] = False


def test_weak_convexity_of_facts_scales_with_the_square_of_rows():
    def facts(loss, **more):
        return Facts(Problem(loss, **more), 10, 3, "zero_out")

    assert facts(Huber()).weak_convexity() == facts(Absolute()).weak_convexity() == 0.0
    assert facts(PhaseRetrieval(1.0), data_norm=3.0).weak_convexity() == pytest.approx(18.0)
    assert facts(TukeyBiweight(), data_norm=2.0).weak_convexity("linf") == pytest.approx(9.6)
    # A smooth loss needs no constant of its own: its smoothness is one.
    assert facts(Undeclared()).weak_convexity() == math.inf
