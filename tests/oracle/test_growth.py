"""What a sum holds beside the data does not grow with the number of records."""

import tracemalloc

import numpy as np
import pytest

from privopt import LogisticRegression
from privopt.estimators.bounds import ColumnBounds
from privopt.losses import Logistic
from privopt.noise import SilentSource
from privopt.oracle import (
    ClippedGradient,
    Moments,
    NormHistogram,
    Oracle,
    RowMap,
    bounded_columns,
)
from privopt.oracle.bounded_columns import TILE, BoundedColumns
from privopt.oracle.dense import DenseRows
from privopt.oracle.mapped import MappedRows
from privopt.oracle.objective import Objective
from privopt.oracle.rows import RowBounds
from privopt.oracle.sealed import KEY


@pytest.fixture(autouse=True)
def large(monkeypatch):
    """Data of any size are read as large data are."""
    monkeypatch.setattr(bounded_columns, "SMALL", 0)


def peak_of(compute):
    tracemalloc.start()
    found = compute()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found, peak


@pytest.mark.parametrize("mapped", [False, True])
def test_a_hessian_holds_four_matrices_at_most(mapped):
    rng = np.random.default_rng(0)
    p = 1000
    X = rng.uniform(-0.02, 0.02, (6000, p))
    y = np.sign(X[:, 0])
    rows = DenseRows.build(X, y, RowBounds(np.inf, 1.0))
    if mapped:
        rows = MappedRows.build(rows, RowMap(np.zeros(p), np.ones(p), 1.0, 1.0))
    objective = Objective(rows, Logistic())
    theta = rng.normal(size=p + 1)
    found, peak = peak_of(lambda: objective.hessian(theta))
    assert peak <= 4 * 8 * (p + 1) ** 2
    part = objective.part(0, 500)
    E = np.vstack(part.rows.effective(lambda E, *_: E.copy(), 500))
    weights = Logistic().curvature(E @ theta, part.rows.weights(theta, lambda z, y, size: y))
    np.testing.assert_allclose(part.hessian(theta), (E.T * weights) @ E, rtol=1e-9, atol=1e-12)
    assert np.abs(found - found.T).max() <= 1e-12 * np.abs(found).max()


def bounded(X, low, high):
    declared = ColumnBounds(np.full(X.shape[1], low), np.full(X.shape[1], high))
    return declared, declared.over(X)


def test_bounds_are_read_block_by_block_with_the_bits_of_a_copy():
    rng = np.random.default_rng(1)
    X = rng.normal(3.0, 1.0, (5 * TILE + 7, 40))
    X[: 2 * TILE] = X[: 2 * TILE].clip(1.0, 5.0)  # tiles without an entry outside
    for low, high in ((1.0, 5.0), (-2.0, 5.0), (1e6, 1e6 + 1)):
        declared, lazy = bounded(X, low, high)
        assert isinstance(lazy, BoundedColumns)
        copy = declared.apply(X)
        for cut in (slice(None), slice(TILE + 5, 3 * TILE), slice(10, 20)):
            np.testing.assert_array_equal(lazy[cut], copy[cut])
            np.testing.assert_array_equal(lazy.block(cut), copy[cut])
            np.testing.assert_array_equal(lazy.part(cut)[3:9], copy[cut][3:9])
        np.testing.assert_array_equal(lazy[:, [3, 1]], copy[:, [3, 1]])
        np.testing.assert_array_equal(lazy[np.array([5, 3 * TILE])], copy[[5, 3 * TILE]])


def test_one_record_outside_its_bounds_changes_no_other_records_counts():
    rng = np.random.default_rng(2)
    X = rng.uniform(1.2, 4.8, (3 * TILE, 50))
    Z = X.copy()
    Z[7] = 100.0
    y = np.sign(rng.normal(size=len(X)))
    row_map = RowMap(np.full(50, 0.1), np.full(50, 1.7), 2.0, 3.0)
    theta = rng.normal(size=51)

    def counts(X, keep):
        _, lazy = bounded(X, 1.0, 5.0)
        rows = MappedRows.build(DenseRows.build(lazy, y, RowBounds(np.inf, 1.0)), row_map)
        rows = rows.take(np.flatnonzero(keep)) if keep is not None else rows
        return rows.counted_sum(theta, lambda z, y, size: -y / (1 + np.exp(y * z)), 1.0, 1e-9)

    others = np.arange(len(X)) != 7
    only = ~others
    np.testing.assert_array_equal(counts(X, None) - counts(X, only), counts(Z, others))
    np.testing.assert_array_equal(counts(Z, None) - counts(Z, only), counts(Z, others))


@pytest.mark.parametrize("broken", ["entry", "infinity", "label"])
def test_a_broken_record_is_empty_and_changes_no_other_records_counts(broken):
    rng = np.random.default_rng(5)
    X = rng.uniform(0.5, 6.0, (2 * TILE, 10))
    y = np.sign(rng.normal(size=len(X)))
    row_map = RowMap(np.full(10, 0.1), np.full(10, 1.7), 2.0, 3.0)
    theta = rng.normal(size=11)

    def counts(X, y):
        _, lazy = bounded(X, 1.0, 5.0)
        rows = DenseRows.build(lazy, y, RowBounds(np.inf, 1.0))
        mapped = MappedRows.build(rows, row_map)
        found = mapped.counted_sum(theta, lambda z, y, size: -y / (1 + np.exp(y * z)), 1.0, 1e-9)
        moments = Moments(3.0, 3.0).count(rows, theta, 1e-9)
        norms = NormHistogram((0.5, 1.0, 2.0, 4.0)).count(rows, theta, 1e-9)
        return np.concatenate([found, moments, norms])

    expected = counts(np.delete(X, 7, axis=0), np.delete(y, 7))
    X, y = X.copy(), y.copy()
    if broken == "label":
        y[7] = np.nan
    else:
        X[7, 3] = np.nan if broken == "entry" else np.inf
    np.testing.assert_array_equal(counts(X, y), expected)


