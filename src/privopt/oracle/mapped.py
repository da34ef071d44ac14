"""Rows after a public linear map and a clip of their own, never materialised.

Centring and scaling by private moments is post-processing, so the map is public; the clip is
enforced here, record by record, like the clip of ordinary rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import scipy.sparse as sp

from privopt.oracle.outer_counts import class_counts, outer_counts
from privopt.oracle.rows import RawRows, Residuals, RowBounds, Rows, Weigh


@dataclass(frozen=True, eq=False)
class RowMap:
    """x becomes v / max(||v||, clip_norm) with v = (scale * (x - centre), column).

    Mapped rows have norm at most 1. The clip scales a whole row, its constant too, so it changes
    the size of a score and never its sign.

    With a ``label_centre`` m the label shares the row's clip: y becomes (y - m) c / max(||v||, c),
    c the clip norm. A linear model of (x, y - m) is then one of the mapped records too, so a record
    that is clipped counts less and biases nothing.
    """

    centre: np.ndarray
    scale: np.ndarray
    column: float
    clip_norm: float
    label_centre: float | None = None

    @property
    def dimension(self) -> int:
        return len(self.centre) + 1

    def forward(self, total: np.ndarray) -> np.ndarray:
        """A (g, t) = (scale * (g - t centre), column t), for a sum g of rows of total weight t."""
        g, t = total[:-1], total[-1]
        return np.append(self.scale * (g - t * self.centre), self.column * t)

    def backward(self, theta: np.ndarray) -> np.ndarray:
        """A^T theta: coefficients of the row (x, 1) that give the same margin, before the clip."""
        slope = self.scale * theta[:-1]
        return np.append(slope, self.column * theta[-1] - slope @ self.centre)

    def gram(self, inner: np.ndarray) -> np.ndarray:
        """A G A^T."""
        A = np.zeros((self.dimension, self.dimension))
        A[:-1, :-1] = np.diag(self.scale)
        A[:-1, -1] = -self.scale * self.centre
        A[-1, -1] = self.column
        return A @ inner @ A.T

    def label(self, y: Any, factors: Any) -> Any:
        """The label of a record whose row is multiplied by this factor."""
        if self.label_centre is None:
            return y
        return (y - self.label_centre) * (factors * self.clip_norm)

    def factors(self, X: Any) -> np.ndarray:
        """1 / max(||v||, clip_norm) for each row of X."""
        return 1 / np.maximum(np.hypot(scaled_norms(X, self), self.column), self.clip_norm)


def scaled_norms(X: Any, row_map: RowMap) -> np.ndarray:
    """||scale * (x - centre)|| for each row of a NumPy or SciPy matrix, in double precision."""
    centre, scale = row_map.centre, row_map.scale
    if sp.issparse(X):
        X = X.astype(float)
        square = scale**2
        positive = X.multiply(X) @ square + centre @ (square * centre)
        # A sparse row is not centred entry by entry: the slack covers what cancellation loses.
        return np.sqrt(np.maximum(positive - 2 * (X @ (square * centre)), 0.0) + 1e-12 * positive)
    norms = np.empty(X.shape[0])
    height = max(64, (1 << 17) // max(1, X.shape[1]))
    for start in range(0, X.shape[0], height):
        block = scale * (np.asarray(X[start : start + height], dtype=float) - centre)
        with np.errstate(over="ignore"):
            norms[start : start + height] = np.sqrt(np.einsum("ij,ij->i", block, block))
    return norms


class MappedRows:
    """Effective rows x~_i = s_i A (x_i, 1), with s_i = 1 / max(||A (x_i, 1)||, clip_norm).

    ``base`` holds the rows (x_i, 1), and hands the pair (s_i, ||x~_i||) to every weight in place of
    its own sizes.
    """

    __slots__ = ("_base", "_map", "_squares", "bounds", "count", "dimension")

    def __init__(self, base: Rows, row_map: RowMap) -> None:
        self._base, self._map = base, row_map
        self._squares: Any = None
        self.bounds = RowBounds(1.0)
        self.count = base.count
        self.dimension = row_map.dimension

    @classmethod
    def build(cls, base: RawRows, row_map: RowMap) -> MappedRows:
        norms = np.hypot(base.features(lambda X: scaled_norms(X, row_map)), row_map.column)
        factors = 1 / np.maximum(norms, row_map.clip_norm)
        # A row whose norm overflows is clipped to nothing.
        sizes = factors * np.where(np.isfinite(norms), norms, 0.0)
        notes = np.column_stack([factors, sizes])
        return cls(base.noted(notes).precise(), row_map)

    def weighted_sum(self, theta: np.ndarray, weigh: Weigh) -> np.ndarray:
        inner = self._base.weighted_sum(self._map.backward(theta), self._inside(weigh, 1))
        return self._map.forward(inner)

    def total(self, theta: np.ndarray, weigh: Weigh) -> float:
        return self._base.total(self._map.backward(theta), self._inside(weigh, 0))

    def totals(self, thetas: np.ndarray, weigh: Weigh) -> np.ndarray:
        return np.array([self.total(theta, weigh) for theta in thetas])

    def weighted_sums(self, thetas: np.ndarray, weigh: Weigh) -> np.ndarray:
        sums = [self.weighted_sum(theta, weigh) for theta in thetas]
        return np.array(sums).reshape(len(thetas), self.dimension)

    def weighted_gram(self, theta: np.ndarray, weigh: Weigh) -> np.ndarray:
        inner = self._base.weighted_gram(self._map.backward(theta), self._inside(weigh, 2))
        return self._map.gram(inner)

    def weights(self, theta: np.ndarray, weigh: Weigh) -> Any:
        return self._base.weights(self._map.backward(theta), self._inside(weigh, 0))

    def _inside(self, weigh: Weigh, power: int) -> Weigh:
        """The weight of a base row: that of its mapped row times a power of its factor."""

        def inner(z: Any, y: Any, notes: Any) -> Any:
            factors = notes[:, 0]
            weights = weigh(z * factors, self._map.label(y, factors), notes[:, 1])
            return weights if power == 0 else weights * (factors if power == 1 else factors**2)

        return inner

    def weighted_product(self, weights: Any, vector: np.ndarray) -> np.ndarray:
        if self._squares is None:
            nowhere = np.zeros(self.dimension)
            self._squares = self._base.weights(nowhere, lambda z, y, notes: notes[:, 0] ** 2)
        inner = self._base.weighted_product(weights * self._squares, self._map.backward(vector))
        return self._map.forward(inner)

    def effective(self, measure: Callable[[Any, Any, Any], Any], most: int) -> list[Any]:
        """``measure`` of mapped rows, labels and sizes: centred entry by entry, then scaled, so
        that nothing cancels. Sparse rows are not sparse once they are centred."""
        row_map = self._map

        def inner(X: Any, y: Any, notes: Any) -> Any:
            X = X.toarray() if sp.issparse(X) else X
            factors = notes[:, 0]
            alive = X[:, -1:]  # the constant column of the base: 0 for an empty record
            E = np.empty_like(X)
            E[:, :-1] = (X[:, :-1] - alive * row_map.centre) * row_map.scale
            E[:, -1] = row_map.column * alive[:, 0]
            E *= factors[:, None]
            return measure(E, row_map.label(y, factors), notes[:, 1])

        return self._base.effective(inner, most)

    def outer_counts(
        self, thetas: np.ndarray, residuals: Residuals, bound: float, step: float
    ) -> np.ndarray:
        base = cast(RawRows, self._base)
        return outer_counts(base, self._map, thetas, residuals, bound, step)

    def class_counts(self, classes: int) -> np.ndarray:
        return class_counts(cast(RawRows, self._base), classes)

    def precise(self) -> MappedRows:
        return MappedRows(self._base.precise(), self._map)

    def labelled(self, y: Any, classification: bool) -> MappedRows:
        return MappedRows(self._base.labelled(y, classification), self._map)

    def take(self, indices: np.ndarray) -> MappedRows:
        return MappedRows(self._base.take(indices), self._map)

    def part(self, start: int, stop: int) -> MappedRows:
        return MappedRows(self._base.part(start, stop), self._map)
