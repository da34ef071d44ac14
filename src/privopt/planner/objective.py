"""The mean loss plus ridge on rows that need no protection, and its minimum: made-up rows of a
simulation, or those of a benchmark."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from privopt.losses import Loss, Smoothed, VectorLoss
from privopt.noise import SeededSource
from privopt.problem import Problem

WIDTHS = (0.1, 0.01, 1e-3, 1e-4)
"""Kinks are rounded off ever less; margins are of about unit size."""
STARTS = 4
"""Random starts beside the centre, for a loss that is not convex."""


class Objective:
    """A function of theta: the mean loss of the rows plus the ridge.

    ``steps``: of accelerated projected gradients, for each width of a kink and from each start.
    """

    def __init__(self, problem: Problem, X: Any, y: np.ndarray, steps: int = 600) -> None:
        self.problem, self.X, self.y, self.steps = problem, X, y, steps

    def __call__(self, theta: np.ndarray) -> float:
        loss, ridge = self.problem.loss, self.problem.l2 / 2 * float(theta @ theta)
        if isinstance(loss, VectorLoss):
            return float(np.mean(loss.value(theta, self.X, self.y))) + ridge
        return float(np.mean(loss.value(np.asarray(self.X @ theta), self.y))) + ridge

    @cached_property
    def trivial(self) -> float:
        """What a model that has learned nothing reaches."""
        return self(self.problem.domain.centre(self.X.shape[1]))

    @cached_property
    def minimiser(self) -> np.ndarray:
        """The best point found; of a loss that is not convex, from several starts."""
        starts = self._starts()
        return min([starts[0], *map(self._descended, starts)], key=self)

    @cached_property
    def least(self) -> float:
        """The smallest value found."""
        return self(self.minimiser)

    def hits(self, theta: np.ndarray) -> float:
        """Accuracy of the signs of margins, or R2 of the margins; 0 for losses of vectors."""
        loss, y = self.problem.loss, self.y
        if isinstance(loss, VectorLoss):
            return 0.0
        margins = np.asarray(self.X @ theta)
        if loss.classification:
            return float(np.mean(np.where(margins > 0, 1.0, -1.0) == y))
        return 1.0 - float(np.mean((y - margins) ** 2)) / (float(np.var(y)) + 1e-12)

    def _starts(self) -> list[np.ndarray]:
        domain, p = self.problem.domain, self.X.shape[1]
        centre = domain.centre(p)
        if self.problem.loss.convex:
            return [centre]
        coins = SeededSource(p).coins
        far = domain.radius("l2", p) if domain.bounded else 1.0
        ways = coins.standard_normal((STARTS, p))
        ways *= 0.7 * far / np.linalg.norm(ways, axis=1)[:, None]
        return [centre + 1e-3 * ways[0], *(domain.project(centre + way) for way in ways)]

    def _descended(self, theta: np.ndarray) -> np.ndarray:
        loss = self.problem.loss
        if loss.smooth:
            return self._descend(loss, theta)
        for width in WIDTHS:
            rounded = self._rounded(width)
            if rounded is None:
                return self._wander(theta)
            theta = self._descend(rounded, theta)
        return theta

    def _rounded(self, width: float) -> Loss | VectorLoss | None:
        loss = self.problem.loss
        if isinstance(loss, VectorLoss):
            return loss.rounded(width)
        return Smoothed(loss, width) if loss.pieces(np.ones(1)) is not None else None

    def _gradient(self, loss: Any, theta: np.ndarray) -> np.ndarray:
        if isinstance(loss, VectorLoss):
            found = loss.gradient(theta, self.X, self.y).mean(axis=0)
        else:
            slope = loss.slope(np.asarray(self.X @ theta), self.y) / len(self.y)
            found = np.asarray(self.X.T @ slope)
        return found + self.problem.l2 * theta

    def _descend(self, loss: Any, theta: np.ndarray) -> np.ndarray:
        """Accelerated projected gradients, which start anew where momentum points uphill."""
        size = 1.0 if isinstance(loss, VectorLoss) else self._spectral
        step = 1 / max(loss.smoothness * size + self.problem.l2, 1e-9)
        step = min(step, 1e3 * max(1.0, float(np.linalg.norm(theta))))
        ahead, weight, still = theta, 1.0, 0
        for _ in range(self.steps):
            new = self.problem.domain.project(ahead - step * self._gradient(loss, ahead))
            moved = new - theta
            if (ahead - new) @ moved > 0:
                weight = 1.0
            heavier = (1 + math.sqrt(1 + 4 * weight**2)) / 2
            ahead, theta, weight = new + (weight - 1) / heavier * moved, new, heavier
            still = still + 1 if float(moved @ moved) <= 1e-18 * (1 + float(new @ new)) else 0
            if still >= 3:
                break
        return theta

    def _wander(self, theta: np.ndarray) -> np.ndarray:
        """Subgradient steps of falling length; the best point on the way."""
        best, lowest, problem = theta, self(theta), self.problem
        length = 0.5 * (problem.domain.radius("l2", theta.size) if problem.domain.bounded else 1.0)
        for t in range(self.steps):
            slope = self._gradient(problem.loss, theta)
            theta = problem.domain.project(
                theta - length * 0.99**t * slope / (float(np.linalg.norm(slope)) + 1e-12)
            )
            value = self(theta)
            if value < lowest:
                best, lowest = theta, value
        return best

    @cached_property
    def _spectral(self) -> float:
        """Largest eigenvalue of X'X/n, or a little more."""
        p = self.X.shape[1]
        if p <= 300 and isinstance(self.X, np.ndarray):
            return float(np.linalg.eigvalsh(self.X.T @ self.X / len(self.y))[-1])
        v = SeededSource(p).coins.standard_normal(p)
        for _ in range(60):
            v = np.asarray(self.X.T @ (self.X @ (v / np.linalg.norm(v)))) / self.X.shape[0]
        return 1.02 * float(np.linalg.norm(v))
