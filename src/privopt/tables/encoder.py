"""From a table to the matrix a model sees, by declared bounds and categories alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from privopt.estimators.bounds import ColumnBounds
from privopt.tables.schema import Column, did_you_mean

SPARSE_BELOW = 0.25
"""Share of entries that can differ from zero from which on the matrix is dense."""


class DeclaredColumns(TransformerMixin, BaseEstimator):
    """Scale numbers by declared bounds and turn declared categories into indicators.

    It learns nothing: ``fit`` looks at the names of the columns only, so it may stand before a
    private estimator in a pipeline. A number becomes ``(x - shift) / scale`` in [-1, 1], moved to
    the nearest bound if it lies outside; a missing one counts as the declared ``missing``, or as
    the middle of the bounds. A category that is missing or not declared is all zeros. Values are
    compared with categories by what they say: 1, 1.0 and "1" are one category.

    Parameters
    ----------
    columns : mapping
        From the name of a column to a mapping with ``kind`` (``"numeric"``, ``"categorical"`` or
        ``"ignored"``), and ``lower``, ``upper`` and perhaps ``missing``, or ``categories``. A
        numeric column without bounds is taken as it is.
    reference : bool, default=False
        Leave out the first category of each column: coefficients of the others are then
        differences from it, and from what is missing or not declared. Intervals need that, because
        the indicators of all categories add up to the constant column.

    Examples
    --------
    >>> import pyarrow as pa
    >>> people = pa.table({"age": [20, 70, None], "city": ["Ulm", "Bonn", "Rome"]})
    >>> encoder = DeclaredColumns(
    ...     {
    ...         "age": {"kind": "numeric", "lower": 20, "upper": 80},
    ...         "city": {"kind": "categorical", "categories": ["Bonn", "Ulm"]},
    ...     }
    ... )
    >>> encoder.fit_transform(people).round(2).tolist()
    [[-1.0, 0.0, 1.0], [0.67, 1.0, 0.0], [0.0, 0.0, 0.0]]
    >>> encoder.get_feature_names_out().tolist()
    ['age', 'city=Bonn', 'city=Ulm']
    """

    def __init__(self, columns: Mapping[str, Any], reference: bool = False) -> None:
        self.columns = columns
        self.reference = reference

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check that the declared columns are there."""
        declared = self._declared()
        self._table(X, list(declared))
        self.feature_names_in_ = np.array(list(declared), dtype=object)
        self.n_features_in_ = len(declared)
        return self

    def transform(self, X: Any) -> Any:
        """A dense matrix, or a CSR matrix where most entries must be zero."""
        check_is_fitted(self, "feature_names_in_")
        declared = self._declared()
        table = self._table(X, list(declared))
        width = sum(column.width for column in declared.values())
        sparse = len(declared) < SPARSE_BELOW * width
        parts: list[Any] = [
            _numbers(table.column(name), name, column)
            if column.kind == "numeric"
            else _indicators(table.column(name), column)
            for name, column in declared.items()
        ]
        if sparse:
            return sp.csr_array(sp.hstack(parts, format="csr"))
        return np.hstack([part.toarray() if sp.issparse(part) else part for part in parts])

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """``age`` for a number, ``city=Ulm`` for a category."""
        names: list[str] = []
        for name, column in self._declared().items():
            if column.kind == "numeric":
                names.append(name)
            else:
                names += [f"{name}={spoken(value)}" for value in column.categories]
        return np.array(names, dtype=object)

    def scales(self) -> np.ndarray:
        """How far one unit of the matrix goes in units of the table, for each output column."""
        return self._each(lambda column: float(_bounds(column).scale[0]))

    def shifts(self) -> np.ndarray:
        """What 0 of the matrix is in units of the table, for each output column of bounded numbers;
        0 for others."""
        bounded = [c.kind == "numeric" and c.lower is not None for c in self._declared().values()]
        widths = [column.width for column in self._declared().values()]
        shifts = self._each(lambda column: float(_bounds(column).shift[0]))
        return np.where(np.repeat(bounded, widths), shifts, 0.0)

    def numbers(self) -> list[int]:
        """Positions, in the matrix, of the columns of numbers."""
        grouped = {int(j) for group in self.groups() for j in group}
        width = sum(column.width for column in self._declared().values())
        return [j for j in range(width) if j not in grouped]

    def ranges(self) -> np.ndarray:
        """Distance of the bounds of a number, 1 for a category, for each output column."""
        return self._each(lambda column: (column.upper or 0.0) - (column.lower or 0.0))

    def groups(self) -> list[np.ndarray]:
        """Positions, in the matrix, of the categories of each column: they exclude each other."""
        declared = list(self._declared().values())
        ends = np.cumsum([0, *(column.width for column in declared)])
        return [
            np.arange(start, start + column.width)
            for start, column in zip(ends[:-1], declared, strict=True)
            if column.kind == "categorical"
        ]

    def _each(self, measure: Callable[[Column], float]) -> np.ndarray:
        found: list[float] = []
        for column in self._declared().values():
            bounded = column.kind == "numeric" and column.lower is not None
            found += [measure(column)] if bounded else [1.0] * column.width
        return np.array(found)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.no_validation = True
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        return tags

    def _declared(self) -> dict[str, Column]:
        found = {}
        for name, entry in self.columns.items():
            fields = dict(entry)
            if "categories" in fields:
                categories = tuple(fields["categories"])
                left_out = 1 if self.reference and len(categories) > 1 else 0
                fields["categories"] = categories[left_out:]
            column = Column(**fields)
            if column.kind != "ignored":
                found[name] = column
        return found

    def _table(self, X: Any, names: list[str]) -> Any:
        """The declared columns as an Arrow table, whatever frame they come in."""
        import pyarrow as pa

        if not hasattr(X, "__arrow_c_stream__") and not isinstance(X, Mapping):
            raise TypeError("columns are found by name: give a data frame or an Arrow table.")
        present = [str(name) for name in (X if isinstance(X, Mapping) else _names(X))]
        for name in names:
            if name not in present:
                raise ValueError(f"there is no column {name!r}{did_you_mean(name, present) or '.'}")
        found = None
        with suppress(pa.ArrowException, TypeError, ValueError):  # whose text may quote a row
            found = pa.table(X).select(names)
        if found is None:
            raise ValueError(
                "a column holds values of several types: make each column of one type."
            )
        return found


