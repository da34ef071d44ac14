"""Losses that are not convex: who takes them, and that privacy does not rest on what is missing."""

import math
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from typing import ClassVar

import numpy as np
import pytest

from privopt import Budget, Problem, Refused
from privopt.facts import Facts
from privopt.geometry import Box, L1Ball, L2Ball, LpBall, Simplex, WholeSpace
from privopt.losses import Absolute, Huber, Logistic, PhaseRetrieval, TukeyBiweight, Welsch
from privopt.mechanisms import (
    ExponentialDensity,
    Gate,
    GridWalk,
    Minimiser,
    ObjectivePerturbation,
    OutputPerturbation,
    StableSGD,
)
from privopt.noise import SilentSource
from privopt.oracle import Oracle, RowBounds, View
from privopt.planner.choose import rank
from privopt.privacy.budget import NEIGHBOURING
from privopt.solvers import Plan, catalogue, declare
from tests.covering import covering

NAMES = sorted(catalogue())


@dataclass(frozen=True)
class NotHuber(Huber):
    """Passes every check of a type, and says that it is not convex."""

    convex: ClassVar[bool] = False


@dataclass(frozen=True)
class NotLogistic(Logistic):
    convex: ClassVar[bool] = False


LOSSES = (Welsch(0.5), TukeyBiweight(), PhaseRetrieval(1.0), NotHuber(0.5), NotLogistic())
DOMAINS = (WholeSpace(), L2Ball(1.0), L1Ball(1.0), LpBall(1.5, 1.0), Box(-1.0, 1.0), Simplex(1.0))
SHAPES = ({}, {"l2": 0.1}, {"column_bounds": 1.0, "intercept": 0.5}, {"column_bounds": 1.0})

BY_TYPE = (
    "dp_ftrl_least_squares",
    "joint_softmax",
    "standardized_objective",
    "standardized_regression",
    "standardized_softmax",
)
"""Solvers for some of the library's own losses: a subclass is another loss, and refused as one."""


EVERY = list(product(LOSSES, DOMAINS, SHAPES, NEIGHBOURING))


def all_facts(p=3, n=12, classes=1, cases=EVERY):
    for loss, domain, shape, relation in cases:
        problem = Problem(loss, domain, **shape)
        yield Facts(problem, n, problem.dimension(p), relation, classes)


@pytest.mark.parametrize("name", NAMES)
def test_a_loss_that_is_not_convex_is_never_minimised_inside_a_mechanism(name, monkeypatch):
    """The proofs that use convexity (objective and output perturbation, stable SGD, densities) open
    the whole loss as a function. A solver that takes a non-convex loss opens clipped sums only, or
    draws from a grid, which needs nothing of the loss but its range."""

    def function(self, loss):
        raise AssertionError("the whole loss is handed to a mechanism")

    monkeypatch.setattr(View, "function", function)
    solver, taken, refused = catalogue()[name], 0, []
    every = all_facts(classes=3 if solver.joint else 1, cases=covering(EVERY))
    for facts, delta in product(every, (0.0, 1e-5)):
        budget = Budget(1.0, delta, facts.neighbouring)
        sentence = solver.refuse(facts, budget)
        if sentence is not None:
            refused.append(sentence)
            continue
        taken += 1
        if name == "exponential_sampling":
            settings = solver.settings(facts, budget)
            assert (settings.noise, settings.method) == ("pure", "grid")
        elif taken % 23 == 1:
            declare(Plan(solver, facts, budget, solver.settings(facts, budget)))
    assert all(sentence.endswith(".") for sentence in refused)
    # The same types, convex: what is refused above is refused for its convexity.
    if not taken:
        assert any("convex" in sentence for sentence in refused) or name in BY_TYPE


@pytest.mark.parametrize(
    "mechanism",
    [
        ObjectivePerturbation("gaussian", 1.0, 1.0, 1e-3, 1.0),
        OutputPerturbation("gaussian", 1.0, Minimiser(1.0, 1e-3)),
        OutputPerturbation(
            "gaussian", 1.0, StableSGD(1, 3, 1, 0.1, False, True, 0.1, L2Ball(1.0), (0.0,) * 3)
        ),
        GridWalk(1.0, L2Ball(1.0), 3),
        ExponentialDensity("gaussian", 1.0, L2Ball(1.0), "sandwich", 1.0),
    ],
    ids=repr,
)
def test_mechanisms_that_need_convexity_refuse_by_themselves(mechanism):
    source = SilentSource()
    oracle = Oracle.over(
        np.eye(3),
        np.ones(3),
        neighbouring="zero_out",
        bounds=RowBounds(1.0),
        source=source,
        classification=False,
    )
    with pytest.raises(Refused, match="convex"):
        Gate(source).release(mechanism, oracle.everything().function(Welsch()))


def by_bounds(monkeypatch):
    """Nothing is simulated."""
    choose = import_module("privopt.planner.choose")
    monkeypatch.setattr(choose.Simulation, "compared", lambda self, plans: {})
    monkeypatch.setattr(choose, "Expectation", lambda *of: None)


def test_the_ranking_promises_nothing_that_is_not_proved(monkeypatch):
    by_bounds(monkeypatch)
    seen = set()
    for facts in list(all_facts())[::17]:
        budget = Budget(1.0, 1e-5, facts.neighbouring)
        ranking = rank(facts, budget)
        kept = [plan.promised for plan in ranking.plans]
        assert kept == sorted(kept, reverse=True)
        for plan in ranking.plans:
            solver = plan.solver
            assert plan.promised == (solver.promise == "stationarity" or solver.convexity_free)
            if not plan.promised:
                assert "none: not convex" in str(ranking)
                seen.add(plan.name)
        if not any(plan.promised_excess for plan in ranking.plans):
            assert "not convex: a small excess cannot be promised" in str(ranking)
    assert {"noisy_gd", "noisy_sgd", "frank_wolfe", "mirror_descent"} <= seen


def test_the_ranking_of_each_geometry(monkeypatch):
    """Who goes first by bounds; and where reading the records once is not worth it."""
    by_bounds(monkeypatch)
    budget, first = Budget(1.0, 1e-6), {}
    columns = {"column_bounds": 1.0, "data_norm": math.sqrt(5000)}  # such rows are that long in l2
    for name, problem in {
        "l1, smooth": Problem(Huber(), L1Ball(1.0), **columns),
        "l1, a kink": Problem(Absolute(), L1Ball(1.0), **columns),
        "p = 1.5, a kink": Problem(Absolute(), LpBall(1.5, 1.0), **columns),
        "p = 4": Problem(Absolute(), LpBall(4.0, 1.0)),
        "smooth, not convex": Problem(Welsch(), L1Ball(1.0), **columns),
        "weakly convex": Problem(PhaseRetrieval(1.0), L2Ball(1.0)),
    }.items():
        ranking = rank(Facts(problem, 30_000, 5000, "zero_out"), budget)
        first[name] = ranking.best.name
        if name == "l1, smooth":
            assert "tree_sfw reads the records once" in str(ranking)
            assert "frank_wolfe is simply better, at n=30000" in str(ranking)
    assert first["l1, smooth"] == "frank_wolfe"
    assert first["smooth, not convex"] == "stationary_frank_wolfe"
    assert first["weakly convex"] == "proximal_guided"
    assert first["l1, a kink"] == "frank_wolfe"
    assert first["p = 1.5, a kink"] == "objective_perturbation"  # its kink rounded off
    assert first["p = 4"] == "objective_perturbation"
