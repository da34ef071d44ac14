"""Every kind of number a user may bring: a record moves a sum by no more than its bound."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from privopt import Budget, LogisticRegression, Problem, solve
from privopt.losses import Logistic
from privopt.noise import SeededSource
from privopt.oracle import Oracle, RowBounds, RowSum
from privopt.oracle.counting import added, added_steps
from privopt.oracle.sealed import KEY

KINDS = ["float16", "float32", "float64", "longdouble", "int8", "uint64", "bool", ">f4", ">f8"]
TENSORS = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32]


def moved(X, record, data_norm=1.0):
    """How far a counted and a plain sum move when a record is emptied, in units of the bound."""
    farthest = 0.0
    for steps in (2.0**30, None):
        sums = []
        for empty in (False, True):
            rows = X.clone() if isinstance(X, torch.Tensor) else X.copy()
            if empty:
                rows[record] = 0
            oracle = Oracle.over(
                rows,
                np.ones(len(rows)),
                neighbouring="zero_out",
                bounds=RowBounds(data_norm),
                source=SeededSource(0),
            )
            sealed = oracle.everything().ask(
                RowSum(data_norm), np.zeros(X.shape[1]), resolution=steps
            )
            step = 1.0 if sealed.sensitivity.grid is None else sealed.sensitivity.grid.step
            sums.append(np.asarray(sealed.open(KEY), dtype=float) * step)
        farthest = max(farthest, float(np.linalg.norm(sums[0] - sums[1])) / data_norm)
    return farthest


def rows(kind, size=300.0):
    X = np.random.default_rng(0).uniform(0, 1, (60, 5))
    X[7] = size
    return X.astype(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_of_array(kind):
    assert moved(rows(kind, 100.0 if kind == "int8" else 300.0), 7) <= 1 + 1e-6


@pytest.mark.parametrize("kind", TENSORS, ids=str)
def test_every_type_of_tensor(kind):
    assert moved(torch.as_tensor(rows("float64")).to(kind), 7) <= 1 + 1e-6


@pytest.mark.parametrize(("kind", "data_norm"), [("float32", 1e-25), ("float64", 1e-99)])
def test_squares_that_vanish_in_the_type_of_the_rows(kind, data_norm):
    assert moved((rows("float64", 1.0) * 30 * data_norm).astype(kind), 7, data_norm) <= 1 + 1e-6


def test_long_rows_in_single_precision():
    """Squares added up in single precision make a row of 20,000 entries seem shorter."""
    X = np.full((4, 20_000), 0.1, dtype=np.float32)
    assert moved(X, 1) <= 1 + 2e-7


@pytest.mark.parametrize("data_norm", [1e-170, 1e170])
def test_bounds_whose_squares_are_no_numbers_are_refused(data_norm):
    with pytest.raises(ValueError, match="other units"):
        RowBounds(data_norm)


def test_complex_rows_are_refused():
    with pytest.raises(TypeError, match="real"):
        moved(np.ones((3, 2), dtype=complex), 0)


def test_a_masked_cell_is_missing():
    X = np.ma.masked_array(rows("float64", 1.0), mask=np.zeros((60, 5), dtype=bool))
    X.mask[7, 2] = True
    assert moved(X.data, 7) > 0.9
    assert moved(X, 7) == 0


def test_no_integer_is_made_of_nan():
    assert added_steps(np.array([np.nan, 1.0, np.inf]), 1 / 8) == 7
    np.testing.assert_array_equal(added(np.array([[np.nan, 2.5], [1.5, np.inf]])), [1.0, 2.0])
    tensor = torch.tensor([[float("nan"), 2.5], [1.5, float("inf")]], dtype=torch.float64)
    np.testing.assert_array_equal(added(tensor).numpy(), [1, 2])


@pytest.mark.parametrize("order", ["C", "F", "strided", "reversed", ">f8"])
def test_a_sum_depends_on_records_alone(order):
    X = rows("float64", 1.0)
    y = np.where(X[:, 0] > 0.5, 1.0, -1.0)
    given = {
        "C": X,
        "F": np.asfortranarray(X),
        "strided": np.repeat(X, 2, axis=1)[:, ::2],
        "reversed": X[::-1].copy()[::-1],
        ">f8": X.astype(">f8"),
    }[order]
    problem, budget = Problem(Logistic()), Budget(1.0, 1e-6)
    found = [
        solve(problem, data, y, budget=budget, solver="noisy_gd", random_state=0).theta
        for data in (X, given)
    ]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("canary", ["HIV-positive", "1970-01-01"])
def test_a_cell_is_in_no_message(canary):
    X = np.array([["1", "2"], ["3", canary]], dtype=object)
    model = LogisticRegression(epsilon=1.0, delta=1e-6, classes=[0, 1])
    for data in (X, X[1]):
        with pytest.raises((TypeError, ValueError)) as caught:
            model.fit(data, np.array([0, 1]))
        chain, error = [], caught.value
        while error is not None:
            chain.append(str(error))
            error = error.__cause__ or error.__context__
        assert canary not in " ".join(chain)
