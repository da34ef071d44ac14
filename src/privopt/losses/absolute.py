"""The absolute loss."""

from __future__ import annotations

import math
from dataclasses import dataclass

from array_api_compat import array_namespace

from privopt.losses.loss import Array, Loss


@dataclass(frozen=True)
class Absolute(Loss):
    """f(z, y) = |z - y|."""

    def value(self, z: Array, y: Array) -> Array:
        return abs(z - y)

    def slope(self, z: Array, y: Array) -> Array:
        """Return sign(z - y), 0 at the kink."""
        residual = z - y
        return array_namespace(residual).sign(residual)

    def curvature(self, z: Array, y: Array) -> Array:
        return array_namespace(z).zeros_like(z)

    @property
    def linear_beyond(self) -> float:
        return 0.0

    def pieces(self, y: Array) -> tuple[Array, Array, Array]:
        return y, 0.0 * y - 1.0, 0.0 * y + 1.0

    @property
    def lipschitz(self) -> float:
        return 1.0

    @property
    def smoothness(self) -> float:
        return math.inf

    def _range(self, margin: float, label: float) -> float:
        return margin + min(margin, label)