def test_bounds_hold_no_copy_of_large_data():
    rng = np.random.default_rng(3)
    X = rng.uniform(-2.5, 2.5, (60_000, 50))
    y = (X[:, 0] > 0).astype(int)
    model = LogisticRegression(1.0, 1e-6, bounds=(-2, 2), classes=[0, 1])
    model.fit(X, y)  # the plan's simulations, on data made up for so many records, are kept
    _, peak = peak_of(lambda: model.fit(X, y))
    assert peak < 0.75 * X.nbytes


def test_a_wide_hessian_is_not_built_where_a_few_products_do():
    from privopt.numerics.newton import minimise

    rng = np.random.default_rng(4)
    p = 400
    X = rng.normal(size=(900, p)) / np.sqrt(p)
    rows = DenseRows.build(X, np.sign(X[:, 0]), RowBounds(10.0))
    built = []

    class Counted(Objective):
        def hessian(self, theta):
            built.append(1)
            return super().hessian(theta)

    def solved(regularisation, gradient_norm=1e-8):
        built.clear()
        return minimise(
            Counted(rows, Logistic()),
            regularisation=regularisation,
            centre=np.zeros(p),
            linear=np.zeros(p),
            gradient_norm=gradient_norm,
        )

    easy = solved(1.0)
    assert not built
    assert np.linalg.norm(Objective(rows, Logistic()).gradient(easy) + easy) <= 1e-8
    solved(1e-6)
    assert built


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_broken_row_changes_how_no_other_row_is_clipped(bad):
    """The least entry of a block is not a number where one entry is none: others are clipped
    all the same."""
    rng = np.random.default_rng(0)
    X = rng.normal(0, 2, (500, 3))
    low, high, shift, scale = -np.ones(3), np.ones(3), np.full(3, 0.25), np.full(3, 0.75)
    whole = BoundedColumns.over(X, low, high, shift, scale)[:]
    X[137, 1] = bad
    broken = BoundedColumns.over(X, low, high, shift, scale)[:]
    others = np.arange(500) != 137
    np.testing.assert_array_equal(broken[others], whole[others])
    np.testing.assert_array_equal(broken[137], 0.0)


def test_an_empty_record_adds_nothing_wherever_zero_lies():
    """Columns that lie far from zero, read in their own units: every sum is that of the others."""
    rng = np.random.default_rng(1)
    X, y = rng.uniform(99.0, 101.0, (40, 2)), np.where(rng.random(40) < 0.5, -1.0, 1.0)
    broken = X.copy()
    broken[7] = np.nan
    left = np.arange(40) != 7
    theta = np.array([0.4, -0.3, 0.2])

    def sums(X, y):
        held = BoundedColumns.over(
            X, np.full(2, 99.0), np.full(2, 101.0), np.full(2, 100.0), np.ones(2)
        )
        oracle = Oracle.over(
            held, y, neighbouring="zero_out", bounds=RowBounds(np.inf, 1.0), source=SilentSource()
        )
        view = oracle.mapped(RowMap(np.zeros(2), np.ones(2), 1.0, 1.0)).everything()
        yield view.ask(ClippedGradient(Logistic(), 1.0), theta).open(KEY)
        objective = view.function(Logistic()).open(KEY)
        yield objective.gradient(theta)
        yield objective.hessian(theta)
        yield np.array([objective.value(theta)])

    for one, other in zip(sums(broken, y), sums(X[left], y[left]), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


def test_small_data_are_mapped_once_into_the_same_bits(monkeypatch):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(2 * TILE + 3, 4))
    X[7, 1] = np.nan
    low, high = np.array([-1.0, -2.0, 0.0, -9.0]), np.array([1.0, 2.0, 1.0, 9.0])
    shift, scale = (low + high) / 2, (high - low) / 2
    cuts = (slice(None), slice(5, TILE + 9), (slice(2, 20), 1), np.array([3, 7, TILE]))
    lazy = BoundedColumns.over(X, low, high, shift, scale)
    expected = [np.array(lazy[cut]) for cut in cuts]
    own = np.array(lazy.in_own_units()[:])
    monkeypatch.setattr(bounded_columns, "SMALL", 1 << 20)
    kept = BoundedColumns.over(X, low, high, shift, scale)
    for cut, values in zip(cuts, expected, strict=True):
        np.testing.assert_array_equal(kept[cut], values)
    np.testing.assert_array_equal(kept.block(slice(5, 40)), expected[0][5:40])
    np.testing.assert_array_equal(kept.part(slice(5, 40))[:], expected[0][5:40])
    assert np.shares_memory(kept.part(slice(5, 40))[:], kept[:])
    np.testing.assert_array_equal(kept.in_own_units()[:], own)
    assert not kept.without(np.arange(len(X)) == 3)[3:4].any()
