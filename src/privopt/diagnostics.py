"""How far a point is from being stationary: numbers computed from records without any noise.

Nothing here is private. Each function refuses to run unless the caller says ``non_private=True``,
and what it returns says so wherever it is printed. They are for made data, for public data and for
tests; a stopping rule or a report on private records must not use them.

Rows are clipped, and rows that hold NaN are empty, exactly as for the methods of l_p geometry.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from privopt.geometry.norms import Norm, norm
from privopt.oracle.oracle import make_rows
from privopt.privacy import Refused
from privopt.problem import Problem
from privopt.solvers.solver import entry_bounds

STEPS = 3000
CLOSE = 1e-9
"""Relative length of a step at which the minimisation of a smooth loss ends."""


@dataclass(frozen=True, repr=False)
class NotPrivate:
    """A number computed from records without noise. ``float`` gives it bare."""

    what: str
    value: float

    def __repr__(self) -> str:
        return f"NOT PRIVATE: {self.what} {self.value:.4g}"

    def __format__(self, spec: str) -> str:
        return f"NOT PRIVATE: {self.what} {format(self.value, spec or '.4g')}"

    def __float__(self) -> float:
        return self.value


def gradient_norm(
    problem: Problem,
    X: Any,
    y: Any,
    theta: np.ndarray,
    *,
    which: Norm = "l2",
    non_private: bool = False,
) -> NotPrivate:
    """Norm of the gradient of the mean loss at theta: zero where it is stationary, domain aside."""
    mean = _Mean(problem, X, y, non_private)
    return NotPrivate("gradient norm", norm(mean.gradient(theta), which))


def frank_wolfe_gap(
    problem: Problem, X: Any, y: Any, theta: np.ndarray, *, non_private: bool = False
) -> NotPrivate:
    """max over v in the domain of <gradient, theta - v>: zero exactly at stationary points."""
    gradient = _Mean(problem, X, y, non_private).gradient(theta)
    best = problem.domain.linear_minimiser(gradient)
    return NotPrivate("Frank-Wolfe gap", float(gradient @ (theta - best)))


def moreau_gap(
    problem: Problem,
    X: Any,
    y: Any,
    theta: np.ndarray,
    *,
    strength: float | None = None,
    non_private: bool = False,
) -> NotPrivate:
    """Distance of theta from argmin over the domain of mean loss + strength/2 ||. - theta||^2.

    ``strength`` must be above the weak convexity of the mean loss, by default twice what the loss
    and the bounds of the rows guarantee; times the distance it is the norm of the gradient of the
    Moreau envelope. For smooth losses the minimiser is found to nine digits; for others by a fixed
    number of subgradient steps, to about one hundredth of the ratio of slope and strength.
    """
    mean = _Mean(problem, X, y, non_private)
    weak = max(0.0, mean.weak_convexity - problem.l2)
    strength = 2 * weak if strength is None else strength
    if not weak < strength < math.inf:
        raise ValueError(
            f"strength must be finite and above the weak convexity {weak:g}, got {strength!r}."
        )

    def gradient(u: np.ndarray) -> np.ndarray:
        return mean.gradient(u) + strength * (u - theta)

    project, convexity = problem.domain.project, strength - weak
    if math.isfinite(mean.smoothness):
        near = _accelerated(gradient, project, theta, mean.smoothness + strength, convexity)
    else:
        near = _subgradients(gradient, project, theta, convexity)
    return NotPrivate("Moreau gap", float(np.linalg.norm(near - theta)))


class _Mean:
    """The mean loss of records, with the ridge."""

    def __init__(self, problem: Problem, X: Any, y: Any, non_private: bool) -> None:
        if not non_private:
            raise Refused(
                "a diagnostic computes from the records without any noise: pass non_private=True "
                "if they are made or public, and leave it if they are not."
            )
        bounds = entry_bounds(problem)
        self._problem = problem
        self._rows = make_rows(X, y, bounds, problem.loss.classification)
        row = bounds.in_norm(2.0, self._rows.dimension)
        self.weak_convexity = problem.loss.weak_convexity * row**2
        self.smoothness = problem.loss.smoothness * row**2 + problem.l2

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        slope = self._problem.loss.slope
        total = self._rows.weighted_sum(theta, lambda z, labels, size: slope(z, labels))
        return total / max(1, self._rows.count) + self._problem.l2 * theta


Gradient = Callable[[np.ndarray], np.ndarray]


def _accelerated(
    gradient: Gradient, project: Gradient, start: np.ndarray, smoothness: float, convexity: float
) -> np.ndarray:
    """Nesterov's method with the momentum of a strongly convex function."""
    ratio = math.sqrt(convexity / smoothness)
    momentum, u = (1 - ratio) / (1 + ratio), project(start)
    ahead = u
    for _ in range(STEPS):
        new = project(ahead - gradient(ahead) / smoothness)
        done = np.linalg.norm(new - ahead) <= CLOSE * ratio * (1 + np.linalg.norm(new))
        ahead, u = new + momentum * (new - u), new
        if done:
            break
    return u


def _subgradients(
    gradient: Gradient, project: Gradient, start: np.ndarray, convexity: float
) -> np.ndarray:
    """The average, weighted by t, of steps of length 2/(convexity (t + 1))."""
    u = project(start)
    total, mass = np.zeros_like(u), 0
    for t in range(1, STEPS + 1):
        total, mass = total + t * u, mass + t
        u = project(u - 2 / (convexity * (t + 1)) * gradient(u))
    return total / mass
