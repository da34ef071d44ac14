"""Input from data frames: names are kept, lazy frames are refused with a sentence."""

from __future__ import annotations

from typing import Any


def concrete(X: Any, name: str = "X") -> Any:
    """Turn what scikit-learn does not read by itself into something it does."""
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
