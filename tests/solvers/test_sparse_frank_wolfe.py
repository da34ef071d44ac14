"""Frank-Wolfe on sparse rows, exact and stale: as private as declared, and where it gets."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from privopt import Budget, Lasso, Problem, Refused, SparseLogisticRegression, solve
from privopt.audit import hostile_pairs, noise_p_value, record, replay
from privopt.facts import Facts
from privopt.geometry import L1Ball, Polytope, Simplex
from privopt.losses import Huber, Logistic, Squared
from privopt.mechanisms import Gate, same_event
from privopt.noise import SeededSource, SilentSource
from privopt.oracle import Oracle
from privopt.privacy import Accountant, spend
from privopt.privacy.budget import NEIGHBOURING
from privopt.solvers import Plan, declare, execute, row_bounds, solver_named

from .choices import exact_law, hockey_stick
from .formulas import best_on

SOLVER = solver_named("frank_wolfe")
MODES = ("exact", "stale")
LASSO = Problem(Squared(residual_clip=1.0), L1Ball(2.0), column_bounds=1.0)
TASKS = {
    "lasso": LASSO,
    "logistic, constant column": Problem(Logistic(), L1Ball(3.0), column_bounds=1.0, intercept=0.5),
    "short rows": Problem(Logistic(), L1Ball(3.0), data_norm=0.8),
    "simplex": Problem(Huber(0.5), Simplex(2.0), column_bounds=1.0),
}


def make_plan(problem=LASSO, n=50, p=3, budget=None, **choices) -> Plan:
    budget = budget or Budget(1.0, 1e-6)
    facts = Facts(problem, n, problem.dimension(p), budget.neighbouring, sparse=True)
    return Plan(SOLVER, facts, budget, SOLVER.settings(facts, budget, **choices))


def oracle_of(plan, X, y, source):
    return Oracle.over(
        sp.csr_array(X),
        y,
        neighbouring=plan.budget.neighbouring,
        bounds=row_bounds(plan),
        source=source,
        classification=plan.facts.problem.loss.classification,
    )


def public_run(problem, budget, mode, seed=0, n_iter=6):
    """Everything a call of ``solve`` on sparse rows makes public, progress included."""

    def run(X, y):
        ticks = []
        result = solve(
            problem,
            sp.csr_array(X),
            y,
            budget=budget,
            solver="frank_wolfe",
            n_public=60,
            random_state=seed,
            n_iter=n_iter,
            mode=mode,
            tick=lambda *done: ticks.append(done),
        )
        return result.theta, result.certificate.to_json(), result.plan.settings, ticks

    return run


def thin(pair, share=0.4):
    """The same pair with most entries left out, so that steps pass some records only."""
    rng = np.random.default_rng(4)
    n, p = max(pair.first[0].shape, pair.second[0].shape)
    keep = rng.random((n, p)) < share

    def cut(data, ids):
        X, y = data
        return np.where(keep[np.array(ids, dtype=int) % n] | ~np.isfinite(X), X, 0.0), y

    return replace(
        pair, first=cut(pair.first, pair.first_ids), second=cut(pair.second, pair.second_ids)
    )


# ------------------------------------------------------------ privacy
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("relation", NEIGHBOURING)
@pytest.mark.parametrize("mode", MODES)
def test_replay_on_hostile_neighbours(task, relation, mode):
    problem = TASKS[task]
    run = public_run(problem, Budget(1.0, 1e-5, relation), mode)
    pairs = hostile_pairs(relation, classification=problem.loss.classification)
    mixed = [thin(pair) if place % 2 else pair for place, pair in enumerate(pairs)]
    assert {pair.name: found for pair in mixed if (found := replay(run, pair))} == {}


def neighbours(relation, p=2):
    """Three quiet records, and a record that pushes every coordinate to its bound."""
    X, y = np.zeros((4, p)), np.zeros(4)
    X[0, 0], X[1, 1], y[:2] = 0.5, 0.5, 0.3
    X[3], y[3] = np.resize([1.0, -1.0], p) * 7, 100.0
    if relation == "add_remove":
        return (X, y), (X[:3], y[:3])
    X2, y2 = X.copy(), y.copy()
    X2[3] = -X[3] if relation == "replace_one" else np.nan
    return (X, y), (X2, y2)


@pytest.mark.parametrize("relation", NEIGHBOURING)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_short_runs_are_as_private_as_declared(relation, mode, delta):
    """All 64 paths of three choices among four vertices, on the worst neighbours; the exact mode
    has the probabilities of the plain algorithm."""
    budget = Budget(1.0, delta, relation)
    plan = make_plan(n=4, p=2, budget=budget, n_iter=3, mode=mode)
    laws = [exact_law(plan, sp.csr_array(X), y, 3, 4) for X, y in neighbours(relation)]
    assert laws[0].sum() == pytest.approx(1.0)
    assert hockey_stick(*laws, budget.epsilon) <= budget.delta + 1e-12
    loss = np.abs(np.log(laws[0] / laws[1])).max()
    assert loss > 0.45 * 3 / plan.settings.noise_multiplier
    if mode == "exact" and delta:
        plain = make_plan(n=4, p=2, budget=budget, n_iter=3, mode="dense")
        for law, (X, y) in zip(laws, neighbours(relation), strict=True):
            np.testing.assert_allclose(law, exact_law(plain, X, y, 3, 4), rtol=1e-9)


@pytest.mark.statistical
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("mode", MODES)
def test_choices_follow_the_declared_law(task, mode):
    """Against the scores that an audit computes the plain way. False alarm: 1e-6 each."""
    problem, rng = TASKS[task], np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(150, 4)) * (rng.random((150, 4)) < [1.0, 0.5, 0.2, 0.1])
    y = np.where(rng.random(150) < 0.5 + 0.4 * np.sign(X[:, 0]), 1.0, -1.0)
    runs = [public_run(problem, Budget(4.0, 1e-5), mode, seed) for seed in range(40)]
    tapes = [record(run, (X, y))[1] for run in runs]
    assert noise_p_value(tapes) > 1e-6
    for tape in tapes:
        for release in tape.releases:
            release.payload = 2 * release.payload
    assert noise_p_value(tapes) < 1e-6


@pytest.mark.parametrize("relation", NEIGHBOURING)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_declared_events_equal_the_transcript(relation, mode, delta):
    budget = Budget(0.7, delta, relation)
    plan = make_plan(budget=budget, n_iter=6, mode=mode)
    rng, source, log = np.random.default_rng(0), SeededSource(1), []
    oracle = oracle_of(plan, rng.normal(size=(50, 3)), rng.normal(size=50), source)
    SOLVER.run(oracle, Gate(source, guard=log.append), LASSO, plan.settings)
    declared = declare(plan)
    assert len(log) == len(declared) == 6
    assert all(same_event(a, b) for a, b in zip(declared, log, strict=True))
    epsilon = Accountant(relation).epsilon(spend(declared), delta)
    assert 0.98 * budget.epsilon <= epsilon <= budget.epsilon * (1 + 1e-9)


# ------------------------------------------------------------ where it gets
def lasso_data(n=200, p=5):
    rng = np.random.default_rng(0)
    X = rng.choice([-1.0, 0.0, 1.0], size=(n, p))
    return X, np.clip(X[:, 0] - 0.5 * X[:, 1] + 0.1 * rng.standard_normal(n), -1, 1)


@pytest.mark.parametrize("domain", [L1Ball(1.0), Simplex(1.0)], ids=["ball", "simplex"])
def test_without_noise_the_gap_is_below_its_bound(domain):
    """The exact mode walks the plain algorithm's path, with a gap of at most 2 Gamma / (T + 2)."""
    X, y = lasso_data()
    problem = Problem(Squared(residual_clip=50.0), domain, column_bounds=1.0)

    def risk(w):
        return 0.5 * float(np.mean((X @ w - y) ** 2))

    best = best_on(domain, risk, lambda w: X.T @ (X @ w - y) / 200 / 6, 5)
    for steps in (1, 5, 40, 300):
        thetas = {}
        for mode in ("dense", *MODES):
            plan, source = make_plan(problem, 200, 5, n_iter=steps, mode=mode), SilentSource()
            (thetas[mode],), _ = execute(plan, [oracle_of(plan, X, y, source)], source)
            assert domain.contains(thetas[mode])
        np.testing.assert_allclose(thetas["exact"], thetas["dense"], atol=1e-9)
        curvature = domain.diameter("l1", 5) ** 2
        assert -1e-9 <= risk(thetas["exact"]) - best <= 2 * curvature / (steps + 2)
    assert risk(thetas["exact"]) - best < 2e-3
    assert risk(thetas["stale"]) - best < 0.1 * (risk(np.zeros(5)) - best)


