"""The hinge loss, and its smoothed form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from array_api_compat import array_namespace

from privopt.losses.loss import Array, Loss
from privopt.losses.smoothed import SmoothedLines


@dataclass(frozen=True)
class Hinge(Loss):
    """f(z, y) = max(0, 1 - y z) for y = -1 or +1."""

    one_signed: ClassVar[bool] = True
    classification: ClassVar[bool] = True

    def value(self, z: Array, y: Array) -> Array:
        return (1.0 - y * z).clip(min=0.0)

    def slope(self, z: Array, y: Array) -> Array:
        """Return -y where y z < 1 and 0 elsewhere."""
        m = y * z
        return -y * array_namespace(m).astype(m < 1.0, m.dtype)

    def curvature(self, z: Array, y: Array) -> Array:
        return array_namespace(z).zeros_like(z)

    def pieces(self, y: Array) -> tuple[Array, Array, Array]:
        return y, -0.5 * (1.0 + y), 0.5 * (1.0 - y)

    @property
    def lipschitz(self) -> float:
        return 1.0

    @property
    def smoothness(self) -> float:
        return math.inf

    def _range(self, margin: float, label: float) -> float:
        return margin + min(margin, 1.0)


@dataclass(frozen=True)
class SmoothedHinge(SmoothedLines):
    """The Huberised hinge, with m = y z and y = -1 or +1.

    f(z, y) = 0 for m >= 1 + w, (1 + w - m)^2 / (4 w) for |1 - m| <= w and 1 - m below.

    Parameters
    ----------
    width : float
        The half-width w of the parabola; the smoothness is 1/(2 w).
    """

    width: float = 0.5

    @property
    def lines(self) -> Loss:
        return Hinge()
