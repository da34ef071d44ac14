"""Objective perturbation: lambda, kind of noise, bound, and what is left when noise is silent."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from scipy.optimize import minimize

from privopt import Budget, Problem, Refused
from privopt.facts import Facts
from privopt.geometry import Box, L2Ball, WholeSpace
from privopt.losses import Huber, Logistic, PhaseRetrieval, SmoothedHinge, Squared
from privopt.mechanisms import Gate
from privopt.noise import SilentSource
from privopt.oracle import Oracle
from privopt.privacy import Accountant, spend
from privopt.privacy.budget import NEIGHBOURING
from privopt.solvers import Plan, catalogue, declare, row_bounds

from .formulas import gdp_mu, sphere

OBJ = catalogue()["objective_perturbation"]
MODULE = import_module("privopt.solvers.families.objective")
SMOOTH = [Logistic(), SmoothedHinge(0.5), Huber(0.5), Squared(residual_clip=1.0)]


def facts(problem=None, n=1000, p=5, relation="zero_out", repeats=1):
    return Facts(problem or Problem(Logistic(), L2Ball(5.0)), n, p, relation, repeats)


# ---------------------------------------------------------------- lambda and the bound
def stated_bound(f, budget, noise, lam):
    """E||b||^2/(2 lambda) + (lambda - Lambda)_+ R^2/2 with 99 % of epsilon for b, from scratch."""
    loss, size = f.problem.loss, math.hypot(f.problem.data_norm, f.problem.intercept)
    sensitivity = (2 if f.neighbouring == "replace_one" else 1) * loss.lipschitz * size
    spare = 0.99 * budget.epsilon - f.repeats * math.log1p(loss.smoothness * size**2 / lam)
    if spare <= 1e-3 * budget.epsilon:
        return math.inf
    if noise == "pure":
        square = f.p * (f.p + 1) * (f.repeats * sensitivity / spare) ** 2
    else:
        square = f.p * f.repeats * (sensitivity / gdp_mu(spare, budget.delta)) ** 2
    ridge, radius = f.n * f.problem.l2, f.radius()
    return (square / (2 * lam) + max(lam - ridge, 0.0) * radius**2 / 2) / f.n


@pytest.mark.parametrize("relation", NEIGHBOURING)
@pytest.mark.parametrize(
    ("epsilon", "delta", "noise"),
    [
        (0.1, 0.0, "pure"),
        (1.0, 0.0, "pure"),
        (8.0, 0.0, "pure"),
        (1.0, 1e-6, "pure"),
        (1.0, 1e-6, "gaussian"),
        (4.0, 1e-5, "gaussian"),
        (50.0, 0.0, "pure"),
    ],
)
@pytest.mark.parametrize(("l2", "repeats"), [(0.0, 1), (0.02, 1), (0.0, 3)])
def test_lambda_minimises_the_bound(monkeypatch, relation, epsilon, delta, noise, l2, repeats):
    """A grid of 200 lambdas finds none that is better by more than a tenth of a per cent."""
    # The calibrated noise is another test's matter, and slow.
    monkeypatch.setattr(MODULE, "_calibrate", lambda *args: (1.0, 1.0))
    problem = Problem(Logistic(), L2Ball(5.0), data_norm=2.0, intercept=0.5, l2=l2)
    f, budget = facts(problem, 800, 7, relation, repeats), Budget(epsilon, delta, relation)
    found = OBJ.settings(f, budget, noise=noise)
    assert found.bound == pytest.approx(
        stated_bound(f, budget, noise, found.regularisation), rel=1e-5
    )
    grid = np.exp(np.linspace(math.log(1e-4), math.log(1e6), 200))
    best = min(stated_bound(f, budget, noise, lam) for lam in grid if lam >= 800 * l2)
    assert found.bound <= 1.001 * best
    assert found.regularisation >= 800 * l2 * (1 - 1e-9)


def test_the_bound_approaches_its_limit():
    """p L R / epsilon (pure) and sqrt(p) L R / mu (Gaussian) when the determinant costs little."""
    f = facts(Problem(Logistic(), L2Ball(5.0)), 10**6, 200)
    pure = OBJ.settings(f, Budget(0.5)).bound * 10**6
    assert 1 <= pure / (math.sqrt(200 * 201) * 5 / 0.5) < 1.03
    gaussian = OBJ.settings(f, Budget(0.5, 1e-6)).bound * 10**6
    assert 1 <= gaussian / (math.sqrt(200) * 5 / gdp_mu(0.5, 1e-6)) < 1.05


@pytest.mark.parametrize(
    ("relation", "loss", "epsilon", "p"),
    [
        ("zero_out", Logistic(), 0.1, 60),
        ("zero_out", Logistic(), 4.0, 40),
        ("add_remove", Huber(0.5), 1.0, 40),
    ],
)
def test_the_bound_covers_the_noise_that_is_drawn(relation, loss, epsilon, p):
    """lambda is chosen by an approximation; the calibrated noise must not exceed it by 5 %."""
    f, budget = (
        facts(Problem(loss, L2Ball(5.0)), 1000, p, relation),
        Budget(epsilon, 1e-6, relation),
    )
    found = OBJ.settings(f, budget, noise="gaussian")
    square = p * (found.noise_multiplier * loss.lipschitz) ** 2
    lam = found.regularisation
    assert (square / (2 * lam) + lam * 25 / 2) / 1000 <= 1.05 * found.bound


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 10.0, 100.0, 1e3, 1e6])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_every_epsilon_can_be_planned(epsilon, delta):
    """And a larger one never has the larger bound."""
    found = OBJ.settings(facts(), Budget(epsilon, delta))
    less = OBJ.settings(facts(), Budget(epsilon / 2, delta))
    assert 0 < found.bound <= less.bound * (1 + 1e-6)


# ---------------------------------------------------------------- pure or Gaussian
@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-6), (4.0, 1e-6), (1.0, 1e-9)])
def test_noise_follows_the_threshold(epsilon, delta, repeats):
    """Pure below p + 1 = (epsilon/mu)^2, where p (p+1)/epsilon^2 = p/mu^2, and k models move it."""
    mu = gdp_mu(epsilon, delta)
    threshold = (epsilon / mu) ** 2 / repeats
    for p in range(1, 60):
        expected = "pure" if p + 1 < threshold else "gaussian"
        if abs(p + 1 - threshold) < 1e-6:
            continue
        f = facts(p=p, repeats=repeats)
        assert MODULE.choose_noise(f, Budget(epsilon, delta)) == expected


def test_known_threshold():
    """About 12 to 21 parameters at delta = 1e-6 for epsilon from 0.1 to 4."""
    for epsilon, last in [(0.1, 12), (1.0, 16), (4.0, 21)]:
        budget = Budget(epsilon, 1e-6)
        kinds = [MODULE.choose_noise(facts(p=p), budget) for p in range(1, 40)]
        assert kinds == sorted(kinds, reverse=True)  # pure first, then Gaussian
        assert abs(kinds.count("pure") - last) <= 1


def test_without_delta_noise_is_pure():
    assert {OBJ.settings(facts(p=p), Budget(1.0)).noise for p in (1, 10, 1000)} == {"pure"}


@pytest.mark.parametrize(
    ("noise", "relation"),
    [("pure", "zero_out"), ("pure", "replace_one"), ("gaussian", "zero_out")],
)
def test_a_choice_of_noise_or_lambda_keeps_the_budget(noise, relation):
    budget = Budget(1.0, 1e-6, relation)
    f = facts(relation=relation)
    for choices in ({}, {"regularisation": 2.0}, {"regularisation": 500.0}):
        settings = OBJ.settings(f, budget, noise=noise, **choices)
        assert settings.noise == noise
        assert settings.regularisation == choices.get("regularisation", settings.regularisation)
        spent = spend(declare(Plan(OBJ, f, budget, settings)))
        assert 0.98 <= Accountant(relation).epsilon(spent, 1e-6) <= 1 + 1e-9


# ---------------------------------------------------------------- without noise
def data_for(loss, n=400, p=3):
    X, y = sphere(n, p, seed=2)
    if loss.classification:
        return X, y
    rng = np.random.default_rng(4)
    return X, X @ [1.0, -0.5, 0.3] + 0.1 * rng.standard_normal(n)


def run_silent(problem, X, y, settings, f):
    source = SilentSource()
    plan = Plan(OBJ, f, Budget(1.0), settings)
    oracle = Oracle.over(
        X,
        y,
        neighbouring="zero_out",
        bounds=row_bounds(plan),
        source=source,
        classification=problem.loss.classification,
    )
    return OBJ.run(oracle, Gate(source), problem, settings)


@pytest.mark.parametrize("loss", SMOOTH, ids=repr)
@pytest.mark.parametrize("domain", [WholeSpace(), L2Ball(50.0), Box(-40.0, 40.0)], ids=repr)
@pytest.mark.parametrize("intercept", [0.0, 0.7])
def test_silent_noise_gives_the_regularised_minimiser(loss, domain, intercept):
    """Against SciPy, for every loss it accepts, with a lambda that is chosen and one that is 1."""
    problem = Problem(loss, domain, intercept=intercept)
    X, y = data_for(loss)
    f = facts(problem, 400, problem.dimension(3))
    full = np.column_stack([X, np.full(400, intercept)]) if intercept else X
    for choices in ({}, {"regularisation": 1.0}):
        settings = OBJ.settings(f, Budget(2.0, 1e-6), **choices)
        settings = replace(settings, tolerance=1e-9, discrete_noise=False)
        lam = settings.regularisation

        def objective(w, lam=lam):
            return loss.value(full @ w, y).sum() + lam / 2 * w @ w

        def slope(w, lam=lam):
            return loss.slope(full @ w, y) @ full + lam * w

        best = minimize(
            objective, np.zeros(f.p), jac=slope, method="BFGS", options={"gtol": 1e-7}
        ).x
        found = run_silent(problem, X, y, settings, f)
        np.testing.assert_allclose(found, best, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("loss", SMOOTH, ids=repr)
def test_more_budget_comes_closer_to_the_minimiser(loss):
    """lambda falls with epsilon, so the silent answer tends to the unregularised optimum."""
    problem = Problem(loss, L2Ball(50.0))
    X, y = data_for(loss)
    f = facts(problem, 400, 3)

    def risk(w):
        return float(loss.value(X @ w, y).mean())

    best = minimize(
        risk, np.zeros(3), jac=lambda w: loss.slope(X @ w, y) @ X / 400, method="BFGS"
    ).fun
    gaps = [
        risk(run_silent(problem, X, y, OBJ.settings(f, Budget(epsilon)), f)) - best
        for epsilon in (0.1, 1.0, 10.0)
    ]
    assert gaps[0] > gaps[1] > gaps[2] > -1e-9
    assert gaps[2] < 0.02 * (risk(np.zeros(3)) - best)


def test_problem_ridge_is_not_counted_twice():
    """The regulariser of the problem is part of lambda: with much ridge lambda is the ridge."""
    problem = Problem(Logistic(), L2Ball(5.0), l2=1.0)
    settings = OBJ.settings(facts(problem, 1000, 5), Budget(1.0))
    assert settings.regularisation == pytest.approx(1000.0)
    square = 5 * 6 / (0.99 - math.log1p(0.25 / 1000)) ** 2
    assert settings.bound == pytest.approx(square / 2000 / 1000, rel=1e-6)


def test_it_releases_once():
    settings = OBJ.settings(facts(), Budget(1.0))
    assert len(declare(Plan(OBJ, facts(), Budget(1.0), settings))) == 1


# ---------------------------------------------------------------- what it accepts
@pytest.mark.parametrize("loss", SMOOTH, ids=repr)
def test_accepts_smooth_losses(loss):
    assert OBJ.refuse(facts(Problem(loss)), Budget(1.0)) is None


@pytest.mark.parametrize(
    ("loss", "sentence"),
    [
        (PhaseRetrieval(0.5), "PhaseRetrieval is not convex."),
        (Squared(), "Squared is not: use Squared(residual_clip=...) or Huber(width)."),
    ],
    ids=repr,
)
def test_refuses_in_one_sentence(loss, sentence):
    found = OBJ.refuse(facts(Problem(loss)), Budget(1.0))
    assert found is not None
    assert found.startswith("objective_perturbation needs a ")
    assert sentence in found
    assert found.endswith(".")


def test_settings_it_does_not_take():
    with pytest.raises(ValueError, match="objective_perturbation has no setting named 'n_iter'"):
        OBJ.settings(facts(), Budget(1.0), n_iter=3)
    with pytest.raises(ValueError, match='noise="gaussian" needs delta > 0; use noise="pure"'):
        OBJ.settings(facts(), Budget(1.0), noise="gaussian")
    with pytest.raises(Refused, match=r"regularisation 0\.1 is too small for epsilon=0\.5"):
        OBJ.settings(facts(), Budget(0.5), regularisation=0.1)
    with pytest.raises(ValueError, match="noise must be"):
        OBJ.settings(facts(), Budget(1.0, 1e-6), noise="laplace")
    for regularisation in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises((ValueError, Refused), match="regularisation"):
            OBJ.settings(facts(), Budget(1.0), regularisation=regularisation)
