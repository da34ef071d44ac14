"""Dense arrays made fit for sums: entries clipped, rows that are not numbers emptied."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from privopt.oracle.bounded_columns import BoundedColumns, whole
from privopt.oracle.counting import margin
from privopt.oracle.labels import labels_like
from privopt.oracle.rows import RowBounds


def clipped(
    X: Any, y: Any, bounds: RowBounds, classification: bool
) -> tuple[Any, Any, Any, Any, Any]:
    """Rows and labels as sums take them, factors that clip the rows, which of them count, sizes."""
    if isinstance(X, BoundedColumns):
        # Public bounds decide how rows are read, not what they hold: no record changes another.
        if math.isinf(bounds.entries) and bounds.order == 2:
            return _bounded(X, labels_like(y, X.inner, X.dtype, classification), bounds)
        broken, X = X.broken, whole(X)
        if broken is not None:
            y = np.where(broken, np.nan, np.asarray(y, dtype=X.dtype))
    xp = array_namespace(X)
    X = single_or_double(xp, X)
    X = clipped_entries(xp, X, bounds.entries)
    y = labels_like(y, X, X.dtype, classification)
    norms = row_norms(xp, X)
    # Rows whose squares would overflow in their own type are rescaled; NaN compares false.
    wild = ~(norms < math.sqrt(float(xp.finfo(X.dtype).max)))
    active = None
    broken = ~xp.isfinite(y)
    if bool(xp.any(wild)) or bool(xp.any(broken)):
        X, y, norms, active = sanitized(xp, X, y, norms, wild, broken)
    scale = row_scales(xp, X, norms, bounds)
    norms = norms if scale is None else norms * scale
    sizes = norms
    if bounds.intercept:
        sizes = xp.sqrt(norms**2 + bounds.intercept**2)
    sizes = rounded_up(xp, sizes, X.dtype)
    if scale is not None:
        scale = rounded_down(xp, scale, X.dtype)
    if active is not None:
        sizes = sizes * active
    return X, y, scale, active, sizes


def _bounded(X: BoundedColumns, y: np.ndarray, bounds: RowBounds) -> tuple[Any, Any, Any, Any, Any]:
    """The same of rows whose entries are numbers of moderate size already."""
    broken = ~np.isfinite(y)
    if broken.any():
        X = X.without(broken)
    norms = row_norms(np, X)
    scale = row_scales(np, X, norms, bounds)
    norms = norms if scale is None else norms * scale
    sizes = np.sqrt(norms**2 + bounds.intercept**2) if bounds.intercept else norms
    active, sizes = None, rounded_up(np, sizes, X.dtype)
    if X.broken is not None:
        active = (~X.broken).astype(X.dtype)
        y, sizes = np.where(X.broken, X.dtype.type(1.0), y), sizes * active
    scale = None if scale is None else rounded_down(np, scale, X.dtype)
    return X, y, scale, active, sizes


def single_or_double(xp: Any, X: Any) -> Any:
    """X as it is in single or double precision; every other kind of number in double."""
    if X.dtype in (xp.float32, xp.float64):
        return X
    return xp.astype(X, xp.float64)


def row_norms(xp: Any, X: Any) -> Any:
    """l2 norm of each row in double precision, where no square of a single one vanishes; rounded
    up, so that a row that is clipped by it is never longer than the bound.

    A double's square vanishes below 1e-154, far below every bound (``rows.LEAST``).
    """
    if isinstance(X, BoundedColumns):
        height = max(64, (1 << 17) // max(1, X.shape[1]))
        norms = np.empty(X.shape[0])
        for i in range(0, X.shape[0], height):
            part = X[i : i + height]
            norms[i : i + height] = np.sqrt(np.einsum("ij,ij->i", part, part, dtype=np.float64))
    elif is_numpy_array(X):
        norms = np.sqrt(np.einsum("ij,ij->i", X, X, dtype=np.float64))
    else:
        norms = xp.sqrt(xp.sum(xp.astype(X, xp.float64) ** 2, axis=1))
    return norms * (1 + margin(int(X.shape[1])))


def rounded_down(xp: Any, scale: Any, dtype: Any) -> Any:
    """Factors below 1 in another precision, never larger; none among its denormal numbers."""
    if scale.dtype == dtype:
        return scale
    info = xp.finfo(dtype)
    scale = xp.where(scale < 1, scale * (1 - float(info.eps)), scale)
    return xp.astype(xp.where(scale < float(info.smallest_normal), 0.0 * scale, scale), dtype)


def rounded_up(xp: Any, sizes: Any, dtype: Any) -> Any:
    """Sizes in another precision, never smaller."""
    if sizes.dtype == dtype:
        return sizes
    return xp.astype(sizes * (1 + float(xp.finfo(dtype).eps)), dtype)


def row_scales(xp: Any, X: Any, norms: Any, bounds: RowBounds) -> Any:
    """Factors that clip rows to the bound of their norm, given the l2 ones; None if none has to."""
    if bounds.order != 2 and math.isfinite(bounds.data_norm):
        norms = xp.astype(order_norms(xp, X, bounds.order), norms.dtype)
    if not bool(xp.any(norms > bounds.data_norm)):
        return None
    if is_numpy_array(norms):
        return bounds.data_norm / np.maximum(norms, bounds.data_norm)
    return bounds.data_norm / xp.clip(norms, min=bounds.data_norm)


def order_norms(xp: Any, X: Any, order: float) -> Any:
    """l_r norm of each row, r = ``order``, safe against overflow of powers."""
    if 0 in X.shape:
        return xp.zeros(X.shape[0], dtype=xp.float64)
    largest = xp.astype(xp.max(abs(X), axis=1), xp.float64)
    unit = xp.where(largest > 0, largest, xp.ones_like(largest))
    powers = xp.sum((abs(xp.astype(X, xp.float64)) / unit[:, None]) ** order, axis=1)
    return largest * powers ** (1 / order) * (1 + margin(int(X.shape[1])))


def clipped_entries(xp: Any, X: Any, bound: float) -> Any:
    """X with its finite entries clipped; a copy only if one of them has to be."""
    if math.isinf(bound) or 0 in X.shape:
        return X
    outside = xp.isfinite(X) & (abs(X) > bound)
    return xp.where(outside, xp.sign(X) * bound, X) if bool(xp.any(outside)) else X


def sanitized(
    xp: Any, X: Any, y: Any, norms: Any, wild: Any, broken: Any
) -> tuple[Any, Any, Any, Any]:
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
