"""The bound a solver states is true, also where it is easy to break. Every solver, every shape."""

from __future__ import annotations

import numpy as np
import pytest

from privopt import Budget, Problem, solve
from privopt.facts import Facts
from privopt.geometry import Box, L2Ball, WholeSpace
from privopt.losses import Hinge, Logistic
from privopt.solvers import catalogue

from .formulas import best_on, skewed, sphere

NAMES = sorted(catalogue())
SEEDS = 5
# Its bound is nearly attained: at the edge of a ball within a factor of 1.6 of the exact mean, so
# a mean of 5 runs exceeds it in about 3 % of cases, a mean of 60 in fewer than 1e-6.
MORE_SEEDS = {"exponential_sampling": 60}
ONE_PASS = {
    "bolt_on_sgd",
    "phased_localization",
    "dp_ftrl",
}  # a sampling error of 1/sqrt(n) always stays
DOMAINS = {
    "optimum inside a ball": L2Ball(60.0),
    "optimum inside a box": Box(-60.0, 60.0),
    "optimum outside a ball": L2Ball(3.0),
    "optimum outside a box": Box(-4.0, 4.0),
    "ball away from the origin": L2Ball(1.0, centre=[4.0, 8.0]),
    "whole space": WholeSpace(),
}


@pytest.mark.statistical
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", DOMAINS)
@pytest.mark.parametrize(("epsilon", "delta"), [(8.0, 1e-5), (0.5, 0.0)])
def test_mean_excess_risk_is_below_the_bound(name, shape, epsilon, delta):
    """Mean of a few seeded runs, more where the bound is not loose by far more than its spread."""
    n, domain = 800, DOMAINS[shape]
    X, y = skewed(n)
    theta_norm = None if domain.bounded else 25.0  # the optimum has norm 21
    problem = Problem(Logistic(), domain, theta_norm=theta_norm)
    budget = Budget(epsilon, delta)
    if catalogue()[name].refuse(Facts(problem, n, 2, "zero_out"), budget) is not None:
        pytest.skip(f"{name} refuses this problem")

    def risk(w):
        return float(np.logaddexp(0, -y * (X @ w)).mean())

    def slope(w):
        return -(y / (1 + np.exp(y * (X @ w)))) @ X / n

    best = best_on(domain, risk, slope, 2)
    runs = [
        solve(problem, X, y, budget=budget, solver=name, random_state=seed)
        for seed in range(MORE_SEEDS.get(name, SEEDS))
    ]
    found = [risk(run.theta) - best for run in runs]
    excess, error = np.mean(found), np.std(found, ddof=1) / len(found) ** 0.5
    # The bound of exponential_sampling is an equality on a cone: leave room for the mean's error.
    assert excess <= runs[0].plan.settings.bound + 3 * error
    assert all(domain.contains(run.theta) for run in runs)
    assert excess > -1e-6  # the reference really is the optimum


@pytest.mark.statistical
@pytest.mark.parametrize("name", NAMES)
def test_with_much_budget_it_finds_the_constrained_optimum(name):
    """On a ball and on a box that cut the optimum off, not only where the constraint is idle."""
    X, y = skewed(2000)
    budget = Budget(30.0, 1e-4)

    def risk(w):
        return float(np.logaddexp(0, -y * (X @ w)).mean())

    def slope(w):
        return -(y / (1 + np.exp(y * (X @ w)))) @ X / 2000

    for domain in (L2Ball(3.0), Box(-4.0, 4.0)):
        problem = Problem(Logistic(), domain)
        if catalogue()[name].refuse(Facts(problem, 2000, 2, "zero_out"), budget) is not None:
            pytest.skip(f"{name} refuses this problem")
        best = best_on(domain, risk, slope, 2)
        theta = solve(problem, X, y, budget=budget, solver=name, random_state=0).theta
        share = 0.2 if name in ONE_PASS else 0.01
        assert risk(theta) - best < share * (risk(np.zeros(2)) - best)


@pytest.mark.statistical
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_bound_for_a_strongly_convex_problem(name, relation):
    X, y = sphere(1500, 3, seed=8)
    problem = Problem(Logistic(), L2Ball(4.0), l2=0.05)
    budget = Budget(1.0, 1e-6, relation)
    if catalogue()[name].refuse(Facts(problem, 1500, 3, relation), budget) is not None:
        pytest.skip(f"{name} refuses this problem")

    def risk(w):
        return float(np.logaddexp(0, -y * (X @ w)).mean()) + 0.025 * float(w @ w)

    def slope(w):
        return -(y / (1 + np.exp(y * (X @ w)))) @ X / 1500 + 0.05 * w

    best = best_on(problem.domain, risk, slope, 3)
    runs = [
        solve(problem, X, y, budget=budget, solver=name, random_state=seed) for seed in range(SEEDS)
    ]
    excess = np.mean([risk(run.theta) - best for run in runs])
    assert -1e-6 < excess <= runs[0].plan.settings.bound


@pytest.mark.statistical
@pytest.mark.parametrize("name", NAMES)
def test_bound_for_a_loss_with_a_kink(name):
    X, y = sphere(1000, 2, seed=5)
    problem, budget = Problem(Hinge(), L2Ball(3.0)), Budget(1.0, 1e-6)
    if catalogue()[name].refuse(Facts(problem, 1000, 2, "zero_out"), budget) is not None:
        pytest.skip(f"{name} refuses this problem")

    def risk(w):
        return float(np.maximum(0, 1 - y * (X @ w)).mean())

    angle, size = np.meshgrid(np.linspace(0, 2 * np.pi, 181), np.linspace(0, 3, 61))
    grid = np.stack([size * np.cos(angle), size * np.sin(angle)], axis=-1).reshape(-1, 2)
    best = float(np.maximum(0, 1 - y * (grid @ X.T)).mean(axis=1).min())
    runs = [solve(problem, X, y, budget=budget, solver=name, random_state=s) for s in range(3)]
    assert np.mean([risk(run.theta) for run in runs]) - best <= runs[0].plan.settings.bound


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_settings_come_from_public_facts_only(name, delta):
    """Two data sets that share n and p, one of them hostile: the same plan, to the last bit."""
    problem = Problem(Logistic(), L2Ball(2.0))
    if catalogue()[name].refuse(Facts(problem, 50, 3, "zero_out"), Budget(1.0, delta)) is not None:
        pytest.skip(f"{name} refuses this problem")
    X, y = sphere(50, 3)
    plans = [
        solve(problem, data, labels, budget=Budget(1.0, delta), solver=name, random_state=0).plan
        for data, labels in [(X, y), (1e6 * X, np.ones(50)), (np.full((50, 3), np.nan), y)]
    ]
    assert plans[0].settings == plans[1].settings == plans[2].settings
    assert plans[0].facts == plans[1].facts == plans[2].facts


@pytest.mark.parametrize("name", NAMES)
def test_the_bound_falls_with_records_and_with_budget(name):
    problem = Problem(Logistic(), L2Ball(5.0))
    solver = catalogue()[name]

    def bound(n, epsilon, delta=1e-6, p=5):
        facts = Facts(problem, n, p, "zero_out")
        if solver.refuse(facts, Budget(epsilon, delta)) is not None:
            pytest.skip(f"{name} refuses this problem")
        return solver.settings(facts, Budget(epsilon, delta)).bound

    assert bound(10_000, 1.0) < 0.5 * bound(1_000, 1.0)
    assert bound(1_000, 4.0) < (0.6 if name in ONE_PASS else 0.5) * bound(1_000, 0.5)
    assert bound(1_000, 1.0, p=50) > bound(1_000, 1.0, p=5)
