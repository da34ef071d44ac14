"""Moments of features and labels in exact integers: movements, order, closeness."""

import math
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from privopt.noise import SeededSource
from privopt.oracle import LabelMoments, Moments, Oracle, RowBounds
from privopt.oracle.sealed import KEY

BOUNDS = RowBounds(math.inf, 1.0)
FORMS = {"dense": np.asarray, "CSR": sp.csr_array, "torch": torch.from_numpy}
QUERIES = [LabelMoments(), Moments(0.4, 0.16), Moments(1.5, 1.5)]
RELATIONS = ("zero_out", "replace_one")
every_form = pytest.mark.parametrize("form", FORMS)
every_query = pytest.mark.parametrize("query", QUERIES, ids=repr)


def ask(query, X, y, form="dense", relation="zero_out", steps=2.0**36):
    view = Oracle.over(
        FORMS[form](X),
        y,
        neighbouring=relation,
        bounds=BOUNDS,
        source=SeededSource(0),
        classification=False,
    ).everything()
    sealed = view.ask(query, resolution=steps)
    return sealed.open(KEY), sealed.sensitivity


def records(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 3)) * 10.0 ** rng.uniform(-2, 1, (n, 1))
    return X, rng.uniform(-1.5, 1.5, n)


@every_form
@every_query
def test_close_to_the_sum_in_floating_point_and_the_same_in_every_order(form, query):
    X, y = records(500)
    X[7], y[9] = np.nan, np.nan  # two empty records
    counts, sensitivity = ask(query, X, y, form)
    plain = Oracle.over(
        X,
        y,
        neighbouring="zero_out",
        bounds=BOUNDS,
        source=SeededSource(0),
        classification=False,
    ).everything()
    expected = plain.ask(query).open(KEY)
    assert counts.dtype == np.int64
    assert sensitivity.grid.coordinates == len(expected)
    np.testing.assert_allclose(
        counts * sensitivity.grid.step, expected, atol=2000 * sensitivity.grid.step
    )
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(500)
        assert np.array_equal(ask(query, X[order], y[order], form)[0], counts)


@every_form
@every_query
@pytest.mark.parametrize("steps", [50.0, 1000.0, 2.0**36])
def test_no_neighbour_moves_the_integers_beyond_the_steps(form, query, steps):
    """In exact integer arithmetic, on coarse grids too, for single and for replaced records."""
    X, y = records(60)
    y[:6] = [1.0, -1.0, 1 - 1e-3, -1 + 1e-3, 1 - 1e-9, -1 + 2e-2]
    X[:3] = [[1, 0, 0], [-1, 0, 0], [0, 1, 1]]
    for relation in RELATIONS:
        counts = [
            ask(query, X[i : i + 1], y[i : i + 1], form, relation, steps)[0] for i in range(60)
        ]
        moved = counts
        if relation == "replace_one":
            pairs = [*pairwise(range(60)), (0, 1), (2, 3), (1, 4), (0, 5), (4, 5)]
            moved = [counts[i] - counts[j] for i, j in pairs]
        squares = [sum(int(c) ** 2 for c in vector) for vector in moved]
        assert max(squares) <= steps**2
        assert max(squares) > (0.7 * steps) ** 2  # the bound is met, not missed


def test_an_entry_that_is_stored_twice_is_cut_off_once():
    twice = sp.csr_array(([0.05, 0.05, 0.3], [0, 0, 1], [0, 3]), shape=(1, 3))
    once = np.array([[0.1, 0.3, 0.0]])
    query, y = Moments(1.0, 1.0), np.ones(1)
    assert np.array_equal(
        ask(query, twice, y, "CSR", steps=37.0)[0], ask(query, once, y, steps=37.0)[0]
    )
