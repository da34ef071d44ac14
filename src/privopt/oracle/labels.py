"""Labels in the rows' own type and place."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace, device, is_numpy_array

from privopt.oracle.bounded_columns import BoundedColumns


def unmasked(values: Any) -> Any:
    """NaN in place of masked cells, which sums would otherwise read as if nothing covered them."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    return np.ma.filled(values.astype(np.float64), np.nan)


def numbers(values: Any, name: str) -> Any:
    """Arrays of numbers as they are, other things in double precision; refuses what holds no
    numbers without quoting it, and takes a masked cell as a missing one."""
    values = unmasked(values)
    if sp.issparse(values) or hasattr(values, "detach") or isinstance(values, BoundedColumns):
        return values
    found = None
    try:
        found = np.asarray(values)
        if found.dtype.kind not in "biufc":
            found = found.astype(np.float64)
    except Exception:
        found = None  # raised below: an error of NumPy's, or one behind ours, quotes a cell
    if found is None:
        raise ValueError(f"{name} must hold numbers alone: encode text and dates first.")
    if found.dtype.kind == "c":
        raise TypeError(f"{name} holds complex numbers: give real ones.")
    return found


def labels_like(y: Any, X: Any, dtype: Any, classification: bool) -> Any:
    """Labels beside X; a classifier's become -1 or +1 (the loss's constants hold for no other),
    and NaN stays NaN, which empties its record."""
    if isinstance(X, BoundedColumns) or is_numpy_array(X):
        with np.errstate(over="ignore"):  # a label beyond the type's range empties its record
            xp, y = np, np.asarray(y, dtype=dtype)
    else:
        xp = array_namespace(X)
        y = xp.asarray(y, dtype=dtype, device=device(X))
    if not classification:
        return y
    signs = xp.where(y > 0, xp.ones_like(y), -xp.ones_like(y))
    return xp.where(xp.isfinite(y), signs, y)
