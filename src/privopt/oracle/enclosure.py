"""The gradient of a sum of losses with an evaluated bound on its rounding error.

The function is that of real numbers: its rows are the doubles that the clip of each record makes,
its slope the derivative of the loss. With u = 2^-53, a block X of h rows, p columns:

* Margins. X = X1 + X2 and theta = T1 + T2, where the leading parts have so few bits that X1 T1 is
  an exact sum of integers in any order of additions (Ozaki, Ogita, Oishi and Rump, 2012). The rest
  is 2^-b as large and computed plainly: the error of a margin is about p u 2^-b, not p u.
* Slopes. A convex loss has a slope that does not decrease, so that the slope at a margin within d
  of z lies between those at z - d and z + d. Both are computed; no smoothness is used.
* Sums. Slopes are split like margins: the leading parts add up exactly, the rest are 2^-b as large.

The bound of the gradient is the sum of the bounds of its records, as if all erred in one direction.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp

from privopt.losses import Loss
from privopt.losses.residual import HuberisedResidual
from privopt.losses.smoothed import SmoothedLines
from privopt.numerics.convex import UNIT, Enclosed

HEIGHT = 1 << 12
"""Rows whose leading parts are added up in one exact sum."""
SLOPE_UNITS = 8.0
"""Rounding of one computed slope at a given margin, in units of 2^-53 of ``Loss.slope_size``."""
SMALLEST = 2.0**-900
QUICK = 256
"""Rows that ``Enclosing.quick`` adds up in one go."""


def residual_only(loss: Loss) -> bool:
    """Whether this is a loss of the library that reads margin and label as a difference alone."""
    return isinstance(loss, HuberisedResidual | SmoothedLines) and not loss.classification


def slope_unit(loss: Loss) -> float:
    """The rounding of one computed slope."""
    return SLOPE_UNITS * UNIT * loss.slope_size


class Enclosing:
    """Sums up a gradient at theta = head + tail, block by block."""

    def __init__(self, loss: Loss, head: np.ndarray, tail: np.ndarray, size: float) -> None:
        self._loss, self._head, self._tail, self._size = loss, head, tail, size

    def block(
        self, X: Any, y: np.ndarray, shares: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Exact leading part, the rest, and the error of the sum over a few rows; X is a dense or
        a CSR matrix of effective rows in double precision. With shares s a slope is s f'(z / s)."""
        largest = _largest(X)
        column = _power(np.maximum(largest, SMALLEST))
        count, p = X.shape
        widest = p if not sp.issparse(X) else max(1, int(np.diff(X.indptr).max(initial=1)))
        bits = min(20, (52 - math.ceil(math.log2(widest + 1))) // 2)
        lead, rest = _split_rows(X, column, bits)

        # Margins: the unit of a product is the same in all columns.
        wide = self._head * column
        top = float(_power(np.maximum(np.max(np.abs(wide), initial=0.0), SMALLEST)))
        first = _leading(wide, top, bits) / column
        second = (self._head - first) + self._tail
        exact = lead @ first
        low = rest @ first + X @ second
        z = exact + low
        z_rest = low - (z - exact)  # Fast2Sum, or an error of u^2 |z| that the width below covers
        mass = float(largest @ np.abs(first)) + 2.0**bits * float(largest @ np.abs(second))
        error = (widest + 8) * UNIT * 2.0**-bits * (2 * mass + widest * top)
        if shares is None:
            slopes, spread = self._slopes(z, z_rest, y, error)
        else:  # a division by 1 is exact, others move a margin by less than 4 u
            z, z_rest = z / shares, z_rest / shares
            wide = error / shares + np.where(shares < 1, 4 * UNIT * np.abs(z), 0.0)
            slopes, spread = self._slopes(z, z_rest, y, wide)
            spread = shares * (spread + 2 * UNIT * np.abs(slopes))
            slopes = shares * slopes

        # The sum: the leading parts of slopes and entries are integers of 53 bits in all.
        size = float(_power(np.maximum(np.max(np.abs(slopes), initial=0.0), SMALLEST)))
        heavy = _leading(slopes, size, 52 - 12 - bits)
        light = slopes - heavy
        total = heavy @ lead
        remainder = light @ X + heavy @ rest
        row = float(np.linalg.norm(largest)) * (1 + 1e-9)
        added = 4 * (count + 8) * count * UNIT * 2.0**-bits * size * row
        return total, remainder, min(self._size, row) * float(np.sum(spread)) * (1 + 1e-9) + added

    def quick(
        self, X: Any, y: np.ndarray, sizes: np.ndarray, shares: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """The same with ordinary sums, bounded by the number of additions: an error some hundred
        times as large, for less than half the work. ``sizes`` bound the norms of the rows."""
        if sp.issparse(X) or not self._loss.smooth or not math.isfinite(self._size):
            return self.block(X, y, shares)
        count, p = X.shape
        z = X @ self._head + (X @ self._tail if self._tail.any() else 0.0)
        # |<x, theta>| is summed with p additions, each off by u of at most ||x|| ||theta||.
        far = float(np.linalg.norm(self._head)) + float(np.linalg.norm(self._tail))
        error = 2 * (p + 4) * UNIT * far * float(np.sum(sizes))
        own = self._loss.classification or not self._loss.compares
        if shares is None:
            slopes = self._loss.slope(z, y)
        else:  # s f'(z / s) moves with z as f' does; two roundings more
            slopes = shares * self._loss.slope(z / shares, y)
        heights = np.abs(z) if own else np.abs(z) + np.abs(y)
        mass = float(np.sum(np.abs(slopes)))
        spread = self._loss.smoothness * (4 * UNIT * float(np.sum(heights)) + error)
        spread += count * slope_unit(self._loss) + 2 * UNIT * mass
        whole = count - count % QUICK
        parts = slopes[:whole].reshape(-1, 1, QUICK) @ X[:whole].reshape(-1, QUICK, p)
        total = parts.sum(axis=(0, 1)) + slopes[whole:] @ X[whole:]
        added = 2 * (QUICK + count // QUICK + 4) * UNIT * mass
        return total, np.zeros(p), self._size * (spread + added) * (1 + 1e-9)

    def _slopes(
        self, z: np.ndarray, rest: np.ndarray, y: np.ndarray, error: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """Slopes half-way between the ends of each margin's interval, and half their distance."""
        loss = self._loss
        if residual_only(loss):
            # The residual is rounded once, not the margin before it.
            d = z - y
            back = d - z
            z, y = d + (((z - (d - back)) - (y + back)) + rest), np.zeros_like(y)
            width = 4 * UNIT * np.abs(z) + error
        elif loss.classification or not loss.compares:
            width = 4 * UNIT * np.abs(z) + error
        else:
            width = 4 * UNIT * (np.abs(z) + np.abs(y)) + error
        width = width + 4 * UNIT * np.abs(rest)
        below, above = loss.slope(z - width, y), loss.slope(z + width, y)
        middle, apart = (below + above) / 2, np.abs(above - below) / 2
        if isinstance(loss, HuberisedResidual):  # a clipped residual has no rounding of its own
            return middle, apart + SLOPE_UNITS * UNIT * np.abs(middle)
        return middle, apart + slope_unit(loss)


def add_up(parts: list[tuple[np.ndarray, np.ndarray, float]], dimension: int) -> Enclosed:
    """The sum of blocks, leading parts in two doubles."""
    high, low, error, bulk = np.zeros(dimension), np.zeros(dimension), 0.0, 0.0
    for total, remainder, off in parts:
        moved = high + total
        back = moved - high
        low += ((high - (moved - back)) + (total - back)) + remainder
        high, error = moved, error + off
        bulk = max(bulk, float(np.linalg.norm(low)))
    value = high + low
    own = 2 * UNIT * (float(np.linalg.norm(value)) + 2 * len(parts) * bulk)
    return Enclosed(value, (error + own) * (1 + 1e-9))


def _power(values: np.ndarray) -> np.ndarray:
    """The powers of two at or just above positive numbers."""
    return np.exp2(np.ceil(np.log2(values) + 1e-12))


def _leading(values: np.ndarray, scale: Any, bits: int) -> np.ndarray:
    """The nearest multiples of scale 2^-bits, for values of at most scale."""
    shift = scale * 1.5 * 2.0 ** (52 - bits)
    return (values + shift) - shift


def _largest(X: Any) -> np.ndarray:
    if sp.issparse(X):
        return abs(X).max(axis=0).toarray().ravel() if X.shape[0] else np.zeros(X.shape[1])
    return np.maximum(X.max(axis=0, initial=0.0), -X.min(axis=0, initial=0.0))


def _split_rows(X: Any, column: np.ndarray, bits: int) -> tuple[Any, Any]:
    if not sp.issparse(X):
        lead = _leading(X, column, bits)
        return lead, X - lead
    data = _leading(X.data, column[X.indices], bits)
    return (
        sp.csr_array((data, X.indices, X.indptr), shape=X.shape),
        sp.csr_array((X.data - data, X.indices, X.indptr), shape=X.shape),
    )
