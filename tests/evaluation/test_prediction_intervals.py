"""Prediction intervals: coverage over many draws, the rank they ask for, what they refuse."""

import math

import numpy as np
import pytest

import privopt
from privopt import LinearRegression, LogisticRegression, Refused, prediction_intervals
from privopt.evaluation.prediction_intervals import MISSED, WIDENING, share_asked


def population(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    return X, X @ [1.0, -0.5] + rng.standard_t(3, n)


def fitted():
    X, y = population(4000, 10_000)
    return LinearRegression(2.0, 1e-6, bounds=(-5, 5), target_bounds=(-12, 12)).fit(X, y)


@pytest.mark.statistical
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_a_promise_of_coverage_is_kept_and_not_by_much_more(level):
    """Forty draws of 2,000 held-out records, judged on 20,000 new ones. The mean coverage is at
    least the level (its error is .002), and at most three hundredths more."""
    model, (X, y) = fitted(), population(20_000, 999)
    seen = []
    for seed in range(40):
        band = prediction_intervals(
            model, *population(2000, seed), level=level, epsilon=1.0, random_state=seed
        )
        low, high = band.predict(X).T
        seen.append(np.mean((low <= y) & (y <= high)))
    assert level - 0.004 < np.mean(seen) < level + 0.03


def test_the_rank_is_that_of_the_derivation():
    """By the bound on the mechanism's tail: the chance to fall short of rank k is beta."""
    n, level, epsilon = 5000, 0.9, 0.5
    beta = MISSED * 0.1
    t = share_asked(level, n, epsilon) * n - math.ceil((n + 1) * (level + beta))
    assert math.exp(-epsilon * t / 2) / WIDENING == pytest.approx(beta)


def test_what_it_costs_and_what_it_says():
    X, y = population(3000, 1)
    band = prediction_intervals(fitted(), X, y, epsilon=0.3)
    assert band.privacy_.epsilon == pytest.approx(0.3)
    assert band.privacy_.private
    assert "probability 0.9 at least" in str(band)
    low, high = band.predict(X).T
    assert np.all(low >= -12)
    assert np.all(high <= 12)
    assert np.all(high - low <= 2 * band.half_width + 1e-12)


def test_what_it_refuses():
    model, (X, y) = fitted(), population(60, 2)
    with pytest.raises(Refused, match="too few for level"):
        prediction_intervals(model, X, y)
    with pytest.raises(ValueError, match="add_remove keeps private"):
        prediction_intervals(model, X, y, neighbouring="add_remove")
    with pytest.raises(ValueError, match="level must lie"):
        prediction_intervals(model, X, y, level=1.5)
    classifier = LogisticRegression(1.0, bounds=(-5, 5), classes=[0, 1]).fit(X, y > 0)
    with pytest.raises(ValueError, match="regressions of this library"):
        prediction_intervals(classifier, X, y)
    with pytest.raises(ValueError, match="looking at others"):
        prediction_intervals(model.to_sklearn(), X, y)
    assert privopt.prediction_intervals is prediction_intervals
