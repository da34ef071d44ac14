"""Counting steps of a grid: how a record's vector becomes one of integers that is never longer.

Cutting a number off toward zero never makes it larger, so an l2 or l1 bound survives it. What is
left are the rounding errors on the way there: of the record's length, of the factor that clips it,
of the division by the step. All of them together are below ``margin``, by which every bound is
shortened, so that the integers obey the declared bound exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

EXACT = 2.0**52
"""Integers in double precision add up exactly as long as no partial sum exceeds this."""
FEW = 8


def margin(dimension: int) -> float:
    """What rounding may lengthen a vector by, relatively: a length is a sum of squares, each term
    with an error of at most one unit in the last place for each addition; a few more for the rest.
    """
    return (dimension + 32) * 2.0**-52


def grid_step(sensitivity: float, resolution: float) -> float:
    """The step of a grid on which so many steps make up the sensitivity."""
    return sensitivity / resolution


def whole_steps(counts: np.ndarray, step: float) -> np.ndarray:
    """Counts of records, each record the largest whole number of steps that is at most 1."""
    return np.rint(counts).astype(np.int64) * int((1 - margin(1)) / step)


def added_steps(parts: Any, step: float) -> int:
    """Exact sum of records' numbers over a step, each cut off toward zero; the numbers are within
    their bound but for a few roundings, which ``margin`` covers."""
    counts = np.trunc(as_numpy(parts) * ((1 - margin(1)) / step))
    return int(np.where(np.isfinite(counts), counts, 0.0).astype(np.int64).sum())


def shorten(lengths: Any, bound: float, dimension: int) -> np.ndarray:
    """What vectors of these lengths are multiplied by so that their integers obey the bound."""
    allowed = bound * (1 - margin(dimension))
    factors = allowed / np.maximum(lengths, allowed)
    return np.where(np.isfinite(lengths), factors, 0.0)


def row_products(X: Any, other: Any) -> Any:
    """Inner product of each row with a vector, or with its own row of another matrix, in an order
    of additions that does not depend on where the row stands, as that of a matrix product may."""
    if not is_numpy_array(X):
        return array_namespace(X).sum(X * other, axis=1)
    return np.einsum("ij,j->i" if other.ndim == 1 else "ij,ij->i", X, other)


def added(vectors: Any) -> Any:
    """Exact sum of vectors cut off toward zero; a NumPy block has no more rows than ``EXACT``
    allows, and is overwritten."""
    if not is_numpy_array(vectors):
        xp = array_namespace(vectors)
        whole = xp.where(xp.isfinite(vectors), xp.trunc(vectors), xp.zeros_like(vectors))
        return xp.sum(xp.astype(whole, xp.int64), axis=0)
    np.trunc(vectors, out=vectors)
    total = _column_sums(vectors)
    if not np.isfinite(total).all():  # an integer made of NaN would be the smallest of all
        vectors[~np.isfinite(vectors)] = 0.0
        total = _column_sums(vectors)
    return total


def _column_sums(vectors: np.ndarray) -> np.ndarray:
    # A product is faster than a sum of many rows, and slower than that of a few.
    return np.ones(len(vectors)) @ vectors if len(vectors) > FEW else vectors.sum(axis=0)


def as_numpy(values: Any, dtype: Any = np.float64) -> np.ndarray:
    """An array on the processor, whatever library it comes from."""
    if is_numpy_array(values):
        return values if dtype is None else values.astype(dtype, copy=False)
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values, dtype=dtype)
