"""Additive models: which columns get a shape, and the table that a fit publishes for each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from privopt.estimators.bounds import ColumnBounds
from privopt.oracle.column_shapes import BINS, Shaped, bins_of, codes


@dataclass(frozen=True, eq=False)
class Shape:
    """What the value of one column adds to the score, beside its coefficient.

    Attributes
    ----------
    column : int
    name : str
    edges : ndarray of shape (65,)
        Ends of the bins, in the column's own units: bin b holds edges[b] <= x < edges[b + 1], and
        the last one its upper end too.
    values : ndarray of shape (n_models, 64)
    """

    column: int
    name: str
    edges: np.ndarray
    values: np.ndarray


def shaped_columns(features: Any, declared: ColumnBounds | None, names: Any) -> tuple[Shaped, ...]:
    """Columns that get a shape, with their ranges in the units that the oracle sees.

    ``features`` is "linear" (none), "splines" (every column), or a list of names or positions.
    """
    if isinstance(features, str) and features == "linear":
        return ()
    if declared is None:
        raise ValueError(
            "shapes of columns need their declared bounds: give bounds=(low, high), or "
            'features="linear".'
        )
    count = len(declared.low)
    if isinstance(features, str):
        if features != "splines":
            raise ValueError(
                f'features must be "linear", "splines" or a list of columns, got {features!r}.'
            )
        chosen = list(range(count))
    else:
        chosen = sorted(positions(features, "features", count, names))
    low = (declared.low - declared.shift) / declared.scale
    high = (declared.high - declared.shift) / declared.scale
    return tuple((j, float(low[j]), float(high[j])) for j in chosen)


def positions(columns: Any, parameter: str, count: int, names: Any) -> list[int]:
    """Positions of columns that a parameter lists by name or position."""
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise ValueError(f"{parameter} must list names or positions of columns, got {columns!r}.")
    found: list[int] = []
    for one in columns:
        if isinstance(one, str):
            named = [] if names is None else [j for j, name in enumerate(names) if name == one]
            if not named:
                raise ValueError(f"{parameter} names {one!r}, which is not a column of X.")
            found.append(named[0])
        elif isinstance(one, bool) or not isinstance(one, int | np.integer) or not 0 <= one < count:
            raise ValueError(
                f"{parameter} takes names or positions from 0 to {count - 1}, got {one!r}."
            )
        else:
            found.append(int(one))
    if len(set(found)) < len(found):
        raise ValueError(f"{parameter} names a column twice: name each once.")
    return found


def published(
    bins: np.ndarray, shaped: tuple[Shaped, ...], declared: ColumnBounds, names: Any
) -> list[Shape]:
    """One table for each shaped column; ``bins`` has one row for each model."""
    values = bins.reshape(len(bins), len(shaped), BINS)
    ends = edges(shaped, declared)
    return [
        Shape(j, f"x{j}" if names is None else str(names[j]), ends[k], values[:, k].copy())
        for k, (j, _, _) in enumerate(shaped)
    ]


def edges(shaped: tuple[Shaped, ...], declared: ColumnBounds) -> np.ndarray:
    """Ends of the bins in the columns' own units, to the last bit: the least number that scaling
    by the bounds takes into a bin. Found by bisection, because scaling rounds."""
    found = np.empty((len(shaped), BINS + 1))
    for k, (j, low, high) in enumerate(shaped):
        own = ColumnBounds(declared.low[[j]], declared.high[[j]])
        under = np.full(BINS - 1, declared.low[j])
        over = np.full(BINS - 1, declared.high[j])
        wanted = np.arange(1, BINS)
        while True:
            middle = under + (over - under) / 2
            if not ((under < middle) & (middle < over)).any():
                break
            inside = bins_of(own.apply(middle[:, None])[:, 0], low, high) >= wanted
            over = np.where(inside, middle, over)
            under = np.where(inside, under, middle)
        found[k] = np.concatenate([declared.low[[j]], over, declared.high[[j]]])
    return found


def added(X: Any, shaped: tuple[Shaped, ...], shapes: list[Shape]) -> np.ndarray:
    """What shapes add to scores of rows in the oracle's units: a column for each model."""
    found = codes(X, shaped)
    return np.sum([one.values[:, found[:, k]].T for k, one in enumerate(shapes)], axis=0)


def plain_additive(model: Any, shapes: list[Shape]) -> Any:
    """A pipeline of scikit-learn that is the same function: the columns, and indicators of bins."""
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import SplineTransformer

    knots: Any = np.column_stack([one.edges for one in shapes])
    bins = SplineTransformer(
        degree=0,
        knots=knots,
        extrapolation="constant",
        sparse_output=True,
    )
    count = model.coef_.shape[-1]
    columns = [one.column for one in shapes]
    parts = ColumnTransformer(
        [("columns", "passthrough", list(range(count))), ("bins", bins, columns)]
    )
    parts.fit(np.zeros((2, count)))
    tables = [one.values if model.coef_.ndim == 2 else one.values[0] for one in shapes]
    model.coef_ = np.hstack([model.coef_, *tables])
    model.n_features_in_ = model.coef_.shape[-1]
    if hasattr(model, "feature_names_in_"):
        del model.feature_names_in_
    return make_pipeline(parts, model)
