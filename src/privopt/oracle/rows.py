"""Rows: private records behind a few sums. Everything else in the oracle is written on top.

The effective row of record i is x~_i = a_i (s_i x_i, c): s_i <= 1 clips the features to the public
norm bound, c is the constant of the intercept column, and a_i is 0 for an empty record, which then
contributes nothing to any sum. Effective rows are never materialised.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp

from privopt.geometry.norms import lp_norm

LEAST, MOST = 1e-100, 1e100
"""Bounds beyond these are refused: a square of 1e-162 is zero in double precision."""

Weigh = Callable[[Any, Any, Any], Any]
"""From margins, labels and row sizes (l2 norms of effective rows) to one weight per record."""


Residuals = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""From scores and classes, one line per record, to the gradient in the scores, line by line."""


@dataclass(frozen=True, slots=True)
class RowBounds:
    """Public facts about effective rows, enforced when the rows are made.

    Each feature is clipped to [-entries, entries], then the row to an l_r norm of ``data_norm``,
    r = ``order``; either may be infinite.
    """

    data_norm: float
    intercept: float = 0.0
    entries: float = math.inf
    order: float = 2.0

    def __post_init__(self) -> None:
        for bound in (self.data_norm, self.entries):
            if 0 < bound < LEAST or MOST < bound < math.inf:
                raise ValueError(
                    f"a bound of rows lies between {LEAST:g} and {MOST:g}, where squares neither "
                    f"vanish nor overflow, got {bound:g}: give the data in other units."
                )

    @property
    def size(self) -> float:
        """Largest l2 norm of an effective row, whatever the number of columns."""
        # Above l2 a norm says nothing about l2 without that number: ``in_norm`` takes it.
        return math.hypot(self.data_norm if self.order <= 2 else math.inf, self.intercept)

    @property
    def largest(self) -> float:
        """Largest absolute entry of an effective row, the constant column included."""
        return max(self.feature, self.intercept)

    @property
    def feature(self) -> float:
        """Largest absolute feature of an effective row."""
        return min(self.data_norm, self.entries)

    def in_norm(self, order: float, dimension: int) -> float:
        """Largest l_r norm of an effective row with so many columns, r = ``order``.

        k features of l_s norm at most N, each at most B, have l_r norm at most
        N k^max(0, 1/r - 1/s) and at most B k^(1/r); the constant column comes in as one more
        coordinate.
        """
        features = dimension - (self.intercept != 0)
        part = self.feature
        if not math.isinf(order):
            by_norm = self.data_norm * max(1.0, features) ** max(0.0, 1 / order - 1 / self.order)
            part = min(by_norm, self.feature * features ** (1 / order))
        return lp_norm([part, self.intercept], order)

    def each(self, dimension: int) -> np.ndarray:
        """Largest absolute entry in each column, the constant one included."""
        columns = np.full(dimension, self.feature)
        if self.intercept:
            columns[-1] = self.intercept
        return columns


class Rows(Protocol):
    """Private records. ``dimension`` (intercept included) and ``bounds`` are public."""

    @property
    def count(self) -> int: ...
    @property
    def dimension(self) -> int: ...
    @property
    def bounds(self) -> RowBounds: ...

    def weighted_sum(self, theta: np.ndarray, weigh: Weigh) -> np.ndarray:
        """Sum over records of weigh(<x~, theta>, y, ||x~||) x~."""
        ...

    def total(self, theta: np.ndarray, weigh: Weigh) -> float:
        """Sum over records of weigh(<x~, theta>, y, ||x~||); empty records count nothing."""
        ...

    def totals(self, thetas: np.ndarray, weigh: Weigh) -> np.ndarray:
        """``total`` at each row of ``thetas``; ``weigh`` gets one column per row."""
        ...

    def weighted_sums(self, thetas: np.ndarray, weigh: Weigh) -> np.ndarray:
        """``weighted_sum`` at each row of ``thetas``."""
        ...

    def weighted_gram(self, theta: np.ndarray, weigh: Weigh) -> np.ndarray:
        """Sum over records of weigh(...) x~ x~^T."""
        ...

    def weights(self, theta: np.ndarray, weigh: Weigh) -> Any:
        """The weights themselves, for repeated ``weighted_product`` calls."""
        ...

    def weighted_product(self, weights: Any, vector: np.ndarray) -> np.ndarray:
        """Sum over records of weight_i <x~_i, vector> x~_i."""
        ...

    def effective(self, measure: Callable[..., Any], most: int) -> list[Any]:
        """``measure`` of effective rows, labels and sizes in doubles, ``most`` rows at a time; and
        of weights, where rows have them."""
        ...

    def precise(self) -> Rows:
        """The same rows with sums carried in double precision."""
        ...

    def labelled(self, y: Any, classification: bool) -> Rows:
        """The same rows with other labels."""
        ...

    def take(self, indices: np.ndarray) -> Rows: ...
    def part(self, start: int, stop: int) -> Rows: ...


class CountedRows(Rows, Protocol):
    """Rows that also add up in exact integers."""

    def counted_sum(self, theta: np.ndarray, weigh: Weigh, bound: float, step: float) -> np.ndarray:
        """``weighted_sum`` in exact integers: each record's vector is clipped to an l2 norm of
        ``bound``, divided by ``step``, and cut off toward zero before it is added. What a record
        adds depends on it alone, not on its place nor on the others."""
        ...


