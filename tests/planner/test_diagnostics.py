"""Diagnostics of stationarity: closed forms, refusals, and the mark on what they return."""

import math

import numpy as np
import pytest

from privopt import Problem, Refused
from privopt.diagnostics import NotPrivate, frank_wolfe_gap, gradient_norm, moreau_gap
from privopt.geometry import L1Ball, L2Ball, LpBall, WholeSpace
from privopt.losses import Huber, PhaseRetrieval, Squared, TukeyBiweight, Welsch

ALL = (gradient_norm, frank_wolfe_gap, moreau_gap)
X = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [math.nan, 1.0]])
Y = np.array([0.5, -0.2, 0.3, 1.0])


@pytest.mark.parametrize("diagnostic", ALL)
def test_they_refuse_unless_told_and_mark_what_they_return(diagnostic):
    problem, theta = Problem(Welsch(), L2Ball(1.0)), np.array([0.2, 0.1])
    with pytest.raises(Refused, match="non_private=True"):
        diagnostic(problem, X, Y, theta)
    found = diagnostic(problem, X, Y, theta, non_private=True)
    assert isinstance(found, NotPrivate)
    for text in (str(found), repr(found), f"{found}", f"{found:.2f}", repr([found])):
        assert "NOT PRIVATE" in text
    assert float(found) == found.value > 0


def test_gradient_norm_and_frank_wolfe_gap_by_hand():
    problem, theta = Problem(Welsch(0.7), LpBall(1.5, 0.8), l2=0.1), np.array([0.2, -0.4])
    residual = X[:3] @ theta - Y[:3]
    slopes = residual * np.exp(-((residual / 0.7) ** 2))
    g = slopes @ X[:3] / 4 + 0.1 * theta  # the row that holds NaN is an empty record
    assert float(gradient_norm(problem, X, Y, theta, non_private=True)) == pytest.approx(
        np.linalg.norm(g)
    )
    by_dual = g @ theta + 0.8 * np.sum(np.abs(g) ** 3) ** (1 / 3)
    assert float(frank_wolfe_gap(problem, X, Y, theta, non_private=True)) == pytest.approx(by_dual)
    sharp = Problem(Welsch(0.7), L1Ball(0.8), l2=0.1)
    by_dual = g @ theta + 0.8 * np.abs(g).max()
    assert float(frank_wolfe_gap(sharp, X, Y, theta, non_private=True)) == pytest.approx(by_dual)


def test_moreau_gap_in_closed_form():
    """Least squares: the proximal point solves a linear system."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((50, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    y, theta = rng.standard_normal(50), np.array([0.5, -1.0, 2.0])
    problem = Problem(Squared(), WholeSpace(), l2=0.2)
    hessian = rows.T @ rows / 50 + 0.2 * np.eye(3)
    near = np.linalg.solve(hessian + 3 * np.eye(3), rows.T @ y / 50 + 3 * theta)
    found = moreau_gap(problem, rows, y, theta, strength=3.0, non_private=True)
    assert float(found) == pytest.approx(np.linalg.norm(near - theta), rel=1e-7)


@pytest.mark.parametrize("loss", [TukeyBiweight(0.8), PhaseRetrieval(1.0)])
def test_moreau_gap_in_one_dimension(loss):
    """Against the least of a fine grid."""
    rows, y = np.array([[1.0], [-0.7], [0.4]]), np.array([0.5, 0.2, 0.9])
    problem, grid = Problem(loss, L2Ball(1.0)), np.linspace(-1, 1, 200_001)
    beta = 2 * loss.weak_convexity
    for at in (-0.6, 0.3, 1.0):
        values = np.mean([loss.value(grid * x, label) for x, label in zip(rows, y, strict=True)], 0)
        near = grid[np.argmin(values + beta / 2 * (grid - at) ** 2)]
        found = moreau_gap(problem, rows, y, np.array([at]), non_private=True)
        precise = 1e-5 if loss.smooth else 5e-3
        assert float(found) == pytest.approx(abs(near - at), abs=precise)


def test_bad_strengths_are_refused():
    theta = np.zeros(2)
    for problem, strength in (
        (Problem(Welsch(), L2Ball(1.0)), 0.1),
        (Problem(Welsch(), L2Ball(1.0)), math.inf),
        (Problem(Huber(), L2Ball(1.0)), None),  # convex: twice nothing is nothing
    ):
        with pytest.raises(ValueError, match="strength must be finite and above"):
            moreau_gap(problem, X, Y, theta, strength=strength, non_private=True)
