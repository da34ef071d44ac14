"""Declared sparsity and rank: bounds that count coefficients or directions instead of columns."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from privopt import Budget, Problem, plan, solve
from privopt.facts import Facts
from privopt.geometry import Box, L2Ball, LpBall, WholeSpace
from privopt.losses import Huber, Logistic, Squared
from privopt.noise import SilentSource
from privopt.oracle import Oracle
from privopt.planner.opinions import opinion_of
from privopt.solvers import Plan, catalogue, execute, row_bounds
from privopt.solvers.families.coordinates import descend_bound

GREEDY, RANDOM = catalogue()["greedy_coordinate"], catalogue()["coordinate_descent"]
OBJ, GD = catalogue()["objective_perturbation"], catalogue()["noisy_gd"]
PUBLIC = {"curvature_share": 0.0, "step_factor": 1.0}


# ---------------------------------------------------------------- sparsity
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("few", "l2"), [(1, 0.0), (2, 0.0), (2, 0.3), (4, 0.0)])
def test_without_noise_the_gap_to_the_best_sparse_model_is_below_the_recursion(seed, few, l2):
    """Exact small case: all models of so many coefficients are solved for, on a box."""
    rng = np.random.default_rng(seed)
    n, p, steps = 30, 4, 6
    X = rng.uniform(-1, 1, (n, p)) * [1.0, 1.0, 0.5, 0.2]
    y = np.clip(X @ rng.uniform(-0.6, 0.6, p) + 0.05 * rng.standard_normal(n), -1, 1)
    problem = Problem(
        Squared(residual_clip=50.0), Box(-0.5, 0.5), column_bounds=1.0, l2=l2, sparsity=few
    )
    facts, budget = Facts(problem, n, p, "zero_out"), Budget(1.0, 1e-6)
    chosen = GREEDY.settings(facts, budget, n_iter=steps, discrete_noise=False, **PUBLIC)
    source, made = SilentSource(), Plan(GREEDY, facts, budget, chosen)
    oracle = Oracle.over(
        X, y, neighbouring="zero_out", bounds=row_bounds(made), source=source, classification=False
    )

    def mean(theta):
        return float(np.mean((X @ theta - y) ** 2) / 2 + l2 / 2 * theta @ theta)

    best = math.inf
    for support in itertools.combinations(range(p), few):
        box = [(-0.5, 0.5) if j in support else (0.0, 0.0) for j in range(p)]
        best = min(best, minimize(mean, np.zeros(p), bounds=box, tol=1e-12).fun)
    (theta,), _ = execute(made, [oracle], source)
    # The recursion from the true start, which the solver bounds without the data.
    stiff, far = n * (1 + l2), math.sqrt(p)
    gap = n * (mean(np.zeros(p)) - best)
    for t in range(steps):
        among = min(p, few + t) if few < p else p
        square = max(stiff * min(far**2, among), gap)
        gap -= max(gap**2 / (square * among), 2 * gap * n * l2 / (stiff * among)) / 2
    assert n * (mean(theta) - best) <= gap + 1e-9
    assert gap / n <= descend_bound(facts, 0.0, steps, 0.0, 0.0)


@pytest.mark.parametrize(("n", "p", "known"), [(1000, 100, 0.59), (2000, 1000, 0.57)])
def test_the_bound_is_below_what_doing_nothing_loses(n, p, known):
    problem = Problem(Logistic(), column_bounds=1.0, l2=1e-3, sparsity=5, theta_norm=1.0)
    facts, budget = Facts(problem, n, p, "zero_out"), Budget(1.0, n**-2.0)
    assert GREEDY.settings(facts, budget, **PUBLIC).bound == pytest.approx(known, abs=0.006)
    open_ = replace(facts, problem=replace(problem, sparsity=None))
    assert GREEDY.settings(open_, budget, **PUBLIC).bound > math.log(2) - 1e-3
    assert RANDOM.settings(open_, budget).bound <= math.log(2) * (1 + 1e-3)


def test_the_dimension_enters_the_sparse_bound_through_its_logarithm():
    def bound(p, sparsity):
        problem = Problem(Logistic(), column_bounds=1.0, sparsity=sparsity, theta_norm=1.0)
        facts = Facts(problem, 100_000, p, "zero_out")
        return GREEDY.settings(facts, Budget(1.0, 1e-10), **PUBLIC).bound

    assert bound(100, 5) < bound(10_000, 5) < 1.5 * bound(100, 5)
    assert bound(10_000, 5) < bound(10_000, 20) < 0.75 * bound(10_000, None)


def test_random_steps_stop_before_noise_prevails():
    """With a number of steps that looked at records alone the gap was six times that of zero."""
    rng = np.random.default_rng(0)
    X = np.clip(rng.standard_normal((1000, 60)), -2, 2) / 2
    y = np.where(rng.random(1000) < 1 / (1 + np.exp(-X[:, 0] * 4)), 1.0, -1.0)
    problem = Problem(Logistic(), column_bounds=1.0, l2=1e-3)
    run = solve(problem, X, y, budget=Budget(1.0, 1e-6), solver=RANDOM.name, random_state=0)
    assert np.logaddexp(0, -y * (X @ run.theta)).mean() < 1.02 * math.log(2)


def test_greedy_steps_are_preferred_where_they_were_measured_to_win():
    budget = Budget(1.0, 2.5e-7)

    def first(p, **more):
        problem = Problem(Logistic(), column_bounds=1.0, l2=1e-3, **more)
        return opinion_of(GREEDY.name).prefer(Facts(problem, 2000, p, "zero_out"), budget)

    assert "5 coefficients" in first(30, sparsity=5)
    assert first(300, sparsity=250, data_norm=1.0) is None
    assert "long" in first(1000)
    assert first(30) is None
    assert first(1000, data_norm=1.0) is None  # short rows
    assert first(1000, intercept=0.5) is None  # standardised first
    for p, more in ((1000, {}), (30, {"sparsity": 5})):
        problem = Problem(Logistic(), column_bounds=1.0, l2=1e-3, **more)
        assert plan(problem, n=2000, p=p, budget=budget).best.name == "greedy_coordinate"


# ---------------------------------------------------------------- rows
def test_bounds_of_entries_say_how_long_a_row_may_be():
    """Entries of up to B make rows of up to B sqrt(p), not of norm one."""
    problem = Problem(Logistic(), L2Ball(1.0), column_bounds=0.5)
    facts = Facts(problem, 100, 64, "zero_out")
    assert facts.problem.data_norm == 4.0
    assert facts.lipschitz() == 4.0
    assert Facts(replace(problem, data_norm=1.0), 100, 64, "zero_out").lipschitz() == 1.0
    assert Facts(replace(problem, intercept=3.0), 100, 65, "zero_out").lipschitz() == 5.0
    ball = Problem(Logistic(), LpBall(1.5, 1.0), dual_norm=2.0)
    assert Facts(ball, 100, 64, "zero_out").problem.row_norm == pytest.approx(2 * 64 ** (1 / 6))
    with pytest.raises(ValueError, match=r"over\(features\)"):
        _ = problem.size
    assert Problem(Logistic()).data_norm == 1.0


def test_rows_are_clipped_to_what_the_bound_says():
    X, y = np.full((4, 9), 7.0), np.ones(4)
    problem = Problem(Huber(1.0), L2Ball(1.0), column_bounds=1.0)
    facts, budget = Facts(problem, 4, 9, "zero_out"), Budget(1.0, 1e-5)
    made = Plan(GD, facts, budget, GD.settings(facts, budget))
    assert row_bounds(made).data_norm == 3.0
    assert np.isfinite(solve(problem, X, y, budget=budget, random_state=0).theta).all()


@pytest.mark.parametrize("name", ["sparsity", "rank"])
def test_declared_counts_are_whole_numbers(name):
    for value in (0, -1, 2.5):
        with pytest.raises(ValueError, match=f"{name} must be a positive whole number"):
            Problem(Logistic(), **{name: value})


# ---------------------------------------------------------------- rank
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_declared_rank_changes_the_bound_and_no_guarantee(delta):
    n, p, budget = 5000, 100, Budget(1.0, delta)
    plain = Facts(Problem(Logistic(), WholeSpace(), theta_norm=5.0), n, p, "zero_out")
    ranked = replace(plain, problem=replace(plain.problem, rank=5))
    one, other = (OBJ.settings(facts, budget) for facts in (plain, ranked))
    assert other.bound == pytest.approx(one.bound * math.sqrt(5 / p), rel=0.1)
    assert other.regularisation < one.regularisation
    # The noise of the same event, at the price of another determinant.
    assert other.noise_multiplier >= one.noise_multiplier
    steps = [GD.settings(facts, budget, n_iter=10) for facts in (plain, ranked)]
    assert steps[0].noise_multiplier == steps[1].noise_multiplier
    assert steps[1].bound < steps[0].bound
    for held in (replace(ranked.problem, l2=0.1), replace(ranked.problem, domain=L2Ball(5.0))):
        assert replace(ranked, problem=held).span == p  # a ridge or a ball holds all together


@pytest.mark.statistical
def test_rows_of_rank_five_among_a_hundred_columns():
    """Mean excess of four runs; without the declaration it is .0005 on these rows."""
    rng = np.random.default_rng(1)
    n, p, r = 5000, 100, 5
    Z = rng.standard_normal((n, r))
    Z /= np.linalg.norm(Z, axis=1)[:, None]
    X = Z @ np.linalg.qr(rng.standard_normal((p, r)))[0].T
    truth = rng.standard_normal(r)
    truth *= 3 / np.linalg.norm(truth)
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-Z @ truth)), 1.0, -1.0)

    def risk(theta):
        return float(np.logaddexp(0, -y * (X @ theta)).mean())

    best = minimize(lambda u: np.logaddexp(0, -y * (Z @ u)).mean(), np.zeros(r), tol=1e-10).fun
    problem = Problem(Logistic(), WholeSpace(), theta_norm=5.0, rank=r)
    runs = [
        solve(problem, X, y, budget=Budget(1.0, 1e-6), solver=OBJ.name, random_state=seed)
        for seed in range(4)
    ]
    excess = np.mean([risk(run.theta) for run in runs]) - best
    assert 0 < excess <= 1e-4
    assert excess <= runs[0].plan.settings.bound
