"""Maps: public, declared, Lipschitz. The only functions that may touch a sealed value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from privopt.oracle.reach import ReachNorm


@dataclass(frozen=True, slots=True)
class Scale:
    """x -> factor * x."""

    factor: float
    norm_in: ReachNorm = "l2"

    @property
    def norm_out(self) -> ReachNorm:
        return self.norm_in

    def stretch(self, radius: Any) -> Any:
        return abs(self.factor) * radius

    def apply(self, payload: Any) -> Any:
        return self.factor * payload


@dataclass(frozen=True, slots=True)
class Loosen:
    """The same vector, its bound restated in a weaker norm: ||x||_inf <= ||x||_2 <= ||x||_1."""

    norm_in: ReachNorm
    norm_out: ReachNorm

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
    norm_in: ReachNorm = "l2"

    @property
    def norm_out(self) -> ReachNorm:
        return self.norm_in

    def stretch(self, radius: Any) -> Any:
        return radius[list(self.indices)] if self.norm_in == "coordinates" else radius

    def apply(self, payload: Any) -> Any:
        return payload[list(self.indices)]


@dataclass(frozen=True, slots=True)
class SignedVertices:
    """x -> (-r x, r x): minus the inner products with the vertices of an l1 ball of radius r."""

    radius: float
    norm_in: ReachNorm = "linf"
    norm_out: ReachNorm = "linf"

    def stretch(self, radius: Any) -> Any:
        return self.radius * radius

    def apply(self, payload: Any) -> Any:
        return np.concatenate([-self.radius * payload, self.radius * payload])


@dataclass(frozen=True, eq=False)
class Linear:
    """x -> A x in l2; stretches by the largest singular value, rounded up."""

    matrix: np.ndarray
    norm_in: ReachNorm = "l2"
    norm_out: ReachNorm = "l2"

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
