"""The walk on a grid: its law by matrix powers, its privacy by enumeration."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from privopt.geometry import Box, L1Ball, L2Ball, Simplex
from privopt.losses import Absolute, Hinge, Logistic, Squared
from privopt.mechanisms import Gate, GridWalk
from privopt.mechanisms.grid_walk import MIXING_SHARE, WalkConstants, _walk
from privopt.noise import SeededSource
from privopt.oracle import Oracle, RowBounds
from privopt.oracle.sealed import KEY
from privopt.privacy import Refused
from privopt.privacy.kinds import Pure

ALARM = 1e-6


def over(X, y, loss, neighbouring="zero_out"):
    return (
        Oracle.over(
            np.asarray(X, dtype=float),
            np.asarray(y, dtype=float),
            neighbouring=neighbouring,
            bounds=RowBounds(1.0),
            source=SeededSource(0),
            classification=loss.classification,
        )
        .everything()
        .function(loss)
    )


def transitions(heights, side, p):
    """The lazy Metropolis kernel, written down independently of the walk."""
    count = side**p
    kernel = np.zeros((count, count))
    for at, place in enumerate(np.ndindex(*[side] * p)):
        for axis in range(p):
            for step in (-1, 1):
                there = list(place)
                there[axis] += step
                if 0 <= there[axis] < side:
                    to = int(np.ravel_multi_index(there, [side] * p))
                    kernel[at, to] += min(1.0, math.exp(heights[to] - heights[at])) / (4 * p)
        kernel[at, at] = 1 - kernel[at].sum()
    return kernel


def exact(mechanism, sealed, steps=None):
    """Grid, target, and law of the walk after its own number of steps; both before conditioning."""
    walk, target = mechanism.prepared(sealed.open(KEY), sealed.sensitivity)
    grid, heights = mechanism.density(walk, target)
    kernel = transitions(heights, walk.side, target.dimension)
    start = np.zeros(len(grid))
    start[
        np.ravel_multi_index([walk.side // 2] * target.dimension, [walk.side] * target.dimension)
    ] = 1
    law = start @ np.linalg.matrix_power(kernel, int(walk.steps if steps is None else steps))
    density = np.exp(heights - heights.max())
    return grid, density / density.sum(), law, target.body.inside(grid)


CASES = [
    (L2Ball(1.0), Hinge(), 1, 6),
    (Box(-1.0, 0.5), Absolute(), 1, 6),
    (L2Ball(0.7), Logistic(), 2, 2),
    (L1Ball(1.0), Logistic(), 2, 2),
]


@pytest.mark.parametrize(("domain", "loss", "p", "n"), CASES)
def test_the_walk_is_as_close_to_its_target_as_declared(domain, loss, p, n):
    rng = np.random.default_rng(0)
    sealed = over(rng.normal(size=(n, p)), rng.choice([-1.0, 1.0], size=n), loss)
    _, density, law, inside = exact(GridWalk(1.0, domain, n), sealed)
    assert np.abs(np.log(law / density)).max() <= MIXING_SHARE
    # The penalty leaves at least half of the mass in the domain.
    assert density[inside].sum() >= 0.5


@pytest.mark.parametrize("neighbouring", ["zero_out", "replace_one"])
@pytest.mark.parametrize(("domain", "loss", "p", "n"), CASES)
def test_enumerated_privacy_loss(domain, loss, p, n, neighbouring):
    """The law that is released: the walk's, given that it ended in the domain."""
    epsilon = 1.0
    mechanism = GridWalk(1 / epsilon, domain, n)
    X, y = np.full((n, p), 1 / math.sqrt(p)), -np.ones(n)
    found = []
    for label, row in (
        (1.0, X[0]),
        (-1.0, X[0] if neighbouring == "replace_one" else X[0] * np.nan),
    ):
        X[0], y[0] = row, label
        _, _, law, inside = exact(mechanism, over(X, y, loss, neighbouring))
        found.append(np.log(law[inside] / law[inside].sum()))
    worst = np.abs(found[0] - found[1]).max()
    assert 0.1 * epsilon < worst <= epsilon


@pytest.mark.statistical
def test_releases_follow_the_enumerated_law():
    sealed = over([[1.0], [-0.5]], [1.0, 1.0], Hinge())
    mechanism = GridWalk(0.5, L2Ball(1.0), 2)
    grid, _, law, inside = exact(mechanism, sealed)
    gate = Gate(SeededSource(1))
    theta = np.array([gate.release(mechanism, sealed)[0] for _ in range(60)])
    place = np.array([np.argmin(np.abs(grid[inside, 0] - t)) for t in theta])
    chance = law[inside] / law[inside].sum()
    uniform = np.cumsum(chance)[place] - chance[place] * np.random.default_rng(2).random(60)
    assert stats.kstest(uniform, "uniform").pvalue > ALARM


def test_constants_in_closed_form():
    walk = WalkConstants.planned(Hinge(), 1.0, L2Ball(1.0), 10, 2, 1, 1.0)
    assert walk.inverse_temperature == pytest.approx(0.8 / 2)
    assert walk.penalty == pytest.approx(2 * (4 + 2))
    steep = 4 + 12
    assert walk.side == math.ceil(2 * steep * math.sqrt(2))
    conductance = walk.spacing / (2 * math.e * 2 * 2)
    rest = 2 * math.log(walk.side) + steep * 2 * math.sqrt(2) - math.log(1 - math.exp(-0.05))
    assert walk.steps == math.ceil(2 / conductance**2 * rest)
    twice = WalkConstants.planned(Hinge(), 1.0, L2Ball(1.0), 10, 2, 2, 1.0)
    assert twice.inverse_temperature == pytest.approx(0.8 / 4)


def test_refusals():
    gate = Gate(SeededSource(0))
    sealed = over(np.eye(2), np.ones(2), Hinge())
    with pytest.raises(Refused, match="fewer records"):
        gate.release(GridWalk(1.0, L2Ball(1.0), 1), sealed)
    with pytest.raises(Refused, match="no cube"):
        gate.release(GridWalk(1.0, Simplex(1.0), 2), sealed)
    with pytest.raises(Refused, match="Lipschitz"):
        gate.release(GridWalk(1.0, L2Ball(1.0), 2), over(np.eye(2), np.ones(2), Squared()))
    for change in ({"multiplier": 0.0}, {"n": 0}):
        with pytest.raises(ValueError, match="positive"):
            GridWalk(**{"multiplier": 1.0, "domain": L2Ball(1.0), "n": 2, **change})
    assert GridWalk(0.5, L2Ball(1.0), 2).kinds(sealed.sensitivity) == (Pure(2.0),)


@pytest.mark.statistical
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_a_few_steps_from_the_middle_end_as_the_kernel_says(steps):
    """Before anything has mixed each turn shows: 20,000 short walks. False alarms: 3 * ALARM."""
    side, p, walks = 3, 2, 20_000
    heights = np.random.default_rng(3).normal(size=side**p)
    expected = np.linalg.matrix_power(transitions(heights, side, p), steps)[side**p // 2]
    short, source = SimpleNamespace(side=side, steps=steps), SeededSource(5)
    ends = [_walk(heights.tolist(), short, p, source) for _ in range(walks)]
    counts = np.bincount(ends, minlength=side**p)
    assert not counts[expected == 0].any()
    met = expected > 0
    assert stats.chisquare(counts[met], expected[met] * walks).pvalue > ALARM
