"""Mirror descent, at once and in phases, on l_p balls and the simplex."""

import math
from unittest.mock import patch

import numpy as np
import pytest
from scipy.optimize import minimize

from privopt import Budget, Problem, Refused, solve
from privopt.audit import hostile_pairs, noise_p_value, record, replay
from privopt.facts import Facts
from privopt.geometry import L1Ball, L2Ball, LpBall, Simplex
from privopt.geometry.norms import lp_norm
from privopt.losses import Absolute, Huber, Logistic
from privopt.mechanisms import Gate
from privopt.noise import SilentSource
from privopt.oracle import Oracle, RowBounds
from privopt.privacy import Accountant, spend
from privopt.solvers import Plan, catalogue, declare, row_bounds
from privopt.solvers.families.mirror_steps import gaussian_length

BOTH = ("mirror_descent", "phased_mirror_descent")
SETS = {"l1": L1Ball(1.0), "l1.5": LpBall(1.5, 1.0), "simplex": Simplex(1.0)}


def data(n, p, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.choice([-1.0, 1.0], size=(n, p))
    truth = np.zeros(p)
    truth[:2] = 0.5
    return X, X @ truth + 0.1 * rng.normal(size=n)


def quiet(name, problem, X, y, **choices):
    """A run without noise."""
    solver, source = catalogue()[name], SilentSource()
    facts = Facts(problem, len(X), X.shape[1], "zero_out")
    budget = Budget(50.0, 1e-3)
    plan = Plan(solver, facts, budget, solver.settings(facts, budget, **choices))
    oracle = Oracle.over(
        X,
        y,
        neighbouring="zero_out",
        bounds=row_bounds(plan),
        source=source,
        classification=problem.loss.classification,
    )
    return solver.run(oracle, Gate(source), problem, plan.settings), plan.settings


@pytest.mark.slow
@pytest.mark.parametrize("domain", SETS.values(), ids=SETS.keys())
@pytest.mark.parametrize("loss", [Huber(1.0), Absolute()])
def test_without_noise_the_bound_holds(domain, loss):
    """The excess is below the proved bound, and far below that of doing nothing."""
    X, y = data(300, 6)
    problem = Problem(loss, domain, column_bounds=1.0)

    def risk(theta):
        return float(np.mean(loss.value(X @ theta, y)))

    starts = [domain.centre(6), domain.project(np.array([0.5, 0.5, 0, 0, 0, 0]))]
    best = min(risk(start) for start in starts)
    theta, settings = quiet("mirror_descent", problem, X, y)
    assert domain.contains(theta)
    assert risk(theta) - best <= settings.bound
    assert risk(theta) - best <= 0.15 * (risk(domain.centre(6)) - best)
    theta, settings = quiet("phased_mirror_descent", problem, X, y)
    assert domain.contains(theta)
    assert risk(theta) - best <= settings.bound


def test_a_phase_solves_its_regularised_problem():
    """One phase with many steps against a general-purpose minimiser."""
    X, y = data(4, 3, seed=2)
    problem, eta = Problem(Huber(1.0), LpBall(1.5, 5.0), column_bounds=1.0), 4.0
    theta = {}
    for steps in (2, 400):
        facts = Facts(problem, 4, 3, "zero_out")
        solver = catalogue()["phased_mirror_descent"]
        settings = solver.settings(facts, Budget(1.0, 1e-6), n_iter=steps, step=eta)
        rows, source = RowBounds(math.inf, 0.0, 1.0), SilentSource()
        oracle = Oracle.over(
            X, y, neighbouring="zero_out", bounds=rows, source=source, classification=False
        )
        kept = []

        def note(mechanism, payload, sensitivity, event, run, kept=kept):
            kept.append(sensitivity.cells)
            return run()

        # The first phase alone: two records, in the given order.
        oracle._shuffled = True
        with patch("privopt.solvers.phased_mirror_descent.phases", lambda n: iter([2])):
            theta[steps] = solver.run(oracle, Gate(source, hook=note), problem, settings)
        assert set(kept) == {((0,),)}
    weight = 4 / (eta * 2)

    def cost(w):
        loss = np.mean(problem.loss.value(X[:2] @ w, y[:2]))
        return loss + weight * lp_norm(w, 1.5) ** 2 / (2 * 0.5)

    best = minimize(cost, np.full(3, 0.1), method="Nelder-Mead", options={"fatol": 1e-12})
    assert cost(theta[400]) <= best.fun + 1e-4
    assert cost(theta[400]) < cost(theta[2])


@pytest.mark.slow
@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("noise", ["generalized", "pure"])
def test_the_other_noises(name, noise):
    """Replay, law and the whole budget, as for Gaussian noise."""
    budget = Budget(1.0, 0.0 if noise == "pure" else 1e-5, "replace_one")
    problem = Problem(Huber(0.5), LpBall(1.2, 2.0), column_bounds=1.0)

    def run(seed):
        def fit(X, y):
            found = solve(
                problem,
                X,
                y,
                budget=budget,
                solver=name,
                random_state=seed,
                noise=noise,
                n_iter=3,
            )
            return found.theta, found.certificate.to_json()

        return fit

    pairs = hostile_pairs("replace_one", classification=False)
    assert {pair.name: f for pair in pairs if (f := replay(run(0), pair))} == {}
    X, y = data(40, 8)
    tapes = [record(run(seed), (X, y))[1] for seed in range(30)]
    assert noise_p_value(tapes) > 1e-6
    for tape in tapes:  # half the noise is noticed
        for one in tape.releases:
            one.result = one.payload + (one.result - one.payload) / 2
    assert noise_p_value(tapes) < 1e-6
    solver = catalogue()[name]
    facts = Facts(problem, 40, 8, "replace_one")
    plan = Plan(solver, facts, budget, solver.settings(facts, budget, noise=noise, n_iter=3))
    epsilon = Accountant("replace_one").epsilon(spend(declare(plan)), budget.delta)
    assert 0.98 <= epsilon <= 1 + 1e-9


def test_a_record_pays_for_its_own_phase_only():
    solver = catalogue()["phased_mirror_descent"]
    facts, budget = Facts(Problem(Logistic(), L1Ball(1.0)), 64, 5, "zero_out"), Budget(1.0, 1e-5)
    plan = Plan(solver, facts, budget, solver.settings(facts, budget, n_iter=4))
    log = declare(plan)
    assert len(log) == 6 * 4
    leaves = spend(log).leaves()
    assert len(leaves) == 6
    assert all(sum(charge.values()) == 4 for charge in leaves.values())


@pytest.mark.parametrize("order", [2.0, 3.0, 10.0, math.inf])
def test_the_length_of_a_gaussian(order):
    rng = np.random.default_rng(0)
    lengths = np.linalg.norm(rng.normal(size=(4000, 30)), order, axis=1)
    root = math.sqrt(np.mean(lengths**2))
    assert 0.99 * root <= gaussian_length(order, 30) <= 1.6 * root


@pytest.mark.parametrize("name", BOTH)
def test_refusals(name):
    X, y = data(20, 3)
    budget = Budget(1.0, 1e-5)
    for domain, sentence in ((L2Ball(1.0), "needs an L1Ball"), (LpBall(3.0, 1.0), "p > 2")):
        with pytest.raises(Refused, match=sentence):
            solve(Problem(Huber(), domain), X, y, budget=budget, solver=name)
    problem = Problem(Huber(), L1Ball(1.0))
    for choices in ({"noise": "loud"}, {"n_iter": 0}, {"slope_clip": 0.0}):
        with pytest.raises(ValueError, match=next(iter(choices))):
            solve(problem, X, y, budget=budget, solver=name, **choices)
    with pytest.raises(ValueError, match="delta"):
        solve(problem, X, y, budget=Budget(1.0), solver=name, noise="gaussian")


@pytest.mark.parametrize("order", [1.0, 1.5, 2.0, 3.0, math.inf])
@pytest.mark.parametrize(
    "bounds",
    [RowBounds(2.0), RowBounds(2.0, 0.5), RowBounds(math.inf, 0.5, 0.3), RowBounds(1, 0, 1)],
)
def test_bounds_of_rows_in_any_norm(order, bounds):
    """No row within the bounds is longer, and one is as long."""
    p = 5 if bounds.intercept else 4
    corners = [np.full(4, bounds.feature), np.eye(4)[0] * bounds.feature]
    lengths = []
    for row in [*corners, *np.random.default_rng(0).normal(size=(200, 4)) * 3]:
        row = np.clip(row, -bounds.feature, bounds.feature)
        row = row * min(1.0, bounds.data_norm / np.linalg.norm(row))
        full = np.append(row, bounds.intercept) if bounds.intercept else row
        lengths.append(lp_norm(full, order))
    assert max(lengths) == pytest.approx(bounds.in_norm(order, p), rel=1e-9)
