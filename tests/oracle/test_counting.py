"""Sums in exact integers: never longer than declared, and the same in every order."""

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

from privopt import Refused
from privopt.losses import Absolute, Hinge, Huber, Logistic, Squared
from privopt.mechanisms.maps import Scale
from privopt.noise import SeededSource
from privopt.oracle import (
    ClippedGradient,
    CoordinateClippedGradient,
    CountPositive,
    CountRecords,
    LeastSquaresMoments,
    NormHistogram,
    Oracle,
    RowBounds,
    RowSum,
    RunningSum,
)
from privopt.oracle.sealed import KEY

STEPS = 2.0**32


def view_of(X, y, bounds, relation="zero_out", classification=True):
    return Oracle.over(
        X,
        y,
        neighbouring=relation,
        bounds=bounds,
        source=SeededSource(0),
        classification=classification,
    ).everything()


def records(n, p, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) * 10.0 ** rng.uniform(-3, 2, (n, 1))
    return X, np.where(rng.random(n) < 0.5, 1.0, -1.0), rng.standard_normal(p)


def counted(X, y, query, theta, bounds, steps=STEPS, relation="zero_out"):
    sealed = view_of(X, y, bounds, relation).ask(query, theta, resolution=steps)
    return sealed.open(KEY), sealed.sensitivity


