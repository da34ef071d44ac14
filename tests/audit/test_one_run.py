"""The one-run audit: its bound against exact small cases, honest functions that go to the limit,
and canaries of a Gaussian."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import linprog

from privopt import Budget
from privopt.audit import Claim, one_run
from privopt.audit.one_run import epsilon_above, p_value
from privopt.mechanisms import Gate, Gaussian
from privopt.oracle.sealed import KEY, Sealed
from privopt.oracle.sensitivity import Sensitivity
from privopt.privacy.profiles import gaussian_mu

pytestmark = pytest.mark.statistical


def claim(epsilon, delta=0.0):
    return Claim(epsilon, delta, "point", ((epsilon, delta),))


@pytest.mark.parametrize("epsilon", [0.3, math.log(3), 2.0])
def test_without_delta_it_is_the_binomial_tail_of_randomised_response(epsilon):
    right = 1 / (1 + math.exp(-epsilon))
    for m, r, v in ((100, 100, 75), (100, 30, 25), (7, 7, 7)):
        expected = stats.binom.sf(v - 1, r, right)
        found = p_value(m, r, v, claim(epsilon))
        assert expected <= found * (1 + 1e-9)
        assert found <= 1.5 * expected or expected > 0.05


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.1), (0.0, 0.2), (1.0, 0.02)])
def test_no_function_of_three_coins_does_better(epsilon, delta):
    """All laws of a guess of three coins that are (epsilon, delta)-DP, by linear programming: the
    largest chance of v right guesses is at most the p-value, and reached where all are guessed."""
    coins = list(product((0, 1), repeat=3))
    index = {(c, g): i * 8 + j for i, c in enumerate(coins) for j, g in enumerate(coins)}
    size = len(index)
    over = {}  # (c, c', g): what P(g | c) has above e^epsilon P(g | c')
    for c in coins:
        for k in range(3):
            other = tuple(b ^ (i == k) for i, b in enumerate(c))
            for g in coins:
                over[c, other, g] = size + len(over)
    width = size + len(over)
    rows, ends = [], []
    for (c, other, g), place in over.items():
        row = np.zeros(width)
        row[index[c, g]], row[index[other, g]], row[place] = 1, -math.exp(epsilon), -1
        rows.append(row)
        ends.append(0.0)
    for c, other in {(c, other) for c, other, _ in over}:
        row = np.zeros(width)
        row[[over[c, other, g] for g in coins]] = 1
        rows.append(row)
        ends.append(delta)
    sums = np.zeros((8, width))
    for i, c in enumerate(coins):
        sums[i, [index[c, g] for g in coins]] = 1
    for v in (1, 2, 3):
        gain = np.zeros(width)
        for (c, g), place in index.items():
            gain[place] = -(sum(a == b for a, b in zip(c, g, strict=True)) >= v) / 8
        best = linprog(gain, rows, ends, sums, np.ones(8), bounds=(0, 1))
        assert best.status == 0
        assert -best.fun <= p_value(3, 3, v, claim(epsilon, delta)) + 1e-9
        if v == 3:
            assert -best.fun > 0.8 * p_value(3, 3, v, claim(epsilon, delta))


def test_a_function_that_rarely_gives_everything_away_is_the_limit():
    """With probability delta all is told, else nothing: (0, delta)-DP, and the p-value says so."""
    m, delta = 60, 0.03
    exact = delta + (1 - delta) * 2.0**-m
    assert exact <= p_value(m, m, m, claim(0.0, delta)) <= 1.05 * exact
    assert p_value(10, 4, 0, claim(1.0, 0.1)) == 1.0


@pytest.mark.parametrize("mu", [0.5, 2.0])
@pytest.mark.parametrize(("m", "r"), [(20, 20), (200, 200), (200, 20)])
def test_an_exact_gaussian_is_within_its_p_value(mu, m, r):
    """All guessed: a binomial number is right. The surest only: the right ones of 20,000 draws."""
    claimed = Claim.gaussian(mu, 1e-5)
    if r == m:
        tail = stats.binom.sf(np.arange(r + 1) - 1, r, stats.norm.cdf(mu / 2))
    else:
        rng = np.random.default_rng(0)
        side = rng.random((20_000, m)) < 0.5
        seen = rng.standard_normal((20_000, m)) + mu * side
        order = np.argsort(seen, axis=1)
        low = np.take_along_axis(side, order[:, : r // 2], 1)
        high = np.take_along_axis(side, order[:, -r // 2 :], 1)
        right = (~low).sum(1) + high.sum(1)
        tail = np.array([np.mean(right >= v) for v in range(r + 1)])
    for v in range(r // 2, r + 1, max(r // 10, 1)):
        assert tail[v] <= p_value(m, r, v, claimed) * 1.05 + 1e-3


def gaussian(multiplier):
    """Every canary in a coordinate of its own, all in one release."""

    def run(included, source):
        sealed = Sealed(KEY, included.astype(float), Sensitivity("l2", 1.0, 1.0))
        return Gate(source).release(Gaussian(multiplier), sealed)

    return run


MU = gaussian_mu(4.0, 1e-5)


@pytest.mark.parametrize(("canaries", "low", "high"), [(1000, 1.0, 2.9), (100_000, 2.6, 3.4)])
def test_canaries_of_a_gaussian(canaries, low, high):
    """Of epsilon 4; against the bare (epsilon, delta) at most about half of it is seen."""
    found = one_run(gaussian(1 / MU), canaries, Claim.gaussian(MU, 1e-5))
    assert low < found.lower_bound < high
    assert not found.refuted
    assert "not refuted" in str(found)
    bare = one_run(gaussian(1 / MU), canaries, Budget(4.0, 1e-5))
    assert bare.lower_bound < found.lower_bound


def test_an_honest_claim_is_hardly_ever_refuted():
    """100 honest runs at 95 %: more than 12 alarms have a probability of 1 in 700 if 5 are due."""
    claimed = Claim.gaussian(1.0, 1e-5)
    found = [one_run(gaussian(1.0), 300, claimed, seed=seed) for seed in range(100)]
    assert sum(one.refuted for one in found) <= 12


def test_a_third_of_the_noise_is_refuted():
    assert one_run(gaussian(1 / (3 * MU)), 10_000, Claim.gaussian(MU, 1e-5)).refuted


def test_no_noise_at_all_is_refuted():
    found = one_run(gaussian(1e-6), 1000, Budget(2.0, 1e-6))
    assert found.refuted
    assert found.correct >= 0.99 * found.guesses
    half = one_run(gaussian(0.1), 10_000, Budget(2.0, 1e-6))
    assert half.refuted


def test_guessing_without_knowledge_finds_nothing():
    """100 runs that release nothing, at 95 %: more than 20 alarms have probability 1e-7."""
    found = [
        one_run(lambda inside, source: source.noise.random(500), 500, Budget(1e-9), seed=seed)
        for seed in range(100)
    ]
    assert sum(one.lower_bound > 0 for one in found) <= 20


def test_the_bound_is_where_the_p_value_crosses_the_level():
    bound = epsilon_above(1000, 100, 75, claim(1.0, 1e-4), 0.05)
    assert p_value(1000, 100, 75, claim(bound * 0.999, 1e-4)) < 0.05
    assert p_value(1000, 100, 75, claim(bound * 1.001, 1e-4)) > 0.05
    assert bound > 0.673  # the bound of 2023
    assert epsilon_above(1000, 100, 50, claim(1.0, 1e-4), 0.05) == 0.0


def test_refusals():
    with pytest.raises(ValueError, match="at least 10 canaries"):
        one_run(gaussian(1.0), 5, Budget(1.0))
    with pytest.raises(ValueError, match="confidence"):
        one_run(gaussian(1.0), 50, Budget(1.0), confidence=1.5)
    with pytest.raises(ValueError, match="50 scores"):
        one_run(lambda inside, source: np.zeros(3), 50, Budget(1.0))
