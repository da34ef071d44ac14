"""The box."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from privopt.geometry import norms
from privopt.geometry.domain import Domain, Vector
from privopt.geometry.norms import Norm

Bound = float | tuple[float, ...]


@dataclass(frozen=True)
class Box(Domain):
    """The set {lower <= theta <= upper}, coordinate by coordinate.

    Parameters
    ----------
    lower, upper : float or array-like
        Finite bounds; two scalars make a cube that exists in every dimension.
    """

    lower: Bound
    upper: Bound

    def __post_init__(self) -> None:
        low = np.asarray(self.lower, dtype=np.float64)
        high = np.asarray(self.upper, dtype=np.float64)
        if max(low.ndim, high.ndim) > 1 or 0 in (low.size, high.size):
            raise ValueError("Box needs bounds that are numbers or nonempty vectors.")
        if low.ndim == high.ndim == 1 and low.size != high.size:
            raise ValueError(
                f"Box needs bounds of equal length; got {low.size} lower and {high.size} upper."
            )
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise ValueError("Box needs finite bounds; use WholeSpace() for no bounds.")
        if (low > high).any():
            raise ValueError("Box needs lower <= upper in every coordinate.")
        low, high = np.broadcast_arrays(low, high)
        for name, bound in (("lower", low), ("upper", high)):
            value = bound.tolist()
            object.__setattr__(self, name, tuple(value) if bound.ndim else value)

    @property
    def dimension(self) -> int | None:
        return len(self.lower) if isinstance(self.lower, tuple) else None

    def project(self, x: ArrayLike) -> Vector:
        return np.clip(self._vector(x), *self._bounds)

    def linear_minimiser(self, g: ArrayLike) -> Vector:
        return np.where(self._vector(g) > 0.0, *self._bounds)

    def gauge(self, x: ArrayLike) -> float:
        """Return max |x - centre| / half-width; inf if x leaves a coordinate of width 0."""
        x = self._vector(x)
        half = self._half_widths(x.size)
        offset = np.abs(x - self.centre(x.size))
        wide = half > 0.0
        if offset[~wide].any():
            return math.inf
        # A quotient beyond the largest float is rightly infinite.
        with np.errstate(over="ignore"):
            return float((offset[wide] / half[wide]).max(initial=0.0))

    def centre(self, p: int) -> Vector:
        self.check_dimension(p)
        low, high = self._bounds
        return np.full(p, 0.5 * low + 0.5 * high)

    def radius(self, norm: Norm, p: int) -> float:
        return norms.norm(self._half_widths(p), norm)

    def diameter(self, norm: Norm, p: int) -> float:
        return 2.0 * self.radius(norm, p)

    def _half_widths(self, p: int) -> Vector:
        self.check_dimension(p)
        low, high = self._bounds
        return np.full(p, 0.5 * high - 0.5 * low)

    @cached_property
    def _bounds(self) -> tuple[Vector, Vector]:
        return np.asarray(self.lower), np.asarray(self.upper)
