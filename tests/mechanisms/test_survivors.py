"""Small facts that random mutants showed nobody had asked about: each has killed one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from privopt.geometry import Box
from privopt.losses import Absolute, Quantile
from privopt.mechanisms import DiscreteNormGamma, ExponentialDensity
from privopt.mechanisms.density import body_of, piecewise_linear
from privopt.mechanisms.maps import Spread, VertexScores
from privopt.mechanisms.mask import Mask, pure_mask
from privopt.mechanisms.on_grid import COUNTED_NOISE
from privopt.noise import SeededSource
from privopt.noise.discrete import GAUSSIAN_DISTANCE, OUTSIDE
from privopt.oracle import Oracle, RowBounds
from privopt.oracle.sealed import KEY


def test_two_scores_with_bounds_of_their_own_move_apart_by_both():
    """The two largest of three bounds, not the two smallest or the last alone."""
    assert Spread("coordinates").stretch(np.array([4.0, 1.0, 2.0])) == 6.0
    assert Spread("coordinates").stretch(np.array([1.0, 2.0, 4.0])) == 6.0
    assert Spread("linf").stretch(3.0) == 6.0


def test_the_range_of_vertex_scores_is_rounded_up():
    from privopt.geometry import L1Ball

    assert VertexScores(L1Ball(1.5), 3).stretch(1.0) >= 3.0


def test_a_mask_adds_up_what_each_coordinate_may_add():
    mask = Mask("gaussian", 1.0, 1.0, 3)
    assert mask.numerics().distance >= 3 * (GAUSSIAN_DISTANCE + OUTSIDE)


def test_norm_gamma_on_a_grid_counts_in_steps_of_its_mask():
    """The sensitivity is one; so many steps of the mask make it up."""
    found = DiscreteNormGamma(2.0, 5)
    step = pure_mask(2.0, 1.0, 5, COUNTED_NOISE).step
    assert found.resolution * step == pytest.approx(1.0, rel=1e-12)


def sealed(loss, labels, relation="zero_out"):
    oracle = Oracle.over(
        np.ones((len(labels), 1)),
        np.asarray(labels, dtype=float),
        neighbouring=relation,
        bounds=RowBounds(1.0),
        source=SeededSource(0),
        classification=False,
    )
    return oracle.everything().function(loss)


@pytest.mark.parametrize("loss", [Absolute(), Quantile(0.05), Quantile(0.95)])
@pytest.mark.parametrize("label", [-1e300, -1.0, 0.0, 0.3, 1.0, 7.0, 1e300])
def test_one_record_spans_no_more_than_its_range(loss, label):
    """The function of a single record, in exact units, on the whole interval."""
    mechanism = ExponentialDensity("pure", 1.0, Box(-0.5, 1.0), "piecewise_linear")
    value = sealed(loss, [label])
    target = mechanism.target(value.open(KEY), value.sensitivity, 1.0)
    knots = piecewise_linear.counted(target)
    rises = knots.unit * (knots.rises - knots.rises.min())
    assert rises.max() <= 1.0  # epsilon is one


@pytest.mark.parametrize(
    ("exact", "method", "relation", "p"),
    [
        (True, "piecewise_linear", "add_remove", 1),
        (False, "tangents", "zero_out", 1),
        (False, "cells", "add_remove", 2),
        (True, "grid", "zero_out", 2),
        (False, "grid", "add_remove", 2),
    ],
)
def test_which_draws_are_exact(exact, method, relation, p):
    """Integers on a public grid are; a sampler in floating point is not, whatever the relation."""
    oracle = Oracle.over(
        np.eye(4, p),
        np.zeros(4),
        neighbouring=relation,
        bounds=RowBounds(1.0),
        source=SeededSource(0),
        classification=False,
    )
    sensitivity = oracle.everything().function(Absolute()).sensitivity
    mechanism = ExponentialDensity("pure", 1.0, Box(-1.0, 1.0), method, spacing=0.5)
    assert (mechanism.numerics(sensitivity) is not None) == exact


def test_landmarks_lie_in_the_body_and_reach_its_ends():
    marks = body_of(Box(-1.0, 2.0), 2).landmarks()
    assert body_of(Box(-1.0, 2.0), 2).inside(marks).all()
    assert math.isclose(marks.max(), 2.0)
    assert math.isclose(marks.min(), -1.0)
