"""Dense arrays made fit for sums: entries clipped, rows that are not numbers emptied."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from array_api_compat import is_numpy_array

from privopt.oracle.rows import RowBounds


def row_norms(xp: Any, X: Any) -> Any:
    """l2 norm of each row."""
    if is_numpy_array(X):
        with np.errstate(over="ignore", invalid="ignore"):
            return np.sqrt(np.einsum("ij,ij->i", X, X))
    return xp.sqrt(xp.sum(X * X, axis=1))


def row_scales(xp: Any, X: Any, norms: Any, bounds: RowBounds) -> Any:
    """Factors that clip rows to the bound of their norm, given the l2 ones; None if none has to."""
    if bounds.order != 2 and math.isfinite(bounds.data_norm):
        norms = xp.astype(order_norms(xp, X, bounds.order), norms.dtype)
    if not bool(xp.any(norms > bounds.data_norm)):
        return None
    return bounds.data_norm / xp.clip(norms, min=bounds.data_norm)


def order_norms(xp: Any, X: Any, order: float) -> Any:
    """l_r norm of each row, r = ``order``, safe against overflow of powers."""
    if 0 in X.shape:
        return xp.zeros(X.shape[0], dtype=xp.float64)
    largest = xp.astype(xp.max(abs(X), axis=1), xp.float64)
    unit = xp.where(largest > 0, largest, xp.ones_like(largest))
    powers = xp.sum((abs(xp.astype(X, xp.float64)) / unit[:, None]) ** order, axis=1)
    # What rounding may take away, in the precision of the rows.
    return largest * powers ** (1 / order) * (1 + 4 * float(xp.finfo(X.dtype).eps))


def within(xp: Any, X: Any, bound: float) -> Any:
    """X with its finite entries clipped; a copy only if one of them has to be."""
    if math.isinf(bound) or 0 in X.shape:
        return X
    with np.errstate(invalid="ignore"):
        outside = xp.isfinite(X) & (abs(X) > bound)
    return xp.where(outside, xp.sign(X) * bound, X) if bool(xp.any(outside)) else X


def tame(xp: Any, X: Any, y: Any, norms: Any, wild: Any, broken: Any) -> tuple[Any, Any, Any, Any]:
    """Copy the data, empty the rows that are not numbers, rescale those whose square overflows."""
    X, y = xp.asarray(X, copy=True), xp.asarray(y, copy=True)
    missing = ~xp.all(xp.isfinite(X), axis=1) | broken
    X[missing, :] = 0.0
    y[missing] = 1.0
    huge = wild & ~missing
    if bool(xp.any(huge)):
        X[huge, :] = X[huge, :] / xp.max(xp.abs(X[huge, :]), axis=1, keepdims=True)
        # A direction survives an overflow; its length is beyond any bound, so it is clipped anyway.
        X[huge, :] = X[huge, :] * 2.0**60
    norms = row_norms(xp, X)
    active = xp.astype(~missing, X.dtype)
    return X, y, norms, active