def test_a_wide_sparse_fit_stays_sparse():
    """No array of records times features: 300,000 columns in a few times the matrix."""
    rng = np.random.default_rng(0)
    X = sp.random_array((2000, 300_000), density=2e-4, format="csr", rng=rng)
    y = np.where(rng.random(2000) < 0.5, 1, -1)
    size = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    model = SparseLogisticRegression(1.0, 1e-8, n_iter=50, random_state=0)
    model.fit(X[:, :20_000], y)  # imports
    tracemalloc.start()
    model.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert model.plan_.settings.mode == "exact"
    assert 0 < len(model.selected_features_) <= 50
    assert peak < 4 * size + 8 * 8 * 300_000
    assert peak < 0.02 * 8 * 2000 * 300_000


# ------------------------------------------------------------ settings and odd input
def test_the_mode_follows_from_public_facts():
    def mode(problem=LASSO, p=20_000, sparse=True, **choices):
        facts = Facts(problem, 100, problem.dimension(p), "zero_out", sparse=sparse)
        return SOLVER.settings(facts, Budget(1.0, 1e-6), **choices).mode

    assert mode() == "exact"
    assert mode(sparse=False) == mode(p=500) == "dense"
    assert mode(replace(LASSO, l2=0.1)) == "dense"
    assert mode(replace(LASSO, domain=Polytope(np.eye(3, 20_000)))) == "dense"
    assert mode(mode="stale") == "stale"
    assert mode(p=3, sparse=False, mode="exact") == "exact"
    with pytest.raises(ValueError, match='"dense", "exact" or "stale"'):
        mode(mode="fast")
    with pytest.raises(ValueError, match="no l2 term"):
        mode(replace(LASSO, l2=0.1), mode="exact")
    assert make_plan(budget=Budget(1.0), mode="dense").settings.noise == "pure"
    assert make_plan(budget=Budget(1.0), mode="exact").settings.noise == "gumbel"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("p", [1, 3])
