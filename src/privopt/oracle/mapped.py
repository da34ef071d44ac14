"""Rows after a public linear map and a clip of their own, never materialised.

Centring and scaling by private moments is post-processing, so the map is public; the clip is
enforced here, record by record, like the clip of ordinary rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import scipy.sparse as sp

from privopt.oracle.counting import EXACT, added, as_numpy, row_products, shorten
from privopt.oracle.moments import at_least
from privopt.oracle.outer_counts import class_counts, outer_counts
from privopt.oracle.row_map import RowMap, scaled_norms
from privopt.oracle.rows import RawRows, Residuals, RowBounds, Rows, Weigh
from privopt.oracle.weighted import WeightedRows


class MappedRows:
    """Effective rows x~_i = s_i A (x_i, 1), each with a weight: see ``RowMap``.

    ``base`` holds the rows (x_i, 1), and hands (s_i, ||x~_i||, weight) to every weight in place of
    its own sizes.
    """

    __slots__ = ("_base", "_map", "_shares", "_squares", "bounds", "count", "dimension")

    def __init__(self, base: Rows, row_map: RowMap, shares: np.ndarray | None = None) -> None:
        self._base, self._map, self._shares = base, row_map, shares
        self._squares: Any = None
        self.bounds = RowBounds(1.0)
        self.count = base.count
        self.dimension = row_map.dimension

    @classmethod
    def build(cls, base: RawRows, row_map: RowMap) -> MappedRows:
        shares = None
        if isinstance(base, WeightedRows):
            base, shares = base.rows, base.shares
        base, row_map = base.in_own_units(row_map)
        norms = np.hypot(base.features(lambda X: scaled_norms(X, row_map)), row_map.column)
        norms = at_least(norms, row_map.dimension)
        notes = row_map.notes(norms)
        if shares is not None:
            notes[:, 2] *= shares
        return cls(base.noted(notes).precise(), row_map, shares)

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
            factors, sizes = notes[:, 0], notes[:, 1]
            if self._weighted:
                sizes = sizes * notes[:, 2]  # by which a slope is multiplied, weight included
            weights = weigh(z * factors, self._map.label(y, factors), sizes)
            if self._weighted:
                weights = weights * notes[:, 2]
            return weights if power == 0 else weights * (factors if power == 1 else factors**2)

        return inner

    def weighted_product(self, weights: Any, vector: np.ndarray) -> np.ndarray:
        if self._squares is None:
            nowhere = np.zeros(self.dimension)
            self._squares = self._base.weights(nowhere, lambda z, y, notes: notes[:, 0] ** 2)
        inner = self._base.weighted_product(weights * self._squares, self._map.backward(vector))
        return self._map.forward(inner)

    def effective(self, measure: Callable[..., Any], most: int) -> list[Any]:
        """``measure`` of mapped rows, labels, sizes and shares: centred entry by entry, then
        scaled, so that nothing cancels. Sparse rows are not sparse once they are centred.

        A row with a weight s^2 comes as s x~, no longer than 1, and with its share s: the loss is
        s^2 f(z / s) for the margin z of that row. A row that overflows or weighs nothing is 0 and
        has the share 1."""
        row_map = self._map
        # One long vector is faster than many short rows: the same numbers for each row of a block.
        height = min(most, self.count)
        centres = np.tile(np.append(row_map.centre, 0.0), (height, 1))
        scales = np.tile(np.append(row_map.scale, row_map.column), (height, 1))

        def inner(X: Any, y: Any, notes: Any) -> Any:
            X = X.toarray() if sp.issparse(X) else X
            factors = notes[:, 0]
            alive = X[:, -1:]  # the constant column of the base: 0 for an empty record
            E, part = X, slice(len(X))  # the block was made for this call
            E -= centres[part] if alive.all() else alive * centres[part]
            E *= scales[part]
            shares = None
            if self._weighted:
                roots = np.sqrt(notes[:, 2])
                factors, shares = factors * roots, np.where(roots > 0, roots, 1.0)
            E *= factors[:, None]
            return measure(E, row_map.label(y, notes[:, 0]), notes[:, 1], shares)

        return self._base.effective(inner, most)

    def counted_sum(self, theta: np.ndarray, weigh: Weigh, bound: float, step: float) -> np.ndarray:
        """``weighted_sum`` in exact integers, each record's part no longer than the bound."""

        def counted(E: Any, y: Any, sizes: Any, shares: Any) -> np.ndarray:
            z = row_products(E, theta)
            if shares is None:
                weights = weigh(z, y, sizes)
            else:  # the loss is s^2 f(z / s), its slope s f'(z / s)
                weights = weigh(z / shares, y, sizes * shares**2) * shares
            lengths = np.abs(weights) * np.sqrt(np.einsum("ij,ij->i", E, E))
            weights *= shorten(lengths, bound, self.dimension) / step
            return as_numpy(added(E * weights[:, None]), np.int64)

        most = min((1 << 17) // self.dimension, int(EXACT * step / bound))
        found = self.effective(counted, max(1, most))
        return sum(found, np.zeros(self.dimension, dtype=np.int64))

    def outer_counts(
        self, thetas: np.ndarray, residuals: Residuals, bound: float, step: float
    ) -> np.ndarray:
        base = cast(RawRows, self._base)
        return outer_counts(base, self._map, thetas, residuals, bound, step, self._shares)

    def class_counts(self, classes: int, steps: int = 1) -> np.ndarray:
        return class_counts(cast(RawRows, self._base), classes, steps, self._shares)

    @property
    def _weighted(self) -> bool:
        return self._shares is not None or self._map.shortening < 1

    def apart(self) -> tuple[Callable[[list[Any]], MappedRows], list[Any]]:
        """How to make these rows of their arrays, and the arrays."""
        (rebuild, arrays), row_map = cast(Any, self._base).apart(), self._map
        return lambda a: MappedRows(rebuild(a), row_map), arrays

    def precise(self) -> MappedRows:
        return MappedRows(self._base.precise(), self._map, self._shares)

    def labelled(self, y: Any, classification: bool) -> MappedRows:
        return MappedRows(self._base.labelled(y, classification), self._map, self._shares)

    def take(self, indices: np.ndarray) -> MappedRows:
        return self._picked(self._base.take(indices), indices)

    def part(self, start: int, stop: int) -> MappedRows:
        return self._picked(self._base.part(start, stop), slice(start, stop))

    def _picked(self, base: Rows, where: Any) -> MappedRows:
        return MappedRows(base, self._map, None if self._shares is None else self._shares[where])
