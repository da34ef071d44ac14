"""Small facts of rows and bounds: random mutants showed that nobody had asked about them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

from privopt.geometry import Box
from privopt.geometry.norms import lp_norm
from privopt.losses import Huber
from privopt.noise import SilentSource
from privopt.oracle import CountRecords, Oracle, RowBounds
from privopt.oracle.column_shapes import BINS, bins_of
from privopt.oracle.dense import DenseRows
from privopt.oracle.held import clipped
from privopt.oracle.objective import Objective
from privopt.oracle.sanitize import rounded_up
from privopt.oracle.sealed import KEY
from privopt.oracle.sparse import _clipped_entries
from privopt.oracle.values import Rises


def test_sizes_of_rows_are_never_rounded_down():
    """In single precision as in double, against exact arithmetic."""
    X = np.random.default_rng(0).normal(size=(200, 7)).astype(np.float32)
    rows = DenseRows.build(X, np.ones(200), RowBounds(100.0))
    assert rows._sizes.dtype == np.float32
    for row, size in zip(X, rows._sizes, strict=True):
        exact = sum(Fraction(float(entry)) ** 2 for entry in row)
        assert exact <= Fraction(float(size)) ** 2 <= exact * Fraction(1 + 1e-6)
    assert (rounded_up(np, np.full(3, 1.1), np.dtype(np.float32)) >= 1.1).all()


@pytest.mark.parametrize("norm", ["l1", "l2", "l3.5", "linf", "coordinates", "range"])
@pytest.mark.parametrize("size", [0.3, 5.0, 1e200])
def test_an_answer_is_moved_just_into_its_ball(norm, size):
    answer = size * np.array([3.0, -4.0, 1.0]) / 4

    def length(vector):
        if norm == "range":
            return vector.max() - vector.min()
        return lp_norm(vector, np.inf if norm in ("linf", "coordinates") else float(norm[1:]))

    found = clipped(answer, norm, 0.5)
    assert length(found) < 0.5
    if length(answer) > 0.5:
        assert length(found) > 0.5 * (1 - 1e-12)
    elif norm != "range":
        np.testing.assert_array_equal(found, answer)


def test_entries_of_a_sparse_matrix_are_clipped_on_both_sides():
    X = sp.csr_array([[-5.0, 0.0, 0.25], [7.0, -0.25, 0.0]])
    found = _clipped_entries(X, 0.5)
    np.testing.assert_array_equal(found.toarray(), [[-0.5, 0.0, 0.25], [0.5, -0.25, 0.0]])
    within = sp.csr_array([[-0.5, 0.0, 0.25]])
    assert _clipped_entries(within, 0.5) is within


def test_bins_are_cut_evenly():
    found = bins_of(np.array([-9.0, -2.0, -1e-9, 0.0, 1.99, 9.0]), -2.0, 2.0)
    half = BINS // 2
    assert found.tolist() == [0, 0, half - 1, half, BINS - 1, BINS - 1]


@pytest.mark.parametrize("relation", ["zero_out", "add_remove"])
def test_records_are_counted_without_the_empty_ones(relation):
    X = np.array([[1.0], [0.0], [np.nan], [3.0]])
    oracle = Oracle.over(
        X, np.ones(4), neighbouring=relation, bounds=RowBounds(1.0), source=SilentSource()
    )
    assert oracle.everything().ask(CountRecords()).open(KEY).tolist() == [3.0]


def test_a_rise_is_counted_in_whole_steps_and_clipped_to_the_slope():
    """One record with margin x theta, from 0: the Huber loss to the nearest step; a label that
    swallows all digits rises by its slope times the way, no more."""
    loss = Huber(0.5)
    for label in (0.2, -3.0, 1e17):
        rows = DenseRows.build(np.array([[1.0]]), np.array([label]), RowBounds(1.0), False)
        rises = Rises.around(Objective(rows, loss), Box(-2.0, 2.0), np.zeros(1))
        for theta in (-2.0, 0.1, 1.0):
            found = float(rises.values(np.array([[theta]]))[0])
            z = np.array([theta])
            wanted = float((loss.value(z, np.array([label])) - loss.value(0 * z, label))[0])
            if label == 1e17:
                wanted = -loss.lipschitz * theta
            assert found == pytest.approx(wanted, abs=rises.step)
