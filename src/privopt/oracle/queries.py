"""Queries: public questions about records. The clip lives inside, so bound and clip agree."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, runtime_checkable

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from privopt.losses import Loss, met
from privopt.oracle.counting import added_steps, whole_steps
from privopt.oracle.rows import CountedRows, RowBounds, Rows, WalkableRows
from privopt.oracle.sensitivity import SensitivityNorm, order_of
from privopt.privacy.budget import Neighbouring, Refused, replaces


class Query(Protocol):
    """A sum over records of a map that no record can push beyond a declared bound."""

    @property
    def norm(self) -> SensitivityNorm: ...
    def radius(self) -> Any:
        """Bound on one record's contribution: its movement under zero_out and add_remove."""
        ...

    def diameter(self) -> Any:
        """Bound on the difference of two records' contributions: replace_one."""
        ...

    def total(self, rows: Any, at: np.ndarray) -> np.ndarray: ...


def movement(query: Query, neighbouring: Neighbouring) -> Any:
    """How far a neighbour moves the sum."""
    return query.diameter() if replaces(neighbouring) else query.radius()


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
    norm: SensitivityNorm = "l2"

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", met(self.loss))

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

    ``norm`` "linf" states one bound for all coordinates, "coordinates" one for each of them, and
    "l2" or any other exponent what the bounds of the rows say in that norm.
    """

    loss: Loss
    slope_clip: float
    bounds: RowBounds
    dimension: int
    norm: SensitivityNorm = "linf"

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", met(self.loss))
        if not 0 < self.slope_clip < math.inf or not self.bounds.largest < math.inf:
            raise ValueError("a coordinate-wise clip needs finite bounds on slope and features.")

    def radius(self) -> Any:
        if self.norm == "coordinates":
            return self.slope_clip * self.bounds.each(self.dimension)
        return self.slope_clip * self.bounds.in_norm(order_of(self.norm), self.dimension)

    def diameter(self) -> Any:
        return 2 * self.radius()

    def total(self, rows: Rows, at: np.ndarray) -> np.ndarray:
        self.check(rows)
        with np.errstate(all="ignore"):
            return rows.weighted_sum(at, self.weigh)

    def count(self, rows: CountedRows, at: np.ndarray, step: float) -> np.ndarray:
        """In l2, where cutting off and what rounding adds to a row are paid by shortening it."""
        self.check(rows)
        if self.norm != "l2":
            raise Refused("bounds of single coordinates have no noise in integers.")
        with np.errstate(all="ignore"):
            return rows.counted_sum(at, self.weigh, self.radius(), step)

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
    norm: SensitivityNorm = "coordinates"

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
    norm: SensitivityNorm = "l2"

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

    def count(self, rows: Rows, at: np.ndarray, step: float) -> np.ndarray:
        """Squares are cut off downward and stay between 0 and their bound."""
        if rows.bounds != self.bounds:
            raise Refused("the rows' bounds are not those of the question.")
        if not isinstance(rows, WalkableRows):
            return np.zeros(1, dtype=np.int64) if rows.count == 0 else self._uncounted()
        _, entries = rows.column(self.index)
        return np.array([added_steps(self._square(entries), step)], dtype=np.int64)

    def _uncounted(self) -> NoReturn:
        raise Refused("this question has no answer in integers.")

    def _square(self, entries: Any) -> Any:
        return (entries * entries).clip(max=self.radius())


@dataclass(frozen=True, slots=True)
class RowSum:
    """Sum of the records' effective rows, whose l2 norm the oracle clips to ``bound``."""

    bound: float
    norm: SensitivityNorm = "l2"

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
class Votes:
    """Sum of the records' rows, whose entries the oracle clips to [-bound, bound].

    What counts for a choice among the sums is the range: by how much more one record can raise one
    of them than another, 2 bound, and twice that if it is replaced by another.
    """

    bound: float
    norm: SensitivityNorm = "range"

    def radius(self) -> float:
        return 2 * self.bound

    def diameter(self) -> float:
        return 4 * self.bound

    def total(self, rows: Rows, at: np.ndarray) -> np.ndarray:
        if not rows.bounds.largest <= self.bound:
            raise Refused("the entries are larger than the question says.")
        return rows.weighted_sum(np.zeros(rows.dimension), lambda z, y, size: z * 0.0 + 1.0)


@dataclass(frozen=True, slots=True)
class CountRecords:
    """Number of records that are not empty."""

    norm: SensitivityNorm = "l2"

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

    norm: SensitivityNorm = "l2"

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