class ClassRows(Rows, Protocol):
    """Rows of several classes: labels are numbers, and there is one vector for each class."""

    def outer_counts(
        self, thetas: np.ndarray, residuals: Residuals, bound: float, step: float
    ) -> np.ndarray:
        """Sum over records of residuals(<x~, theta_k> for each k, y) x~^T in exact integers: each
        record's matrix is clipped to a Frobenius norm of ``bound`` and counted in ``step``."""
        ...

    def class_counts(self, classes: int, steps: int = 1) -> np.ndarray:
        """How many records that are not empty have each label, each so many whole steps, or as many
        as its weight allows."""
        ...


class RawRows(Rows, Protocol):
    """Rows that also show their features to code of this folder, for what sums cannot say."""

    def features(self, measure: Callable[[Any], np.ndarray]) -> np.ndarray:
        """``measure`` of the stored features, a NumPy or SciPy matrix with one row per record."""
        ...

    def active(self) -> np.ndarray:
        """1 for a record, 0 for an empty one."""
        ...

    def scales(self) -> np.ndarray:
        """What each record's features are multiplied by."""
        ...

    def labels(self) -> np.ndarray:
        """One for each record."""
        ...

    def clipped_to(self, norm: float) -> RawRows:
        """The same features in units of a public norm, and clipped to it: x / max(||x||, norm).
        The constant of the intercept column stays what it is."""
        ...

    def in_own_units(self, row_map: Any) -> tuple[RawRows, Any]:
        """Rows and a ``RowMap`` that say the same, with less of the map done row by row."""
        ...

    def noted(self, notes: np.ndarray) -> RawRows:
        """The same rows, handing one line of ``notes`` per record to weights in place of sizes."""
        ...

    def widened(self, more: Callable[[Any], np.ndarray], width: int) -> RawRows:
        """Rows that are not clipped, with ``width`` more features, made of each row alone; those of
        an empty record are zeros."""
        ...


class ColumnRows(Rows, Protocol):
    """Rows that are kept sparse, and can be read by columns."""

    def columns(self) -> tuple[Any, np.ndarray, np.ndarray]:
        """Effective rows as a CSC matrix without stored zeros, labels, and sizes."""
        ...


@runtime_checkable
class WalkableRows(Protocol):
    """Rows whose sums can follow a point that moves along one coordinate at a time.

    Vectors with one entry per record, and indices into them, are in the rows' own array type.
    """

    def margins(self, theta: np.ndarray) -> Any:
        """<x~_i, theta> in double precision; a new vector."""
        ...

    def weigh_margins(self, margins: Any, where: Any, weigh: Weigh) -> Any:
        """Weights of the records at ``where``, whose margins these are."""
        ...

    def column(self, index: int) -> tuple[Any, Any]:
        """Which records may have an entry other than zero in a column of x~, and the entries."""
        ...

    def pull(self, weights: Any) -> np.ndarray:
        """Sum over records of weight_i x~_i."""
        ...


@dataclass(frozen=True, slots=True)
class EmptyRows:
    """No records at all: for the dry run that declares what a run will release."""

    dimension: int
    bounds: RowBounds
    count: int = 0

    def weighted_sum(self, theta: np.ndarray, weigh: Weigh) -> np.ndarray:
        return np.zeros(self.dimension)

    def counted_sum(self, theta: np.ndarray, weigh: Weigh, bound: float, step: float) -> np.ndarray:
        return np.zeros(self.dimension, dtype=np.int64)

    def total(self, theta: np.ndarray, weigh: Weigh) -> float:
        return 0.0

    def totals(self, thetas: np.ndarray, weigh: Weigh) -> np.ndarray:
        return np.zeros(len(thetas))

    def weighted_sums(self, thetas: np.ndarray, weigh: Weigh) -> np.ndarray:
        return np.zeros((len(thetas), self.dimension))

    def weighted_gram(self, theta: np.ndarray, weigh: Weigh) -> np.ndarray:
        return np.zeros((self.dimension, self.dimension))

    def weights(self, theta: np.ndarray, weigh: Weigh) -> Any:
        return np.zeros(0)

    def weighted_product(self, weights: Any, vector: np.ndarray) -> np.ndarray:
        return np.zeros(self.dimension)

    def effective(self, measure: Callable[..., Any], most: int) -> list[Any]:
        return []

    def precise(self) -> EmptyRows:
        return self

    def labelled(self, y: Any, classification: bool) -> EmptyRows:
        return self

    def take(self, indices: np.ndarray) -> EmptyRows:
        return self

    def part(self, start: int, stop: int) -> EmptyRows:
        return self

    def outer_counts(
        self, thetas: np.ndarray, residuals: Residuals, bound: float, step: float
    ) -> np.ndarray:
        return np.zeros(thetas.shape, dtype=np.int64)

    def class_counts(self, classes: int, steps: int = 1) -> np.ndarray:
        return np.zeros(classes)

    def features(self, measure: Callable[[Any], np.ndarray]) -> np.ndarray:
        return measure(np.zeros((0, self.dimension - (self.bounds.intercept != 0))))

    def columns(self) -> tuple[Any, np.ndarray, np.ndarray]:
        return sp.csc_array((0, self.dimension)), np.zeros(0), np.zeros(0)

    def active(self) -> np.ndarray:
        return np.zeros(0)

    def scales(self) -> np.ndarray:
        return np.zeros(0)

    def labels(self) -> np.ndarray:
        return np.zeros(0)

    def clipped_to(self, norm: float) -> EmptyRows:
        return EmptyRows(self.dimension, RowBounds(1.0, self.bounds.intercept))

    def in_own_units(self, row_map: Any) -> tuple[EmptyRows, Any]:
        return self, row_map

    def noted(self, notes: np.ndarray) -> EmptyRows:
        return self

    def widened(self, more: Callable[[Any], np.ndarray], width: int) -> EmptyRows:
        return EmptyRows(self.dimension + width, self.bounds)
