"""Declared columns: bounds, categories and missing values, from every kind of frame."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import privopt
from privopt.tables import Column, DeclaredColumns, Schema, template
from privopt.tables.encoder import codes, column_entries

DECLARED = {
    "age": {"kind": "numeric", "lower": 20, "upper": 80, "missing": 35},
    "pay": {"kind": "numeric", "lower": -10, "upper": 50},
    "city": {"kind": "categorical", "categories": ["Bonn", "Ulm"]},
    "note": {"kind": "ignored"},
}
PEOPLE = {
    "note": ["x", "y", "z"],
    "city": ["Ulm", " Bonn ", None],
    "pay": [25.0, 99.0, -99.0],
    "age": [20, None, 80],
}
# Bounds that contain 0 only divide, others are centred; outside goes to the nearest bound.
EXPECTED = [[-1.0, 0.5, 0.0, 1.0], [-0.5, 1.0, 1.0, 0.0], [1.0, -0.2, 0.0, 0.0]]


@pytest.mark.parametrize("frame", [pa.table, pd.DataFrame, pl.DataFrame, dict])
def test_frames(frame):
    encoder = DeclaredColumns(DECLARED)
    assert encoder.fit_transform(frame(PEOPLE)) == pytest.approx(np.array(EXPECTED))
    assert encoder.get_feature_names_out().tolist() == ["age", "pay", "city=Bonn", "city=Ulm"]
    assert encoder.scales().tolist() == [30, 50, 1, 1]
    assert encoder.ranges().tolist() == [60, 60, 1, 1]


def test_a_row_is_encoded_by_itself_alone():
    """What makes it safe before a private estimator: no record changes another one's row."""
    encoder = DeclaredColumns(DECLARED)
    whole = encoder.fit_transform(pa.table(PEOPLE))
    for i in range(3):
        other = DeclaredColumns(DECLARED)
        one = other.fit_transform(pa.table({k: v[i : i + 1] for k, v in PEOPLE.items()}))
        assert np.array_equal(one, whole[i : i + 1])
        assert vars(other).keys() == vars(encoder).keys()
        for name in set(vars(other)) - {"columns"}:
            assert np.array_equal(vars(other)[name], vars(encoder)[name])


def test_infinite_and_missing_numbers_count_as_declared():
    encoder = DeclaredColumns({"age": DECLARED["age"], "pay": DECLARED["pay"]})
    table = pa.table({"age": [np.inf, np.nan], "pay": [-np.inf, None]})
    assert encoder.fit_transform(table) == pytest.approx(np.array([[-0.5, 0.4], [-0.5, 0.4]]))
    assert Column("numeric", 0.0, 4.0).fill == 2.0


@pytest.mark.parametrize(
    ("values", "declared", "expected"),
    [
        (["1", "2.0", "x", None], (1, 2), [0, 1, -1, -1]),
        ([1, 2, 3, None], ("1", "2"), [0, 1, -1, -1]),
        ([1.0, 2.0, 2.5, None], (1, 2), [0, 1, -1, -1]),
        (["01", "1"], ("01", "1"), [0, 1]),
        ([True, False, None], (False, True), [1, 0, -1]),
        (["True", "FALSE", "0"], (False, True), [1, 0, -1]),
        (["a ", "A", ""], ("a",), [0, -1, -1]),
        ([], ("a",), []),
    ],
)
def test_values_are_compared_by_what_they_say(values, declared, expected):
    kind = None if values else pa.string()
    assert codes(pa.array(values, kind), declared).tolist() == expected
    if values:
        chunks = pa.chunked_array([values[:1], values[1:]])
        assert codes(chunks, declared).tolist() == expected
        assert codes(pa.array(values).dictionary_encode(), declared).tolist() == expected


def test_many_categories_stay_sparse():
    wide = {"c": {"kind": "categorical", "categories": list(range(50))}, "pay": DECLARED["pay"]}
    table = pa.table({"c": [3, 49, 77], "pay": [0.0, 50.0, None]})
    found = DeclaredColumns(wide).fit_transform(table)
    assert sp.issparse(found)
    assert found.shape == (3, 51)
    assert found[[0, 1], [3, 49]].tolist() == [1.0, 1.0]
    assert found.sum() == pytest.approx(2 + 0 + 1 + 0.4)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"ages": [1]}, "there is no column 'age': did you mean 'ages'?"),
        ({"age": ["private-cell"]}, "column 'age' is declared as numeric"),
        ({"age": [1, "private-cell"]}, "values of several types"),
    ],
)
def test_complaints_quote_no_cell(data, words):
    encoder = DeclaredColumns({"age": DECLARED["age"]})
    with pytest.raises(ValueError, match=re.escape(words)) as caught:
        encoder.fit_transform(data)
    assert "private-cell" not in str(caught.value)
    assert caught.value.__context__ is None
    with pytest.raises(TypeError, match="columns are found by name"):
        encoder.fit(np.eye(2))


def test_in_a_pipeline_that_is_cloned_and_saved(tmp_path):
    rng = np.random.default_rng(0)
    people = pd.DataFrame({"age": rng.integers(20, 80, 600), "city": rng.choice(["Ulm", "X"], 600)})
    declared = {"age": DECLARED["age"], "city": DECLARED["city"]}
    model = make_pipeline(
        DeclaredColumns(declared),
        privopt.LogisticRegression(5.0, bounds=(-1, 1), classes=[False, True]),
    )
    model = clone(model).fit(people, people["age"] > 50)
    assert model.score(people, people["age"] > 50) > 0.8
    privopt.save(model, tmp_path / "model.skops")
    again = privopt.load(tmp_path / "model.skops")
    assert np.array_equal(again.predict(people), model.predict(people))


# ------------------------------------------------------------ the file
def test_a_template_that_is_filled_in_is_read_back():
    types = {"a b": "number", "c": "text", "d": "boolean", "when": "other", 'q"': "integer"}
    text = template({**types, "y": "number"}, "y", "data.csv")
    assert text.count('"?"') == 1 + 2 + 2 + 1 + 2
    for hint, value in (
        ('lower = "?"', "lower = -1"),
        ('upper = "?"', "upper = 3"),
        ('["?"]', '["u", "v"]'),
    ):
        text = text.replace(hint, value)
    schema = Schema.from_toml(text)
    assert schema.target.kind == "number"
    assert (schema.target.lower, schema.target.upper) == (-1, 3)
    assert list(schema.columns) == list(types)
    assert schema.columns["d"].categories == (False, True)
    assert schema.columns["when"].kind == "ignored"
    assert schema.width == 1 + 2 + 2 + 0 + 1
    entries = column_entries(schema.used)
    assert entries["a b"] == {"kind": "numeric", "lower": -1.0, "upper": 3.0}


@pytest.mark.parametrize(
    ("kind", "task", "expected"),
    [
        ("text", None, "classes"),
        ("integer", None, "classes"),
        ("integer", "regression", "number"),
        ("number", None, "number"),
        ("number", "classification", "classes"),
    ],
)
def test_the_kind_of_the_target(kind, task, expected):
    assert f'kind = "{expected}"' in template({"y": kind, "x": "number"}, "y", "f.csv", task)


def test_a_name_that_toml_must_quote_survives():
    name = 'Größe "in" cm.[0]'
    text = template({name: "boolean", "y": "boolean"}, "y", "f.csv")
    assert list(Schema.from_toml(text).columns) == [name]
