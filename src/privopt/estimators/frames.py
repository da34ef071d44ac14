"""Input from data frames: names are kept, lazy frames are refused with a sentence.

Whatever an array library says about a cell that is no number quotes the cell, and so does
scikit-learn of an array with one axis. Such texts end here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import column_or_1d, validate_data

from privopt.oracle.labels import unmasked


def concrete(X: Any, name: str = "X") -> Any:
    """Turn what scikit-learn does not read by itself into something it does."""
    X = unmasked(X)
    kind = type(X)
    home = kind.__module__.partition(".")[0]
    if home == "polars" and kind.__name__ == "LazyFrame":
        raise TypeError(f"{name} is a polars LazyFrame: call .collect() on it first.")
    if home != "pyarrow":
        return X
    import pyarrow as pa

    if isinstance(X, pa.RecordBatch):
        return pa.Table.from_batches([X])
    if isinstance(X, pa.ChunkedArray):
        return X.to_numpy()
    return X.to_numpy(zero_copy_only=False) if isinstance(X, pa.Array) else X


def validated(estimator: Any, X: Any, **checks: Any) -> Any:
    """``validate_data`` whose refusals hold no data."""
    refusal = None
    try:
        return validate_data(estimator, concrete(X), **checks)
    except OverflowError:
        refusal = ValueError("X contains infinity or a value too large for double precision.")
    except (TypeError, ValueError) as error:
        refusal = type(error)(_withheld(str(error)))
    raise refusal  # here and not above: a chained error would hold on to the data


def column(y: Any) -> np.ndarray:
    """``y`` as one column; no cell decides how another is read, and none is quoted."""
    y = concrete(y, "y")
    found = None
    try:
        found = np.asarray(y)
    except Exception:
        found = None  # a list of unequal cells, which the error would quote
    if isinstance(y, (list, tuple)) and (found is None or _made_texts(found, y)):
        found = apart(y)
    if found is None or found.ndim == 0:
        raise ValueError("y must be an array with one label for each record.")
    if found.dtype.kind == "c":
        raise ValueError("Complex data not supported: y must hold real numbers or labels.")
    return column_or_1d(found, warn=True)


def apart(cells: Any) -> np.ndarray:
    """Cells of a list in an array that leaves each of them as it is."""
    found = np.empty(len(cells), dtype=object)
    for i, cell in enumerate(cells):
        found[i] = cell
    return found


def _made_texts(found: np.ndarray, cells: Any) -> bool:
    """Whether NumPy turned numbers into texts because one of the cells is a text."""
    kinds = {"U": str, "S": bytes}
    if found.dtype.kind not in kinds or found.ndim != 1:
        return False
    return not all(isinstance(cell, kinds[found.dtype.kind]) for cell in cells)


KNOWN = (
    "Complex data not supported",
    "Expected 2D",
    "Feature names are only supported",
    "Found array with",
    "Input X contains",
    "Only sparse matrices with 32-bit",
    "Pandas DataFrame with mixed sparse",
    "Sparse data was passed",
    "The feature names should match",
    "X has ",
    "X is a polars LazyFrame",
    "dtype='numeric' is not compatible",
    "float() argument must be",
    "np.matrix is not supported",
)
"""Beginnings of refusals that speak of shapes, types and names of columns."""
QUOTES = ("Complex data", "Expected 2D")
"""Those that quote the array after it."""


def _withheld(text: str) -> str:
    """What a refusal of scikit-learn may say: texts that are known to quote no cell."""
    if not text.startswith(KNOWN):
        return (
            "X must hold numbers alone, a table of them: encode text first, for instance by "
            "DeclaredColumns."
        )
    if not text.startswith(QUOTES):
        return text
    head, tail = text.partition("\n")[0].rstrip(":. "), text[text.rfind("Reshape your data") :]
    return f"{head}. {tail}" if "Reshape your data" in text else f"{head}."


def without_missing(X: Any, policy: str) -> Any:
    """X without missing values: refused, or an empty record's zeros, as a ``nan_policy`` says."""
    entries = X.data if sp.issparse(X) else X
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(entries.sum(dtype=float)) or np.isfinite(entries).all():
            return X
    if policy == "raise":
        raise ValueError(
            "X contains NaN or infinity: remove such rows, or take "
            'nan_policy="empty" to count them as empty records.'
        )
    broken = ~np.isfinite(np.asarray(X.sum(axis=1), dtype=float).ravel())
    X = X.copy()
    if sp.issparse(X):
        X.data[np.repeat(broken, np.diff(X.indptr))] = 0.0
    else:
        X[broken] = 0.0
    return X
