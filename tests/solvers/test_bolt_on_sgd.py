"""Bolt-on SGD as a solver: its sensitivity in settings, its measured error, its refusals."""

import numpy as np
import pytest
from scipy import stats

from privopt import Budget, Problem, solve
from privopt.audit import record
from privopt.facts import Facts
from privopt.geometry import L2Ball
from privopt.losses import Logistic, SmoothedHinge
from privopt.solvers import catalogue, declare
from privopt.solvers.solver import Plan

SOLVER = catalogue()["bolt_on_sgd"]


def facts(n=1000, p=3, neighbouring="zero_out", **problem):
    return Facts(Problem(Logistic(), L2Ball(5.0), **problem), n, p, neighbouring)


def test_one_release_whatever_the_passes():
    for choices in ({}, {"epochs": 4}, {"batch_size": 7}, {"epochs": 3, "batch_size": 1000}):
        settings = SOLVER.settings(facts(), Budget(1.0, 1e-5), **choices)
        assert len(declare(Plan(SOLVER, facts(), Budget(1.0, 1e-5), settings))) == 1
        assert settings.batch_size * settings.batches >= 1000
        assert settings.batch_size * (settings.batches - 1) < 1000


def test_more_passes_take_smaller_steps():
    one = SOLVER.settings(facts(), Budget(1.0, 1e-5))
    ten = SOLVER.settings(facts(), Budget(1.0, 1e-5), epochs=10)
    assert ten.step < one.step
    assert one.bound < ten.bound  # only one pass has a bound that falls with n


def test_a_strong_ridge_gets_decreasing_steps():
    assert SOLVER.settings(facts(l2=1.0), Budget(1.0)).rule == "decreasing"
    assert SOLVER.settings(facts(l2=1e-6), Budget(1.0)).rule == "constant"
    assert SOLVER.settings(facts(), Budget(1.0)).rule == "constant"


@pytest.mark.statistical
@pytest.mark.parametrize(("p", "target"), [(2, 0.0079), (10, 0.0150)])
def test_measured_error_is_no_worse_than_before(p, target):
    """Measured before: population excess at n = 1e4, epsilon = 1, replace_one, Gaussian."""
    n = 10_000
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

    task, budget = Problem(Logistic(), L2Ball(5.0)), Budget(1.0, 1e-6, "replace_one")
    found = []
    for seed in range(8):
        X, q = draw(n)
        y = np.where(rng.random(n) < q, 1.0, -1.0)
        result = solve(
            task,
            X,
            y,
            budget=budget,
            solver=SOLVER.name,
            noise="gaussian",
            batch_size=4,
            random_state=seed,
        )
        found.append(risk(result.theta) - risk(truth))
        assert risk(result.theta) - risk(truth) <= result.plan.settings.bound
    assert np.mean(found) <= 1.3 * target


@pytest.mark.parametrize("neighbouring", ["zero_out", "replace_one"])
@pytest.mark.parametrize("rule", ["constant", "decreasing"])
def test_exact_privacy_in_one_dimension(neighbouring, rule):
    """The laws of two neighbouring runs by quadrature: never above delta at the certified epsilon,
    and close to it where the bound is attained (a loss without curvature, a strong ridge)."""
    n, budget = 20, Budget(0.8, 1e-3, neighbouring)
    X, y = np.full((n, 1), np.nan), np.ones(n)
    X[4] = 1.0
    other, labels = X.copy(), y.copy()
    if neighbouring == "zero_out":
        other[4] = np.nan
    else:
        labels[4] = -1.0
    task = Problem(SmoothedHinge(0.5), L2Ball(5.0), l2=50.0)

    def run(X, y):
        return solve(
            task,
            X,
            y,
            budget=budget,
            solver=SOLVER.name,
            noise="gaussian",
            rule=rule,
            random_state=3,  # the same secret order for both
        )

    laws = []
    for data in ((X, y), (other, labels)):
        result, tape = record(run, data)
        (release,) = tape.releases
        scale = release.mechanism.multiplier * release.mechanism.output_sensitivity(
            release.sensitivity
        )
        laws.append(stats.norm(release.mechanism.algorithm.value(release.payload)[0], scale))
    grid = laws[0].mean() + scale * np.linspace(-40, 40, 400_001)
    one, two = (law.pdf(grid) for law in laws)
    certified = result.certificate.epsilon
    found = [
        np.trapezoid(np.maximum(p - np.exp(certified) * q, 0), grid)
        for p, q in ((one, two), (two, one))
    ]
    assert max(found) <= 1e-3 * (1 + 1e-6)
    if rule == "decreasing":
        assert max(found) >= 0.8e-3


# ------------------------------------------------------------ refusals
def test_add_remove_is_refused_in_one_sentence():
    for name in ("bolt_on_sgd", "phased_localization"):
        text = catalogue()[name].refuse(facts(neighbouring="add_remove"), Budget(1.0))
        assert text is not None
        assert "zero_out" in text
        assert "replace_one" in text
        assert text.count(". ") == 0
        assert text.endswith(".")


def test_decreasing_steps_need_a_ridge():
    """Strong convexity of the mean over records cannot be declared: only a regulariser counts."""
    with pytest.raises(ValueError, match="every record's loss plus regulariser"):
        SOLVER.settings(facts(), Budget(1.0), rule="decreasing")


@pytest.mark.parametrize(
    "choice",
    [{"epochs": 0}, {"batch_size": 0}, {"step": 8.1}, {"step": -1.0}, {"rule": "fast"}],
    ids=repr,
)
def test_settings_out_of_range_are_refused(choice):
    with pytest.raises(ValueError, match=next(iter(choice))):
        SOLVER.settings(facts(), Budget(1.0), **choice)
    with pytest.raises(ValueError, match="delta > 0"):
        SOLVER.settings(facts(), Budget(1.0), noise="gaussian")
