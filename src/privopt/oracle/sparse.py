"""Sparse rows: a SciPy CSR matrix that is never densified and whose rows are never rewritten."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from privopt.oracle.column_shapes import new_features
from privopt.oracle.counting import EXACT, margin, shorten
from privopt.oracle.labels import labels_like
from privopt.oracle.moments import shortened
from privopt.oracle.outer_counts import class_counts, outer_counts
from privopt.oracle.rows import Residuals, RowBounds, Weigh


class SparseRows:
    """Effective rows over a CSR matrix. See ``rows`` for what they mean."""

    __slots__ = (
        "_X",
        "_active",
        "_columns",
        "_scale",
        "_sizes",
        "_y",
        "bounds",
        "count",
        "dimension",
    )

    def __init__(
        self, X: Any, y: np.ndarray, scale: Any, active: Any, sizes: np.ndarray, bounds: RowBounds
    ) -> None:
        self._X, self._y, self._scale, self._active, self._sizes = X, y, scale, active, sizes
        self._columns: Any = None  # the same matrix by columns, once somebody walks along them
        self.bounds = bounds
        self.count = X.shape[0]
        self.dimension = X.shape[1] + (bounds.intercept != 0)

    @classmethod
    def build(cls, X: Any, y: Any, bounds: RowBounds, classification: bool = True) -> SparseRows:
        """Clip rows to the public bound; rows that hold NaN or infinity become empty records."""
        X = sp.csr_array(X)
        if X.dtype != np.float64:
            X = X.astype(np.float64)  # sums of single-precision squares would miss the clip
        if math.isfinite(bounds.entries):
            X = _clipped_entries(X, bounds.entries)
        y = labels_like(y, X.data, np.float64, classification)
        giant = float(np.finfo(X.dtype).max) ** 0.25
        active = None
        sanitized = -giant <= X.data.min(initial=0.0) and X.data.max(initial=0.0) <= giant
        if not sanitized or not np.isfinite(y).all():
            largest = abs(X).max(axis=1).toarray().ravel() if X.shape[0] and X.shape[1] else 0.0
            largest = np.broadcast_to(largest, X.shape[0])
            owner = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
            missing = ~np.isfinite(y)
            missing[owner[~np.isfinite(X.data)]] = True
            X, y = X.copy(), np.where(missing, 1.0, y)
            X.data[missing[owner]] = 0.0
            huge = (largest > giant) & ~missing
            X.data = np.where(huge[owner], X.data / np.where(huge, largest, 1.0)[owner], X.data)
            X.data = np.where(huge[owner], X.data * 2.0**60, X.data)
            active = (~missing).astype(float)
        if X.has_canonical_format:  # else entries that are stored twice are added up before
            squares = sp.csr_array((X.data**2, X.indices, X.indptr), shape=X.shape)
        else:
            squares = X.multiply(X)
        norms = np.sqrt(np.asarray(squares.sum(axis=1)).ravel()) * (1 + margin(X.shape[1]))
        del squares
        lengths = norms if bounds.order == 2 else _order_norms(X, bounds.order)
        scale = None
        if (lengths > bounds.data_norm).any():
            scale = bounds.data_norm / np.maximum(lengths, bounds.data_norm)
            norms = norms * scale
        sizes = np.hypot(norms, bounds.intercept)
        if active is not None:
            sizes = sizes * active
        return cls(X, y, scale, active, sizes, bounds)

    def weighted_sum(self, theta: np.ndarray, weigh: Weigh) -> np.ndarray:
        return self._pull(self.weights(theta, weigh))

    def counted_sum(self, theta: np.ndarray, weigh: Weigh, bound: float, step: float) -> np.ndarray:
        X = self._X
        if not X.has_canonical_format:  # an entry that is stored twice is cut off once
            X = X.copy()
            X.sum_duplicates()
        weights = self._alive(self.weights(theta, weigh))
        scaled = self._scaled(weights)
        squares = sp.csr_array((X.data**2, X.indices, X.indptr), shape=X.shape).sum(axis=1)
        constants = weights * self.bounds.intercept
        lengths = np.hypot(np.sqrt(squares) * np.abs(scaled), constants)
        factors = shorten(lengths, bound, self.dimension) / step
        entries = np.trunc(X.data * np.repeat(scaled * factors, np.diff(X.indptr)))
        features = X.shape[1]
        counts = np.zeros(self.dimension, dtype=np.int64)
        most = int(EXACT * step / bound)
        for start in range(0, self.count, most):  # no more rows than doubles hold exactly
            place = slice(X.indptr[start], X.indptr[min(start + most, self.count)])
            sums = np.bincount(X.indices[place], entries[place], minlength=features)
            counts[:features] += sums.astype(np.int64)
        if self.bounds.intercept:
            counts[-1] = np.trunc(constants * factors).astype(np.int64).sum()
        return counts

    def total(self, theta: np.ndarray, weigh: Weigh) -> float:
        return float(np.sum(self._alive(self.weights(theta, weigh))))

    def totals(self, thetas: np.ndarray, weigh: Weigh) -> np.ndarray:
        return np.array([self.total(theta, weigh) for theta in thetas])

    def weighted_sums(self, thetas: np.ndarray, weigh: Weigh) -> np.ndarray:
        return np.array([self.weighted_sum(theta, weigh) for theta in thetas])

    def weighted_gram(self, theta: np.ndarray, weigh: Weigh) -> np.ndarray:
        weights = self._alive(self.weights(theta, weigh))
        features = self._X.shape[1]
        squared = self._scaled(self._scaled(weights))
        gram = np.zeros((self.dimension, self.dimension))
        gram[:features, :features] = (self._X.T @ self._X.multiply(squared[:, None])).toarray()
        if self.bounds.intercept:
            cross = (self._scaled(weights) @ self._X) * self.bounds.intercept
            gram[features, :features] = gram[:features, features] = cross
            gram[features, features] = np.sum(weights) * self.bounds.intercept**2
        return gram

    def weights(self, theta: np.ndarray, weigh: Weigh) -> np.ndarray:
        return weigh(self._margins(theta), self._y, self._sizes)

    def weighted_product(self, weights: np.ndarray, vector: np.ndarray) -> np.ndarray:
        return self._pull(weights * self._margins(vector))

    # ------------------------------------------------------------ column by column
    def margins(self, theta: np.ndarray) -> np.ndarray:
        return np.array(self._margins(theta))

    def weigh_margins(self, margins: Any, where: Any, weigh: Weigh) -> np.ndarray:
        return weigh(margins, self._y[where], self._sizes[where])

    def column(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        if self._columns is None:
            self._columns = self.columns()[0]
        place = slice(*self._columns.indptr[index : index + 2])
        return self._columns.indices[place], self._columns.data[place]

    def pull(self, weights: np.ndarray) -> np.ndarray:
        return self._pull(weights)

    def corrected(self, total: np.ndarray, where: Any, change: np.ndarray) -> np.ndarray | None:
        """A sum after the weights of some records changed; None if a new sum is cheaper."""
        if 4 * len(where) > self.count:
            return None
        changed = self._select(where)
        lengths = np.diff(changed._X.indptr)
        entries = np.repeat(changed._scaled(change), lengths) * changed._X.data
        np.add.at(total, changed._X.indices, entries)
        if self.bounds.intercept:
            total[-1] += np.sum(changed._alive(change)) * self.bounds.intercept
        return total

    def precise(self) -> SparseRows:
        return self  # margins and sums of a sparse matrix are carried in double precision already

    def labelled(self, y: Any, classification: bool) -> SparseRows:
        """The same rows with other finite labels; an empty record stays empty."""
        y = labels_like(y, self._X.data, np.float64, classification)
        return SparseRows(self._X, y, self._scale, self._active, self._sizes, self.bounds)

    def take(self, indices: np.ndarray) -> SparseRows:
        return self._select(indices)

    def part(self, start: int, stop: int) -> SparseRows:
        return self._select(slice(start, stop))

    def effective(self, measure: Callable[..., Any], most: int) -> list[Any]:
        """``measure`` of effective rows (CSR), labels and sizes, few rows at a time."""
        X = self._X
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        factors, constant = self._scaled(self.active()), self.active() * self.bounds.intercept
        parts = []
        for start in range(0, self.count, most):
            cut = slice(start, start + most)
            E = X[cut]
            data = E.data * np.repeat(factors[cut], np.diff(E.indptr))
            E = sp.csr_array((data, E.indices, E.indptr), shape=E.shape)
            if self.bounds.intercept:
                E = sp.hstack([E, sp.csr_array(constant[cut, None])], format="csr")
            parts.append(measure(E, self._y[cut], self._sizes[cut]))
        return parts

    def features(self, measure: Callable[[Any], np.ndarray]) -> np.ndarray:
        return measure(self._X)

    def columns(self) -> tuple[Any, np.ndarray, np.ndarray]:
        """Effective rows as a matrix of columns, the constant one included; labels and sizes.

        The one copy of the matrix, for questions about single columns.
        """
        columns = self._X.tocsc()
        columns.sum_duplicates()
        if not columns.data.all():
            columns.eliminate_zeros()
        factors = self._scaled(self.active())
        if self._scale is not None or self._active is not None:
            columns.data *= factors[columns.indices]
        if self.bounds.intercept:
            constant = sp.csc_array(self.bounds.intercept * self.active()[:, None])
            columns = sp.hstack([columns, constant], format="csc")
        return columns, self._y, self._sizes

    def active(self) -> np.ndarray:
        return np.ones(self.count) if self._active is None else self._active

    def scales(self) -> np.ndarray:
        return np.ones(self.count) if self._scale is None else self._scale

    def labels(self) -> np.ndarray:
        return self._y

    def outer_counts(
        self, thetas: np.ndarray, residuals: Residuals, bound: float, step: float
    ) -> np.ndarray:
        return outer_counts(self, None, thetas, residuals, bound, step)

    def class_counts(self, classes: int, steps: int = 1) -> np.ndarray:
        return class_counts(self, classes, steps)

    def clipped_to(self, norm: float) -> SparseRows:
        scale, sizes = shortened(self, norm)
        bounds = RowBounds(1.0, self.bounds.intercept)
        return SparseRows(self._X, self._y, scale, self._active, sizes, bounds)

    def apart(self) -> tuple[Callable[[list[Any]], SparseRows], list[Any]]:
        """How to make these rows of their arrays, and the arrays."""
        bounds, shape = self.bounds, self._X.shape

        def rebuilt(a: list[Any]) -> SparseRows:
            y, scale, active, sizes = a[3:]
            X = sp.csr_array(tuple(a[:3]), shape=shape)
            return SparseRows(X, y, scale, active, sizes, bounds)

        own = [self._y, self._scale, self._active, self._sizes]
        return rebuilt, [self._X.data, self._X.indices, self._X.indptr, *own]

    def in_own_units(self, row_map: Any) -> tuple[SparseRows, Any]:
        return self, row_map

    def noted(self, notes: np.ndarray) -> SparseRows:
        return SparseRows(self._X, self._y, self._scale, self._active, notes, self.bounds)

    def widened(self, more: Callable[[Any], np.ndarray], width: int) -> SparseRows:
        extra, sizes = new_features(self, more, self._sizes)
        X = sp.csr_array(sp.hstack([self._X, sp.csr_array(extra)], format="csr"))
        return SparseRows(X, self._y, self._scale, self._active, sizes, self.bounds)

    def _select(self, where: Any) -> SparseRows:
        def pick(values: Any) -> Any:
            return None if values is None else values[where]

        return SparseRows(
            self._X[where],
            self._y[where],
            pick(self._scale),
            pick(self._active),
            self._sizes[where],
            self.bounds,
        )

    def _margins(self, theta: np.ndarray) -> np.ndarray:
        features = self._X.shape[1]
        z = self._scaled(self._X @ np.asarray(theta[:features], dtype=float))
        if self.bounds.intercept:
            z = z + theta[features] * self.bounds.intercept
        return self._alive(z)

    def _pull(self, weights: np.ndarray) -> np.ndarray:
        total = np.zeros(self.dimension)
        features = self._X.shape[1]
        weights = self._alive(weights)
        total[:features] = self._scaled(weights) @ self._X
        if self.bounds.intercept:
            total[features] = np.sum(weights) * self.bounds.intercept
        return total

    def _scaled(self, weights: np.ndarray) -> np.ndarray:
        return weights if self._scale is None else weights * self._scale

    def _alive(self, weights: np.ndarray) -> np.ndarray:
        return weights if self._active is None else weights * self._active


def _clipped_entries(X: Any, bound: float) -> Any:
    """X with its finite entries clipped; entries that are stored twice are added up before."""
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    if -bound <= X.data.min(initial=0.0) and X.data.max(initial=0.0) <= bound:
        return X
    data, wild = np.clip(X.data, -bound, bound), ~np.isfinite(X.data)
    data[wild] = X.data[wild]  # the record is emptied, not clipped
    return sp.csr_array((data, X.indices, X.indptr), shape=X.shape)


def _order_norms(X: Any, order: float) -> np.ndarray:
    """l_r norm of each row, r = ``order``, safe against overflow of powers."""
    if not X.has_canonical_format:  # entries that are stored twice are added up before
        X = X.copy()
        X.sum_duplicates()
    owner = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    largest = np.zeros(X.shape[0])
    np.maximum.at(largest, owner, np.abs(X.data))
    unit = np.where(largest > 0, largest, 1.0)[owner]
    powers = np.bincount(owner, (np.abs(X.data) / unit) ** order, minlength=X.shape[0])
    return largest * powers ** (1 / order) * (1 + margin(X.shape[1]))
