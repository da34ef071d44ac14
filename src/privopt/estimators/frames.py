"""Input from data frames: names are kept, lazy frames are refused with a sentence.

Whatever an array library says about a cell that is no number quotes the cell, and so does
scikit-learn of an array with one axis. Such texts end here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
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
    except (TypeError, ValueError) as error:
        refusal = type(error)(_withheld(str(error)))
    raise refusal  # here and not above: a chained error would hold on to the data


def column(y: Any) -> np.ndarray:
    """``y`` as one column."""
    return column_or_1d(np.asarray(concrete(y, "y")), warn=True)


def _withheld(text: str) -> str:
    """What a refusal may say: nothing that follows a quotation of cells."""
    if "could not convert" in text or "Unable to convert" in text or "unable to parse" in text:
        return "X must hold numbers alone: encode text first, for instance by DeclaredColumns."
    head, quoted, tail = text.partition("array=")
    if not quoted:
        return text
    return head.rstrip(":\n ") + ". " + tail[tail.rfind("Reshape") :]
