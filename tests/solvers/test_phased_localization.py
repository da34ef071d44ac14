"""Phased localization: parallel composition, its bound, sensitivity of each phase."""

import numpy as np
import pytest

from privopt import Budget, Problem, solve
from privopt.audit import hostile_pairs, record
from privopt.facts import Facts
from privopt.geometry import L2Ball
from privopt.losses import Logistic, SmoothedHinge
from privopt.privacy import Accountant, spend
from privopt.privacy.profiles import gaussian_mu
from privopt.solvers import catalogue, declare
from privopt.solvers.solver import Plan

SOLVER = catalogue()["phased_localization"]


def facts(n=1000, p=3, neighbouring="zero_out", **problem):
    return Facts(Problem(Logistic(), L2Ball(5.0), **problem), n, p, neighbouring)


def test_every_record_pays_for_one_phase():
    budget = Budget(1.0, 1e-5)
    plan = Plan(SOLVER, facts(), budget, SOLVER.settings(facts(), budget, noise="gaussian"))
    log = declare(plan)
    assert len(log) == 10  # ceil(log2 1000)
    cells = [event.cells for event in log]
    assert len(set(cells)) == 10
    assert cells == [((phase,),) for phase in range(10)]
    one = Accountant("zero_out").epsilon(spend([log[0]]), 1e-5)
    assert Accountant("zero_out").epsilon(spend(log), 1e-5) == pytest.approx(one)
    assert 0.98 <= one <= 1.0


@pytest.mark.parametrize("neighbouring", ["zero_out", "replace_one"])
def test_each_phase_stays_within_its_bound_and_comes_close(neighbouring):
    """Coupled runs on hostile neighbours; the sensitivity of the phase that holds the record."""
    task = Problem(SmoothedHinge(0.01), L2Ball(3.0))

    def run(X, y):
        return solve(
            task,
            X,
            y,
            budget=Budget(1.0, 1e-5, neighbouring),
            solver=SOLVER.name,
            n_public=63,
            random_state=0,
        ).theta

    worst = 0.0
    for pair in hostile_pairs(neighbouring):
        tapes = [record(run, data)[1] for data in (pair.first, pair.second)]
        for one, other in zip(tapes[0].releases, tapes[1].releases, strict=True):
            # The same start: this phase alone, on both data sets.
            algorithm = one.mechanism.algorithm
            moved = np.linalg.norm(algorithm.value(one.payload) - algorithm.value(other.payload))
            share = moved / one.mechanism.output_sensitivity(one.sensitivity)
            assert share <= 1 + 1e-9
            worst = max(worst, share)
    assert worst > 0.3


def test_the_bound_is_the_proved_one():
    """4 R^2/(eta n) + eta L^2 (16 p/(mu^2 n) + 1/6 + 2 sqrt(p)/(mu n^2)) for n a power of two."""
    n, p, radius = 4096, 5, 5.0
    budget = Budget(1.0, 1e-6, "replace_one")
    found = SOLVER.settings(facts(n, p, "replace_one"), budget, noise="gaussian", batch_size=1)
    mu, eta = gaussian_mu(1.0, 1e-6), found.step
    formula = 4 * radius**2 / (eta * n) + eta * (
        16 * p / (mu**2 * n) + 1 / 6 + 2 * np.sqrt(p) / (mu * n**2)
    )
    assert found.bound == pytest.approx(formula, rel=0.01)
    best = 2 * radius / np.sqrt(16 * p / mu**2 + n / 6)
    assert eta == pytest.approx(min(8 / 0.25, best), rel=0.01)


@pytest.mark.statistical
@pytest.mark.parametrize(("p", "target"), [(10, 0.066), (50, 0.025)])
def test_measured_error(p, target):
    """Measured before: population excess at n = 1e3, epsilon = 1, replace_one, Gaussian."""
    n = 1000
    rng = np.random.default_rng(p)
    truth = rng.standard_normal(p)
    truth *= 3 / np.linalg.norm(truth)

    def draw(count):
        X = rng.standard_normal((count, p))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        return X, 1 / (1 + np.exp(-X @ truth))

    fresh, chance = draw(100_000)

    def risk(w):
        z = fresh @ w
        return np.mean(chance * np.logaddexp(0, -z) + (1 - chance) * np.logaddexp(0, z))

    found = []
    for seed in range(20):
        X, q = draw(n)
        y = np.where(rng.random(n) < q, 1.0, -1.0)
        result = solve(
            Problem(Logistic(), L2Ball(5.0)),
            X,
            y,
            budget=Budget(1.0, 1e-6, "replace_one"),
            solver=SOLVER.name,
            noise="gaussian",
            random_state=seed,
        )
        found.append(risk(result.theta) - risk(truth))
    assert np.mean(found) == pytest.approx(target, rel=0.3)
    assert np.mean(found) <= result.plan.settings.bound


def test_sorted_data_is_shuffled():
    """All of one class first: without the secret order the last phases would see one class only."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 2))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.where(rng.random(4000) < 1 / (1 + np.exp(-4 * X[:, 0])), 1.0, -1.0)
    X, y = X[np.argsort(y)], np.sort(y)
    task, budget = Problem(Logistic(), L2Ball(5.0), intercept=1.0), Budget(20.0, 1e-6)
    theta = solve(task, X, y, budget=budget, solver=SOLVER.name, random_state=0).theta
    assert np.mean(np.sign(X @ theta[:2] + theta[2]) == y) > 0.75


@pytest.mark.parametrize("choice", [{"batch_size": 0}, {"step": 33.0}, {"step": 0}], ids=repr)
def test_settings_out_of_range_are_refused(choice):
    with pytest.raises(ValueError, match=next(iter(choice))):
        SOLVER.settings(facts(), Budget(1.0), **choice)
    assert "two records" in SOLVER.refuse(facts(n=1), Budget(1.0))
