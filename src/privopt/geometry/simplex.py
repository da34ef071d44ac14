"""The scaled probability simplex."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from privopt.geometry.domain import Domain, Vector
from privopt.geometry.norms import Norm, check_norm


def project_to_simplex(x: Vector, scale: float) -> Vector:
    """Return the Euclidean projection of x onto {theta >= 0, sum theta = scale}.

    The answer is max(x - tau, 0), with tau found by one sort (Duchi, Shalev-Shwartz, Singer and
    Chandra, 2008).
    """
    # The projection ignores a common shift; below zero nothing cancels, however large x is.
    shifted = x - x.max()
    # tau >= -scale, so that smaller entries are never active.
    candidates = np.sort(shifted[shifted > -scale])[::-1]
    excess = np.cumsum(candidates) - scale
    count = np.arange(1, candidates.size + 1)
    last = int(np.flatnonzero(candidates * count > excess)[-1])
    return np.maximum(shifted - excess[last] / (last + 1), 0.0)


@dataclass(frozen=True)
class Simplex(Domain):
    """The set {theta >= 0, sum theta = scale}; its centre is the barycentre.

    Parameters
    ----------
    scale : float
        The sum of the coordinates.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", float(self.scale))
        if not (math.isfinite(self.scale) and self.scale > 0.0):
            raise ValueError(f"Simplex needs a positive finite scale; got {self.scale}.")

    def project(self, x: ArrayLike) -> Vector:
        return project_to_simplex(self._vector(x), self.scale)

    def linear_minimiser(self, g: ArrayLike) -> Vector:
        g = self._vector(g)
        vertex = np.zeros(g.size)
        vertex[np.argmin(g)] = self.scale
        return vertex

    def gauge(self, x: ArrayLike) -> float:
        """Return 1 - p min(x) / scale on the hyperplane sum x = scale; inf off it."""
        x = self._vector(x)
        # Rounding in the sum must not throw a point off the hyperplane.
        if abs(float(x.sum()) - self.scale) > 1e-9 * max(self.scale, float(np.abs(x).sum())):
            return math.inf
        if x.size == 1:
            return 0.0
        return max(0.0, 1.0 - x.size * (float(x.min()) / self.scale))

    def centre(self, p: int) -> Vector:
        self.check_dimension(p)
        return np.full(p, self.scale / p)

    def radius(self, norm: Norm, p: int) -> float:
        check_norm(norm)
        self.check_dimension(p)
        missing = 1.0 - 1.0 / p
        factor = {"l1": 2.0 * missing, "l2": math.sqrt(missing), "linf": missing}[norm]
        return self.scale * factor

    def diameter(self, norm: Norm, p: int) -> float:
        check_norm(norm)
        self.check_dimension(p)
        if p == 1:
            return 0.0
        return self.scale * {"l1": 2.0, "l2": math.sqrt(2.0), "linf": 1.0}[norm]
