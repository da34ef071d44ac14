"""The l2 and the l1 ball."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from privopt.geometry import norms
from privopt.geometry.domain import Domain, Vector
from privopt.geometry.norms import Norm
from privopt.geometry.simplex import project_to_simplex


def _checked_size(name: str, radius: float) -> float:
    size = float(radius)
    if not (math.isfinite(size) and size > 0.0):
        raise ValueError(f"{name} needs a positive finite radius; got {size}.")
    return size


# The constructors are written out because `radius` and `centre` are methods of every domain.
@dataclass(frozen=True, init=False, repr=False)
class L2Ball(Domain):
    """The set {||theta - centre||_2 <= radius}.

    Parameters
    ----------
    radius : float
        Positive and finite.
    centre : array-like, optional
        The middle; the origin of whatever dimension if None.
    """

    size: float
    middle: tuple[float, ...] | None

    def __init__(self, radius: float, centre: ArrayLike | None = None) -> None:
        object.__setattr__(self, "size", _checked_size("L2Ball", radius))
        middle = None
        if centre is not None:
            array = np.asarray(centre, dtype=np.float64)
            if array.ndim != 1 or array.size == 0 or not np.isfinite(array).all():
                raise ValueError("L2Ball needs a centre that is a nonempty finite vector.")
            middle = tuple(array.tolist())
        object.__setattr__(self, "middle", middle)

    def __repr__(self) -> str:
        centre = "" if self.middle is None else f", centre={self.middle}"
        return f"L2Ball({self.size}{centre})"

    @property
    def dimension(self) -> int | None:
        return None if self.middle is None else len(self.middle)

    def project(self, x: ArrayLike) -> Vector:
        x = self._vector(x)
        centre = self.centre(x.size)
        offset = x - centre
        length = norms.norm(offset, "l2")
        if length <= self.size:
            return x.copy()
        return centre + self.size * (offset / length)

    def linear_minimiser(self, g: ArrayLike) -> Vector:
        g = self._vector(g)
        centre = self.centre(g.size)
        length = norms.norm(g, "l2")
        return centre if length == 0.0 else centre - self.size * (g / length)

    def gauge(self, x: ArrayLike) -> float:
        """Return ||x - centre||_2 / radius."""
        x = self._vector(x)
        return norms.norm(x - self.centre(x.size), "l2") / self.size

    def centre(self, p: int) -> Vector:
        self.check_dimension(p)
        return np.zeros(p) if self.middle is None else self._middle.copy()

    def radius(self, norm: Norm, p: int) -> float:
        self.check_dimension(p)
        return self.size * norms.ratio(norm, "l2", p)

    def diameter(self, norm: Norm, p: int) -> float:
        return 2.0 * self.radius(norm, p)

    @cached_property
    def _middle(self) -> Vector:
        return np.array(self.middle)


@dataclass(frozen=True, init=False, repr=False)
class L1Ball(Domain):
    """The set {||theta||_1 <= radius}.

    Parameters
    ----------
    radius : float
        Positive and finite.
    """

    size: float

    def __init__(self, radius: float) -> None:
        object.__setattr__(self, "size", _checked_size("L1Ball", radius))

    def __repr__(self) -> str:
        return f"L1Ball({self.size})"

    def project(self, x: ArrayLike) -> Vector:
        """Return the projection; |x| goes to the simplex and the signs come back."""
        x = self._vector(x)
        if norms.norm(x, "l1") <= self.size:
            return x.copy()
        return np.copysign(project_to_simplex(np.abs(x), self.size), x)

    def linear_minimiser(self, g: ArrayLike) -> Vector:
        g = self._vector(g)
        vertex = np.zeros(g.size)
        j = int(np.argmax(np.abs(g)))
        vertex[j] = -math.copysign(self.size, float(g[j]))
        return vertex

    def gauge(self, x: ArrayLike) -> float:
        """Return ||x||_1 / radius."""
        return norms.norm(self._vector(x), "l1") / self.size

    def centre(self, p: int) -> Vector:
        self.check_dimension(p)
        return np.zeros(p)

    def radius(self, norm: Norm, p: int) -> float:
        self.check_dimension(p)
        return self.size * norms.ratio(norm, "l1", p)

    def diameter(self, norm: Norm, p: int) -> float:
        return 2.0 * self.radius(norm, p)
