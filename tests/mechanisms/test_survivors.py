"""Small facts that random mutants showed nobody had asked about: each has killed one."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from scipy.stats import norm

from privopt.geometry import Box, L2Ball
from privopt.losses import Absolute, Quantile
from privopt.mechanisms import DiscreteNormGamma, ExponentialDensity
from privopt.mechanisms.density import body_of, piecewise_linear
from privopt.mechanisms.density.draws import CELLS, middle_of
from privopt.mechanisms.density.segments import log_mean_exp
from privopt.mechanisms.maps import Spread, VertexScores
from privopt.mechanisms.mask import Mask, pure_mask
from privopt.mechanisms.on_grid import COUNTED_NOISE
from privopt.mechanisms.selection import _scores, noisy_max_probabilities
from privopt.mechanisms.shape_learner import _on_simplex
from privopt.mechanisms.stable_sgd import StableSGD
from privopt.noise import SeededSource
from privopt.noise.discrete import (
    GAUSSIAN_DISTANCE,
    GAUSSIAN_STD,
    OUTSIDE,
    std_of,
    tail_mass,
    top_for,
)
from privopt.oracle import Oracle, RowBounds
from privopt.oracle.sealed import KEY
from privopt.oracle.sensitivity import FunctionFacts


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


# ---------------------------------------------------------------- choices
def test_scores_are_taken_relative_to_the_best():
    assert _scores(np.array([5.0, -3.0, np.nan])).tolist() == [0.0, -8.0, -5.0]


@pytest.mark.parametrize("gap", [0.0, 0.7, 6.0])
def test_the_law_of_the_noisy_maximum_of_two(gap):
    """The second wins with chance e^-d (2 + d) / 4; one far behind never does."""
    found = noisy_max_probabilities(np.array([0.0, -gap, -1000.0]))
    second = math.exp(-gap) * (2 + gap) / 4
    np.testing.assert_allclose(found, [1 - second, second, 0.0], atol=1e-9)


# ---------------------------------------------------------------- densities
@pytest.mark.parametrize("change", [-30.0, -1e-6, 0.0, 1e-6, 2e-5, 0.5, 30.0])
def test_the_mean_of_an_exponential_on_a_segment(change):
    wanted = math.log(math.expm1(change) / change) if change else 0.0
    assert log_mean_exp(np.array([change]))[0] == pytest.approx(wanted, rel=1e-9, abs=1e-13)


def test_the_middle_of_a_cell_lies_within_it():
    width = 3.0 / CELLS
    for cell in (0, 1, CELLS // 2, CELLS - 1):
        low = -1.0 + cell * width
        assert low < middle_of(cell, -1.0, 2.0) < low + width


@pytest.mark.parametrize("high", [1.0, 40.0])
@pytest.mark.parametrize("label", [-0.4, 0.9])
def test_slopes_are_counted_finely_whatever_the_interval(high, label):
    """A record's rise over the whole interval is that of its loss, to one part in a million."""
    value = sealed(Absolute(), [label])
    mechanism = ExponentialDensity("pure", 1.0, Box(-1.0, high), "piecewise_linear")
    target = mechanism.target(value.open(KEY), value.sensitivity, 1.0)
    knots = piecewise_linear.counted(target)
    ends = [abs(x - label) for x in (-1.0, high, label)]
    spread = knots.unit * float(knots.rises.max() - knots.rises.min())
    wanted = (max(ends) - min(ends)) * target.inverse_temperature
    assert spread == pytest.approx(wanted, rel=1e-6)


# ---------------------------------------------------------------- stable SGD
def test_the_rounding_of_stable_steps():
    """Both bounds from their parts: farthest point, one step, all steps and the average."""
    sgd = StableSGD(2, 5, 4, 0.1, False, True, 0.5, L2Ball(1.0), (3.0, 4.0))
    facts = FunctionFacts(1.5, 2.0, 1, 1, True, True, 2, True)
    farthest = 2 * (5 + 10 * 0.1 * (1.5 + 0.5 * 5))
    one = 2 * (2 * 2 + 8) * farthest + (4 + 2 * 2 + 64) * 1.5 + 8 * 0.5 * farthest
    step = 2.0**-53 * (0.1 * one + (2 * 2 + 64) * farthest)
    whole = 2 * (10 * step + 12 * 2.0**-53 * farthest)
    assert sgd.error(facts) == pytest.approx(whole, rel=1e-12)


# ---------------------------------------------------------------- shapes
def test_the_nearest_point_of_the_simplex():
    found = _on_simplex(np.array([0.9, 0.5, -0.3]))
    np.testing.assert_allclose(found, [0.7, 0.3, 0.0])


# ---------------------------------------------------------------- noise
@pytest.mark.parametrize("share", [1.0, 0.7, 1 / 64])
def test_the_narrowest_noise_that_is_wide_enough(share):
    top = top_for(share)
    assert std_of(top) >= share * GAUSSIAN_STD
    assert std_of(top - 1) < share * GAUSSIAN_STD


def test_no_share_of_the_noise_without_its_lowest_digits():
    least = std_of(0) / GAUSSIAN_STD
    for share in (0.0, -0.5, 1.01, least):
        with pytest.raises(ValueError, match="share of the noise"):
            top_for(share)
    assert top_for(least * 1.001) >= 1


@pytest.mark.parametrize("deviations", [6.0, 13.0])
def test_the_mass_of_a_tail_is_bounded_closely(deviations):
    exact = 2 * float(norm.sf(deviations))
    assert exact <= tail_mass(deviations) <= 1.05 * exact


def test_random_numbers_of_a_users_own_go_on_where_they_stood():
    torch = pytest.importorskip("torch")
    from privopt.noise.random_numbers import same_random_numbers

    before = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    with same_random_numbers():
        first = random.random(), np.random.random(), float(torch.rand(()))  # noqa: NPY002
    with same_random_numbers():
        again = random.random(), np.random.random(), float(torch.rand(()))  # noqa: NPY002
    assert first == again
    after = random.getstate(), np.random.get_state()[1], torch.get_rng_state()  # noqa: NPY002
    assert before[0] == after[0]
    np.testing.assert_array_equal(before[1], after[1])
    assert torch.equal(before[2], after[2])


# ---------------------------------------------------------------- gates
def test_declared_steps_end_where_they_were_declared_to_end():
    from privopt.mechanisms import Gaussian, Steps
    from privopt.oracle.sensitivity import Sensitivity

    steps = Steps(lambda index: (Gaussian(1.0), Sensitivity("l2", 1.0, 1.0)), 3)
    assert steps.event(2) is not None
    assert steps.event(3) is None
    assert steps.mechanism(3) is None


def test_a_past_belongs_into_a_declared_gate_alone():
    from privopt.mechanisms import Gate
    from privopt.noise import SilentSource
    from privopt.privacy import Refused

    with pytest.raises(Refused, match="fresh gate of a declared run"):
        Gate(SilentSource()).past([])


@pytest.mark.parametrize("multiplier", [0.5, 2.0])
def test_a_walk_is_planned_for_its_own_epsilon(multiplier):
    from privopt.mechanisms import GridWalk
    from privopt.mechanisms.grid_walk import WalkConstants

    found = sealed(Absolute(), [0.5] * 4)
    walk, _ = GridWalk(multiplier, L2Ball(1.0), 4).prepared(found.open(KEY), found.sensitivity)
    expected = WalkConstants.planned(Absolute(), 1.0, L2Ball(1.0), 4, 1, 1, 1 / multiplier)
    assert walk == expected
