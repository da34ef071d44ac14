"""CSV and Parquet files through pyarrow. Its messages may quote a row, so none of them is shown."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

PARQUET = (".parquet", ".pq")


def column_types(path: Path) -> dict[str, str]:
    """Names and types of the columns: ``integer``, ``number``, ``boolean``, ``text``, ``other``.

    A Parquet file declares them. A CSV file does not: a type would be read off the cells, and one
    record could change it, so that each column is ``unknown``.
    """
    if path.suffix.lower() not in PARQUET:
        return dict.fromkeys(_opened(path, _names), "unknown")
    schema = _opened(path, _schema)
    return {name: _type(schema.field(name).type) for name in schema.names}


def count_rows(path: Path) -> int:
    """Number of rows; nothing else is kept."""
    return _opened(path, _rows)


def read_table(path: Path, types: Mapping[str, str]) -> Any:
    """A pyarrow table of the columns in ``types``. Those of a CSV file are read as the ``number``
    or ``text`` that they are called there: no type is read off a cell, in no column."""
    return _opened(path, lambda file: _table(file, types))


def write_table(columns: Mapping[str, Any], path: Path) -> None:
    """Write columns as CSV, or as Parquet if the name says so."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    table = pa.table(dict(columns))
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() in PARQUET:
        pyarrow.parquet.write_table(table, path)
    else:
        pyarrow.csv.write_csv(table, path)


def check_suffix(path: Path) -> None:
    """Only two formats are known."""
    if path.suffix.lower() not in (".csv", *PARQUET):
        raise ValueError(f"{path.name} must end in .csv or .parquet.")


def _opened(path: Path, read: Any) -> Any:
    """Read a file, and complain in one sentence that quotes no row."""
    import pyarrow as pa

    if not path.exists():
        raise ValueError(f"there is no file {path}.")
    if path.is_dir():
        raise ValueError(f"{str(path)!r} is a folder, not a file.")
    check_suffix(path)
    if path.stat().st_size == 0:
        raise ValueError(f"{path.name} is empty.")
    found, column = None, None
    try:
        found = read(path)
    except pa.ArrowException as error:
        column = re.match(r"In CSV column #(\d+)", str(error))  # a position, not a value
    if found is None and column is not None:
        name = _names(path)[int(column[1])]
        raise ValueError(
            f"column {name!r} of {path.name} holds something that is not a number, though it is "
            'declared as one: call it "categorical" or "ignored", or mend the file.'
        )
    if found is None:
        raise ValueError(
            f"{path.name} could not be read as a table: check that every line has the same number "
            "of fields (details are withheld, they could quote a row)."
        )
    return found


def _table(path: Path, types: Mapping[str, str]) -> Any:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    if path.suffix.lower() in PARQUET:
        table = pyarrow.parquet.read_table(path, columns=list(types))
    else:
        _names(path)
        known = {"number": pa.float64(), "text": pa.string()}
        table = _csv(path, {name: known[kind] for name, kind in types.items()}).read_all()
    if table.num_rows == 0:
        raise ValueError(f"{path.name} has column names but no rows.")
    return table


def _schema(path: Path) -> Any:
    import pyarrow.parquet

    schema = pyarrow.parquet.read_schema(path)
    _check_names(schema.names, path.name)
    return schema


def _names(path: Path) -> list[str]:
    """The first line of a CSV file: nothing below it is read."""
    found: list[str] | None = None
    with suppress(UnicodeError, csv.Error, StopIteration):  # which quote the line
        # Whatever other lines hold is decoded too, since files are read in blocks, but not judged.
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            first = next(csv.reader(file))
        "".join(first).encode()
        found = first
    if not found:
        raise ValueError(f"{path.name} does not begin with a line of column names, in UTF-8.")
    _check_names(found, path.name)
    return found


def _csv(path: Path, types: Mapping[str, Any]) -> Any:
    """A reader of these columns of a CSV file, whose types are said and not guessed."""
    import pyarrow.csv

    parsed = pyarrow.csv.ParseOptions(newlines_in_values=True)
    options = pyarrow.csv.ConvertOptions(
        include_columns=list(types), column_types=dict(types), strings_can_be_null=True
    )
    return pyarrow.csv.open_csv(path, parse_options=parsed, convert_options=options)


def _rows(path: Path) -> int:
    import pyarrow as pa
    import pyarrow.parquet

    if path.suffix.lower() in PARQUET:
        return pyarrow.parquet.read_metadata(path).num_rows
    with _csv(path, {_names(path)[0]: pa.string()}) as reader:
        return sum(batch.num_rows for batch in reader)


def _check_names(names: list[str], file: str) -> None:
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise ValueError(f"{file} has two columns named {twice[0]!r}: rename one of them.")


def _type(kind: Any) -> str:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_integer(kind):
        return "integer"
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return "text" if text or pa.types.is_string_view(kind) else "other"
