"""Draws on a public grid: exact laws between neighbours, hostile labels, low-order bits."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

import privopt
from privopt.geometry import L2Ball
from privopt.losses import Absolute
from privopt.mechanisms import ExponentialDensity, GridWalk
from privopt.mechanisms.density.draws import CELLS, geometric, pick
from privopt.noise import SeededSource
from privopt.oracle import Oracle, RowBounds
from privopt.oracle.sealed import KEY
from tests.mutants.densities import losses_enumerated, ranks_enumerated


def test_quantiles_by_rank_move_by_epsilon_at_most():
    """Red with 2q, 2(1-q) or, for a replaced record, 2 max(q, 1-q) as the movement."""
    assert ranks_enumerated() is None


def test_quantiles_by_loss_move_by_epsilon_at_most():
    """Red with 1.5 times the exponent."""
    assert losses_enumerated() is None


@pytest.mark.statistical
def test_draws_follow_their_weights():
    """False alarm 1e-6 each."""
    source, weights = SeededSource(0), np.array([0.1, 3.0, 0.0, 1.0, 0.4])
    seen = np.bincount([pick(source, weights) for _ in range(4000)], minlength=5)
    full = weights > 0
    assert seen[2] == 0
    assert stats.chisquare(seen[full], 4000 * weights[full] / weights.sum()).pvalue > 1e-6
    chances = np.exp(-0.3 * np.arange(7))
    seen = np.bincount([geometric(source, 0.3, 7) for _ in range(4000)], minlength=7)
    assert stats.chisquare(seen, 4000 * chances / chances.sum()).pvalue > 1e-6


@pytest.mark.parametrize("method", ["loss", "rank"])
def test_a_quantile_is_the_middle_of_a_public_cell(method):
    """No low-order bits: what leaves is a function of the cell's number."""
    values = np.random.default_rng(0).random(50)
    for seed in range(20):
        found, certificate = privopt.quantile(
            values, 0.3, bounds=(0, 1), method=method, random_state=seed
        )
        assert (found * CELLS * 2) % 2 == 1
        assert certificate.numerics is not None


@dataclass(frozen=True)
class Plain(Absolute):
    """A correct loss whose author does not know ``linear_beyond``."""

    @property
    def linear_beyond(self):
        return float("inf")

    def pieces(self, y):
        return None


def over(y, loss):
    rows = Oracle.over(
        np.ones((len(y), 1)),
        np.array(y),
        neighbouring="zero_out",
        bounds=RowBounds(1.0),
        source=SeededSource(0),
        classification=False,
    )
    return rows.everything().function(loss)


@pytest.mark.parametrize("loss", [Absolute(), Plain()])
@pytest.mark.parametrize("label", [1e17, -1e17, 1e300, 1e8, 3.0])
def test_one_large_label_moves_a_density_by_epsilon_at_most(loss, label):
    """Plain sums of values move grid_walk by 18 and exponential_sampling by 54."""
    at = np.linspace(-1, 1, 201)[:, None]
    rest = [0.9] * 40
    heights = {}
    for name, y in (("with", [*rest, label]), ("without", [*rest, np.nan])):
        sealed = over(y, loss)
        payload = sealed.open(KEY)
        walk, target = GridWalk(1.0, L2Ball(1.0), 41).prepared(payload, sealed.sensitivity)
        grid, walked = GridWalk(1.0, L2Ball(1.0), 41).density(walk, target)
        density = ExponentialDensity("pure", 1.0, L2Ball(1.0), "tangents")
        drawn = -density.target(payload, sealed.sensitivity, 1.0).potentials(at)
        inside = target.body.inside(grid)
        heights[name] = [one - np.logaddexp.reduce(one) for one in (walked[inside], drawn)]
    for one, other in zip(heights["with"], heights["without"], strict=True):
        assert 0.2 < np.abs(one - other).max() <= 1 + 1e-9