def column_entries(columns: Mapping[str, Column]) -> dict[str, dict[str, Any]]:
    """Columns as the plain values that ``DeclaredColumns`` takes."""
    fields = {
        "numeric": ("kind", "lower", "upper", "missing"),
        "categorical": ("kind", "categories"),
        "ignored": ("kind",),
    }
    return {
        name: {
            key: list(value) if isinstance(value, tuple) else value
            for key in fields[column.kind]
            if (value := getattr(column, key)) is not None
        }
        for name, column in columns.items()
    }


def codes(values: Any, declared: tuple[Any, ...]) -> np.ndarray:
    """Position of each value in a declared list; -1 if it is missing or not declared."""
    import pyarrow as pa

    fold = isinstance(declared[0], bool)  # True, TRUE and true
    wanted = {_said(value, fold): position for position, value in enumerate(declared)}
    chunks = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if not pa.types.is_dictionary(chunks.type):
        chunks = chunks.dictionary_encode()
    known = [wanted.get(_said(value, fold), -1) for value in chunks.dictionary.to_pylist()]
    index = chunks.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
    return np.array([*known, -1])[index]


def spoken(value: Any) -> str:
    """A declared value as a person writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _said(value: Any, fold: bool) -> str | None:
    """What a value says, however it is stored: 1, 1.0, "1" and "1.0" are the same."""
    if value is None:
        return None
    text = spoken(value).strip()
    if fold:
        return text.lower()
    try:
        number = float(text)
    except ValueError:
        return text
    leading_zero = len(text) > 1 and text[0] == "0" and text[1] not in ".e"  # a postcode, say
    return text if leading_zero else repr(number)


def _numbers(values: Any, name: str, column: Column) -> np.ndarray:
    import pyarrow as pa

    found = None
    with suppress(pa.ArrowException):  # whose text may quote a row
        found = values.cast(pa.float64())
    if found is None:
        raise ValueError(f"column {name!r} is declared as numeric, but it does not hold numbers.")
    numbers = found.to_numpy().astype(float).reshape(-1, 1)
    if column.lower is None:
        return numbers
    numbers = np.where(np.isfinite(numbers), numbers, column.fill)
    return _bounds(column).apply(numbers)


def _bounds(column: Column) -> ColumnBounds:
    return ColumnBounds.declared((column.lower, column.upper), 1)


def _indicators(values: Any, column: Column) -> sp.csr_array:
    position = codes(values, tuple(column.categories))
    rows = np.flatnonzero(position >= 0)
    ones = np.ones(len(rows))
    return sp.csr_array(
        (ones, (rows, position[rows])), shape=(len(position), len(column.categories))
    )


def _names(X: Any) -> Any:
    names = getattr(X, "column_names", None)
    return X.columns if names is None else names
