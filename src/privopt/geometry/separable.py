"""A penalty that is a sum over coordinates: l1, l2 and box terms together."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from privopt.geometry.box import Box
from privopt.geometry.domain import Domain, Vector
from privopt.geometry.whole_space import WholeSpace


@dataclass(frozen=True, eq=False)
class Separable:
    """psi(theta) = sum over j of l1 |theta_j| + l2 theta_j^2 / 2, and infinite outside the box.

    Parameters
    ----------
    l1, l2 : float
        Penalties, at least 0.
    low, high : float or array-like
        The box; infinite where there is none.
    """

    l1: float = 0.0
    l2: float = 0.0
    low: float | Vector = -math.inf
    high: float | Vector = math.inf

    def __post_init__(self) -> None:
        if not (0 <= self.l1 < math.inf and 0 <= self.l2 < math.inf):
            raise ValueError("the penalties l1 and l2 must be non-negative and finite.")
        if not np.all(np.asarray(self.low) <= np.asarray(self.high)):
            raise ValueError("a box needs its lower bounds below its upper bounds.")

    @classmethod
    def over(cls, domain: Domain, l1: float, l2: float) -> Separable:
        """The penalty on a box or on the whole space."""
        if isinstance(domain, Box):
            return cls(l1, l2, np.asarray(domain.lower), np.asarray(domain.upper))
        if isinstance(domain, WholeSpace):
            return cls(l1, l2)
        raise ValueError(f"{type(domain).__name__} does not split into coordinates.")

    def at(self, index: int) -> Separable:
        """The term of one coordinate."""

        def pick(bound: float | Vector) -> float:
            return float(bound if np.ndim(bound) == 0 else np.asarray(bound)[index])

        return Separable(self.l1, self.l2, pick(self.low), pick(self.high))

    def value(self, theta: ArrayLike) -> Vector:
        """psi_j(theta_j) for points of the box."""
        theta = np.asarray(theta, dtype=float)
        return self.l1 * np.abs(theta) + 0.5 * self.l2 * theta * theta

    def prox(self, x: ArrayLike, step: ArrayLike) -> Vector:
        """argmin over z of (z - x)^2 / (2 step) + psi(z), coordinate by coordinate."""
        x, step = np.asarray(x, dtype=float), np.asarray(step, dtype=float)
        shrunk = np.sign(x) * np.maximum(np.abs(x) - step * self.l1, 0.0)
        return np.clip(shrunk / (1 + step * self.l2), self.low, self.high)

    def slope_distance(self, theta: ArrayLike, gradient: ArrayLike) -> Vector:
        """min |gradient + xi| over subgradients xi of psi at theta, coordinate by coordinate."""
        theta = np.asarray(theta, dtype=float)
        smooth = np.asarray(gradient, dtype=float) + self.l2 * theta
        least = smooth + np.where(theta > 0, self.l1, -self.l1)
        most = smooth + np.where(theta < 0, -self.l1, self.l1)
        least = np.where(theta <= self.low, -np.inf, least)
        most = np.where(theta >= self.high, np.inf, most)
        return np.maximum(np.maximum(least, -most), 0.0)
