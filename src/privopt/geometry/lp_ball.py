"""The l_p ball, 1 <= p <= infinity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from privopt.geometry.domain import Domain, Vector
from privopt.geometry.norms import (
    Norm,
    ascent,
    dual_order,
    lp_norm,
    order_named,
    order_ratio,
)
from privopt.geometry.simplex import project_to_simplex


@dataclass(frozen=True, init=False, repr=False)
class LpBall(Domain):
    """The set {||theta||_p <= radius}.

    Parameters
    ----------
    p : float
        The exponent of the norm, at least 1; ``math.inf`` is a cube.
    radius : float
        Positive and finite.
    """

    order: float
    size: float

    def __init__(self, p: float, radius: float) -> None:
        order, size = float(p), float(radius)
        if not order >= 1.0:
            raise ValueError(f"LpBall needs p >= 1, got {order}: a smaller p makes no convex set.")
        if not (math.isfinite(size) and size > 0.0):
            raise ValueError(f"LpBall needs a positive finite radius; got {size}.")
        object.__setattr__(self, "order", order)
        object.__setattr__(self, "size", size)

    def __repr__(self) -> str:
        return f"LpBall({self.order}, {self.size})"

    def project(self, x: ArrayLike) -> Vector:
        """Return the Euclidean projection.

        Signs stay. With a = |x| and a multiplier m >= 0 the answer solves u + m u^(p-1) = a in
        every coordinate, and m is the root of ||u||_p = radius.
        """
        x = self._vector(x)
        if lp_norm(x, self.order) <= self.size:
            return x.copy()
        if math.isinf(self.order):
            return np.clip(x, -self.size, self.size)
        if self.order == 1:
            return np.copysign(project_to_simplex(np.abs(x), self.size), x)
        if self.order == 2:
            return x * (self.size / lp_norm(x, 2))
        u = _project_to_sphere(np.abs(x) / self.size, self.order)
        return np.copysign(u * self.size, x)

    def linear_minimiser(self, g: ArrayLike) -> Vector:
        return -self.size * ascent(self._vector(g), self.order)

    def gauge(self, x: ArrayLike) -> float:
        """Return ||x||_p / radius."""
        return lp_norm(self._vector(x), self.order) / self.size

    def centre(self, p: int) -> Vector:
        self.check_dimension(p)
        return np.zeros(p)

    def radius(self, norm: Norm, p: int) -> float:
        self.check_dimension(p)
        return self.size * order_ratio(order_named(norm), self.order, p)

    def diameter(self, norm: Norm, p: int) -> float:
        return 2.0 * self.radius(norm, p)


def _project_to_sphere(a: Vector, p: float) -> Vector:
    """Return the point u >= 0 of ||u||_p = 1 nearest to a >= 0, with ||a||_p > 1 and p not 1, 2.

    In units of the largest a the condition is c u + m u^(p-1) = b with c = 1/max(a). Since u <= 1,
    the multiplier m lies between ||(b - c)_+||_q and ||b||_q.
    """
    c = 1 / float(a.max())
    b = a * c
    u = np.zeros(a.size)
    alive = b > 0.0

    def norm_at(m: float) -> float:
        if p > 2:
            u[alive] = _root(c, m, p - 1, b[alive])
        else:
            u[alive] = _root(m, c, 1 / (p - 1), b[alive]) ** (1 / (p - 1))
        return lp_norm(u, p)

    q = dual_order(p)
    low, high = lp_norm(np.maximum(b - c, 0.0), q), lp_norm(b, q)
    if norm_at(low) > 1.0 > norm_at(high):
        norm_at(cast(float, brentq(lambda m: norm_at(m) - 1.0, low, high, xtol=1e-300)))
    return u / lp_norm(u, p)  # rounding only


def _root(linear: float, power: float, s: float, b: Vector) -> Vector:
    """Return v > 0 with linear v + power v^s = b, for s > 1 and every b > 0.

    The left side is convex and increasing, and the start is not below the root: Newton's method
    falls to it without ever passing it.
    """
    with np.errstate(divide="ignore"):
        v = np.minimum(b / np.float64(linear), (b / np.float64(power)) ** (1 / s))
    for _ in range(100):
        step = (linear * v + power * v**s - b) / (linear + power * s * v ** (s - 1))
        v = v - step
        if (step <= 1e-16 * v).all():
            break
    return v