def test_odd_data_is_taken(p, mode):
    """An empty column, rows of zeros, NaN, one step, one record, labels beyond all bounds."""
    X = np.ones((5, p))
    X[:, 0], X[1], X[2, -1] = 0.0, 0.0, np.nan
    y = np.array([1.0, -1.0, 0.0, 1e300, np.nan])
    for rows in (slice(None), slice(1), slice(0, 0)):
        for steps in (1, 4):
            found = solve(
                LASSO,
                sp.csr_array(X)[rows],
                y[rows],
                budget=Budget(1.0, 1e-6),
                solver="frank_wolfe",
                n_public=5,
                random_state=0,
                n_iter=steps,
                mode=mode,
            )
            assert LASSO.domain.contains(found.theta)
            assert 1 <= np.count_nonzero(found.theta) <= steps


def test_dense_rows_are_refused_before_anything_is_spent():
    X, y = lasso_data()
    with pytest.raises(Refused, match="sparse matrix"):
        Lasso(1.0, 1e-6, mode="exact").fit(X, y)
    for mode in ("dense", "exact", "stale"):
        model = Lasso(4.0, 1e-6, mode=mode, random_state=0).fit(sp.csr_array(X), y)
        assert model.plan_.settings.mode == mode
        assert model.privacy_.verify()
