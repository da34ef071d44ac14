"""Real data sets with two classes or a number to predict, read from the folder that PRIVOPT_DATA
names.

Bounds are constants of the columns' meaning or of the published scaling, never read from the rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
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
    target_bounds: tuple[float, float] | None = None


def folder() -> Path | None:
    named = os.environ.get("PRIVOPT_DATA")
    return Path(named) if named and Path(named).is_dir() else None


def load(name: str) -> DataSet:
    home = folder()
    if home is None:
        raise FileNotFoundError("set PRIVOPT_DATA to the folder that holds the data sets.")
    return {**LOADERS, **REGRESSIONS, **ADDITIVE, **WIDE, **CLASSES}[name](home)


def stream(name: str) -> tuple[Any, ...]:
    """X, y, bounds of the columns and of the target, in the order of time."""
    home = folder()
    if home is None:
        raise FileNotFoundError("set PRIVOPT_DATA to the folder that holds the data sets.")
    return STREAMS[name](home)


def _split(
    name: str,
    X: Any,
    y: np.ndarray,
    bounds: tuple[Any, Any],
    target_bounds: tuple[float, float] | None = None,
) -> DataSet:
    """Shuffle once, keep a fifth for the test."""
    order = np.random.default_rng(0).permutation(X.shape[0])
    cut = X.shape[0] // 5
    test, train = order[:cut], order[cut:]
    return DataSet(name, X[train], y[train], X[test], y[test], bounds, target_bounds)


def _adult(home: Path) -> DataSet:
    with np.load(home / "adult" / "adult_onehot.npz") as data:
        parts = [data[key] for key in ("X_train", "y_train", "X_test", "y_test")]
    return DataSet("adult", *parts, (0.0, 1.0))


def _forest_stream(home: Path) -> tuple[Any, ...]:
    """Seven kinds of forest, numbered from 1."""
    with np.load(home / "covtype_93k" / "covtype_93k.npz") as data:
        X, y = data["X"].astype(float), data["y"].astype(int)
        low, high = np.zeros(X.shape[1]), np.ones(X.shape[1])
        low[:10], high[:10] = data["col_min"], data["col_max"]
    return X, y, (low, high)


def _forests(home: Path) -> DataSet:
    return _split("covtype", *_forest_stream(home))


def _covtype_stream(home: Path) -> tuple[Any, ...]:
    X, y, bounds = _forest_stream(home)
    return X, (y == 2).astype(int), bounds


def _covtype(home: Path) -> DataSet:
    data = _forests(home)
    kinds = [(y == 2).astype(int) for y in (data.y, data.y_test)]
    return replace(data, y=kinds[0], y_test=kinds[1])


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


def _electricity_stream(home: Path) -> tuple[Any, ...]:
    with np.load(home / "electricity" / "electricity.npz") as data:
        return data["X"], data["y"].astype(int), (0.0, 1.0)


def _electricity(home: Path) -> DataSet:
    return _split("electricity", *_electricity_stream(home))


def _mushrooms(home: Path) -> DataSet:
    X = sp.csr_array(sp.load_npz(home / "libsvm_small" / "mushrooms_X.npz"))
    with np.load(home / "libsvm_small" / "mushrooms_y.npz") as data:
        y = data[data.files[0]]
    return _split("mushrooms", X, (y == y.max()).astype(int), (0.0, 1.0))


def _california(home: Path) -> DataSet:
    with np.load(home / "california_housing" / "california_housing.npz") as data:
        X, y = data["X"].astype(float), data["y"].astype(float)
    # Income, age, rooms, bedrooms, population, occupants; the state's latitudes and longitudes.
    low = np.array([0.0, 0, 0, 0, 0, 0, 32, -125])
    high = np.array([15.0, 52, 20, 5, 10_000, 10, 42, -114])
    return _split("california", X, y, (low, high), (0.0, 5.0))


def _bike_stream(home: Path) -> tuple[Any, ...]:
    """Hourly rentals; season, month, hour, day and weather as indicators of their levels."""
    levels = {"season": 4, "mnth": 12, "hr": 24, "weekday": 7, "weathersit": 4}
    with np.load(home / "bike_sharing" / "bike_sharing_hour.npz") as data:
        X, y, names = data["X"], data["y"].astype(float), [str(n) for n in data["feature_names"]]
    columns = []
    for name, column in zip(names, X.T.astype(float), strict=True):
        first = int(name not in ("hr", "weekday"))  # these two are counted from 0
        many = levels.get(name, 0)
        columns += [column == level for level in range(first, first + many)] or [column]
    return np.column_stack(columns).astype(float), y, (0.0, 1.0), (0.0, 1000.0)


def _bike(home: Path) -> DataSet:
    return _split("bike", *_bike_stream(home))


def _bike_raw(home: Path) -> DataSet:
    """Hourly rentals by twelve columns of numbers, as they are."""
    ends = {"season": 4, "mnth": 12, "hr": 23, "weekday": 6, "weathersit": 4}
    with np.load(home / "bike_sharing" / "bike_sharing_hour.npz") as data:
        X, y = data["X"].astype(float), data["y"].astype(float)
        names = [str(n) for n in data["feature_names"]]
    low = np.array([float(name in ("season", "mnth", "weathersit")) for name in names])
    high = np.array([float(ends.get(name, 1)) for name in names])
    return _split("bike_raw", X, y, (low, high), (0.0, 1000.0))


def _price(home: Path) -> DataSet:
    """The price of electricity by the other columns."""
    X = _electricity_stream(home)[0].astype(float)
    return _split("price", np.delete(X, 2, axis=1), X[:, 2], (0.0, 1.0), (0.0, 1.0))


def _elevation(home: Path) -> DataSet:
    """How high a forest lies, by the other columns."""
    data = _forests(home)
    low, high = (side[1:] for side in data.bounds)
    return replace(
        data,
        name="elevation",
        X=data.X[:, 1:],
        y=data.X[:, 0],
        X_test=data.X_test[:, 1:],
        y_test=data.X_test[:, 0],
        bounds=(low, high),
        target_bounds=(1800.0, 3900.0),
    )


def _diabetes_progress(home: Path) -> DataSet:
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True, scaled=False)
    # Age, sex, body mass index, blood pressure, six blood measurements.
    low = np.array([18.0, 1, 15, 50, 80, 30, 15, 1, 3, 50])
    high = np.array([80.0, 2, 45, 140, 320, 260, 110, 10, 6.2, 130])
    return _split("diabetes", np.asarray(X), np.asarray(y), (low, high), (0.0, 350.0))


# ---------------------------------------------------------------- many classes
def _images(name: str) -> Callable[[Path], DataSet]:
    """Ten kinds of images; each pixel is the mean of four, which makes 14 x 14 of them."""

    def pooled(pictures: np.ndarray) -> np.ndarray:
        parts = pictures.reshape(len(pictures), 14, 2, 14, 2).mean(axis=(2, 4), dtype=np.float32)
        return parts.reshape(len(pictures), 196)

    def loader(home: Path) -> DataSet:
        with np.load(home / name / f"{name}.npz") as data:
            X, X_test = pooled(data["x_train"]), pooled(data["x_test"])
            y, y_test = data["y_train"].astype(int), data["y_test"].astype(int)
        return DataSet(name, X, y, X_test, y_test, (0.0, 255.0))

    return loader


def _groups(columns: int | None) -> Callable[[Path], DataSet]:
    """Twenty newsgroups, words present or not, hashed to so many columns."""

    def loader(home: Path) -> DataSet:
        parts: list[Any] = []
        for part in ("train", "test"):
            X = sp.csr_array(sp.load_npz(home / "newsgroups20" / f"X_{part}.npz")).astype(float)
            if columns is not None:
                places = np.random.default_rng(0).integers(columns, size=X.shape[1])
                X = sp.csr_array((X.data, places[X.indices], X.indptr), (X.shape[0], columns))
                X.sum_duplicates()
            X.data[:] = 1.0
            with np.load(home / "newsgroups20" / f"y_{part}.npz") as data:
                parts += [X, data["y"].astype(int)]
        return DataSet("newsgroups20", *parts, (0.0, 1.0))

    return loader


# ---------------------------------------------------------------- more columns than records
def _dorothea(home: Path) -> DataSet:
    parts = []
    for part in ("train", "valid"):
        with np.load(home / "dorothea" / f"y_{part}.npz") as data:
            y = data["y"].astype(int)
        parts += [sp.csr_array(sp.load_npz(home / "dorothea" / f"X_{part}.npz")).astype(float), y]
    return DataSet("dorothea", *parts, (-1.0, 1.0))


def _madelon(home: Path) -> DataSet:
    """Counts between 0 and 999, most of them near 480: taken in units of 100 around it."""
    with np.load(home / "madelon" / "madelon.npz") as data:
        X, y = data["X_train"], data["y_train"].astype(int)
        X_test, y_test = data["X_valid"], data["y_valid"].astype(int)
    return DataSet("madelon", (X - 480) / 100, y, (X_test - 480) / 100, y_test, (-1.0, 1.0))


def _newsgroups(home: Path) -> DataSet:
    """Medicine against space, words present or not."""
    pair, parts = (13, 14), []
    for part in ("train", "test"):
        X = sp.csr_array(sp.load_npz(home / "newsgroups20" / f"X_{part}.npz")).astype(float)
        with np.load(home / "newsgroups20" / f"y_{part}.npz") as data:
            y = data["y"]
        chosen = np.isin(y, pair)
        parts += [X[chosen], np.where(y[chosen] == pair[1], 1, -1)]
    return DataSet("newsgroups", *parts, (-1.0, 1.0))


def _movies(home: Path) -> DataSet:
    X = sp.csr_array(sp.load_npz(home / "movie_reviews" / "X.npz")).astype(float)
    with np.load(home / "movie_reviews" / "y.npz") as data:
        y = np.where(data["y"] > 0, 1, -1)
    return _split("movies", X, y, (-1.0, 1.0))


def _messages(home: Path) -> DataSet:
    """Spam or not, words present or not."""
    X = sp.csr_array(sp.load_npz(home / "sms_spam" / "X.npz")).astype(float)
    with np.load(home / "sms_spam" / "y.npz") as data:
        y = data[data.files[0]]
    return _split("messages", X, (y == y.max()).astype(int), (0.0, 1.0))


def _genes(name: str, file: str, largest: float) -> Callable[[Path], DataSet]:
    """Expressions that the publisher standardised or scaled."""

    def loader(home: Path) -> DataSet:
        with np.load(home / "libsvm_small" / f"{file}.npz") as data:
            X, y = data["X"].astype(float) / largest, data["y"].astype(int)
        return _split(name, X, y, (-1.0, 1.0))

    return loader


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
REGRESSIONS: dict[str, Callable[[Path], DataSet]] = {
    "california": _california,
    "bike": _bike,
    "diabetes": _diabetes_progress,
}
ADDITIVE: dict[str, Callable[[Path], DataSet]] = {
    "bike_raw": _bike_raw,
    "price": _price,
    "elevation": _elevation,
}
WIDE: dict[str, Callable[[Path], DataSet]] = {
    "dorothea": _dorothea,
    "madelon": _madelon,
    "newsgroups": _newsgroups,
    "movies": _movies,
    "messages": _messages,
    "leukemia": _genes("leukemia", "leukemia_train38", 3.0),
    "colon": _genes("colon", "colon_cancer", 1.0),
    "duke": _genes("duke", "duke_breast38", 1.0),
}
CLASSES: dict[str, Callable[[Path], DataSet]] = {
    "fashion_mnist": _images("fashion_mnist"),
    "mnist": _images("mnist"),
    "forests": _forests,
    "newsgroups20": _groups(2000),
    "newsgroups20_raw": _groups(None),
}
STREAMS: dict[str, Callable[[Path], tuple[Any, ...]]] = {
    "electricity": _electricity_stream,
    "covtype": _covtype_stream,
    "bike": _bike_stream,
}