FORMATS = {
    "dense": lambda X: X,
    "fortran": np.asfortranarray,
    "single": lambda X: X.astype(np.float32),
    "sparse": sp.csr_array,
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("intercept", [0.0, 0.7])
@pytest.mark.parametrize("loss", [Logistic(), Huber(0.4), Absolute(), Hinge(), Squared()])
def test_close_to_the_sum_in_floating_point(form, intercept, loss):
    X, y, theta = records(300, 5)
    bounds = RowBounds(1.0, intercept)
    theta = np.append(theta, 0.3) if intercept else theta
    query = ClippedGradient(loss, 0.6)
    view = view_of(FORMATS[form](X), y, bounds)
    plain = view.ask(query, theta).open(KEY)
    sealed = view.ask(query, theta, resolution=STEPS)
    counts, grid = sealed.open(KEY), sealed.sensitivity.grid
    assert counts.dtype == np.int64
    assert grid.coordinates == len(theta)
    assert grid.step == 0.6 / STEPS
    off = 300 * grid.step + (1e-4 if form == "single" else 1e-9)  # one step for each record
    np.testing.assert_allclose(counts * grid.step, plain, atol=off)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("p", [1, 2, 33])
@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_no_record_is_longer_than_the_declared_number_of_steps(form, p, relation):
    """In exact integer arithmetic, for records that sit on the clip: norms are compared squared."""
    X, y, theta = records(200, p, seed=p)
    query = ClippedGradient(Absolute(), 0.3)  # every slope is clipped
    factor = 2 if relation == "replace_one" else 1
    longest = 0
    for i in range(200):
        counts, sensitivity = counted(
            FORMATS[form](X[i : i + 1]),
            y[i : i + 1],
            query,
            theta,
            RowBounds(1.0),
            2.0**40,
            relation,
        )
        square = sum(int(c) ** 2 for c in counts)
        # In units of the sensitivity: one record is at most half of a replacement.
        assert factor**2 * square <= (2**40) ** 2
        assert Fraction(square) * Fraction(sensitivity.grid.step) ** 2 <= Fraction(0.3) ** 2
        longest = max(longest, square)
    assert factor**2 * longest > (1 - 1e-6) * 2.0**80  # the clip is reached, not missed


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("intercept", [0.0, 0.7])
@pytest.mark.parametrize("loss", [Logistic(), Huber(0.4), Hinge()])
def test_the_order_of_the_records_changes_no_bit(form, intercept, loss):
    X, y, theta = records(4099, 37)
    theta = np.append(theta, 0.3) if intercept else theta
    query, bounds = ClippedGradient(loss, 0.6), RowBounds(1.0, intercept)
    first = counted(FORMATS[form](X), y, query, theta, bounds)[0]
    rng = np.random.default_rng(1)
    for _ in range(5):
        order = rng.permutation(len(y))
        again = counted(FORMATS[form](X[order]), y[order], query, theta, bounds)[0]
        assert np.array_equal(first, again)


def test_the_sum_is_the_sum_of_the_records_own_integers():
    """Adding a record adds exactly its own vector, whoever else is there."""
    X, y, theta = records(500, 7)
    query, bounds = ClippedGradient(Logistic(), 0.5), RowBounds(1.0)
    whole = counted(X, y, query, theta, bounds)[0]
    parts = sum(counted(X[i : i + 1], y[i : i + 1], query, theta, bounds)[0] for i in range(500))
    assert np.array_equal(whole, parts)


def test_a_sum_in_floating_point_does_depend_on_the_order():
    """What the tests above would notice."""
    X, y, theta = records(4099, 37)
    query, order = ClippedGradient(Logistic(), 0.6), np.random.default_rng(1).permutation(4099)
    one, other = (
        view_of(A, b, RowBounds(1.0)).ask(query, theta).open(KEY)
        for A, b in ((X, y), (X[order], y[order]))
    )
    assert not np.array_equal(one, other)


def test_blocks_are_small_where_steps_are_many():
    X, y, theta = records(3000, 3)
    query, bounds = ClippedGradient(Logistic(), 0.5), RowBounds(1.0)
    fine = counted(X, y, query, theta, bounds, steps=2.0**44)[0]
    parts = sum(
        counted(X[i::3], y[i::3], query, theta, bounds, steps=2.0**44)[0].astype(object)
        for i in range(3)
    )
    assert np.array_equal(fine, parts)


def test_hostile_records_count_nothing_or_their_clip():
    X = np.array([[np.nan, 1.0], [np.inf, 0.0], [1e300, 1e300], [1e-320, 0.0], [0.0, 0.0]])
    for one in (X, sp.csr_array(X)):
        counts, sensitivity = counted(
            one, np.ones(5), ClippedGradient(Hinge(), 1.0), None, RowBounds(1.0)
        )
        np.testing.assert_allclose(counts * sensitivity.grid.step, -np.sqrt([0.5, 0.5]), rtol=1e-8)


def test_entries_stored_twice_are_cut_off_once():
    """1.5 - 0.9 would be counted as one step, were both parts cut off by themselves."""
    twice = sp.csr_array((np.array([1.5, -0.9]), np.array([0, 0]), np.array([0, 2])), shape=(1, 1))
    assert not twice.has_canonical_format
    counts, _ = counted(twice, np.ones(1), RowSum(2.0), None, RowBounds(2.0), steps=2.0)
    assert counts.tolist() == [0]


def test_torch_gives_the_same_integers():
    torch = pytest.importorskip("torch")
    X, y, theta = records(400, 6)
    query, bounds = ClippedGradient(Hinge(), 0.6), RowBounds(1.0, 0.5)
    theta = np.append(theta, 0.1)
    one = counted(X, y, query, theta, bounds)[0]
    other = counted(torch.tensor(X), torch.tensor(y), query, theta, bounds)[0]
    assert np.abs(one - other).max() <= 400  # another order of additions: a step for each record


@pytest.mark.parametrize(
    "query", [CountRecords(), CountPositive(), NormHistogram((0.1, 1.0, 10.0)), RowSum(1.0)]
)
def test_counts_of_records(query):
    X, y, _ = records(250, 4)
    bounds = RowBounds(1.0)
    plain = view_of(X, y, bounds).ask(query).open(KEY)
    counts, sensitivity = counted(X, y, query, None, bounds)
    np.testing.assert_allclose(
        counts * sensitivity.grid.step, plain, atol=250 * sensitivity.grid.step
    )
    single = counted(X[:1], y[:1], query, None, bounds)[0]
    assert math.isqrt(sum(int(c) ** 2 for c in single)) <= STEPS


def test_what_is_not_counted_is_refused():
    X, y, theta = records(20, 3)
    view = view_of(X, y, RowBounds(1.0))
    with pytest.raises(Refused, match="could not be computed"):
        view.ask(LeastSquaresMoments(RowBounds(1.0), 1.0), resolution=STEPS)
    sealed = view.ask(ClippedGradient(Logistic(), 1.0), theta, resolution=STEPS)
    with pytest.raises(Refused, match="released as it is"):
        sealed.through(Scale(2.0))
    with pytest.raises(Refused, match="no sum on a grid"):
        RunningSum().step(1.0, sealed)


def test_threads_change_no_bit(monkeypatch):
    X, y, theta = records(30_000, 20)  # large enough to be cut into shares
    query, bounds = ClippedGradient(Logistic(), 0.6), RowBounds(1.0)
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        found.append(counted(X, y, query, theta, bounds)[0])
    assert np.array_equal(*found)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("order", [1.5, 2.0])
def test_coordinate_clips_count_in_l2(form, order):
    """Entries and slope are bounded; the integers obey the l2 bound that follows, exactly."""
    X, y, theta = records(200, 4, seed=3)
    bounds = RowBounds(0.8, 0.5, entries=0.4, order=order)
    theta = np.append(theta, 0.3)
    query = CoordinateClippedGradient(Absolute(), 0.6, bounds, 5, "l2")
    view = view_of(FORMATS[form](X), y, bounds)
    sealed = view.ask(query, theta, resolution=STEPS)
    grid = sealed.sensitivity.grid
    off = 200 * grid.step + (1e-4 if form == "single" else 1e-9)
    np.testing.assert_allclose(
        sealed.open(KEY) * grid.step, view.ask(query, theta).open(KEY), atol=off
    )
    for i in range(200):
        own = counted(FORMATS[form](X[i : i + 1]), y[i : i + 1], query, theta, bounds, 2.0**40)[0]
        assert sum(int(c) ** 2 for c in own) <= (2**40) ** 2
    for norm in ("linf", "coordinates"):
        other = CoordinateClippedGradient(Absolute(), 0.6, bounds, 5, norm)
        with pytest.raises(Refused, match="could not be computed"):
            view.ask(other, theta, resolution=STEPS)
