"""Labels in the rows' own type and place."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array


def unmasked(values: Any) -> Any:
    """NaN in place of masked cells, which sums would otherwise read as if nothing covered them."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    return np.ma.filled(values.astype(np.float64), np.nan)


def labels_like(y: Any, X: Any, dtype: Any, classification: bool) -> Any:
    """Labels beside X; a classifier's become -1 or +1 (the loss's constants hold for no other),
    and NaN stays NaN, which empties its record."""
    if is_numpy_array(X):
        with np.errstate(over="ignore"):  # a label beyond the type's range empties its record
            xp, y = np, np.asarray(y, dtype=dtype)
    else:
        xp = array_namespace(X)
        y = xp.asarray(y, dtype=dtype, device=device(X))
    if not classification:
        return y
    signs = xp.where(y > 0, xp.ones_like(y), -xp.ones_like(y))
    return xp.where(xp.isfinite(y), signs, y)
