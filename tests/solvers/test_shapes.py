"""Shapes of columns: their histograms, their tables, their account, their audit.

Replay is exact; the law of the noise is seeded and states its false-alarm rate.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from privopt import Budget, Problem, Refused, solve
from privopt.audit import Tape, hostile_pairs, noise_p_value, replay
from privopt.facts import Facts
from privopt.losses import Logistic, Squared
from privopt.mechanisms import Gate
from privopt.mechanisms.shape_learner import ranked_cosines
from privopt.noise import SeededSource, SilentSource
from privopt.oracle import ColumnHistograms, Oracle, RowBounds, ShapeTables
from privopt.oracle.column_shapes import BINS, bins_of
from privopt.oracle.sealed import KEY
from privopt.privacy import Accountant, charge_of
from privopt.privacy.budget import NEIGHBOURING
from privopt.privacy.kinds import GaussianKind
from privopt.solvers import Plan, catalogue, declare, row_bounds

from .formulas import gdp_mu

SOLVER = catalogue()["standardized_objective"]
SHAPED = ((0, -1.0, 1.0), (2, 0.0, 1.0))
PROBLEM = Problem(Logistic(), intercept=1 / 3, column_bounds=1.0, shaped=SHAPED)
every_relation = pytest.mark.parametrize("relation", NEIGHBOURING)


def make_plan(epsilon=1.0, delta=1e-6, relation="zero_out", n=4000, problem=PROBLEM, **choices):
    facts, budget = Facts(problem, n, 4, relation), Budget(epsilon, delta, relation)
    return Plan(SOLVER, facts, budget, SOLVER.settings(facts, budget, **choices))


def table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(-1, 1, n), rng.normal(0, 0.2, n), rng.random(n) ** 3])
    return np.clip(X, -1, 1), np.where(np.cos(4 * X[:, 0]) + X[:, 2] > 0.3, 1.0, -1.0)


def oracle_of(X, y, relation="zero_out", source=None):
    bounds = row_bounds(make_plan(relation=relation))
    return Oracle.over(X, y, neighbouring=relation, bounds=bounds, source=source or SilentSource())


# ------------------------------------------------------------ histograms
@pytest.mark.parametrize("matrix", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_every_record_moves_the_histograms_by_the_declared_movement(matrix, norm):
    """Exactly sqrt(J) (J in l1) for each record that is emptied, also a zero row; nothing for one
    that was empty."""
    X, y = table(12)
    X[3], X[7] = 0.0, np.nan
    order = 1 if norm == "l1" else 2
    query = ColumnHistograms(SHAPED, norm)

    def asked(X, **options):
        return oracle_of(matrix(X), y).everything().ask(query, **options).open(KEY)

    for i in range(12):
        gone = X.copy()
        gone[i] = np.nan
        moved = np.linalg.norm(asked(X) - asked(gone), order)
        assert moved == (0 if i == 7 else query.radius())
        steps = np.linalg.norm(asked(X, resolution=1e6) - asked(gone, resolution=1e6), order)
        assert steps <= 1e6  # the sensitivity is so many steps
        assert i == 7 or steps > 0.999 * 1e6


def test_bins_are_monotone_and_hold_what_lies_outside():
    values = np.sort(np.random.default_rng(0).uniform(-2, 2, 2000))
    found = bins_of(values, -1.0, 1.0)
    assert (np.diff(found) >= 0).all()
    assert (found[values <= -1] == 0).all()
    assert (found[values >= 1] == BINS - 1).all()


# ------------------------------------------------------------ tables
def test_functions_are_orthonormal_under_the_histogram():
    shares = np.random.default_rng(1).dirichlet(np.ones(BINS))
    found = ranked_cosines(shares, 5, 1e-4)
    np.testing.assert_allclose(shares @ found, 0, atol=0.05)  # cut at 4 deviations
    np.testing.assert_allclose(found.T @ (shares[:, None] * found), np.eye(5), atol=0.1)


@pytest.mark.parametrize("where", [[10], [10, 11], list(range(5))])
def test_what_a_histogram_does_not_resolve_is_left_out(where):
    """So many values carry one function less; the rest of the range is empty."""
    shares = np.zeros(BINS)
    shares[where] = 1 / len(where)
    found = ranked_cosines(shares, 12, 1e-6)
    assert np.isfinite(found).all()
    assert np.count_nonzero(np.abs(found).sum(axis=0)) <= len(where) - 1


def test_features_of_tables_are_added_to_rows_alone():
    X, y = table(6)
    X[2] = np.nan
    tables = ShapeTables(SHAPED, np.random.default_rng(0).normal(size=(2, BINS, 3)))
    dense, sparse = (oracle_of(kind(X), y).shaped(tables) for kind in (np.asarray, sp.csr_array))
    theta = np.random.default_rng(1).normal(size=10)
    for oracle in (dense, sparse):
        assert oracle.dimension == 10
        margins = oracle._rows.weights(theta, lambda z, y, size: z)
        expected = X @ theta[:3] + tables.features(np.nan_to_num(X)) @ theta[3:9] + theta[9]
        expected[2] = 0.0
        np.testing.assert_allclose(margins, expected, rtol=1e-12, atol=1e-12)
        total = oracle._rows.weighted_sum(theta, lambda z, y, size: z * 0.0 + 1.0)
        rows = np.hstack([X, tables.features(np.nan_to_num(X)), np.ones((6, 1))])
        np.testing.assert_allclose(total, np.delete(rows, 2, axis=0).sum(axis=0), atol=1e-12)


def test_rows_that_are_clipped_take_no_features():
    X, y = table(6)
    oracle = Oracle.over(
        X, y, neighbouring="zero_out", bounds=RowBounds(1.0, 1.0), source=SilentSource()
    )
    with pytest.raises(Refused, match="not clipped"):
        oracle.shaped(ShapeTables(SHAPED, np.zeros((2, BINS, 3))))


# ------------------------------------------------------------ the account
@every_relation
def test_histograms_are_paid(relation):
    plan = make_plan(relation=relation)
    assert plan.settings.harmonics == 12
    log = declare(plan)
    kinds = [kind for event in log for kind in event.kinds]
    assert len(log) == 5
    mu = gdp_mu(1.0, 1e-6)
    assert [k.mu**2 / mu**2 for k in kinds[:3]] == pytest.approx([0.02, 0.10, 0.05], rel=1e-4)
    accountant = Accountant(relation)

    def epsilon(kinds):
        return accountant.epsilon(sum(map(charge_of, kinds), Counter()), 1e-6)

    assert 0.98 < epsilon(kinds) <= 1.0
    assert isinstance(kinds[2], GaussianKind)
    assert epsilon(kinds[:2] + kinds[3:]) < 0.999 * epsilon(kinds)


@every_relation
def test_histograms_of_a_regression_are_paid(relation):
    """Shares .02, .10, .05 for shapes, .05 for labels, and the whole within the budget."""
    facts = Facts(replace(PROBLEM, loss=Squared(0.5, declared=False)), 4000, 4, relation)
    budget, solver = Budget(1.0, 1e-6, relation), catalogue()["standardized_regression"]
    plan = Plan(solver, facts, budget, solver.settings(facts, budget))
    assert plan.settings.harmonics == (6 if relation == "replace_one" else 12)
    kinds = [kind for event in declare(plan) for kind in event.kinds]
    mu = gdp_mu(1.0, 1e-6)
    shares = [k.mu**2 / mu**2 for k in kinds[:4]]
    assert shares == pytest.approx([0.02, 0.10, 0.05, 0.05], rel=1e-4)
    accountant = Accountant(relation)
    spent = accountant.epsilon(sum(map(charge_of, kinds), Counter()), 1e-6)
    assert 0.98 < spent <= 1.0
    border = math.ceil(64 * facts.relation_factor / mu)
    few = replace(facts, n=border - 1)
    straight = replace(few, problem=replace(few.problem, shaped=()))
    assert solver.settings(few, budget) == solver.settings(straight, budget)
    assert solver.settings(replace(facts, n=border + 1), budget).harmonics == 6


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_plan_is_the_same_for_all_data(delta):
    """Two data sets: lambda, multipliers, functions and roughness are those of the plan, and the
    mechanisms differ in the centre alone, which was released."""
    plan = make_plan(2.0, delta)
    assert plan.settings.harmonics == (12 if delta else 4)
    last = []
    for seed, scale in ((0, 1.0), (3, 0.01)):
        X, y = table(4000, seed)
        tape = Tape()
        gate = Gate(SeededSource(seed), declared=declare(plan), hook=tape)
        SOLVER.run_all([oracle_of(scale * X, y)], gate, PROBLEM, plan.settings)
        last.append(tape.releases[-1].mechanism)
    assert replace(last[0], centre=None) == replace(last[1], centre=None)
    assert len(last[0].centre) == len(last[1].centre) == 4 + 2 * plan.settings.harmonics


def test_shapes_are_refused_where_noise_would_eat_them():
    """n mu per column below 32: the plan is that of the linear model."""
    mu = gdp_mu(1.0, 1e-6)
    few, enough = (make_plan(n=math.ceil(64 / mu) + more) for more in (-1, 1))
    assert (few.settings.harmonics, enough.settings.harmonics) == (0, 12)
    assert few.settings == make_plan(n=few.facts.n, problem=replace(PROBLEM, shaped=())).settings
    rough = [make_plan(n=math.ceil(512 / mu) + more).settings.roughness for more in (-1, 1)]
    assert rough == [1.5, 0.5]


# ------------------------------------------------------------ the audit
LOSSES = {
    "standardized_objective": Logistic(),
    "standardized_regression": Squared(0.5, declared=False),
}
every_solver = pytest.mark.parametrize("solver", LOSSES)


def run_of(relation, delta, solver, seed=0, n=63):
    def run(X, y):
        result = solve(
            replace(PROBLEM, loss=LOSSES[solver], shaped=((0, -1.0, 1.0), (1, -0.5, 1.0))),
            X,
            y,
            budget=Budget(2.0, delta, relation),
            solver=solver,
            n_public=n,
            random_state=seed,
            harmonics=3,
        )
        return result.theta, result.certificate.to_json()

    return run


@every_solver
@every_relation
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_replay_on_hostile_neighbours(relation, delta, solver):
    for pair in hostile_pairs(relation):
        assert replay(run_of(relation, delta, solver), pair) == [], pair.name


@every_solver
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_law_of_the_noise(delta, solver):
    """False-alarm rate 1e-7."""
    from privopt.audit.replay import record

    X, y = table(100)
    tapes = [record(run_of("zero_out", delta, solver, seed, 100), (X, y))[1] for seed in range(40)]
    assert noise_p_value(tapes) > 1e-7


def test_shapes_come_once_for_each_column():
    for shaped in (((0, 0.0, 1.0), (0, 0.0, 1.0)), ((0, 1.0, 1.0),)):
        with pytest.raises(ValueError, match="each shaped column"):
            replace(PROBLEM, shaped=shaped)
