"""The convex hull of a public list of vertices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linprog
from scipy.spatial.distance import cdist

from privopt.geometry import norms
from privopt.geometry.domain import Domain, Vector
from privopt.geometry.norms import Norm
from privopt.numerics.nearest_point import nearest_weights

_METRIC: dict[Norm, Literal["cityblock", "euclidean", "chebyshev"]] = {
    "l1": "cityblock",
    "l2": "euclidean",
    "linf": "chebyshev",
}
# Beyond so many radii the input counts as a direction: double precision tells no more.
_FAR = 1e12


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Polytope(Domain):
    """The convex hull of `vertices`; its centre is their mean.

    Parameters
    ----------
    vertices : array-like of shape (m, p)
        One vertex a row; kept in this order as a read-only array. Rows inside the hull are allowed.
    """

    vertices: Vector

    def __init__(self, vertices: ArrayLike) -> None:
        # Adding 0.0 makes a fresh copy and turns -0.0 into 0.0, so that equal sets hash alike.
        array = np.array(vertices, dtype=np.float64) + 0.0
        if array.ndim != 2 or array.size == 0:
            raise ValueError("Polytope needs a nonempty list of vertices of equal length.")
        if not np.isfinite(array).all():
            raise ValueError("Polytope needs finite vertices; got NaN or infinity.")
        array.setflags(write=False)
        object.__setattr__(self, "vertices", array)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Polytope):
            return NotImplemented
        return np.array_equal(self.vertices, other.vertices)

    def __hash__(self) -> int:
        return hash((self.vertices.shape, self.vertices.tobytes()))

    def __repr__(self) -> str:
        return f"Polytope({self.vertices.shape[0]} vertices in dimension {self.dimension})"

    def __reduce__(self) -> tuple[type[Polytope], tuple[Vector]]:
        return Polytope, (self.vertices,)

    @property
    def dimension(self) -> int:
        return int(self.vertices.shape[1])

    def project(self, x: ArrayLike) -> Vector:
        """Return the projection by Wolfe's algorithm, exact up to rounding."""
        offset = self._vector(x) - self._middle
        if self._size == 0.0:
            return self._middle.copy()
        length = norms.norm(offset, "l2")
        far = length / self._size > _FAR
        scaled = _FAR * (offset / length) if far else offset / self._size
        weights, _ = nearest_weights(self._unit_vertices, scaled)
        return weights @ self.vertices

    def linear_minimiser(self, g: ArrayLike) -> Vector:
        g = self._vector(g)
        largest = norms.norm(g, "linf")
        direction = g / largest if largest > 0.0 else g
        return self.vertices[int(np.argmin(self._unit_vertices @ direction))].copy()

    def gauge(self, x: ArrayLike) -> float:
        """Return min {sum w : w >= 0, sum_i w_i (v_i - c) = x - c}, a linear programme."""
        x = self._vector(x)
        offset = x - self._middle
        length = norms.norm(offset, "l2")
        if length == 0.0:
            return 0.0
        direction = offset / length
        left, values, right = self._decomposition
        inside = right @ direction
        off_hull = norms.norm(direction - inside @ right, "l2")
        rounding = 8.0 * np.finfo(np.float64).eps * norms.norm(x, "l2")
        if off_hull * length > 1e-9 * max(length, self._size) + rounding:
            return math.inf
        # The gauge is invariant under linear maps: whitened vertices suit the solver's tolerances.
        whitened = inside / values
        unit = norms.norm(whitened, "linf")
        if unit == 0.0:
            return 0.0
        solution = linprog(
            np.ones(left.shape[0]), A_eq=left.T, b_eq=whitened / unit, method="highs"
        )
        if solution.status != 0:
            raise RuntimeError("the linear programme of Polytope.gauge did not converge.")
        return float(solution.fun) * unit * (length / self._size)

    def centre(self, p: int) -> Vector:
        self.check_dimension(p)
        return self._middle.copy()

    def radius(self, norm: Norm, p: int) -> float:
        norms.check_norm(norm)
        self.check_dimension(p)
        return self._size * float(cdist(self._unit_vertices, np.zeros((1, p)), _METRIC[norm]).max())

    def diameter(self, norm: Norm, p: int) -> float:
        """Return the largest distance of two vertices (quadratic in their number)."""
        norms.check_norm(norm)
        self.check_dimension(p)
        unit = self._unit_vertices
        if norm == "linf":
            return self._size * float(np.ptp(unit, axis=0).max())
        block = max(1, 4_000_000 // unit.shape[0])
        starts = range(0, unit.shape[0], block)
        return self._size * float(
            max(cdist(unit[s : s + block], unit[s:], _METRIC[norm]).max() for s in starts)
        )

    @cached_property
    def _middle(self) -> Vector:
        # Dividing first keeps the sum of huge vertices finite.
        return (self.vertices / self.vertices.shape[0]).sum(axis=0)

    @cached_property
    def _size(self) -> float:
        offsets = self.vertices - self._middle
        largest = norms.norm(offsets, "linf")
        return largest * float(np.linalg.norm(offsets / (largest or 1.0), axis=1).max())

    @cached_property
    def _unit_vertices(self) -> Vector:
        """The vertices about the centre in units of the l2 radius."""
        return (self.vertices - self._middle) / (self._size or 1.0)

    @cached_property
    def _decomposition(self) -> tuple[Vector, Vector, Vector]:
        """The singular value decomposition of the unit vertices, without its null part."""
        left, values, right = np.linalg.svd(self._unit_vertices, full_matrices=False)
        rank = int((values > 1e-12 * values.max(initial=0.0)).sum())
        # Rows of size about 1, whatever the number of vertices.
        spread = math.sqrt(left.shape[0])
        return left[:, :rank] * spread, values[:rank] / spread, right[:rank]
