"""The one-run audit: its bound in closed form, a published example, canaries of a Gaussian."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from privopt import Budget
from privopt.audit import one_run
from privopt.audit.one_run import epsilon_above, p_value
from privopt.mechanisms import Gate, Gaussian
from privopt.oracle.sealed import KEY, Sealed
from privopt.oracle.sensitivity import Sensitivity
from privopt.privacy.profiles import gaussian_mu

pytestmark = pytest.mark.statistical


def test_the_p_value_is_the_papers():
    """Without delta a binomial tail; with it, the sum of the paper's appendix, term by term."""
    assert p_value(100, 100, 75, math.log(3), 0.0) == pytest.approx(stats.binom.sf(74, 100, 0.75))
    m, r, v, epsilon, delta = 1000, 100, 75, 0.5, 1e-4
    q = 1 / (1 + math.exp(-epsilon))
    slope, total = 0.0, 0.0
    for i in range(1, v + 1):
        total += float(stats.binom.pmf(v - i, r, q))
        slope = max(slope, total / i)
    expected = float(stats.binom.sf(v - 1, r, q)) + 2 * m * delta * slope
    assert p_value(m, r, v, epsilon, delta) == pytest.approx(expected, rel=1e-9)
    assert p_value(10, 4, 0, 1.0, 0.1) == 1.0


def test_the_published_example():
    """75 of 100 guesses right, 1000 canaries, delta 1e-4: epsilon is at least 0.673."""
    assert epsilon_above(1000, 100, 75, 1e-4, 0.05) == pytest.approx(0.673, abs=5e-4)
    assert epsilon_above(1000, 100, 50, 1e-4, 0.05) == 0.0
    assert p_value(1000, 100, 75, epsilon_above(1000, 100, 75, 0.0, 0.05), 0.0) == pytest.approx(
        0.05, rel=1e-6
    )


def gaussian(multiplier):
    """Every canary in a coordinate of its own, all in one release."""

    def run(included, source):
        sealed = Sealed(KEY, included.astype(float), Sensitivity("l2", 1.0, 1.0))
        return Gate(source).release(Gaussian(multiplier), sealed)

    return run


@pytest.mark.parametrize(("canaries", "low", "high"), [(1000, 0.8, 2.4), (100_000, 1.8, 2.1)])
def test_canaries_of_a_gaussian(canaries, low, high):
    """The published figures at epsilon 4 are 1.54 and 1.98."""
    mu = gaussian_mu(4.0, 1e-5)
    found = one_run(gaussian(1 / mu), canaries, Budget(4.0, 1e-5))
    assert low < found.lower_bound < high
    assert not found.refuted
    assert "not refuted" in str(found)


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


def test_refusals():
    with pytest.raises(ValueError, match="at least 10 canaries"):
        one_run(gaussian(1.0), 5, Budget(1.0))
    with pytest.raises(ValueError, match="confidence"):
        one_run(gaussian(1.0), 50, Budget(1.0), confidence=1.5)
    with pytest.raises(ValueError, match="50 scores"):
        one_run(lambda inside, source: np.zeros(3), 50, Budget(1.0))
