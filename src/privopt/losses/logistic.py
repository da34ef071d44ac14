"""The logistic loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from array_api_compat import array_namespace

from privopt.losses.loss import Array, Loss


@dataclass(frozen=True)
class Logistic(Loss):
    """f(z, y) = log(1 + exp(-y z)) for y = -1 or +1."""

    one_signed: ClassVar[bool] = True
    classification: ClassVar[bool] = True
    curved: ClassVar[bool] = True

    def value(self, z: Array, y: Array) -> Array:
        xp = array_namespace(z)
        half = 0.5 * (y * z)
        size = abs(half)
        return xp.log1p(xp.exp(-2.0 * size)) + (size - half)

    def slope(self, z: Array, y: Array) -> Array:
        """Return (tanh(z/2) - y)/2, which is -y/(1 + exp(y z)) for y = -1 or +1."""
        return 0.5 * (array_namespace(z).tanh(0.5 * z) - y)

    def curvature(self, z: Array, y: Array) -> Array:
        """Return (1 - tanh(z/2)^2)/4."""
        t = array_namespace(z).tanh(0.5 * z)
        return 0.25 * (1.0 - t * t)

    def least_curvature(self, z: Array, y: Array, width: Array) -> Array:
        # The curvature falls with |z|; e / (1 + e)^2 does not cancel where 1 - tanh^2 would.
        xp = array_namespace(z)
        e = xp.exp(-(abs(z) + width))
        return e / (1.0 + e) ** 2

    @property
    def lipschitz(self) -> float:
        return 1.0

    @property
    def smoothness(self) -> float:
        return 0.25

    def _range(self, margin: float, label: float) -> float:
        # log(1 + e^b) - log(1 + e^-b) = b.
        return margin
