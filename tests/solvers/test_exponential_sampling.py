"""Settings, refusals and bounds of exponential_sampling and of its reference, grid_walk."""

import math

import numpy as np
import pytest

from privopt import Budget, Problem, Refused, plan, solve
from privopt.audit import hostile_pairs, replay
from privopt.facts import Facts
from privopt.geometry import Box, L1Ball, L2Ball, Polytope, Simplex, WholeSpace
from privopt.losses import Absolute, Hinge, Huber, Logistic, Quantile, Squared, Welsch
from privopt.planner.made_up import made_data
from privopt.planner.objective import Objective
from privopt.privacy.profiles import gaussian_mu
from privopt.solvers import catalogue
from privopt.solvers.exponential_sampling import SOLVER

SAMPLING = catalogue()["exponential_sampling"]
WALK = catalogue()["grid_walk"]
RELATIONS = {"zero_out": 1, "add_remove": 1, "replace_one": 2}


def facts(loss, domain, p, n=100, neighbouring="zero_out", repeats=1, **problem):
    return Facts(Problem(loss, domain, **problem), n, p, neighbouring, repeats)


# ------------------------------------------------------------ settings
@pytest.mark.parametrize("neighbouring", RELATIONS)
def test_pure_settings_in_closed_form(neighbouring):
    a = RELATIONS[neighbouring]
    budget = Budget(0.5, 0.0, neighbouring)
    settings = SAMPLING.settings(facts(Hinge(), L2Ball(3.0), 4, 100, neighbouring), budget)
    assert settings.noise == "pure"
    assert settings.noise_multiplier == pytest.approx(2.0)
    # Range of the hinge on |z| <= 3 is 4; p / k on the scale of the mean.
    assert settings.bound == pytest.approx(4 * 2.0 * a * 4 / 100)
    three = SAMPLING.settings(facts(Hinge(), L2Ball(3.0), 4, 100, neighbouring, 3), budget)
    assert three.noise_multiplier == pytest.approx(6.0)


@pytest.mark.parametrize("neighbouring", RELATIONS)
def test_regularised_settings_in_closed_form(neighbouring):
    a = RELATIONS[neighbouring]
    budget = Budget(0.5, 1e-6, neighbouring)
    settings = SAMPLING.settings(
        facts(Hinge(), L2Ball(3.0), 4, 100, neighbouring), budget, noise="gaussian"
    )
    mu = gaussian_mu(0.5, 1e-6)
    assert settings.noise_multiplier == pytest.approx(1 / mu, rel=1e-4)
    assert settings.bound == pytest.approx(math.sqrt(8) * a * 3 / mu / 100, rel=1e-4)
    assert settings.regularisation == pytest.approx(math.sqrt(8) * a / (mu * 3), rel=1e-4)
    ridge = facts(Hinge(), L2Ball(3.0), 4, 100, neighbouring, l2=10.0)
    strong = SAMPLING.settings(ridge, budget, noise="gaussian")
    assert strong.added == 0.0
    assert strong.regularisation == 1000.0


def test_delta_is_used_where_it_helps():
    """Many dimensions favour the regularised density, few the pure one."""
    few = SAMPLING.settings(facts(Logistic(), L2Ball(3.0), 2), Budget(1.0, 1e-6))
    assert few.noise == "pure"
    many = SAMPLING.settings(facts(Hinge(), Box(-3.0, 3.0), 4), Budget(0.1, 0.1))
    assert many.noise == "gaussian"


@pytest.mark.parametrize(
    ("loss", "domain", "p", "extra", "method"),
    [
        (Quantile(0.3), Box(0.0, 1.0), 1, {}, "piecewise_linear"),
        (Quantile(0.3), Box(0.0, 1.0), 1, {"l2": 0.1}, "tangents"),
        (Huber(1.0), L2Ball(1.0), 1, {}, "tangents"),
        (Hinge(), Simplex(1.0), 2, {}, "piecewise_linear"),
        (Hinge(), L2Ball(1.0), 4, {}, "cells"),
        (Logistic(), L2Ball(1.0), 2, {}, "sandwich"),
        (Logistic(), L2Ball(1.0), 10, {}, "sandwich"),
        (Absolute(), Simplex(1.0), 5, {}, "cells"),
    ],
)
def test_the_sampler_follows_from_public_facts(loss, domain, p, extra, method):
    task = facts(loss, domain, p, **extra)
    assert SAMPLING.refuse(task, Budget(1.0)) is None
    assert SAMPLING.settings(task, Budget(1.0)).method == method


