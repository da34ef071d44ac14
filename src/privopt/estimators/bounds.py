"""Declared column bounds: a public, record-by-record map of features into [-1, 1]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from privopt.oracle.bounded_columns import BoundedColumns, one_if_equal


@dataclass(frozen=True, eq=False)
class ColumnBounds:
    """x becomes (x - shift) / scale, clipped to [-1, 1].

    A column whose bounds contain 0 is only divided, so that zeros stay zeros and a sparse matrix
    stays sparse; another one is also shifted to the middle of its bounds.
    """

    low: np.ndarray
    high: np.ndarray

    @classmethod
    def declared(cls, bounds: Any, features: int, names: Any = None) -> ColumnBounds:
        """Read ``(low, high)``, numbers or one per column, or a mapping from column names."""
        if isinstance(bounds, Mapping):
            if names is None:
                raise ValueError("bounds by column name need a data frame with column names.")
            missing = [str(name) for name in names if name not in bounds]
            if missing:
                raise ValueError(f"bounds are missing for column {missing[0]!r}.")
            pairs = [bounds[name] for name in names]
            if any(np.shape(pair) != (2,) for pair in pairs):
                raise ValueError("each column's bounds must be a pair (low, high).")
            low, high = np.array(pairs, dtype=float).T
        else:
            try:
                low, high = (np.asarray(side, dtype=float) for side in bounds)
                low, high = (np.broadcast_to(side, features).copy() for side in (low, high))
            except (TypeError, ValueError):
                raise ValueError(
                    "bounds must be a pair (low, high) of numbers or of arrays with one entry "
                    f"for each of the {features} columns."
                ) from None
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
            raise ValueError("bounds must be finite, and low must be below high in each column.")
        return cls(low, high)

    @property
    def shift(self) -> np.ndarray:
        across = (self.low <= 0) & (self.high >= 0)
        return np.where(across, 0.0, (self.low + self.high) / 2)

    @property
    def scale(self) -> np.ndarray:
        return np.maximum(np.abs(self.high - self.shift), np.abs(self.low - self.shift))

    def over(self, X: Any) -> Any:
        """The same as ``apply``, read block by block where the matrix is dense."""
        if not isinstance(X, np.ndarray) or X.dtype.kind != "f" or not X.size:
            return self.apply(X)
        return BoundedColumns.over(X, self.low, self.high, self.shift, self.scale)

    def apply(self, X: Any) -> Any:
        """A bounded copy of X in its own precision; NaN stays NaN, and infinity becomes it."""
        if sp.issparse(X):
            if self.shift.any():
                raise ValueError(
                    "the bounds of every column of a sparse matrix must contain 0, "
                    "the value of its empty entries."
                )
            X = sp.csr_array(X, copy=True)
            X.data[np.isinf(X.data)] = np.nan
            low, high = (np.asarray(side)[X.indices] for side in (self.low, self.high))
            X.data = (np.clip(X.data, low, high) / self.scale[X.indices]).astype(X.dtype)
            return X
        with np.errstate(all="ignore"):
            wild = None if np.isfinite(X.sum()) else np.isinf(X)
        low, high = (one_if_equal(side.astype(X.dtype)) for side in (self.low, self.high))
        X = np.clip(X, low, high)
        if wild is not None:
            X[wild] = np.nan
        if self.shift.any():
            X -= self.shift.astype(X.dtype)
        if (self.scale != 1).any():
            X /= self.scale.astype(X.dtype)
        return X
