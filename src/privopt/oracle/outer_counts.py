"""Sums of outer products in exact integers, at the speed of matrix products.

A record's part is its row times the residuals of its classes. Row and residuals are counted apart,
each in whole steps of its own grid, and the product of the two steps is the grid of the sum: sums
of products of integers are exact in double precision, in any order, as long as they stay below
2^53. Scores are exact in the same way, so what a record adds depends on it alone.

Why no record exceeds the bound: the length of the counted row is computed from its integers;
residuals are multiplied so that both lengths together are at most ``bound``, and then cut off
toward zero, which makes no vector longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from privopt.oracle.counting import EXACT, margin
from privopt.oracle.rows import RawRows, Residuals

BLOCK = 1 << 17
"""Entries of a dense block: it stays in a core's cache."""
LONGEST = 2.0**10
"""A row this many times longer than the clip contributes nothing."""


class Standard(Protocol):
    """A public map of rows and their clip: see ``mapped.RowMap``."""

    @property
    def centre(self) -> np.ndarray: ...
    @property
    def scale(self) -> np.ndarray: ...
    @property
    def column(self) -> float: ...
    @property
    def clip_norm(self) -> float: ...
    @property
    def shortening(self) -> float: ...


def outer_counts(
    rows: RawRows,
    row_map: Standard | None,
    thetas: np.ndarray,
    residuals: Residuals,
    bound: float,
    step: float,
    shares: np.ndarray | None = None,
) -> np.ndarray:
    """Sum over records of residuals times row in steps of a grid: one line for each of ``thetas``.

    Each record's matrix is clipped to a Frobenius norm of ``bound``, then multiplied by its share,
    if there are any; rows are mapped if there is a map. Empty records add nothing.
    """
    classes, grid = len(thetas), _Grid.of(rows, row_map, bound, step)
    total = np.zeros(thetas.shape, dtype=np.int64)
    labels, alive = class_numbers(rows, classes), rows.active() > 0
    scales = rows.scales()
    if row_map is not None:  # what shortened a row before would not commute with its centring
        alive, scales = alive & (scales == 1), np.ones(len(scales))

    def add(X: Any) -> np.ndarray:
        sparse = sp.issparse(X)
        if sparse and not X.has_canonical_format:  # an entry stored twice is counted once
            X = X.copy()
            X.sum_duplicates()
        most = max(1, int(EXACT * step / bound))
        height = min(most, X.shape[0] if sparse else max(64, BLOCK // max(1, X.shape[1])))
        for start in range(0, X.shape[0], max(1, height)):
            cut = slice(start, start + height)
            counted = (grid.sparse if sparse else grid.dense)(X[cut], alive[cut], scales[cut])
            scores = counted.scores(thetas) * (grid.unit * counted.heights)[:, None]
            parts = residuals(scores, labels[cut]) * (counted.shares * (grid.unit / step))[:, None]
            sizes = np.sqrt(np.einsum("ij,ij->i", parts, parts)) * counted.lengths
            allowed = bound / step * (1 - margin(classes))
            parts *= (allowed / np.maximum(sizes, allowed))[:, None]
            if shares is not None:
                parts *= shares[cut][:, None]
            parts[~(counted.alive & np.isfinite(sizes))] = 0.0
            total[...] += counted.pulled(np.trunc(parts, out=parts)).astype(np.int64)
        return total

    with np.errstate(over="ignore", invalid="ignore"):
        return rows.features(add)


def class_numbers(rows: RawRows, classes: int) -> np.ndarray:
    """Labels as numbers 0, ..., K - 1, whatever the caller's are."""
    return np.clip(np.rint(np.nan_to_num(rows.labels())), 0, classes - 1).astype(np.int64)


def class_counts(
    rows: RawRows, classes: int, steps: int = 1, shares: np.ndarray | None = None
) -> np.ndarray:
    """How many records that are not empty have each label; ``steps`` of a grid for each record, or
    for its share as many whole ones as fit in it."""
    numbers, active = class_numbers(rows, classes), rows.active()
    if shares is None:
        return np.bincount(numbers, weights=active, minlength=classes) * float(steps)
    parts = np.trunc(active * shares * steps).astype(np.int64) if steps > 1 else active * shares
    total = np.zeros(classes, dtype=parts.dtype)
    np.add.at(total, numbers, parts)
    return total


@dataclass(frozen=True)
class _Counted:
    """Rows (U - shift, column) of integers, in steps. ``heights`` times their scores are those of
    the records, ``shares`` times their residuals what counts of them."""

    U: Any
    shift: np.ndarray
    column: np.ndarray
    lengths: np.ndarray
    heights: np.ndarray
    shares: np.ndarray
    alive: np.ndarray
    most: float
    intercept: bool

    def scores(self, thetas: np.ndarray) -> np.ndarray:
        """Inner products of integer rows with each of ``thetas``, which is counted as well."""
        features = self.U.shape[1]
        largest = math.sqrt(float(np.max(np.sum(thetas**2, axis=1), initial=0.0)))
        fine = largest * self.most / EXACT if largest > 0 else 1.0
        points = np.rint(thetas / fine)
        found = np.asarray(self.U @ points[:, :features].T)
        found -= points[:, :features] @ self.shift
        if self.intercept:
            found += self.column[:, None] * points[:, features]
        return found * fine

    def pulled(self, parts: np.ndarray) -> np.ndarray:
        """Sum of the rows, each times its line of integers."""
        features = self.U.shape[1]
        found = np.empty((parts.shape[1], features + self.intercept))
        found[:, :features] = (self.U.T @ parts).T
        found[:, :features] -= np.outer(parts.sum(axis=0), self.shift)
        if self.intercept:
            found[:, features] = self.column @ parts
        return found


@dataclass(frozen=True)
class _Grid:
    """How a row x becomes integers, about (factor * x - shift, column), each of size ``unit``."""

    factor: np.ndarray
    shift: np.ndarray
    column: float
    longest: float
    unit: float
    shortening: float | None

    @classmethod
    def of(cls, rows: RawRows, row_map: Standard | None, bound: float, step: float) -> _Grid:
        # Half of the bits are for rows, half for residuals.
        steps = 2.0 ** math.ceil(math.log2(bound / step) / 2)
        features = rows.dimension - (rows.bounds.intercept != 0)
        if row_map is None:
            unit = rows.bounds.size / steps
            flat = np.full(features, 1 / unit)
            return cls(flat, np.zeros(features), rows.bounds.intercept / unit, steps, unit, None)
        factor = row_map.scale * (steps / row_map.clip_norm)
        column = row_map.column * (steps / row_map.clip_norm)
        centre = factor * row_map.centre
        return cls(factor, centre, column, steps, 1 / steps, row_map.shortening)

    def dense(self, X: np.ndarray, alive: np.ndarray, scales: np.ndarray) -> _Counted:
        """Rows are centred entry by entry."""
        U = X.astype(float) * self.factor
        if self.shortening is not None:
            U -= self.shift
        U *= scales[:, None]
        U[~alive] = 0.0
        np.rint(U, out=U)
        column = np.full(len(U), float(np.rint(self.column)))
        lengths = np.sqrt(np.einsum("ij,ij->i", U, U) + column**2)
        return self._counted(U, np.zeros(U.shape[1]), column, lengths, alive)

    def sparse(self, X: Any, alive: np.ndarray, scales: np.ndarray) -> _Counted:
        """Rows are counted entry by entry; what is the same in all of them stays apart."""
        entries = X.data * self.factor[X.indices] * np.repeat(scales, np.diff(X.indptr))
        U = sp.csr_array((np.rint(entries), X.indices, X.indptr), shape=X.shape)
        shift, column = np.rint(self.shift), np.full(X.shape[0], float(np.rint(self.column)))
        squares = np.asarray(sp.csr_array((U.data**2, U.indices, U.indptr), shape=U.shape).sum(1))
        squares = squares.ravel() + float(shift @ shift) + column**2
        # What is beyond 2^53 rounds: the slack covers it.
        lengths = np.sqrt(np.maximum(squares - 2 * (U @ shift), 0.0) + margin(X.shape[1]) * squares)
        return self._counted(U, shift, column, lengths, alive)

    def _counted(
        self, U: Any, shift: np.ndarray, column: np.ndarray, lengths: np.ndarray, alive: np.ndarray
    ) -> _Counted:
        most, beyond = self.longest * LONGEST, np.maximum(lengths / self.longest, 1.0)
        heights = shares = np.ones(len(lengths))
        if self.shortening is not None:
            heights, shares = beyond**-self.shortening, 1 / beyond
        alive = alive & (lengths <= most)
        most += math.sqrt(float(shift @ shift))
        return _Counted(U, shift, column, lengths, heights, shares, alive, most, self.column != 0)