def test_a_grid_of_chosen_spacing():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 2)), rng.choice([-1.0, 1.0], size=20)
    result = solve(
        Problem(Hinge(), L2Ball(1.0)),
        X,
        y,
        budget=Budget(1.0),
        solver="exponential_sampling",
        method="grid",
        spacing=0.25,
        random_state=0,
    )
    steps = (result.theta + 1) / 0.25 - 0.5
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-9)
    default = SAMPLING.settings(facts(Hinge(), L2Ball(1.0), 2, 20), Budget(1.0), method="grid")
    # k n L h = 2 / sqrt(p): the log density changes by at most one from a cell's centre.
    assert default.spacing == pytest.approx(2 / (20 / 2 * math.sqrt(2)))


def test_the_certificate_lists_convexity_only_where_privacy_uses_it():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(30, 2)), rng.choice([-1.0, 1.0], size=30)

    def certificate(noise):
        return solve(
            Problem(Hinge(), L2Ball(1.0)),
            X,
            y,
            budget=Budget(1.0, 1e-6),
            solver="exponential_sampling",
            noise=noise,
            random_state=0,
        ).certificate

    assert certificate("pure").assumptions == ()
    assert certificate("gaussian").assumptions == ("the loss Hinge is convex",)
    assert 0.98 <= certificate("gaussian").epsilon <= 1.0


# ------------------------------------------------------------ the bound is kept
@pytest.mark.statistical
@pytest.mark.parametrize(
    "budget", [Budget(1.0), Budget(2.0, 1e-3), Budget(1.0, 0.0, "replace_one")]
)
@pytest.mark.parametrize("loss", [Logistic(), Hinge()], ids=repr)
def test_mean_excess_is_below_the_bound(loss, budget):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(200, 2))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=200) > 0, 1.0, -1.0)
    task = Problem(loss, L2Ball(2.0))
    runs = [
        solve(task, X, y, budget=budget, solver="exponential_sampling", random_state=seed)
        for seed in range(60)
    ]
    at = np.linspace(-2, 2, 161)
    grid = np.stack(np.meshgrid(at, at), axis=-1).reshape(-1, 2)
    grid = grid[np.linalg.norm(grid, axis=1) <= 2]
    best = loss.value(grid @ X.T, y).mean(axis=1).min()
    excess = np.mean([loss.value(X @ run.theta, y).mean() - best for run in runs])
    bound = runs[0].plan.settings.bound
    assert excess <= bound
    # A bound off by a power of ten would be no bound of this mechanism.
    assert excess >= bound / 10


# ------------------------------------------------------------ refusals
@pytest.mark.parametrize(
    ("task", "words"),
    [
        (
            facts(Logistic(), WholeSpace(), 2),
            ["bounded domain", "L2Ball", "objective_perturbation"],
        ),
        (facts(Squared(), L2Ball(1.0), 2), ["Lipschitz", "Squared", "residual_clip"]),
        (facts(Logistic(), L2Ball(1.0), 11), ["at most 10 dimensions", "objective_perturbation"]),
        (facts(Hinge(), L2Ball(1.0), 5), ["at most 4 dimensions", "noisy_gd"]),
        (facts(Huber(1.0), Box(0.0, 1.0), 5), ["at most 4 dimensions", "objective_perturbation"]),
        (facts(Logistic(), Polytope(np.eye(6)), 6), ["polytope", "dimension 4", "L2Ball"]),
    ],
)
def test_refusals_say_what_to_do(task, words):
    sentence = SAMPLING.refuse(task, Budget(1.0))
    assert sentence is not None
    assert sentence.endswith(".")
    for word in ("exponential_sampling", *words):
        assert word in sentence


@pytest.mark.parametrize(
    ("task", "choices", "error", "word"),
    [
        (facts(Hinge(), L2Ball(1.0), 4), {"method": "grid"}, Refused, "at most 3"),
        (facts(Hinge(), L2Ball(1.0), 3, n=10_000), {"method": "grid"}, Refused, "points"),
        (facts(Hinge(), L2Ball(1.0), 2), {"method": "sandwich"}, Refused, "curved"),
        (facts(Hinge(), L2Ball(1.0), 2), {"method": "tangents"}, Refused, "at most 1"),
        (facts(Huber(1.0), L2Ball(1.0), 1), {"method": "piecewise_linear"}, Refused, "linear"),
        (facts(Hinge(), L2Ball(1.0), 2), {"method": "mcmc"}, ValueError, "method must be"),
        (facts(Hinge(), L2Ball(1.0), 2), {"spacing": 0.1}, ValueError, "grid"),
        (facts(Hinge(), L2Ball(1.0), 2), {"noise": "gaussian"}, ValueError, "delta > 0"),
    ],
)
def test_choices_that_do_not_fit(task, choices, error, word):
    with pytest.raises(error, match=word):
        SAMPLING.settings(task, Budget(1.0), **choices)


