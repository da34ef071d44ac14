"""The whole space: no constraint."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from privopt.geometry.domain import Domain, Vector
from privopt.geometry.norms import Norm, check_norm


@dataclass(frozen=True)
class WholeSpace(Domain):
    """The set R^p, centred at the origin."""

    @property
    def bounded(self) -> bool:
        return False

    def project(self, x: ArrayLike) -> Vector:
        return self._vector(x).copy()

    def linear_minimiser(self, g: ArrayLike) -> Vector:
        raise ValueError(
            "WholeSpace has no linear minimiser because it is unbounded; "
            "use a bounded domain such as L2Ball(radius)."
        )

    def gauge(self, x: ArrayLike) -> float:
        """Return 0: every t > 0 will do."""
        self._vector(x)
        return 0.0

    def contains(self, x: ArrayLike, tolerance: float = 1e-9) -> bool:
        return bool(np.isfinite(np.asarray(x, dtype=np.float64)).all())

    def centre(self, p: int) -> Vector:
        self.check_dimension(p)
        return np.zeros(p)

    def radius(self, norm: Norm, p: int) -> float:
        check_norm(norm)
        self.check_dimension(p)
        return math.inf

    def diameter(self, norm: Norm, p: int) -> float:
        return self.radius(norm, p)
