"""Real data sets with two classes, read from the folder that PRIVOPT_DATA names.

Bounds are constants of the columns' meaning or of the published scaling, never read from the rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp


@dataclass(frozen=True)
class DataSet:
    """A train part, a test part and public bounds of the columns."""

    name: str
    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray
    bounds: tuple[Any, Any]


def folder() -> Path | None:
    named = os.environ.get("PRIVOPT_DATA")
    return Path(named) if named and Path(named).is_dir() else None


def load(name: str) -> DataSet:
    home = folder()
    if home is None:
        raise FileNotFoundError("set PRIVOPT_DATA to the folder that holds the data sets.")
    return LOADERS[name](home)


def _split(name: str, X: Any, y: np.ndarray, bounds: tuple[Any, Any]) -> DataSet:
    """Shuffle once, keep a fifth for the test."""
    order = np.random.default_rng(0).permutation(X.shape[0])
    cut = X.shape[0] // 5
    test, train = order[:cut], order[cut:]
    return DataSet(name, X[train], y[train], X[test], y[test], bounds)


def _adult(home: Path) -> DataSet:
    with np.load(home / "adult" / "adult_onehot.npz") as data:
        parts = [data[key] for key in ("X_train", "y_train", "X_test", "y_test")]
    return DataSet("adult", *parts, (0.0, 1.0))


def _covtype(home: Path) -> DataSet:
    with np.load(home / "covtype_93k" / "covtype_93k.npz") as data:
        X, y = data["X"].astype(float), (data["y"] == 2).astype(int)
        low, high = np.zeros(X.shape[1]), np.ones(X.shape[1])
        low[:10], high[:10] = data["col_min"], data["col_max"]
    return _split("covtype", X, y, (low, high))


def _diabetes(home: Path) -> DataSet:
    X = sp.csr_array(sp.load_npz(home / "diabetes130" / "X.npz"))
    with np.load(home / "diabetes130" / "y.npz") as data:
        y = data["readmitted_any"].astype(int)
    return _split("diabetes130", X, y, (0.0, 1.0))


def _w8a(home: Path) -> DataSet:
    X = sp.csr_array(sp.load_npz(home / "w8a" / "X_train.npz"))
    with np.load(home / "w8a" / "y_train.npz") as data:
        y = (data[data.files[0]] > 0).astype(int)
    return _split("w8a", X, y, (0.0, 1.0))


def _ijcnn1(home: Path) -> DataSet:
    with np.load(home / "ijcnn1" / "ijcnn1.npz") as data:
        return _split("ijcnn1", data["X"], (data["y"] > 0).astype(int), (-1.0, 1.0))


def _cod_rna(home: Path) -> DataSet:
    with np.load(home / "libsvm_small" / "cod_rna_scaled.npz") as data:
        X, y = data["X"].astype(float), (data["y"] > 0).astype(int)
    return _split("cod_rna", X, y, (-8.0, 8.0))  # columns were standardised by the publisher


def _electricity(home: Path) -> DataSet:
    with np.load(home / "electricity" / "electricity.npz") as data:
        return _split("electricity", data["X"], data["y"].astype(int), (0.0, 1.0))


def _mushrooms(home: Path) -> DataSet:
    X = sp.csr_array(sp.load_npz(home / "libsvm_small" / "mushrooms_X.npz"))
    with np.load(home / "libsvm_small" / "mushrooms_y.npz") as data:
        y = data[data.files[0]]
    return _split("mushrooms", X, (y == y.max()).astype(int), (0.0, 1.0))


LOADERS: dict[str, Callable[[Path], DataSet]] = {
    "adult": _adult,
    "covtype": _covtype,
    "diabetes130": _diabetes,
    "w8a": _w8a,
    "ijcnn1": _ijcnn1,
    "cod_rna": _cod_rna,
    "electricity": _electricity,
    "mushrooms": _mushrooms,
}
