"""Least squares from noisy moments: the public half."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from privopt.numerics.trust_region import minimise_quadratic, unsvec
from privopt.oracle.rows import RowBounds

SAFE = 2.0
"""Shrinkage: the ridge in units of the noise's spectral norm. A smaller one lets noise decide
directions, and is better where the signal stands out of it."""
TINY = 1e-12
"""Keeps the solution unique where neither noise nor problem brings a ridge."""


@dataclass
class QuadraticLeader:
    """The public half: from noisy moments, one block after the other, to iterates.

    ``moments`` is the running sum of the released vectors, ``noise`` the standard deviation of one
    of its coordinates. ``ridge`` is the problem's own for the records of one block.
    """

    STATE: ClassVar[tuple[str, ...]] = ("steps", "noise", "moments")

    bounds: RowBounds
    label_bound: float
    dimension: int
    radius: float
    ridge: float = 0.0
    shrinkage: float = SAFE
    steps: int = 0
    noise: float = 0.0
    moments: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.moments = np.zeros(self.dimension * (self.dimension + 3) // 2)

    @property
    def coordinates(self) -> int:
        """Of what it takes in."""
        return len(self.moments)

    def take(self, moments: np.ndarray, noise: float) -> None:
        """Take in the noisy moments of a block, and the noise of their running sum."""
        self.steps += 1
        self.moments = self.moments + moments
        self.noise = noise

    def iterate(self) -> np.ndarray:
        """The minimiser after the steps so far."""
        p, size = self.dimension, self.bounds.size
        if self.steps == 0:
            return np.zeros(p)
        noise = size**2 * self.noise * math.sqrt(2 * p)
        return minimise_quadratic(
            size**2 * unsvec(self.moments[:-p]),
            self.label_bound * size * self.moments[-p:],
            self.shrinkage * noise + self.ridge * self.steps + TINY,
            self.radius,
        )
