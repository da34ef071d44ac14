"""Mirror maps: how a descent step is taken in a geometry that is not Euclidean, in closed form.

A mirror map Phi is 1-strongly convex in its own norm on the set. A step from x against y solves
argmin over the set of <y, x'> + D(x', x), D the Bregman divergence of Phi: go to the dual by the
gradient of Phi, subtract y, come back, and project. For an l_p ball that projection only shortens
the vector, for the simplex it only rescales it, for the l1 ball it is a soft threshold: no inner
minimisation.

References: Nemirovski and Yudin (1983); Beck and Teboulle (2003).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import cast

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp

from privopt.geometry.ball import L1Ball, L2Ball
from privopt.geometry.domain import Domain, Vector
from privopt.geometry.lp_ball import LpBall
from privopt.geometry.norms import ascent, dual_order, lp_norm
from privopt.geometry.simplex import Simplex


@dataclass(frozen=True)
class MirrorMap(ABC):
    """A mirror map of a set in R^p, 1-strongly convex in the l_``order`` norm."""

    dimension: int

    @property
    @abstractmethod
    def order(self) -> float:
        """Exponent of the norm that Phi is strongly convex in."""

    @property
    @abstractmethod
    def size(self) -> float:
        """Largest Bregman divergence of a point of the set from its centre."""

    @abstractmethod
    def to_dual(self, x: Vector) -> Vector:
        """Gradient of Phi, up to a constant where the set does not see one."""

    @abstractmethod
    def from_dual(self, y: Vector) -> Vector:
        """The point of the set whose gradient it would be, after Bregman projection."""

    def step(self, x: Vector, y: Vector) -> Vector:
        """argmin over the set of <y, x'> + D(x', x)."""
        return self.from_dual(self.to_dual(x) - y)


@dataclass(frozen=True)
class NormMap(MirrorMap):
    """Phi = ||x||_r^2 / (2 (r - 1)), r = ``exponent`` in (1, 2], on a ball of l_r or of l1.

    The divergence from the centre is Phi, so projecting onto a ball of l_r is a scaling. Onto a
    ball of l1 (``sharp``) it is a soft threshold in the dual, since a multiple of the sign vector
    is what the constraint adds there; the threshold is the root of one monotone function.
    """

    exponent: float
    radius: float
    sharp: bool = False

    @property
    def order(self) -> float:
        return self.exponent

    @property
    def size(self) -> float:
        return self.radius**2 / (2 * (self.exponent - 1))

    def to_dual(self, x: Vector) -> Vector:
        # The gradient of ||x||_r^2 / 2 has dual norm ||x||_r and points where Hoelder is tight.
        length = lp_norm(x, self.exponent) / (self.exponent - 1)
        return length * ascent(x, dual_order(self.exponent))

    def from_dual(self, y: Vector) -> Vector:
        if not self.sharp:
            return min(self._length(y), self.radius) * ascent(y, self.exponent)

        def excess(threshold: float) -> float:
            return lp_norm(self._back(_soft(y, threshold)), 1) - self.radius

        if excess(0.0) <= 0.0:
            return self._back(y)
        most = float(np.abs(y).max())
        threshold = cast(float, brentq(excess, 0.0, most, xtol=1e-15 * most))
        x = self._back(_soft(y, threshold))
        return x * (self.radius / max(lp_norm(x, 1), self.radius))

    def _length(self, y: Vector) -> float:
        return (self.exponent - 1) * lp_norm(y, dual_order(self.exponent))

    def _back(self, y: Vector) -> Vector:
        return self._length(y) * ascent(y, self.exponent)


def _soft(y: Vector, threshold: float) -> Vector:
    return np.sign(y) * np.maximum(np.abs(y) - threshold, 0.0)


@dataclass(frozen=True)
class EntropicMap(MirrorMap):
    """Phi = scale * sum of x log x on the simplex {x >= 0, sum x = scale}, in the l1 norm.

    Pinsker's inequality makes the entropy of a simplex of this scale 1/scale-strongly convex. A
    point's divergence from the barycentre is at most scale^2 log(dimension).
    """

    scale: float

    @property
    def order(self) -> float:
        return 1.0

    @property
    def size(self) -> float:
        return self.scale**2 * math.log(max(self.dimension, 2))

    def to_dual(self, x: Vector) -> Vector:
        with np.errstate(divide="ignore"):
            return self.scale * np.log(x)

    def from_dual(self, y: Vector) -> Vector:
        y = y / self.scale
        return self.scale * np.exp(y - logsumexp(y))


def mirror_of(domain: Domain, dimension: int) -> MirrorMap:
    """The mirror map of an l_p ball with p <= 2 around the origin or of the simplex.

    On an l1 ball the square of the norm is not strongly convex; that of l_r with
    r = 1 + 1/log(dimension) is, at the price of a logarithm.
    """
    if isinstance(domain, Simplex):
        return EntropicMap(dimension, domain.scale)
    if isinstance(domain, L2Ball) and domain.middle is None:
        return NormMap(dimension, 2.0, domain.size)
    if isinstance(domain, (L1Ball, LpBall)):
        order = 1.0 if isinstance(domain, L1Ball) else domain.order
        if order == 1:
            exponent = 1 + 1 / max(1.0, math.log(dimension))
            return NormMap(dimension, exponent, domain.size, sharp=True)
        if order <= 2:
            return NormMap(dimension, order, domain.size)
    raise ValueError(
        f"{domain!r} has no mirror map: use L1Ball, L2Ball, LpBall with p <= 2, or Simplex."
    )
