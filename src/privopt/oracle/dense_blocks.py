"""Blocks of dense rows: how they are cut, read, weighed and pulled together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from array_api_compat import device, is_numpy_array

from privopt.oracle.bounded_columns import BoundedColumns
from privopt.oracle.counting import as_numpy
from privopt.oracle.rows import RowBounds, Weigh
from privopt.oracle.threads import each

BLOCK_BYTES = 3 << 19  # a block of rows this size stays in a core's cache between its two uses
PARALLEL_BYTES = 1 << 22
WIDE = 512
"""Columns from which on a matrix of their products is not held once for each of several cores."""
AT_ONCE = 16
"""Sums of narrower matrices that are held at a time."""


class DenseBlocks:
    """What sums over dense rows are made of. See ``dense``."""

    __slots__ = ()
    _X: Any
    _y: Any
    _scale: Any
    _active: Any
    _sizes: Any
    _dtype: Any
    _xp: Any
    bounds: RowBounds
    count: int
    dimension: int

    # ------------------------------------------------------------ one block
    def _split(self, theta: np.ndarray) -> tuple[Any, Any]:
        """Coefficients in the array's own type, and the margin that the intercept adds.

        A matrix of points, one a row, gives one column of coefficients for each.
        """
        features = int(self._X.shape[1])
        theta = np.asarray(theta, dtype=float)
        if theta.ndim == 2:
            margin = theta[:, features] * self.bounds.intercept if self.bounds.intercept else 0.0
            place = {"dtype": self._dtype, "device": self._device}
            return (
                self._xp.asarray(np.ascontiguousarray(theta[:, :features].T), **place),
                self._xp.asarray(margin, **place),
            )
        offset = float(theta[features] * self.bounds.intercept) if self.bounds.intercept else 0.0
        slope = self._xp.asarray(theta[:features], dtype=self._dtype, device=self._device)
        return slope, offset

    def _margins(self, X: Any, rows: slice, slope: Any, offset: float) -> Any:
        return self._settle(X @ slope, rows, offset)

    def _settle(self, z: Any, rows: slice, offset: float) -> Any:
        """Margins of effective rows from products with the stored ones."""
        if self._scale is not None:
            z = z * self._scale[rows]
        if offset:
            z = z + offset
        return z if self._active is None else z * self._active[rows]

    def _weigh(self, X: Any, rows: slice, slope: Any, offset: float, weigh: Weigh) -> Any:
        return weigh(self._margins(X, rows, slope, offset), self._y[rows], self._sizes[rows])

    def _pull(self, weights: Any, X: Any) -> Any:
        """Weighted sum of a block's rows, added up in double precision: in single precision the
        rounding error of the sum would move with a record, beyond its declared sensitivity."""
        double = self._xp.float64
        return self._xp.astype(weights, double, copy=False) @ self._xp.astype(X, double, copy=False)

    def _weigh_many(self, X: Any, rows: slice, slope: Any, offset: Any, weigh: Weigh) -> Any:
        """Weights with one column per point; empty records weigh nothing."""
        z = X @ slope
        if self._scale is not None:
            z = z * self._scale[rows][:, None]
        weights = weigh(z + offset, self._y[rows][:, None], self._sizes[rows][:, None])
        return weights if self._active is None else weights * self._active[rows][:, None]

    def _scaled(self, weights: Any, rows: slice) -> Any:
        return weights if self._scale is None else weights * self._scale[rows]

    def _mass(self, weights: Any, rows: slice) -> float:
        if self._active is not None:
            weights = weights * self._active[rows]
        return float(self._xp.sum(weights, dtype=self._xp.float64))

    def _constant(self, weights: Any, rows: slice) -> float:
        """The weight that falls on the constant column; not summed where there is none."""
        return self._mass(weights, rows) if self.bounds.intercept else 0.0

    def _add_gram(self, total: np.ndarray, X: Any, weights: Any, rows: slice) -> None:
        features = int(X.shape[1])
        squared = self._scaled(self._scaled(weights, rows), rows)
        root = self._xp.sqrt(self._xp.abs(squared))
        half = X * root[:, None]
        signed = (
            half if bool(self._xp.all(squared >= 0)) else half * self._xp.sign(squared)[:, None]
        )
        total[:features, :features] += as_numpy(signed.T @ half)
        if self.bounds.intercept:
            cross = as_numpy(self._scaled(weights, rows) @ X) * self.bounds.intercept
            total[features, :features] += cross
            total[:features, features] += cross
            total[features, features] += self._mass(weights, rows) * self.bounds.intercept**2

    def _join(self, parts: list[tuple[Any, float]]) -> np.ndarray:
        total = np.zeros(self.dimension)
        features = int(self._X.shape[1])
        for vector, mass in parts:
            total[:features] += as_numpy(vector)
            if self.bounds.intercept:
                total[features] += self.bounds.intercept * mass
        return total

    def _over_blocks(
        self, theta: np.ndarray, block: Callable[..., Any], most: int = 1 << 15
    ) -> list[Any]:
        """Apply ``block`` to blocks of rows (NumPy: ``most`` at most), large arrays in parallel."""
        slope, offset = self._split(theta)

        def apply(rows: slice) -> Any:
            return block(self._read(rows), rows, slope, offset)

        return each(apply, self._blocks(most), self._parallel)

    def _read(self, rows: slice) -> Any:
        """A block of rows in the precision of sums."""
        X = self._X
        found = X.block(rows) if isinstance(X, BoundedColumns) else X[rows]
        return self._xp.astype(found, self._dtype, copy=False)

    def _blocks(self, most: int, least: int = 64) -> list[slice]:
        if self.count == 0:
            return []
        if not self._on_processor:
            return [slice(None)]
        width = max(1, int(self._X.shape[1])) * np.dtype(self._dtype).itemsize
        height = min(max(BLOCK_BYTES // width, least), 1 << 15, most)
        return [slice(i, min(i + height, self.count)) for i in range(0, self.count, height)]

    @property
    def _device(self) -> Any:
        return None if isinstance(self._X, BoundedColumns) else device(self._X)

    @property
    def _on_processor(self) -> bool:
        return isinstance(self._X, BoundedColumns) or is_numpy_array(self._X)

    @property
    def _parallel(self) -> bool:
        return self._on_processor and self._X.nbytes >= PARALLEL_BYTES
