"""Shapes of single columns: histograms by public bins, and public tables that replace a column.

A shaped column is (index, low, high) with low and high declared; it is cut into ``BINS`` equal
bins, and what lies outside belongs to the nearest. A table gives each bin of each shaped column a
few numbers, new features of a record that depend on that record alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from privopt.oracle.counting import whole_steps
from privopt.oracle.rows import RawRows
from privopt.oracle.sensitivity import SensitivityNorm

BINS = 64

Shaped = tuple[int, float, float]
"""A column and its declared range."""


def bins_of(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """The bin of each value; monotone, whatever the rounding."""
    places = (np.asarray(values, dtype=float) - low) * (BINS / (high - low))
    return np.clip(np.floor(places), 0, BINS - 1).astype(np.intp)


def codes(X: Any, columns: tuple[Shaped, ...]) -> np.ndarray:
    """Bins of all shaped columns, one row per record, of a NumPy or SciPy matrix."""
    found = np.empty((X.shape[0], len(columns)), dtype=np.intp)
    wanted = [index for index, _, _ in columns]
    some = X[:, wanted]
    some = some.toarray() if sp.issparse(some) else some
    for j, (_, low, high) in enumerate(columns):
        found[:, j] = bins_of(some[:, j], low, high)
    return found


@dataclass(frozen=True, slots=True)
class ColumnHistograms:
    """How many records have each shaped column in each of its bins, all columns in one vector.

    With J columns a record is one 1 in each of J blocks: it moves the vector by sqrt(J) in l2 and J
    in l1; two records differ in at most 2 J entries by 1: sqrt(2 J) and 2 J. An empty record is in
    no bin.
    """

    columns: tuple[Shaped, ...]
    norm: SensitivityNorm = "l2"

    def radius(self) -> float:
        many = len(self.columns)
        return math.sqrt(many) if self.norm == "l2" else float(many)

    def diameter(self) -> float:
        many = 2 * len(self.columns)
        return math.sqrt(many) if self.norm == "l2" else float(many)

    def total(self, rows: RawRows, at: np.ndarray) -> np.ndarray:
        return self._counts(rows).astype(float)

    def count(self, rows: RawRows, at: np.ndarray, step: float) -> np.ndarray:
        """A record's 1 becomes the largest whole number of steps that is at most 1."""
        return whole_steps(self._counts(rows), step)

    def _counts(self, rows: RawRows) -> np.ndarray:
        alive = rows.active()

        def counted(X: Any) -> np.ndarray:
            found = codes(X, self.columns)
            each = [np.bincount(one, weights=alive, minlength=BINS) for one in found.T]
            return np.concatenate(each)

        return rows.features(counted)


@dataclass(frozen=True, eq=False)
class ShapeTables:
    """Public numbers for each bin: ``values[j, b]`` are the new features of a record whose shaped
    column j lies in bin b."""

    columns: tuple[Shaped, ...]
    values: np.ndarray

    @property
    def width(self) -> int:
        """Number of new features."""
        return self.values.shape[0] * self.values.shape[2]

    def features(self, X: Any) -> np.ndarray:
        """The new features of each row."""
        found = codes(X, self.columns)
        parts = [table[found[:, j]] for j, table in enumerate(self.values)]
        return np.concatenate(parts, axis=1)

    def summed(self, theta: np.ndarray) -> np.ndarray:
        """What coefficients of the new features give each bin of each column."""
        each = theta.reshape(self.values.shape[0], self.values.shape[2])
        return np.einsum("jbk,jk->jb", self.values, each)


def new_features(
    rows: RawRows, more: Callable[[Any], np.ndarray], sizes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """What ``more`` makes of each row, zeros for an empty record, and the sizes of longer rows."""
    alive = rows.active()
    extra = rows.features(more) * alive[:, None]
    return extra, np.hypot(sizes, np.sqrt(np.einsum("ij,ij->i", extra, extra))) * alive
