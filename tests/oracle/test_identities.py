"""One person, one id: spellings of an integer are the same, and what may be another is refused."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from privopt import OnlineLogisticRegression, Refused
from privopt.oracle.identities import canonical_ids

SAME = {
    "list": [7, 8],
    "int8": np.array([7, 8], dtype=np.int8),
    "uint64": np.array([7, 8], dtype=np.uint64),
    "text": ["7", "8"],
    "fixed text": np.array(["7", "8"]),
    "object": np.array([7, 8], dtype=object),
    "object text": np.array(["007", " 8"], dtype=object),
    "Int64": pd.Series([7, 8], dtype="Int64"),
    "category": pd.Series(["7", "8"], dtype="category"),
    "polars": pl.Series([7, 8]),
    "arrow": pa.array([7, 8]),
    "other digits": ["\uff17", "\u0668"],
}


@pytest.mark.parametrize("ids", SAME.values(), ids=SAME)
def test_one_person_however_the_column_was_read(ids):
    assert canonical_ids(ids, 2) == ["7", "8"]


@pytest.mark.parametrize("ids", list(SAME.values())[1:], ids=list(SAME)[1:])
def test_nobody_takes_part_twice_in_another_type(ids):
    """Under max_participations=1; a hash of the Python type let the same people in again."""
    model = OnlineLogisticRegression(1.0, 1e-6, n_steps=4, classes=[0, 1], random_state=0)
    model.partial_fit(np.eye(2), [0, 1], record_ids=[7, 8])
    with pytest.raises(Refused, match="already taken part"):
        model.partial_fit(np.eye(2), [0, 1], record_ids=ids)


def test_spellings_of_text():
    assert len(set(canonical_ids(["Zo\u00eb  B", "zoe\u0308 b\ufeff", " ZO\u00cb B\t"], 3))) == 1
    assert len(set(canonical_ids(["a", "b", "a b"], 3))) == 3
    assert canonical_ids(["\ud800"], 1) == ["\ud800"]


@pytest.mark.parametrize(
    "ids",
    [
        [4711.0, 1.0],
        np.array([4711.0, 1.0]),
        pd.Series([4711, None]),
        pd.Series([4711, None], dtype="Int64"),
        [4711, None],
        [4711, True],
        [True, False],
        [b"4711", b"1"],
        np.array([b"4711", b"1"]),
        [Decimal(4711), Decimal(1)],
        [4711, "1"],
        ["4711.0", "1.0"],
        ["4711e+3", "1"],
        ["4711", "nan"],
        ["4711", ""],
        np.ma.array([4711, 1], mask=[False, True]),
        np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[D]"),
        np.array([[4711, 1]]),
        [4711],
        "47",
        [np.array([4711, 1]), 2],
    ],
)
def test_everything_else_is_refused_without_quoting_an_id(ids):
    with pytest.raises(ValueError, match="record_ids") as caught:
        canonical_ids(ids, 2)
    assert "4711" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_person_stands_once_in_a_batch():
    model = OnlineLogisticRegression(1.0, 1e-6, n_steps=4, classes=[0, 1], random_state=0)
    with pytest.raises(Refused, match="twice in one batch"):
        model.partial_fit(np.eye(2), [0, 1], record_ids=["7", "07"])
