"""A dense matrix seen through public bounds of its columns; a large one a few rows at a time,
without a copy.

Clipping, shifting and dividing are done entry by entry, by NumPy, in the precision of the matrix.
What comes out of an entry therefore depends on the entry alone, not on which rows are read with it:
that blocks without an entry outside are not clipped changes no bit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

TILE = 1 << 10
"""Rows that are clipped if one of their entries lies outside."""
FAR = 1e3
"""Columns are not left uncentred whose middle is so many times as far from 0 as their bounds."""
SMALL = 1 << 26
"""Bytes up to which the mapped matrix is kept: it is read some twenty times in a fit."""
_PLACE = threading.local()
"""Of the block that a thread reads: fresh memory would cost more than the map."""


@dataclass(frozen=True, eq=False)
class BoundedColumns:
    """x becomes (x - shift) / scale, clipped to [low, high] before; entries are finite.

    ``outside`` says of each ``TILE`` rows whether an entry has to be clipped; the first row here is
    number ``first`` there. ``broken`` are rows that are not numbers: zeros, in whatever units.
    """

    inner: np.ndarray
    low: np.ndarray
    high: np.ndarray
    shift: np.ndarray
    scale: np.ndarray
    outside: np.ndarray
    first: int = 0
    broken: np.ndarray | None = None
    keeps: bool = True
    """Whether a small matrix may be held as it is mapped: not those that lie in a file."""
    _kept: list[np.ndarray] = field(default_factory=list, init=False, repr=False)

    @classmethod
    def over(
        cls, X: np.ndarray, low: np.ndarray, high: np.ndarray, shift: np.ndarray, scale: np.ndarray
    ) -> BoundedColumns:
        """One reading of the matrix; a copy only of one that holds something not finite."""
        outside, finite = np.zeros(-(-len(X) // TILE), dtype=bool), True
        for k in range(len(outside)):
            tile = X[k * TILE : (k + 1) * TILE]
            least, most = tile.min(axis=0), tile.max(axis=0)
            numbers = bool(np.isfinite(least).all() and np.isfinite(most).all())
            # A smallest entry that is not a number hides that others have to be clipped.
            below, above = least < low.astype(X.dtype), most > high.astype(X.dtype)
            outside[k] = not numbers or below.any() or above.any()
            finite = finite and numbers
        found = cls(X, low, high, shift, scale, outside)
        return found if finite else found.without(np.logical_not(np.isfinite(X).all(axis=1)))

    def without(self, broken: np.ndarray) -> BoundedColumns:
        """A copy in which these rows are zeros, and those that were so before."""
        inner = self.inner.copy()
        inner[broken] = 0.0  # any number: they are emptied after each reading
        if self.broken is not None:
            broken = broken | self.broken
        return replace(self, inner=inner, broken=broken)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.inner.shape

    @property
    def dtype(self) -> np.dtype:
        return self.inner.dtype

    @property
    def nbytes(self) -> int:
        return self.inner.nbytes

    @property
    def near(self) -> bool:
        """Whether columns may be centred later, without a loss of digits."""
        return bool((np.abs(self.shift) <= FAR * self.scale).all())

    def __getitem__(self, key: Any) -> np.ndarray:
        """Rows, and perhaps some of their columns; not to be written to."""
        kept = self._small()
        if kept is not None:
            return kept[key]
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        found = self._map(self.inner[rows, columns], columns, self._clean(rows), None)
        return self._emptied(found, rows)

    def block(self, rows: slice) -> np.ndarray:
        """Consecutive rows, perhaps in a place that the next block of this thread is written to."""
        kept = self._small()
        if kept is not None:
            return kept[rows]
        found, clean = self.inner[rows], self._clean(rows)
        place = getattr(_PLACE, "block", None)
        if place is None or place.dtype != found.dtype or place.size < found.size:
            place = _PLACE.block = np.empty(found.size, found.dtype)
        found = self._map(found, slice(None), clean, place[: found.size].reshape(found.shape))
        return self._emptied(found, rows)

    def part(self, rows: slice) -> BoundedColumns:
        """Some consecutive rows, not read yet."""
        start, _, _ = rows.indices(len(self.inner))
        broken = None if self.broken is None else self.broken[rows]
        found = replace(self, inner=self.inner[rows], first=self.first + start, broken=broken)
        found._kept.extend(kept[rows] for kept in self._kept)
        return found

    def in_own_units(self) -> BoundedColumns:
        """The same entries clipped and nothing else."""
        return replace(self, shift=np.zeros_like(self.shift), scale=np.ones_like(self.scale))

    def apart(self) -> tuple[Callable[..., BoundedColumns], tuple[Any, Any]]:
        """How to make this view of its two long arrays, and these."""
        bare = replace(self, inner=self.inner[:0].copy(), broken=None, keeps=False)
        return lambda inner, broken: replace(bare, inner=inner, broken=broken), (
            self.inner,
            self.broken,
        )

    def _small(self) -> np.ndarray | None:
        """The whole mapped matrix, if it is small; made when it is first read."""
        if not self._kept and self.keeps and self.nbytes <= SMALL:
            every = slice(None)
            found = self._map(self.inner, every, self._clean(every), None)
            self._kept.append(self._emptied(found, every))
        return self._kept[0] if self._kept else None

    def _emptied(self, X: np.ndarray, rows: Any) -> np.ndarray:
        """Zeros where a row is broken: an empty record adds nothing, wherever zero lies."""
        if self.broken is None or not self.broken[rows].any():
            return X
        if np.may_share_memory(X, self.inner):
            X = X.copy()
        X[self.broken[rows]] = 0.0
        return X

    def _clean(self, rows: Any) -> bool:
        if not isinstance(rows, slice):
            return False
        start, stop, _ = rows.indices(len(self.inner))
        first, last = (self.first + start) // TILE, -(-(self.first + stop) // TILE)
        return not self.outside[first:last].any()

    def _map(self, X: np.ndarray, columns: Any, clean: bool, out: np.ndarray | None) -> np.ndarray:
        def side(values: np.ndarray) -> Any:
            return one_if_equal(values.astype(self.dtype)[columns])

        with np.errstate(all="ignore"):
            if not clean:
                X = out = np.clip(X, side(self.low), side(self.high), out=out)
            if self.shift.any():
                X = out = np.subtract(X, side(self.shift), out=out)
            if (self.scale != 1).any():
                X = np.divide(X, side(self.scale), out=out)
        return X


def whole(X: Any) -> Any:
    """An array that can be read as one."""
    return X[:] if isinstance(X, BoundedColumns) else X


def one_if_equal(values: Any) -> Any:
    """One number in place of many equal ones: columns need not be told apart."""
    if np.ndim(values) and values.size and (values == values.flat[0]).all():
        return values.flat[0]
    return values
