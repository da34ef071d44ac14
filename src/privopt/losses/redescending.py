"""Robust losses that stop growing: a far outlier pulls at nothing. Smooth, and not convex."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
from array_api_compat import array_namespace
from scipy.optimize import brentq

from privopt.losses.loss import Array, Loss

FAR = 40.0
"""Residual in widths from which on exp(-u^2) is zero."""


@dataclass(frozen=True)
class Redescending(Loss):
    """f(z, y) = h(|z - y|), h rising to a limit, its slope rising to a peak and falling again.

    The curvature is at most 1, at a residual of zero, as the squared loss has it.
    """

    width: float = 1.0

    convex: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", float(self.width))
        if not (math.isfinite(self.width) and self.width > 0.0):
            name = type(self).__name__
            raise ValueError(f"{name} needs a positive finite width; got {self.width}.")

    @property
    @abstractmethod
    def steepest(self) -> float:
        """The residual at which the slope is largest."""

    @property
    def lipschitz(self) -> float:
        at = np.array([self.steepest])
        # The peak of the computed slope, whatever its last digit.
        return float(self.slope(at, 0.0 * at)[0]) * (1 + 4 * np.finfo(np.float64).eps)

    @property
    def smoothness(self) -> float:
        return 1.0

    def _range(self, margin: float, label: float) -> float:
        far = min(label, margin)
        if label > margin and math.isfinite(margin):
            # Beyond, both ends rise with the label: the far one loses slope, the near one gains.
            def gain(y: float) -> float:
                ends = self.slope(np.array([y + margin, y - margin]), np.zeros(2))
                return float(ends[0] - ends[1])

            most = cast(float, brentq(gain, margin, margin + self.steepest, xtol=1e-15))
            far = min(label, most)
        ends = np.array([far + margin, max(far - margin, 0.0)])
        high, low = self.value(ends, np.zeros(2))
        return float(high - low)


@dataclass(frozen=True)
class Welsch(Redescending):
    """f(z, y) = w^2/2 (1 - exp(-(r/w)^2)), with r = z - y.

    The slope r exp(-(r/w)^2) peaks at r = w/sqrt(2), the curvature (1 - 2u) exp(-u), u = (r/w)^2,
    is least at u = 3/2: weakly convex with constant 2 exp(-3/2).

    Parameters
    ----------
    width : float
        Residuals much beyond it count as outliers.
    """

    @property
    def steepest(self) -> float:
        return self.width / math.sqrt(2)

    @property
    def weak_convexity(self) -> float:
        return 2 * math.exp(-1.5)

    def value(self, z: Array, y: Array) -> Array:
        return -0.5 * self.width**2 * array_namespace(z).expm1(-self._square(z - y))

    def slope(self, z: Array, y: Array) -> Array:
        residual = (z - y).clip(-FAR * self.width, FAR * self.width)
        return residual * array_namespace(z).exp(-self._square(residual))

    def curvature(self, z: Array, y: Array) -> Array:
        u = self._square(z - y)
        return (1.0 - 2.0 * u) * array_namespace(z).exp(-u)

    def _square(self, residual: Array) -> Array:
        return ((1.0 / self.width) * residual).clip(-FAR, FAR) ** 2


@dataclass(frozen=True)
class TukeyBiweight(Redescending):
    """f(z, y) = w^2/6 (1 - (1 - u)^3) for u = (z - y)^2/w^2 <= 1, and w^2/6 beyond.

    The slope r (1 - u)^2 peaks at u = 1/5, the curvature (1 - u)(1 - 5u) is least at u = 3/5:
    weakly convex with constant 4/5.

    Parameters
    ----------
    width : float
        Residuals beyond it have no influence at all.
    """

    @property
    def steepest(self) -> float:
        return self.width / math.sqrt(5)

    @property
    def weak_convexity(self) -> float:
        return 0.8

    @property
    def linear_beyond(self) -> float:
        return self.width

    def value(self, z: Array, y: Array) -> Array:
        return self.width**2 / 6.0 * (1.0 - self._inside(z - y) ** 3)

    def slope(self, z: Array, y: Array) -> Array:
        return (z - y) * self._inside(z - y) ** 2

    def curvature(self, z: Array, y: Array) -> Array:
        inside = self._inside(z - y)
        return inside * (5.0 * inside - 4.0)

    def _inside(self, residual: Array) -> Array:
        """1 - u, or 0 beyond the width."""
        return 1.0 - ((1.0 / self.width) * residual).clip(-1.0, 1.0) ** 2
