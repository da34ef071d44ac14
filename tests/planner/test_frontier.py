"""The frontier: predicted error against epsilon, delta and n, from public facts alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from privopt import Budget, LogisticRegression, Problem, plan
from privopt.geometry import L2Ball
from privopt.losses import Logistic
from privopt.solvers.frontier import frontier

PROBLEM = Problem(Logistic(), L2Ball(5.0))


def hyperbola(epsilon, delta, n):
    """A predictor whose answer is known: 1/(n epsilon), half of it with any delta above 1e-8."""
    return "made", (0.5 if delta > 1e-8 else 1.0) / (n * epsilon)


def test_values_and_notes_of_a_known_predictor():
    found = frontier(hyperbola, 2.0, 0.0, 10, [4.0, 1.0, 2.0])
    np.testing.assert_allclose(found.epsilon, [1.0, 2.0, 4.0])
    np.testing.assert_allclose(found.error, [0.1, 0.05, 0.025])
    assert found.rows()[0] == (1.0, 0.1, "made")
    assert "delta=1e-06 instead of 0 the predicted error would be 2.0 times" in found.notes[0]
    assert "ten times as many records the predicted error would be 10.0" in found.notes[1]


def test_a_delta_above_one_tenth_over_n_is_not_advised():
    assert len(frontier(hyperbola, 1.0, 0.01, 10, [1.0]).notes) == 1
    assert "delta=1e-05 instead of 1e-06" in frontier(hyperbola, 1.0, 1e-6, 10_000).notes[0]


@pytest.mark.parametrize("epsilons", [[], [0.0], [-1.0], [math.inf], [math.nan]])
def test_impossible_epsilons(epsilons):
    with pytest.raises(ValueError, match="epsilons must be positive and finite"):
        frontier(hyperbola, 1.0, 0.0, 10, epsilons)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_plan_and_a_ranking_have_one(delta):
    ranking = plan(PROBLEM, n=3_000, p=5, budget=Budget(1.0, delta))
    for made in (ranking, ranking.best):
        found = made.frontier()
        assert len(found.epsilon) == len(found.error) == len(found.rows()) == 9
        assert np.all(np.diff(found.error) < 0)
        assert found.epsilon[4] == 1.0
        assert str(found).count("\n") == 9 + len(found.notes)
    assert ranking.frontier([1.0]).rows()[0][2] == ranking.best.name


def test_a_fitted_estimator_keeps_its_plan():
    rows = np.random.default_rng(0).standard_normal((60, 2))
    for norm in (1.0, "private"):
        fitted = LogisticRegression(1.0, data_norm=norm).fit(rows, rows[:, 0] > 0)
        assert np.all(np.diff(fitted.plan_.frontier().error) < 0)
