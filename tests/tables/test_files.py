"""Files: types, rows, and the same matrix from CSV and Parquet."""

from __future__ import annotations

import gzip
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from privopt.tables import (
    Column,
    DeclaredColumns,
    Schema,
    Target,
    column_types,
    count_rows,
    read_table,
    write_table,
)
from privopt.tables.encoder import column_entries
from privopt.tables.learn import labels

TABLE = {
    "age": [20, None, 99],
    "pay": [1.5, 2.5, None],
    "zip": ["01234", "1234", None],
    "ok": [True, False, None],
    "when": [date(2020, 1, 1)] * 3,
    "y": [1, 0, 1],
}
BOUNDS = """
[target]
column = "y"
kind = "classes"
classes = [0, 1]
[columns]
age = {kind = "numeric", lower = 0, upper = 100}
pay = {kind = "numeric", lower = 0, upper = 5, missing = 1}
zip = {kind = "categorical", categories = ["01234", "1234"]}
ok = {kind = "categorical", categories = [false, true]}
when = {kind = "ignored"}
"""


@pytest.fixture
def files(tmp_path):
    table = pa.table(TABLE)
    pyarrow.csv.write_csv(table, tmp_path / "data.csv")
    pyarrow.parquet.write_table(table, tmp_path / "data.parquet")
    return [tmp_path / "data.csv", tmp_path / "data.parquet"]


def test_types_and_rows(files):
    for path in files:
        types = column_types(path)
        assert list(types) == list(TABLE)
        assert count_rows(path) == 3
    assert (types["age"], types["pay"], types["ok"]) == ("integer", "number", "boolean")
    assert (types["when"], types["zip"]) == ("other", "text")
    assert set(column_types(files[0]).values()) == {"unknown"}  # a cell would have to be read


def test_csv_and_parquet_give_the_same_matrix(files):
    schema = Schema.from_toml(BOUNDS)
    encoder = DeclaredColumns(column_entries(schema.used))
    first, second = (encoder.fit_transform(read_table(path, schema.file_types)) for path in files)
    assert np.array_equal(first, second)
    assert first.tolist() == [
        [0.2, 0.3, 1, 0, 0, 1],
        [0.5, 0.5, 0, 1, 1, 0],
        [0.99, 0.2, 0, 0, 0, 0],
    ]


def test_a_late_fraction_does_not_break_a_csv_file(tmp_path):
    """Types come from the declaration, not from the first block of lines."""
    path = tmp_path / "long.csv"
    path.write_text("x,y\n" + "1,0\n" * 600_000 + "1.5,1\n")
    assert read_table(path, {"x": "number"}).column("x")[-1].as_py() == 1.5


def test_tables_are_written_by_their_suffix(tmp_path):
    for name in ("a.csv", "b.parquet"):
        write_table({"x": np.arange(3)}, tmp_path / "deep" / name)
        table = read_table(tmp_path / "deep" / name, {"x": "number"})
        assert table.column("x").to_pylist() == [0, 1, 2]


HEADS = {
    "semicolons.csv": b'"a, b";c\n1;x\n2;y,z\n',
    "tabs.tsv": b"a, b\tc\n1\tx\n2\ty,z\n",
    "bars.txt": b"a, b|c\n1|x\n2|y,z\n",
    "wide.csv": '"a, b",c\n1,x\n2,"y,z"\n'.encode("utf-16"),
    "marked.csv": '\ufeff"a, b",c\n1,x\n2,"y,z"\n'.encode(),
    "packed.csv.gz": gzip.compress(b'"a, b",c\n1,x\n2,"y,z"\n'),
}


@pytest.mark.parametrize("name", HEADS)
def test_first_line_and_first_bytes_say_how_a_file_is_written(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(HEADS[name])
    assert list(column_types(path)) == ["a, b", "c"]
    assert count_rows(path) == 2
    found = read_table(path, {"a, b": "number", "c": "text"})
    assert found.to_pylist() == [{"a, b": 1.0, "c": "x"}, {"a, b": 2.0, "c": "y,z"}]


@pytest.mark.parametrize("name", ["a.xlsx", "a.gz", "a.parquet.gz", "a"])
def test_other_endings_are_one_sentence(tmp_path, name):
    (tmp_path / name).write_bytes(b"a,b")
    with pytest.raises(ValueError, match=r"must end in \.csv, \.tsv, \.txt or \.parquet"):
        column_types(tmp_path / name)


TARGETS = ["1", "7", "2.5", "1e3", "true", "2020-01-01", "HIV-positive", "", "12:30"]


@pytest.mark.parametrize("first", TARGETS)
@pytest.mark.parametrize("kind", ["classes", "number", "undeclared"])
def test_no_cell_decides_how_a_csv_file_is_read(tmp_path, first, kind):
    """Neither of the target, nor of columns that are ignored, nor of ids."""
    path = tmp_path / "data.csv"
    others = ["0,0.5,a", "1,1,b", '0,,"a\nb"']
    path.write_text("\n".join(["y,x,skip", f"{first},1,{first}", *others, ""]))
    target = {
        "classes": Target("y", "classes", (0, 1), undeclared="empty"),
        "number": Target("y", "number", lower=0.0, upper=1.0, undeclared="empty"),
        "undeclared": Target("y", "classes"),
    }[kind]
    schema = Schema(target, {"x": Column("numeric", 0, 1), "skip": Column("ignored")})
    table = read_table(path, schema.file_types | {"skip": "text"})
    assert [str(field.type) for field in table.schema] == ["double", "string", "string"]
    found = labels(table.column("y"), target)
    assert (
        found.values[1:].tolist()
        == {
            "classes": [0, 1, 0],
            "number": [0.0, 1.0, 0.0],
            "undeclared": ["0", "1", "0"],
        }[kind]
    )
    assert not found.empty[1:].any()
    without = read_table(path, schema.file_types)
    assert without.column_names == ["x", "y"]  # what is ignored is not even read


def test_only_the_first_line_of_a_csv_file_is_read_for_names(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes(b"a,b\n1,2,3\n\xff\n")
    assert column_types(path) == {"a": "unknown", "b": "unknown"}
