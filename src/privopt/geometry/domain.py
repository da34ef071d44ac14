"""The constraint set: a closed convex set of public parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privopt.geometry.norms import Norm, norm

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Domain(ABC):
    """A nonempty closed convex set C in R^p.

    Points are float64 vectors; every method returns a new array.
    """

    @property
    def dimension(self) -> int | None:
        """The dimension p the set is fixed to; None if it exists in every dimension."""
        return None

    @property
    def bounded(self) -> bool:
        """Whether the set has finite diameter."""
        return True

    @abstractmethod
    def project(self, x: ArrayLike) -> Vector:
        """Return argmin {||theta - x||_2 : theta in C}."""

    @abstractmethod
    def linear_minimiser(self, g: ArrayLike) -> Vector:
        """Return a point of argmin {<g, theta> : theta in C}."""

    @abstractmethod
    def gauge(self, x: ArrayLike) -> float:
        """Return inf {t > 0 : c + (x - c)/t in C} about the centre c; inf if there is no such t."""

    @abstractmethod
    def centre(self, p: int) -> Vector:
        """Return the centre c, a point of the relative interior."""

    @abstractmethod
    def radius(self, norm: Norm, p: int) -> float:
        """Return sup {||theta - c|| : theta in C}."""

    @abstractmethod
    def diameter(self, norm: Norm, p: int) -> float:
        """Return sup {||theta - theta'|| : theta, theta' in C}."""

    def contains(self, x: ArrayLike, tolerance: float = 1e-9) -> bool:
        """Whether x lies within `tolerance` radii (l2) of the set."""
        point = np.asarray(x, dtype=np.float64)
        if not np.isfinite(point).all():
            return False
        point = self._vector(point)
        rounding = 8.0 * np.finfo(np.float64).eps * norm(point, "l2")
        slack = tolerance * self.radius("l2", point.size) + rounding
        return norm(point - self.project(point), "l2") <= slack

    def check_dimension(self, p: int) -> None:
        """Raise ValueError unless the set exists in R^p."""
        if p < 1:
            raise ValueError(f"the dimension p must be at least 1; got {p}.")
        if self.dimension is not None and p != self.dimension:
            raise ValueError(
                f"this {type(self).__name__} lies in dimension {self.dimension}; "
                f"it was used in dimension {p}."
            )

    def _vector(self, x: ArrayLike) -> Vector:
        """Return x as a float64 vector (maybe a view) of a dimension the set exists in."""
        vector = np.asarray(x, dtype=np.float64)
        if vector.ndim != 1:
            raise ValueError(
                f"{type(self).__name__} needs a vector; got an array with {vector.ndim} axes."
            )
        self.check_dimension(vector.size)
        if not np.isfinite(vector).all():
            raise ValueError(f"{type(self).__name__} needs finite numbers; got NaN or infinity.")
        return vector
