"""Input from data frames: names are kept, lazy frames are refused with a sentence."""

from __future__ import annotations

from typing import Any

import numpy as np


def concrete(X: Any, name: str = "X") -> Any:
    """Turn what scikit-learn does not read by itself into something it does."""
    kind = type(X)
    home = kind.__module__.partition(".")[0]
    if home == "polars" and kind.__name__ == "LazyFrame":
        raise TypeError(f"{name} is a polars LazyFrame: call .collect() on it first.")
    if home == "pyarrow" and hasattr(X, "to_batches"):
        return _FromArrow(X) if hasattr(X, "column_names") else np.asarray(X.to_numpy())
    if home == "pyarrow":
        return X.to_numpy(zero_copy_only=False)
    return X


class _FromArrow:
    """A pyarrow table with the array protocol; column names pass through its own protocol."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self.shape = table.shape

    def __len__(self) -> int:
        return self.shape[0]

    def __dataframe__(self, *args: Any, **kwargs: Any) -> Any:
        return self._table.__dataframe__(*args, **kwargs)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        columns = [np.asarray(column.to_numpy()) for column in self._table.columns]
        return np.column_stack(columns).astype(dtype or float, copy=False)
