"""Least curvatures, linear pieces and linear tails are what they claim to be."""

import numpy as np
import pytest

from privopt.losses import (
    Absolute,
    Gamma,
    Hinge,
    Huber,
    Logistic,
    Poisson,
    Quantile,
    Smoothed,
    SmoothedHinge,
    SmoothedQuantile,
    Squared,
)
from privopt.losses.log_link import LogLink

LOSSES = [
    Absolute(),
    Quantile(0.2),
    Hinge(),
    SmoothedHinge(0.5),
    SmoothedQuantile(0.8, 0.3),
    Smoothed(Absolute(), 0.4),
    Huber(0.7),
    Squared(residual_clip=1.5),
    Squared(),
    Logistic(),
    Poisson(slope_clip=0.8, rate_cap=3.0),
    Poisson(),
    Gamma(1.5),
]


def labels(loss):
    return np.array([-1.0, 1.0]) if loss.classification else np.array([-3.0, 0.4, 2.0])


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_least_curvature_is_below_the_curvature_within_the_width(loss):
    for y in labels(loss):
        for z in np.linspace(-6, 6, 41):
            for width in (0.0, 0.1, 1.0, 5.0):
                near = z + width * np.linspace(-1, 1, 101)
                least = loss.least_curvature(np.array([z]), np.array([y]), np.array([width]))[0]
                assert 0 <= least <= loss.curvature(near, np.full(101, y)).min() * (1 + 1e-12)


def test_least_curvature_is_tight_where_it_matters():
    logistic = Logistic().least_curvature(np.array([1.0]), np.array([1.0]), np.array([2.0]))[0]
    assert logistic == pytest.approx(Logistic().curvature(np.array([3.0]), np.array([1.0]))[0])
    # Far out the closed form 1 - tanh^2 cancels to zero; the bound does not.
    far = Logistic().least_curvature(np.array([60.0]), np.array([1.0]), np.array([0.0]))[0]
    assert far == pytest.approx(np.exp(-60.0))
    assert Huber(1.0).least_curvature(np.array([0.3]), np.array([0.0]), np.array([0.6]))[0] == 1.0
    assert Huber(1.0).least_curvature(np.array([0.3]), np.array([0.0]), np.array([0.8]))[0] == 0.0


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_pieces_are_the_two_lines(loss):
    y = labels(loss)
    pieces = loss.pieces(y)
    if not isinstance(loss, (Absolute, Quantile, Hinge)):
        assert pieces is None
        return
    kink, below, above = pieces
    np.testing.assert_array_equal(loss.slope(kink - 0.5, y), below)
    np.testing.assert_array_equal(loss.slope(kink + 0.5, y), above)
    assert (below < above).all()


@pytest.mark.parametrize("loss", [x for x in LOSSES if not x.classification], ids=repr)
def test_beyond_the_tail_the_loss_is_linear(loss):
    tail = loss.linear_beyond
    if not np.isfinite(tail):
        assert loss == Squared() or isinstance(loss, LogLink)
        return
    z = np.linspace(-1, 1, 21)
    for y in (1 + tail, -1 - tail, 10 + tail):
        bend = np.diff(loss.value(z, np.full(21, y)), 2)
        assert np.abs(bend).max() < 1e-12


def test_curved_losses_have_a_positive_curvature_everywhere():
    z = np.linspace(-30, 30, 61)
    for loss in LOSSES:
        if loss.curved:
            for y in labels(loss):
                assert (loss.least_curvature(z, y, 0.0) > 0).all()
