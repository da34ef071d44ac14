"""Labels are read one by one: no cell decides how another is read, and none is quoted."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from sklearn import linear_model

import privopt

X = np.random.default_rng(0).normal(size=(40, 3))
Y = np.where(X[:, 0] > 0, 1, 0)
TEXT = "77123 positive"
CELLS = {
    "text": TEXT,
    "a number as text": "1",
    "bytes": b"77123",
    "None": None,
    "NaN": math.nan,
    "NA": pd.NA,
    "a list": [77123, 2],
    "a huge integer": 77123 * 10**400,
    "a huge number": 1e300,
    "complex": 77123 + 1j,
    "signalling NaN": Decimal("sNaN"),
    "another label": 77123,
}
CLASSIFIERS = ("LogisticRegression", "LinearSVC", "SparseLogisticRegression")
REGRESSORS = ("LinearRegression", "Lasso", "PoissonRegressor", "OnlineLinearRegression")


def lists(cell):
    yield [cell, *Y[1:].tolist()]
    column = pd.Series(Y, dtype=object)
    column.iat[0] = cell
    yield column


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.filterwarnings("ignore")
def test_an_evaluation_moves_by_one_whatever_one_label_is(cell):
    """A text in a list made NumPy read all labels as texts: each record was then an empty one."""
    model = linear_model.LogisticRegression().fit(X, Y)
    base = privopt.evaluate(model, X, Y.tolist(), 1.0, random_state=0).sums
    for y in lists(CELLS[cell]):
        found = privopt.evaluate(model, X, y, 1.0, random_state=0).sums
        assert np.abs(found - base).sum() <= 1.0


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.filterwarnings("ignore")
def test_an_evaluation_of_numbers_moves_by_one_whatever_one_number_is(cell):
    model, y = linear_model.LinearRegression().fit(X, Y), Y.tolist()
    ends = {"target_bounds": (0.0, 1.0), "random_state": 0}
    base = privopt.evaluate(model, X, y, 1.0, **ends).sums
    for y in lists(CELLS[cell]):
        found = privopt.evaluate(model, X, y, 1.0, **ends).sums
        assert np.abs(found - base).sum() <= 1.0


@pytest.mark.parametrize("cell", [TEXT, None, math.nan, 77123 * 10**400])
@pytest.mark.parametrize("as_frame", [False, True])
@pytest.mark.filterwarnings("ignore")
def test_a_cell_of_a_row_that_is_no_number_moves_an_evaluation_by_one(cell, as_frame):
    frame = pd.DataFrame(X, columns=list("abc")).astype(object)
    other = frame.copy()
    other.iat[0, 0] = cell
    model = linear_model.LogisticRegression().fit(frame if as_frame else X, Y)
    sums = [
        privopt.evaluate(model, part if as_frame else part.to_numpy().tolist(), Y, 1.0,
                         random_state=0).sums
        for part in (frame, other)
    ]  # fmt: skip
    assert np.abs(sums[0] - sums[1]).sum() <= 1.0


def test_a_row_that_fails_changes_no_bit_of_what_is_said_of_the_others():
    """The rest of its block was predicted row by row then, whose last bits may be others."""
    from privopt.evaluation.predictions import answers, speech_of

    class Placed(linear_model.LogisticRegression):
        """Says another number of a row that stands alone, as a matrix product may in its last
        bits."""

        def predict_proba(self, rows):
            if rows[:, 0].max() > 1e200:
                raise ValueError("too large")
            return np.column_stack([0.5 + 0 * rows[:, 0], np.full(len(rows), 1 / (1 + len(rows)))])

    model = Placed().fit(X, Y)
    speech = speech_of(model, np.array([0, 1]), False, True)
    broken = X.copy()
    broken[3, 0] = 1e300
    whole, rest = answers(speech, model, X, 2), answers(speech, model, broken, 2)
    assert np.isnan(rest[3]).all()
    np.testing.assert_array_equal(np.delete(rest, 3, axis=0), np.delete(whole, 3, axis=0))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("name", [*CLASSIFIERS, *REGRESSORS])
@pytest.mark.filterwarnings("ignore")
def test_no_refusal_of_a_label_quotes_it(name, cell):
    """scikit-learn refuses complex labels by printing all of them."""
    how = {"epsilon": 1.0, "delta": 1e-5, "random_state": 0}
    if name in CLASSIFIERS:
        how["classes"] = [0, 1]
    if name == "OnlineLinearRegression":
        how |= {"n_steps": 3, "batch_size": len(X)}
    model = getattr(privopt, name)(**how)
    fit = model.partial_fit if name.startswith("Online") else model.fit
    for y in lists(CELLS[cell]):
        try:
            fit(X, y)
        except (TypeError, ValueError) as error:
            texts = [str(error), str(error.__cause__), str(error.__context__)]
            assert not any("77123" in text or "\n" in text for text in texts)
