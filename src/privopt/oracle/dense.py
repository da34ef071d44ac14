"""Dense rows through the array API: NumPy arrays and torch tensors give the same sums.

NumPy arrays are read once per sum, in blocks that stay in cache, by one thread per core: margins,
weights and the weighted sum of a block are computed before the next block is touched. Only
vectors with one entry per record are ever allocated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from privopt.oracle.bounded_columns import BoundedColumns, whole
from privopt.oracle.column_shapes import new_features
from privopt.oracle.counting import EXACT, added, as_numpy, row_products, shorten
from privopt.oracle.dense_blocks import AT_ONCE, WIDE, DenseBlocks
from privopt.oracle.labels import labels_like
from privopt.oracle.moments import shortened
from privopt.oracle.outer_counts import class_counts, outer_counts
from privopt.oracle.row_map import RowMap
from privopt.oracle.rows import Residuals, RowBounds, Weigh
from privopt.oracle.sanitize import clipped
from privopt.oracle.threads import each


class DenseRows(DenseBlocks):
    """Effective rows over a dense array. See ``rows`` for what they mean."""

    __slots__ = (
        "_X",
        "_active",
        "_dtype",
        "_lengths",
        "_scale",
        "_sizes",
        "_xp",
        "_y",
        "bounds",
        "count",
        "dimension",
    )

    def __init__(
        self,
        X: Any,
        y: Any,
        scale: Any,
        active: Any,
        sizes: Any,
        bounds: RowBounds,
        dtype: Any = None,
    ) -> None:
        self._xp = np if isinstance(X, BoundedColumns) else array_namespace(X)
        self._dtype = X.dtype if dtype is None else dtype
        self._X, self._y, self._scale, self._active, self._sizes = X, y, scale, active, sizes
        self._lengths: np.ndarray | None = None
        self.bounds = bounds
        self.count = int(X.shape[0])
        self.dimension = int(X.shape[1]) + (bounds.intercept != 0)

    @classmethod
    def build(cls, X: Any, y: Any, bounds: RowBounds, classification: bool = True) -> DenseRows:
        """Clip rows to the public bound; rows that hold NaN or infinity become empty records."""
        rows = cls(*clipped(X, y, bounds, classification), bounds)
        if rows._dtype == np.float64:  # rounded up, in the rows' own precision
            rows._lengths = rows._sizes
        return rows

    # ------------------------------------------------------------ sums
    def weighted_sum(self, theta: np.ndarray, weigh: Weigh) -> np.ndarray:
        def block(X: Any, rows: slice, slope: Any, offset: float) -> tuple[Any, float]:
            weights = self._weigh(X, rows, slope, offset, weigh)
            return self._pull(self._scaled(weights, rows), X), self._constant(weights, rows)

        return self._join(self._over_blocks(theta, block))

    def counted_sum(self, theta: np.ndarray, weigh: Weigh, bound: float, step: float) -> np.ndarray:
        if self._dtype != self._xp.float64:
            return self.precise().counted_sum(theta, weigh, bound, step)
        # At the origin every product is zero: one reading of the rows less.
        here = np.any(theta)

        def block(X: Any, rows: slice, slope: Any, offset: float) -> np.ndarray:
            products = row_products(X, slope) if here else self._xp.zeros_like(self._y[rows])
            z = self._settle(products, rows, offset)
            weights = weigh(z, self._y[rows], self._sizes[rows])
            if self._active is not None:
                weights = weights * self._active[rows]
            scaled = self._scaled(weights, rows)
            if self._lengths is not None:
                lengths = as_numpy(abs(weights) * self._lengths[rows])
            else:
                squares = row_products(X, X) * scaled**2 + (weights * self.bounds.intercept) ** 2
                lengths = as_numpy(squares**0.5)
            factors = shorten(lengths, bound, self.dimension) / step
            if not is_numpy_array(X):
                factors = self._xp.asarray(factors, device=self._device)
            counts = np.empty(self.dimension, dtype=np.int64)
            counts[: int(X.shape[1])] = as_numpy(added(X * (scaled * factors)[:, None]), np.int64)
            if self.bounds.intercept:
                constants = weights * self.bounds.intercept * factors
                counts[-1:] = as_numpy(added(constants[:, None]), np.int64)
            return counts

        parts = self._over_blocks(theta, block, most=int(EXACT * step / bound))
        return sum(parts, np.zeros(self.dimension, dtype=np.int64))

    def total(self, theta: np.ndarray, weigh: Weigh) -> float:
        def block(X: Any, rows: slice, slope: Any, offset: float) -> float:
            return self._mass(self._weigh(X, rows, slope, offset, weigh), rows)

        return float(math.fsum(self._over_blocks(theta, block)))

    def totals(self, thetas: np.ndarray, weigh: Weigh) -> np.ndarray:
        def block(X: Any, rows: slice, slope: Any, offset: Any) -> np.ndarray:
            weights = self._weigh_many(X, rows, slope, offset, weigh)
            return as_numpy(self._xp.sum(weights, axis=0))

        return sum(self._over_blocks(thetas, block), np.zeros(len(thetas)))

    def weighted_sums(self, thetas: np.ndarray, weigh: Weigh) -> np.ndarray:
        def block(X: Any, rows: slice, slope: Any, offset: Any) -> np.ndarray:
            weights = self._weigh_many(X, rows, slope, offset, weigh)
            scaled = weights if self._scale is None else weights * self._scale[rows][:, None]
            sums = as_numpy(scaled.T @ X)
            if not self.bounds.intercept:
                return sums
            mass = as_numpy(self._xp.sum(weights, axis=0))
            return np.column_stack([sums, self.bounds.intercept * mass])

        parts = self._over_blocks(thetas, block)
        return sum(parts, np.zeros((len(thetas), self.dimension)))

    def weighted_gram(self, theta: np.ndarray, weigh: Weigh) -> np.ndarray:
        """Blocks are added as they come, in an order that does not depend on the number of cores:
        a wide matrix is held three times at most, and its products are left to BLAS's threads."""
        slope, offset = self._split(theta)
        wide = self.dimension > WIDE

        def folded(blocks: Sequence[slice]) -> np.ndarray:
            total = np.zeros((self.dimension, self.dimension))
            for rows in blocks:
                X = self._read(rows)
                self._add_gram(total, X, self._weigh(X, rows, slope, offset, weigh), rows)
            return total

        blocks = self._blocks(1 << 15, least=min(self.dimension // 2, 1 << 12) if wide else 64)
        cut = len(blocks) if wide else -(-len(blocks) // AT_ONCE)
        groups = [blocks[i : i + cut] for i in range(0, len(blocks), max(1, cut))]
        parts = each(folded, groups, self._parallel and not wide)
        total = parts.pop(0) if parts else folded([])
        for part in parts:
            total += part
        return total

    def weights(self, theta: np.ndarray, weigh: Weigh) -> Any:
        def block(X: Any, rows: slice, slope: Any, offset: float) -> Any:
            return self._weigh(X, rows, slope, offset, weigh)

        parts = self._over_blocks(theta, block)
        return self._xp.concat(parts) if parts else self._y

    def weighted_product(self, weights: Any, vector: np.ndarray) -> np.ndarray:
        def block(X: Any, rows: slice, slope: Any, offset: float) -> tuple[Any, float]:
            pull = weights[rows] * self._margins(X, rows, slope, offset)
            return self._pull(self._scaled(pull, rows), X), self._constant(pull, rows)

        return self._join(self._over_blocks(vector, block))

    def margins(self, theta: np.ndarray) -> Any:
        # In an order of additions that does not depend on where a row stands: counts rest on it.
        rows = self.precise()

        def block(X: Any, part: slice, slope: Any, offset: float) -> Any:
            return rows._settle(row_products(X, slope), part, offset)

        parts = rows._over_blocks(theta, block)
        return self._xp.concat(parts) if parts else self._xp.asarray(self._y, copy=True)

    def weigh_margins(self, margins: Any, where: Any, weigh: Weigh) -> Any:
        return weigh(margins, self._y[where], self._sizes[where])

    def column(self, index: int) -> tuple[Any, Any]:
        every = slice(None)
        if index < int(self._X.shape[1]):
            return every, self._scaled(self._xp.astype(self._X[:, index], self._xp.float64), every)
        alive = self._xp.ones_like(self._y) if self._active is None else self._active
        return every, self._xp.astype(alive, self._xp.float64) * self.bounds.intercept

    def pull(self, weights: Any) -> np.ndarray:
        def block(X: Any, rows: slice, *point: Any) -> tuple[Any, float]:
            part = self._scaled(weights[rows], rows)
            return self._pull(part, X), self._constant(weights[rows], rows)

        return self._join(self._over_blocks(np.zeros(self.dimension), block))

    def effective(self, measure: Callable[..., Any], most: int) -> list[Any]:
        """``measure`` of effective rows, labels and sizes in doubles, few rows at a time."""

        def block(X: Any, rows: slice, *point: Any) -> list[Any]:
            X, y, sizes = as_numpy(X), as_numpy(self._y[rows]), as_numpy(self._sizes[rows])
            E = np.empty((len(X), self.dimension))
            E[:, : X.shape[1]] = (
                X if self._scale is None else X * as_numpy(self._scale[rows])[:, None]
            )
            E[:, X.shape[1] :] = self.bounds.intercept
            if self._active is not None:
                E *= as_numpy(self._active[rows])[:, None]
            cuts = [slice(i, i + most) for i in range(0, len(X), most)]
            return [measure(E[cut], y[cut], sizes[cut]) for cut in cuts]

        parts = self._over_blocks(np.zeros(self.dimension), block, most=most)
        return [part for some in parts for part in some]

    # ------------------------------------------------------------ parts of the data
    def precise(self) -> DenseRows:
        """The same rows, with every block converted to double precision as it is read."""
        double = self._xp.float64
        if self._dtype == double:
            return self

        def wide(values: Any) -> Any:
            return None if values is None else self._xp.astype(values, double)

        return DenseRows(
            self._X,
            wide(self._y),
            wide(self._scale),
            wide(self._active),
            wide(self._sizes),
            self.bounds,
            double,
        )

    def labelled(self, y: Any, classification: bool) -> DenseRows:
        """The same rows with other finite labels; an empty record stays empty."""
        y = labels_like(y, self._X, self._dtype, classification)
        return DenseRows(
            self._X, y, self._scale, self._active, self._sizes, self.bounds, self._dtype
        )

    def take(self, indices: np.ndarray) -> DenseRows:
        return self._picked(self._xp.asarray(indices, device=self._device))

    def part(self, start: int, stop: int) -> DenseRows:
        return self._picked(slice(start, stop))

    def _picked(self, where: Any) -> DenseRows:
        def pick(values: Any) -> Any:
            return None if values is None else values[where]

        X = self._X
        lazy = isinstance(X, BoundedColumns) and isinstance(where, slice)
        return DenseRows(
            X.part(where) if lazy else X[where],
            self._y[where],
            pick(self._scale),
            pick(self._active),
            self._sizes[where],
            self.bounds,
            self._dtype,
        )

    def features(self, measure: Callable[[Any], np.ndarray]) -> np.ndarray:
        X = self._X
        return measure(X if isinstance(X, BoundedColumns) else as_numpy(X, dtype=None))

    def in_own_units(self, row_map: RowMap) -> tuple[DenseRows, RowMap]:
        """The same rows before their columns were shifted and divided by public bounds, and the map
        that takes these along; a block is then read where it lies."""
        X = self._X
        if not isinstance(X, BoundedColumns) or not X.near or self.bounds.data_norm < math.inf:
            return self, row_map
        rows = DenseRows(
            X.in_own_units(),
            self._y,
            None,
            self._active,
            self._sizes,
            self.bounds,
            self._dtype,
        )
        return rows, row_map.after(X.shift, X.scale)

    def active(self) -> np.ndarray:
        return np.ones(self.count) if self._active is None else as_numpy(self._active)

    def scales(self) -> np.ndarray:
        return np.ones(self.count) if self._scale is None else as_numpy(self._scale)

    def labels(self) -> np.ndarray:
        return as_numpy(self._y)

    def outer_counts(
        self, thetas: np.ndarray, residuals: Residuals, bound: float, step: float
    ) -> np.ndarray:
        return outer_counts(self, None, thetas, residuals, bound, step)

    def class_counts(self, classes: int, steps: int = 1) -> np.ndarray:
        return class_counts(self, classes, steps)

    def clipped_to(self, norm: float) -> DenseRows:
        scale, sizes = shortened(self, norm)
        scale, sizes = (self._xp.asarray(v, device=self._device) for v in (scale, sizes))
        bounds = RowBounds(1.0, self.bounds.intercept)
        return DenseRows(self._X, self._y, scale, self._active, sizes, bounds, self._dtype)

    def noted(self, notes: np.ndarray) -> DenseRows:
        return self._like(self._X, notes)

    def widened(self, more: Callable[[Any], np.ndarray], width: int) -> DenseRows:
        extra, sizes = new_features(self, more, as_numpy(self._sizes))
        extra = self._xp.asarray(extra, dtype=self._X.dtype, device=self._device)
        return self._like(self._xp.concat([whole(self._X), extra], axis=1), sizes)

    def _like(self, X: Any, sizes: np.ndarray) -> DenseRows:
        sizes = self._xp.asarray(sizes, device=self._device)
        return DenseRows(X, self._y, self._scale, self._active, sizes, self.bounds, self._dtype)

    def apart(self) -> tuple[Callable[[list[Any]], DenseRows], list[Any]]:
        """How to make these rows of their arrays, and the arrays."""
        bounds, kind, X = self.bounds, self._dtype, self._X
        if not isinstance(X, BoundedColumns):
            arrays = [X, self._y, self._scale, self._active, self._sizes]
            return lambda a: DenseRows(a[0], a[1], a[2], a[3], a[4], bounds, kind), arrays
        remade, (inner, broken) = X.apart()

        def rebuilt(a: list[Any]) -> DenseRows:
            y, scale, active, sizes = a[2:]
            return DenseRows(remade(a[0], a[1]), y, scale, active, sizes, bounds, kind)

        return rebuilt, [inner, broken, self._y, self._scale, self._active, self._sizes]
