"""Draws in proportion to weights: their law, their uniforms, and extreme weights."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from privopt.noise import SeededSource
from privopt.oracle.weight_tree import FAN, WeightTree


def p_value(drawn, chances):
    """Chi-square of draws against a law; cells that expect fewer than five join the likeliest."""
    counts, expected = np.bincount(drawn, minlength=len(chances)), chances * len(drawn)
    kept = (expected >= 5) & (np.arange(len(chances)) != np.argmax(chances))
    counts = np.append(counts[kept], counts[~kept].sum())
    return stats.chisquare(counts, np.append(expected[kept], expected[~kept].sum())).pvalue


@pytest.mark.statistical
@pytest.mark.parametrize("count", [1, 5, FAN, FAN + 1, 3 * FAN * FAN + 7])
def test_draws_follow_the_softmax(count):
    """60,000 draws; log-weights that are off by a factor of two fail. False alarm: 1e-6."""
    rng = np.random.default_rng(count)
    logs = 3 * rng.standard_normal(count)
    chances = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
    uniform = SeededSource(1).noise.random
    tree = WeightTree(logs.copy())
    drawn = np.array([tree.draw(uniform) for _ in range(60_000)])
    assert tree.log_total == pytest.approx(np.log(np.exp(logs).sum()))
    if count == 1:
        assert not drawn.any()
        return
    assert p_value(drawn, chances) > 1e-6
    wrong = WeightTree(2 * logs)
    assert p_value(np.array([wrong.draw(uniform) for _ in range(60_000)]), chances) < 1e-6


class Counted:
    """Given numbers, counted as they are taken."""

    def __init__(self, *values):
        self.values, self.taken = list(values), 0

    def __call__(self):
        self.taken += 1
        return self.values.pop(0)


def test_every_level_takes_a_uniform_of_its_own():
    for count, levels in ((FAN, 1), (FAN + 1, 2), (FAN**2, 2), (FAN**2 + 1, 3)):
        uniforms = Counted(*[0.0] * levels)
        assert WeightTree(np.zeros(count)).draw(uniforms) == 0
        assert uniforms.taken == levels
    # 1 - 2^-53 times a sum may be rounded to the sum itself: then the draw is repeated.
    assert WeightTree(np.zeros(3)).draw(Counted(1.0, 0.5)) == 1


def test_extreme_weights():
    uniform = SeededSource(0).noise.random
    logs = np.full(1000, -np.inf)
    logs[[3, 700]] = 1e6, 1e6 - np.log(3)
    tree = WeightTree(logs)
    drawn = [tree.draw(uniform) for _ in range(4000)]
    assert set(drawn) == {3, 700}
    assert np.mean(np.array(drawn) == 3) == pytest.approx(0.75, abs=0.05)
    far = WeightTree(np.array([0.0, -800.0]))
    assert {far.draw(uniform) for _ in range(100)} == {0}