# ------------------------------------------------------------ the planner
def test_the_planner_prefers_objective_perturbation_where_it_applies():
    smooth = plan(Problem(Logistic(), L2Ball(3.0)), n=1000, p=4, budget=Budget(1.0))
    assert smooth.best.name == "objective_perturbation"
    assert "exponential_sampling has the smaller bound" in str(smooth)
    # On kinks the simulation decides between an exact draw and rounding.
    kinked = plan(Problem(Absolute(), L2Ball(3.0)), n=1000, p=3, budget=Budget(1.0))
    assert min(kinked.plans, key=lambda one: one.settings.bound).name == "exponential_sampling"
    assert kinked.best.name == "objective_perturbation"


# ------------------------------------------------------------ losses that are not convex
@pytest.mark.slow
def test_a_grid_takes_a_loss_that_is_not_convex():
    """Pure, by enumeration; in more dimensions, or by another sampler, it is refused."""
    problem = Problem(Welsch(0.5), L2Ball(1.0))
    facts = Facts(problem, 100, 1, "zero_out")
    settings = SOLVER.settings(facts, Budget(2.0, 1e-6))
    assert (settings.noise, settings.method) == ("pure", "grid")
    assert "3 dimensions" in SOLVER.refuse(Facts(problem, 100, 4, "zero_out"), Budget(2.0))
    for choice in ({"noise": "gaussian"}, {"method": "cells"}):
        with pytest.raises(ValueError, match="not convex"):
            SOLVER.settings(facts, Budget(2.0, 1e-6), **choice)
    X, y = made_data(facts)
    objective = Objective(problem, X, y)
    errors = []
    for seed in range(6):
        budget = Budget(20.0)
        found = solve(problem, X, y, budget=budget, solver=SOLVER.name, random_state=seed)
        errors.append(objective(found.theta) - objective.least)
        assert found.plan.promised_excess
    assert np.mean(errors) <= found.plan.settings.bound < objective.trivial - objective.least


# ------------------------------------------------------------ grid_walk
def test_grid_walk_runs_where_it_is_feasible():
    task = Problem(Hinge(), L2Ball(1.0))
    X, y = np.array([[1.0], [0.5], [-1.0]]), np.array([1.0, 1.0, -1.0])
    result = solve(task, X, y, budget=Budget(1.0), solver="grid_walk", random_state=0)
    assert abs(result.theta[0]) <= 1.0
    assert result.certificate.epsilon == pytest.approx(1.0)
    assert any("conductance" in text for text in result.certificate.assumptions)
    ranking = plan(task, n=3, p=1, budget=Budget(1.0))
    names = [one.name for one in ranking.plans]
    assert names.index("grid_walk") > max(map(names.index, ("exponential_sampling", "noisy_gd")))


@pytest.mark.slow
@pytest.mark.parametrize("neighbouring", ["zero_out", "replace_one"])
def test_grid_walk_replays_on_hostile_neighbours(neighbouring):
    """The table of all solvers is too large for it."""

    def run(X, y):
        result = solve(
            Problem(Hinge(), L2Ball(1.0)),
            X,
            y,
            budget=Budget(1.0, 0.0, neighbouring),
            solver="grid_walk",
            n_public=10,
            random_state=0,
        )
        return result.theta, result.certificate.to_json(), result.plan.settings

    for pair in hostile_pairs(neighbouring, n=10, p=1):
        assert replay(run, pair) == []


@pytest.mark.parametrize(
    ("task", "word"),
    [
        (facts(Hinge(), L2Ball(1.0), 2, 1000), "steps"),
        (facts(Hinge(), L2Ball(1.0), 1, 3, "add_remove"), "add_remove"),
        (facts(Hinge(), WholeSpace(), 1, 3), "bounded"),
        (facts(Hinge(), Simplex(1.0), 2, 3), "cube"),
        (facts(Hinge(), L1Ball(1.0), 1, 3, l2=0.1), "ridge"),
        (facts(Squared(), L2Ball(1.0), 1, 3), "Squared"),
    ],
)
def test_grid_walk_refusals(task, word):
    sentence = WALK.refuse(task, Budget(1.0, 0.0, task.neighbouring))
    assert sentence is not None
    assert word in sentence
    assert sentence.endswith(".")
