"""Rows clipped in other norms than l2: against plain arithmetic, on all kinds of arrays."""

import math

import numpy as np
import pytest
import scipy.sparse as sp

from privopt import Budget, Problem, solve
from privopt.audit import hostile_pairs, replay
from privopt.geometry import L1Ball, L2Ball, LpBall
from privopt.geometry.norms import lp_norm
from privopt.losses import Huber, Welsch
from privopt.noise import SilentSource
from privopt.oracle import CoordinateClippedGradient, Oracle, RowBounds
from privopt.oracle.oracle import make_rows
from privopt.oracle.sealed import KEY
from privopt.solvers.solver import entry_bounds

ORDERS = [1.0, 1.5, 3.0, 8.0]
every = pytest.mark.parametrize("order", ORDERS)


def effective(rows):
    """Effective rows, read off one record at a time."""
    count = rows.count
    return np.array(
        [
            rows.part(i, i + 1).weighted_sum(
                np.zeros(rows.dimension), lambda z, y, size: z * 0.0 + 1.0
            )
            for i in range(count)
        ]
    )


def wild():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12, 3)) * np.exp(rng.normal(size=(12, 1)))
    X[3], X[4], X[5, 0] = [1e200, -1e200, 1e180], [1e-300, 0.0, 0.0], math.nan
    X[6], X[7] = 0.0, [1e300, 1e300, 1e300]
    return X


@every
@pytest.mark.parametrize("intercept", [0.0, 0.5])
def test_rows_are_clipped_in_their_norm(order, intercept):
    X = wild()
    bounds = RowBounds(0.7, intercept, order=order)
    expected = np.zeros((12, 3))
    for i, row in enumerate(X):
        if np.isfinite(row).all():
            size = lp_norm(row, order)
            expected[i] = (
                row
                if size <= 0.7
                else (row / np.abs(row).max()) * (0.7 / lp_norm(row / np.abs(row).max(), order))
            )
    torch = pytest.importorskip("torch")
    for data in (X, sp.csr_array(X), torch.from_numpy(X)):
        found = effective(make_rows(data, np.ones(12), bounds, True))
        np.testing.assert_allclose(found[:, :3], expected, rtol=1e-12)
        assert max(lp_norm(row[:3], order) for row in found) <= 0.7
        for r in (1.0, 1.5, 2.0, 4.0, math.inf):
            most = bounds.in_norm(r, found.shape[1])
            assert max(lp_norm(row, r) for row in found) <= most * (1 + 1e-12)


@every
def test_single_precision_stays_within_the_bound(order):
    rng = np.random.default_rng(1)
    X = (10 * rng.standard_normal((300, 40))).astype(np.float32)
    rows = make_rows(X, np.ones(300), RowBounds(1.0, order=order), True)
    assert max(lp_norm(row, order) for row in effective(rows)) <= 1 + 1e-6


def test_entries_stored_twice_count_once():
    twice = sp.csr_array((np.array([1.0, 1.0]), np.array([0, 0]), np.array([0, 2])), shape=(1, 2))
    found = effective(make_rows(twice, np.ones(1), RowBounds(1.0, order=3.0), True))
    np.testing.assert_allclose(found, [[1.0, 0.0]])


@every
def test_bounds_in_all_norms_are_attained(order):
    """One entry, or all of them alike, is the longest row in any other norm."""
    bounds = RowBounds(2.0, order=order)
    for r in (1.0, 2.0, 5.0, math.inf):
        flat = np.ones(4) * 2.0 / 4 ** (1 / order)
        spike = np.array([2.0, 0, 0, 0])
        assert bounds.in_norm(r, 4) == pytest.approx(max(lp_norm(flat, r), lp_norm(spike, r)))
    assert bounds.size == (2.0 if order <= 2 else math.inf)


def test_the_sensitivity_of_a_gradient_is_that_of_the_dual_norm():
    problem = Problem(Huber(0.5), LpBall(1.5, 1.0), dual_norm=0.3)
    bounds = entry_bounds(problem)
    assert bounds == RowBounds(0.3, 0.0, math.inf, 3.0)
    query = CoordinateClippedGradient(problem.loss, 0.5, bounds, 4, "l3")
    assert query.radius() == pytest.approx(0.15)
    wide = CoordinateClippedGradient(problem.loss, 0.5, bounds, 4, "l2")
    assert wide.radius() == pytest.approx(0.15 * 4 ** (1 / 2 - 1 / 3))
    # A row of equal entries, and a label far away, attain the wider one.
    X = np.full((1, 4), 10.0)
    oracle = Oracle.over(
        X,
        np.array([1e3]),
        neighbouring="zero_out",
        bounds=bounds,
        source=SilentSource(),
        classification=False,
    )
    found = oracle.everything().ask(wide).open(KEY)
    assert np.linalg.norm(found) == pytest.approx(wide.radius())


@pytest.mark.parametrize("solver", ["mirror_descent", "variance_reduced_sfw", "proximal_guided"])
def test_hostile_neighbours_of_rows_in_the_dual_norm(solver):
    loss = Welsch(0.7) if solver == "proximal_guided" else Huber(0.5)
    problem = Problem(loss, LpBall(1.3, 2.0), dual_norm=0.4, intercept=0.2)
    short = {
        "mirror_descent": {"n_iter": 4},
        "proximal_guided": {"rounds": 3, "n_iter": 2},
    }.get(solver, {"phases": 2})

    def run(X, y):
        found = solve(
            problem,
            X,
            y,
            budget=Budget(1.0, 1e-5, "replace_one"),
            solver=solver,
            random_state=0,
            n_public=60,
            **short,
        )
        return found.theta

    pairs = hostile_pairs("replace_one", classification=False)
    assert {pair.name: found for pair in pairs if (found := replay(run, pair))} == {}


def test_bad_dual_norms_are_refused():
    for bad in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="dual_norm must be positive and finite"):
            Problem(Huber(), LpBall(1.5, 1.0), dual_norm=bad)
    for domain in (L1Ball(1.0), L2Ball(1.0)):
        with pytest.raises(ValueError, match="dual_norm is for an LpBall"):
            Problem(Huber(), domain, dual_norm=1.0)
