"""Maps: public, declared, Lipschitz. The only functions that may touch a sealed value."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from privopt.geometry import Domain, L1Ball, Polytope, Simplex
from privopt.oracle.incremental_gradient import IncrementalGradient
from privopt.oracle.sensitivity import SensitivityNorm


@dataclass(frozen=True, slots=True)
class Scale:
    """x -> factor * x."""

    factor: float
    norm_in: SensitivityNorm = "l2"

    @property
    def norm_out(self) -> SensitivityNorm:
        return self.norm_in

    def stretch(self, radius: Any) -> Any:
        return abs(self.factor) * radius

    def apply(self, payload: Any) -> Any:
        return self.factor * payload


@dataclass(frozen=True, slots=True)
class Loosen:
    """The same vector, its bound restated in a weaker norm: ||x||_inf <= ||x||_2 <= ||x||_1."""

    norm_in: SensitivityNorm
    norm_out: SensitivityNorm

    def __post_init__(self) -> None:
        order = ["l1", "l2", "linf"]
        if order.index(self.norm_in) > order.index(self.norm_out):
            raise ValueError(f"a bound in {self.norm_in} gives none in {self.norm_out}.")

    def stretch(self, radius: Any) -> Any:
        return radius

    def apply(self, payload: Any) -> Any:
        return payload


@dataclass(frozen=True, slots=True)
class Coordinates:
    """x -> the listed coordinates of x."""

    indices: tuple[int, ...]
    norm_in: SensitivityNorm = "l2"

    @property
    def norm_out(self) -> SensitivityNorm:
        return self.norm_in

    def stretch(self, radius: Any) -> Any:
        return radius[list(self.indices)] if self.norm_in == "coordinates" else radius

    def apply(self, payload: Any) -> Any:
        return payload[list(self.indices)]


@dataclass(frozen=True, eq=False)
class Linear:
    """x -> A x in l2; stretches by the largest singular value, rounded up."""

    matrix: np.ndarray
    norm_in: SensitivityNorm = "l2"
    norm_out: SensitivityNorm = "l2"

    def __post_init__(self) -> None:
        matrix = np.array(self.matrix, dtype=float)
        if matrix.ndim != 2 or not np.isfinite(matrix).all():
            raise ValueError("a linear map needs a finite two-dimensional matrix.")
        matrix.setflags(write=False)
        object.__setattr__(self, "matrix", matrix)

    def stretch(self, radius: Any) -> Any:
        return float(np.linalg.norm(self.matrix, 2)) * (1 + 1e-12) * radius

    def apply(self, payload: Any) -> Any:
        return self.matrix @ payload


@dataclass(frozen=True, eq=False)
class Shift:
    """x -> x + offset, with a public offset."""

    offset: np.ndarray
    norm_in: SensitivityNorm = "l2"

    @property
    def norm_out(self) -> SensitivityNorm:
        return self.norm_in

    def stretch(self, radius: Any) -> Any:
        return radius

    def apply(self, payload: Any) -> Any:
        return payload + self.offset


@dataclass(frozen=True, eq=False)
class Rescale:
    """x -> x / scales, which turns a bound per coordinate into one for all of them."""

    scales: np.ndarray
    norm_in: SensitivityNorm = "coordinates"
    norm_out: SensitivityNorm = "linf"

    def __post_init__(self) -> None:
        scales = np.array(self.scales, dtype=float)
        if not (np.isfinite(scales).all() and (scales > 0).all()):
            raise ValueError("scales must be positive and finite.")
        scales.setflags(write=False)
        object.__setattr__(self, "scales", scales)

    def stretch(self, radius: Any) -> Any:
        return float(np.max(np.asarray(radius) / self.scales))

    def apply(self, payload: Any) -> Any:
        return payload / self.scales


@dataclass(frozen=True, slots=True)
class Spread:
    """The same scores, their bound restated as a range: one may rise while another falls."""

    norm_in: SensitivityNorm = "linf"
    norm_out: SensitivityNorm = "range"

    def __post_init__(self) -> None:
        if self.norm_in not in ("linf", "coordinates"):
            raise ValueError(f"a bound in {self.norm_in} is not restated as a range.")

    def stretch(self, radius: Any) -> Any:
        if self.norm_in == "linf":
            return 2 * radius
        return float(np.sort(np.asarray(radius))[-2:].sum())

    def apply(self, payload: Any) -> Any:
        return payload


@dataclass(frozen=True, eq=False)
class VertexScores:
    """x -> minus the inner products with the vertices of a polytope, the best vertex highest.

    Moving x by at most r in every coordinate moves two of the scores apart by at most r times the
    l1 distance of their vertices, and by that much for the farthest two.
    """

    domain: Domain
    dimension: int
    norm_in: SensitivityNorm = "linf"
    norm_out: SensitivityNorm = "range"

    def __post_init__(self) -> None:
        if not isinstance(self.domain, (L1Ball, Simplex, Polytope)):
            raise ValueError(f"{type(self.domain).__name__} has no list of vertices.")

    @property
    def count(self) -> int:
        """Number of vertices."""
        if isinstance(self.domain, Polytope):
            return len(self.domain.vertices)
        return self.dimension * (2 if isinstance(self.domain, L1Ball) else 1)

    def vertex(self, index: int) -> np.ndarray:
        """A vertex by the place of its score."""
        if isinstance(self.domain, Polytope):
            return self.domain.vertices[index].copy()
        vertex = np.zeros(self.dimension)
        coordinate, value = self.entry(index)
        vertex[coordinate] = value
        return vertex

    def entry(self, index: int) -> tuple[int, float]:
        """The only non-zero coordinate of a vertex, and its value."""
        size = self._size
        if index < self.dimension:
            return index, size
        return index - self.dimension, -size

    def stretch(self, radius: Any) -> Any:
        return self._diameter * radius

    def apply(self, payload: Any) -> Any:
        if isinstance(payload, IncrementalGradient):
            return payload.over_vertices(self._size, isinstance(self.domain, L1Ball))
        if isinstance(self.domain, Polytope):
            return -(self.domain.vertices @ payload)
        if isinstance(self.domain, Simplex):
            return -self._size * payload
        return np.concatenate([-self._size * payload, self._size * payload])

    @property
    def _size(self) -> float:
        """Of the only non-zero coordinate of a vertex."""
        if isinstance(self.domain, Polytope):
            raise ValueError("the vertices of a list have many non-zero coordinates.")
        return self.domain.size if isinstance(self.domain, L1Ball) else self.domain.scale  # type: ignore[attr-defined]

    @cached_property
    def _diameter(self) -> float:
        return self.domain.diameter("l1", self.dimension) * (1 + 1e-12)
