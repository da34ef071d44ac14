"""CSV and Parquet files through pyarrow. Its messages may quote a row, so none of them is shown.

How a text file is written, its encoding and what parts its fields, is read off its first bytes and
its first line, the names of the columns: they are public, and no record says anything about it.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

PARQUET = (".parquet", ".pq")
TEXT = (".csv", ".tsv", ".txt")
PACKED = ".gz"
SEPARATORS = "\t;|,"
MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""First bytes of a file that say its encoding; without them it is UTF-8."""


def column_types(path: Path) -> dict[str, str]:
    """Names and types of the columns: ``integer``, ``number``, ``boolean``, ``text``, ``other``.

    A Parquet file declares them. A CSV file does not: a type would be read off the cells, and one
    record could change it, so that each column is ``unknown``.
    """
    return _opened(path, _types)


def count_rows(path: Path) -> int:
    """Number of rows; nothing else is kept."""
    return _opened(path, _rows)


def read_table(path: Path, types: Mapping[str, str]) -> Any:
    """A pyarrow table of the columns in ``types``. Those of a CSV file are read as the ``number``
    or ``text`` that they are called there: no type is read off a cell, in no column."""
    return _opened(path, lambda file: _table(file, types))


def write_table(columns: Mapping[str, Any], path: Path) -> None:
    """Write columns as CSV, or as Parquet if the name says so; tabs part those of a .tsv file."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    table = pa.table(dict(columns))
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind_of(path) == "parquet":
        pyarrow.parquet.write_table(table, path)
        return
    between = "\t" if ".tsv" in path.suffixes else ","
    pyarrow.csv.write_csv(table, path, pyarrow.csv.WriteOptions(delimiter=between))


def kind_of(path: Path) -> str:
    """``text`` or ``parquet``, by the name; everything else is refused."""
    endings = [ending.lower() for ending in path.suffixes]
    if endings[-1:] == [PACKED]:
        endings.pop()
    last = endings[-1] if endings else ""
    if last in TEXT:
        return "text"
    if last in PARQUET and path.suffix.lower() in PARQUET:
        return "parquet"
    raise ValueError(
        f"{path.name} must end in .csv, .tsv, .txt or .parquet, text also in .gz: save the sheet "
        "of a spreadsheet as CSV."
    )


def check_writable_kind(path: Path) -> None:
    """Only names of files that can be written."""
    if kind_of(path) == "text" and path.suffix.lower() == PACKED:
        raise ValueError(f"{path.name}: files are written unpacked, as .csv, .tsv or .parquet.")


def _opened(path: Path, read: Any) -> Any:
    """Read a file, and complain in one sentence that quotes no row."""
    import pyarrow as pa

    if not path.exists():
        raise ValueError(f"there is no file {path}.")
    if path.is_dir():
        raise ValueError(f"{str(path)!r} is a folder, not a file.")
    kind_of(path)
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

    if kind_of(path) == "parquet":
        table = pyarrow.parquet.read_table(path, columns=list(types))
    else:
        _names(path)
        known = {"number": pa.float64(), "text": pa.string()}
        table = _csv(path, {name: known[kind] for name, kind in types.items()}).read_all()
    if table.num_rows == 0:
        raise ValueError(f"{path.name} has column names but no rows.")
    return table


def _types(path: Path) -> dict[str, str]:
    if kind_of(path) == "text":
        return dict.fromkeys(_names(path), "unknown")
    schema = _schema(path)
    return {name: _type(schema.field(name).type) for name in schema.names}


def _schema(path: Path) -> Any:
    import pyarrow.parquet

    schema = pyarrow.parquet.read_schema(path)
    _check_names(schema.names, path.name)
    return schema


def _names(path: Path) -> list[str]:
    """The first line of a CSV file: nothing below it is read."""
    return _head(path)[0]


def _head(path: Path) -> tuple[list[str], str, str]:
    """Names, what stands between fields, and the encoding."""
    found: list[str] | None = None
    encoding, separator = "utf-8", ","
    opened = gzip.open if path.suffix.lower() == PACKED else open
    with suppress(UnicodeError, csv.Error, StopIteration, EOFError, gzip.BadGzipFile):
        with opened(path, "rb") as file:
            start = file.read(4)
        known = (name for mark, name in MARKS.items() if start.startswith(mark))
        encoding = next(known, encoding)
        # Whatever other lines hold is decoded too, since files are read in blocks, but not judged.
        with opened(path, "rt", encoding=encoding, errors="surrogateescape", newline="") as file:
            line = next(iter(file))
            separator = max(SEPARATORS, key=_outside_quotes(line).count)
        with opened(path, "rt", encoding=encoding, errors="surrogateescape", newline="") as file:
            first = next(csv.reader(file, delimiter=separator))
        "".join(first).encode()
        found = first
    if not found or found == [""]:
        raise ValueError(
            f"{path.name} does not begin with a line of column names, in UTF-8: save it in that "
            "encoding."
        )
    _check_names(found, path.name)
    return found, separator, encoding


def _outside_quotes(line: str) -> str:
    return re.sub(r'"[^"]*("|$)', "", line)


def _csv(path: Path, types: Mapping[str, Any]) -> Any:
    """A reader of these columns of a CSV file, whose types are said and not guessed."""
    import pyarrow.csv

    _, separator, encoding = _head(path)
    parsed = pyarrow.csv.ParseOptions(newlines_in_values=True, delimiter=separator)
    read = pyarrow.csv.ReadOptions(encoding=encoding.removesuffix("-sig"))
    options = pyarrow.csv.ConvertOptions(
        include_columns=list(types), column_types=dict(types), strings_can_be_null=True
    )
    return pyarrow.csv.open_csv(
        path, read_options=read, parse_options=parsed, convert_options=options
    )


def _rows(path: Path) -> int:
    import pyarrow as pa
    import pyarrow.parquet

    if kind_of(path) == "parquet":
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
