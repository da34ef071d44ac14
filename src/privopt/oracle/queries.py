"""Queries: public questions about records. The clip lives inside, so bound and clip agree."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace, is_numpy_array

from privopt.geometry.trust_region import svec
from privopt.losses import Loss
from privopt.oracle.counting import whole_steps
from privopt.oracle.reach import ReachNorm
from privopt.oracle.rows import CountedRows, RawRows, RowBounds, Rows, WalkableRows
from privopt.privacy.budget import Refused


class Query(Protocol):
    """A sum over records of a map that no record can push beyond a declared bound."""

    @property
    def norm(self) -> ReachNorm: ...
    def radius(self) -> Any:
        """Bound on one record's contribution: its movement under zero_out and add_remove."""
        ...

    def diameter(self) -> Any:
        """Bound on the difference of two records' contributions: replace_one."""
        ...

    def total(self, rows: Any, at: np.ndarray) -> np.ndarray: ...


@runtime_checkable
class CountableQuery(Query, Protocol):
    """A query that also answers in integers: steps of a grid, cut off record by record."""

    def count(self, rows: Any, at: np.ndarray, step: float) -> np.ndarray: ...


@dataclass(frozen=True, slots=True)
class ClippedGradient:
    """Sum of the records' loss gradients, each clipped to an l2 norm of ``clip_norm``.

    For a generalised linear model the gradient is slope times row, so clipping the scalar slope to
    clip_norm / ||row|| clips the gradient exactly, and the result is the gradient of a convex
    function again. Per-example gradients are never formed.
    """

    loss: Loss
    clip_norm: float
    norm: ReachNorm = "l2"

    def radius(self) -> float:
        return self.clip_norm

    def diameter(self) -> float:
        return 2 * self.clip_norm

    def total(self, rows: Rows, at: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            total = rows.weighted_sum(at, self._weigh)
            if np.isfinite(total).all():
                return total
            return rows.weighted_sum(at, self._weigh_carefully)

    def count(self, rows: CountedRows, at: np.ndarray, step: float) -> np.ndarray:
        with np.errstate(all="ignore"):
            return rows.counted_sum(at, self._weigh_carefully, self.clip_norm, step)

    def _weigh(self, margins: Any, labels: Any, sizes: Any) -> Any:
        slope = self.loss.slope(margins, labels)
        if not is_numpy_array(slope):
            return slope * (self.clip_norm / (abs(slope) * sizes).clip(min=self.clip_norm))
        factor = np.abs(slope)
        factor *= sizes
        np.maximum(factor, self.clip_norm, out=factor)
        np.divide(self.clip_norm, factor, out=factor)
        factor *= slope
        return factor

    def _weigh_carefully(self, margins: Any, labels: Any, sizes: Any) -> Any:
        xp = array_namespace(margins)
        weights = self._weigh(margins, labels, sizes)
        return xp.where(xp.isfinite(weights), weights, xp.zeros_like(weights))


@dataclass(frozen=True, slots=True)
class CoordinateClippedGradient:
    """Sum of the records' loss gradients, each coordinate of each record's bounded.

    A generalised linear model's gradient is slope times row. Rows keep their entries within the
    public ``bounds``; the slope is clipped to [-slope_clip, slope_clip]. The result is the gradient
    of a convex function again.

    ``norm`` "linf" states one bound for all coordinates, "coordinates" one for each of them.
    """

    loss: Loss
    slope_clip: float
    bounds: RowBounds
    dimension: int
    norm: ReachNorm = "linf"

    def __post_init__(self) -> None:
        if not 0 < self.slope_clip < math.inf or not self.bounds.largest < math.inf:
            raise ValueError("a coordinate-wise clip needs finite bounds on slope and features.")

    def radius(self) -> Any:
        if self.norm == "linf":
            return self.slope_clip * self.bounds.largest
        return self.slope_clip * self.bounds.each(self.dimension)

    def diameter(self) -> Any:
        return 2 * self.radius()

    def total(self, rows: Rows, at: np.ndarray) -> np.ndarray:
        self.check(rows)
        with np.errstate(all="ignore"):
            return rows.weighted_sum(at, self.weigh)

    def check(self, rows: Rows) -> None:
        """Refuse rows with other bounds."""
        if rows.bounds != self.bounds:
            raise Refused("the rows' bounds are not those of the question.")

    def weigh(self, margins: Any, labels: Any, sizes: Any) -> Any:
        """Slopes of records, clipped; what is not a number counts as zero."""
        slope = self.loss.slope(margins, labels)
        if is_numpy_array(slope):  # few records at a time are common: every call counts
            slope = np.minimum(np.maximum(slope, -self.slope_clip), self.slope_clip)
            return np.where(slope == slope, slope, 0.0)
        xp, slope = array_namespace(slope), slope.clip(-self.slope_clip, self.slope_clip)
        return xp.where(xp.isfinite(slope), slope, xp.zeros_like(slope))


@dataclass(frozen=True, slots=True)
class GramGradient:
    """Sum of the gradients of (<x, at> - y)^2 / 2, by the Gram matrix of the rows.

    Labels are clipped to [-label_clip, label_clip], and a question is only asked where the bounds
    b_j of the features allow no margin beyond slope_clip - label_clip: sum of b_j |at_j| is at most
    that. So no record's slope passes slope_clip, without looking at any, and coordinate j of its
    gradient is at most slope_clip b_j, as it is for ``CoordinateClippedGradient``.
    """

    slope_clip: float
    label_clip: float
    bounds: RowBounds
    dimension: int
    norm: ReachNorm = "coordinates"

    def __post_init__(self) -> None:
        if not 0 < self.label_clip < self.slope_clip < math.inf:
            raise ValueError("a Gram matrix needs 0 < label bound < slope clip < infinity.")
        if not self.bounds.largest < math.inf:
            raise ValueError("a coordinate-wise clip needs finite bounds on slope and features.")

    def radius(self) -> Any:
        return self.slope_clip * self.bounds.each(self.dimension)

    def diameter(self) -> Any:
        return 2 * self.radius()

    def total(self, rows: Rows, at: np.ndarray) -> np.ndarray:
        self.check(rows, at)
        gram, moment = self.moments(rows)
        return gram @ at - moment

    def check(self, rows: Rows, at: np.ndarray) -> None:
        """Refuse rows with other bounds, and points where a slope could pass the clip."""
        if rows.bounds != self.bounds:
            raise Refused("the rows' bounds are not those of the question.")
        self.check_point(at)

    def check_point(self, at: np.ndarray) -> None:
        """Refuse a point where a slope could pass the clip."""
        margin = float(self.bounds.each(self.dimension) @ np.abs(at))
        if not margin <= (self.slope_clip - self.label_clip) * (1 + 1e-12):
            raise Refused("a margin could pass the clip at this point: shorten the step.")

    def moments(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """The sums of x x^T and of y x, in double precision."""
        rows, origin = rows.precise(), np.zeros(rows.dimension)

        def one(z: Any, y: Any, size: Any) -> Any:
            return z * 0.0 + 1.0

        def label(z: Any, y: Any, size: Any) -> Any:
            return y.clip(-self.label_clip, self.label_clip)

        return rows.weighted_gram(origin, one), rows.weighted_sum(origin, label)


@dataclass(frozen=True, slots=True)
class SquaresAlong:
    """Sum over records of the square of one feature: the curvature of least squares along it.

    A record's square lies between 0 and that of the feature's bound b, so adding, emptying or
    replacing a record moves the sum by at most b^2.
    """

    index: int
    bounds: RowBounds
    dimension: int
    norm: ReachNorm = "l2"

    def __post_init__(self) -> None:
        if not self.bounds.largest < math.inf:
            raise ValueError("a sum of squares needs finite bounds on features.")

    def radius(self) -> float:
        return float(self.bounds.each(self.dimension)[self.index] ** 2)

    def diameter(self) -> float:
        return self.radius()

    def total(self, rows: Rows, at: np.ndarray) -> np.ndarray:
        if rows.bounds != self.bounds:
            raise Refused("the rows' bounds are not those of the question.")
        if isinstance(rows, WalkableRows):
            _, entries = rows.column(self.index)
            return np.array([float(self._square(entries).sum())])
        direction = np.zeros(rows.dimension)
        direction[self.index] = 1.0
        return np.array([rows.total(direction, lambda z, y, size: self._square(z))])

    def _square(self, entries: Any) -> Any:
        return (entries * entries).clip(max=self.radius())


@dataclass(frozen=True, slots=True)
class RowSum:
    """Sum of the records' effective rows, whose l2 norm the oracle clips to ``bound``."""

    bound: float
    norm: ReachNorm = "l2"

    def radius(self) -> float:
        return self.bound

    def diameter(self) -> float:
        return 2 * self.bound

    def total(self, rows: Rows, at: np.ndarray) -> np.ndarray:
        if not rows.bounds.size <= self.bound:
            raise Refused("the rows are longer than the question says.")
        return rows.weighted_sum(np.zeros(rows.dimension), lambda z, y, size: z * 0.0 + 1.0)

    def count(self, rows: CountedRows, at: np.ndarray, step: float) -> np.ndarray:
        if not rows.bounds.size <= self.bound:
            raise Refused("the rows are longer than the question says.")
        origin = np.zeros(rows.dimension)
        return rows.counted_sum(origin, lambda z, y, size: z * 0.0 + 1.0, self.bound, step)


@dataclass(frozen=True, slots=True)
class CountRecords:
    """Number of records that are not empty."""

    norm: ReachNorm = "l2"

    def radius(self) -> float:
        return 1.0

    def diameter(self) -> float:
        return 1.0

    def total(self, rows: Rows, at: np.ndarray) -> np.ndarray:
        return np.array([rows.total(np.zeros(rows.dimension), lambda z, y, size: z * 0.0 + 1.0)])

    def count(self, rows: Rows, at: np.ndarray, step: float) -> np.ndarray:
        return whole_steps(self.total(rows, at), step)


@dataclass(frozen=True, slots=True)
class CountPositive:
    """Number of records with a positive label."""

    norm: ReachNorm = "l2"

    def radius(self) -> float:
        return 1.0

    def diameter(self) -> float:
        return 1.0

    def total(self, rows: Rows, at: np.ndarray) -> np.ndarray:
        def positive(z: Any, y: Any, size: Any) -> Any:
            return array_namespace(y).where(y > 0, y * 0.0 + 1.0, y * 0.0)

        return np.array([rows.total(np.zeros(rows.dimension), positive)])

    def count(self, rows: Rows, at: np.ndarray, step: float) -> np.ndarray:
        return whole_steps(self.total(rows, at), step)


@dataclass(frozen=True, slots=True)
class LabelMoments:
    """Sums of labels and of their squares, each label clipped to [-1, 1].

    One record contributes (y, y^2), at most sqrt(2) in l2. Two records differ by
    |y - y'| sqrt(1 + (y + y')^2), which is largest, 2, for the labels -1 and 1: with d = |y - y'|
    it is at most d sqrt(1 + (2 - d)^2), and that grows with d on [0, 2].
    """

    norm: ReachNorm = "l2"

    def radius(self) -> float:
        return math.sqrt(2)

    def diameter(self) -> float:
        return 2.0

    def total(self, rows: Rows, at: np.ndarray) -> np.ndarray:
        def clipped(z: Any, y: Any, size: Any) -> Any:
            return y.clip(-1.0, 1.0)

        def squared(z: Any, y: Any, size: Any) -> Any:
            return y.clip(-1.0, 1.0) ** 2

        origin = np.zeros(rows.dimension)
        return np.array([rows.total(origin, clipped), rows.total(origin, squared)])


@dataclass(frozen=True, slots=True)
class NormHistogram:
    """How many records have their features' l2 norm below each edge and above the one before.

    A longer row counts in the last bin. One record is in one bin.
    """

    edges: tuple[float, ...]
    norm: ReachNorm = "l2"

    def radius(self) -> float:
        return 1.0

    def diameter(self) -> float:
        return math.sqrt(2) if self.norm == "l2" else 2.0

    def total(self, rows: RawRows, at: np.ndarray) -> np.ndarray:
        norms = rows.features(feature_norms)
        last = len(self.edges) - 1
        bins = np.minimum(np.searchsorted(np.array(self.edges), norms), last)
        return np.bincount(bins, weights=rows.active(), minlength=last + 1).astype(float)

    def count(self, rows: RawRows, at: np.ndarray, step: float) -> np.ndarray:
        return whole_steps(self.total(rows, at), step)


@dataclass(frozen=True, slots=True)
class Moments:
    """Sums of features and of their squares, each in units of its own bound.

    One record contributes (x / first, x * x / second), each part clipped to l2 norm 1: together at
    most sqrt(2). Two squares point into the same orthant, so replacing a record moves the first
    part by 2 and the second by sqrt(2).
    """

    first: float
    second: float
    norm: ReachNorm = "l2"

    def radius(self) -> float:
        return math.sqrt(2)

    def diameter(self) -> float:
        return math.sqrt(6)

    def total(self, rows: RawRows, at: np.ndarray) -> np.ndarray:
        return rows.features(self._sums)  # an empty record's features are zeros

    def _sums(self, X: Any) -> np.ndarray:
        return np.concatenate([_clipped_sum(X, 1, self.first), _clipped_sum(X, 2, self.second)])


@dataclass(frozen=True, slots=True)
class LeastSquaresMoments:
    """Sums of x x' and of y x in one vector, (svec(x x') / L^2, y x / (Y L)), for least squares.

    L bounds the effective rows, Y is where labels are clipped, and svec keeps the Frobenius norm.
    With ||x|| <= L and |y| <= Y each part of a record has norm at most 1: together sqrt(2). Two
    records with unit rows at an angle of cosine c and labels of opposite sign differ by
    2 - 2 c^2 + 2 + 2 c in square, shorter rows and smaller labels by less: at most 9/2, at c = 1/2.
    Replacing a record therefore moves the sum 1.5 times as far as emptying it, not twice.
    """

    bounds: RowBounds
    label_bound: float
    norm: ReachNorm = "l2"

    def __post_init__(self) -> None:
        if not 0 < self.bounds.size < math.inf or not 0 < self.label_bound < math.inf:
            raise ValueError("moments for least squares need finite bounds of rows and labels.")

    def radius(self) -> float:
        return math.sqrt(2)

    def diameter(self) -> float:
        return 1.5 * math.sqrt(2)

    def total(self, rows: Rows, at: np.ndarray) -> np.ndarray:
        if rows.bounds != self.bounds:
            raise Refused("the rows' bounds are not those of the question.")
        origin, size = np.zeros(rows.dimension), self.bounds.size
        gram = rows.weighted_gram(origin, lambda z, y, _: z * 0.0 + 1.0)
        cross = rows.weighted_sum(
            origin, lambda z, y, _: y.clip(-self.label_bound, self.label_bound)
        )
        return np.concatenate([svec(gram) / size**2, cross / (self.label_bound * size)])


def feature_norms(X: Any) -> np.ndarray:
    """l2 norm of each row of a NumPy or SciPy matrix."""
    return _power_norms(X, 1)


def clip_factors(X: Any, bound: float) -> np.ndarray:
    """What each row must be multiplied by so that its norm is at most the bound."""
    return bound / np.maximum(feature_norms(X), bound)


def shortened(rows: RawRows, norm: float) -> tuple[np.ndarray, np.ndarray]:
    """Factors 1 / max(||x||, norm) for raw rows, and the sizes of the effective rows they make."""
    norms = rows.features(feature_norms)
    factors = 1 / np.maximum(norms, norm)
    return factors, np.hypot(norms * factors, rows.bounds.intercept) * rows.active()


def tamed(X: Any) -> Any:
    """X, with rows whose norm overflows scaled down to a large one: their direction survives."""
    with np.errstate(over="ignore"):
        wild = ~np.isfinite(feature_norms(X))
    if not wild.any():
        return X
    largest = abs(X).max(axis=1)
    largest = largest.toarray().ravel() if sp.issparse(largest) else np.asarray(largest)
    factors = np.where(wild, 2.0**30 / np.where(wild, largest, 1.0), 1.0)
    return sp.csr_array(X.multiply(factors[:, None])) if sp.issparse(X) else X * factors[:, None]


def _power_norms(X: Any, power: int) -> np.ndarray:
    """l2 norm of each row of X ** power."""
    if sp.issparse(X):
        return np.sqrt(np.asarray(X.astype(float).power(2 * power).sum(axis=1)).ravel())
    norms = np.empty(X.shape[0])
    for rows in _blocks(X):
        block = np.asarray(X[rows], dtype=float) ** power
        norms[rows] = np.sqrt(np.einsum("ij,ij->i", block, block))
    return norms


def _clipped_sum(X: Any, power: int, bound: float) -> np.ndarray:
    """Sum of the rows of X ** power, each clipped to the bound, over the bound."""
    weights = 1 / np.maximum(_power_norms(X, power), bound)
    if sp.issparse(X):
        return np.asarray(weights @ X.astype(float).power(power)).ravel()
    total = np.zeros(X.shape[1])
    for rows in _blocks(X):
        total += weights[rows] @ np.asarray(X[rows], dtype=float) ** power
    return total


def _blocks(X: Any) -> list[slice]:
    height = max(64, (1 << 17) // max(1, X.shape[1]))
    return [slice(i, i + height) for i in range(0, X.shape[0], height)]
