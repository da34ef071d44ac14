"""The part of a set that lies close to one of its points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from privopt.geometry.domain import Domain, Vector
from privopt.geometry.norms import Norm, ratio


@dataclass(frozen=True, eq=False)
class Near(Domain):
    """The points of a domain within a distance of one of its points."""

    domain: Domain
    point: np.ndarray
    distance: float

    def project(self, x: ArrayLike) -> Vector:
        """Exact: the projection is project(point + s (x - point)) for the largest s in [0, 1] at
        which that lies within the distance, and its distance from the point grows with s."""
        away = np.asarray(x, dtype=float) - self.point

        def at(share: float) -> Vector:
            return self.domain.project(self.point + share * away)

        def inside(y: Vector) -> bool:
            return bool(np.linalg.norm(y - self.point) <= self.distance)

        if inside(at(1.0)):
            return at(1.0)
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if inside(at(middle)) else (low, middle)
        return at(low)

    def centre(self, p: int) -> Vector:
        return self.point.copy()

    def radius(self, norm: Norm, p: int) -> float:
        return self.distance * ratio(norm, "l2", p)

    def diameter(self, norm: Norm, p: int) -> float:
        return 2 * self.radius(norm, p)

    def linear_minimiser(self, g: ArrayLike) -> Vector:
        raise NotImplementedError("a search near a point asks for projections only.")

    def gauge(self, x: ArrayLike) -> float:
        raise NotImplementedError("a search near a point asks for projections only.")
