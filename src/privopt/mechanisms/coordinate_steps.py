"""Steps along one coordinate, computed from released and public values only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from privopt.geometry import Separable


def step_along(
    at: float, gradient: float, smoothness: float, factor: float, penalty: Separable
) -> float:
    """The new value of one coordinate after a proximal step of length factor / smoothness."""
    length = factor / smoothness
    moved = float(penalty.prox(at - length * gradient, length))
    return moved if math.isfinite(moved) else at


def spread_of(mechanism: Any) -> float:
    """Standard deviation of a Gaussian or Laplace release, in units of its sensitivity; 0 for
    none."""
    if mechanism is None:
        return 0.0
    return mechanism.multiplier * (math.sqrt(2) if mechanism.accepts == "l1" else 1.0)


class ColumnSquares:
    """Upper estimates of the columns' sums of squares, from released values only."""

    def __init__(self, bounds: np.ndarray, n: int, spread: float) -> None:
        self._most, self._spread = n * bounds**2, spread * bounds**2
        self._total, self._count = np.zeros_like(bounds), np.zeros_like(bounds)

    def learn(self, j: int, found: float) -> float:
        """The mean of what was released for column j plus two of its standard deviations: above
        the truth in 98 of 100 cases, so that hardly a step overshoots."""
        self._total[j] += found
        self._count[j] += 1
        mean, spread = self._total[j] / self._count[j], self._spread[j] / self._count[j] ** 0.5
        return float(min(max(mean, 0.0) + 2 * spread, self._most[j]))


@dataclass(frozen=True, eq=False)
class Room:
    """Where no margin can exceed a bound: the sum of b_j |theta_j| stays below it."""

    bounds: np.ndarray
    margin: float

    def cut(self, theta: np.ndarray, j: int, value: float) -> float:
        """The part of a step along j that stays inside."""
        taken = float(self.bounds @ np.abs(theta)) - float(self.bounds[j] * abs(theta[j]))
        most = max(self.margin - taken, 0.0) / float(self.bounds[j])
        return max(-most, min(most, value))
