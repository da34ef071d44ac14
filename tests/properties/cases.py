"""The table that every solver of the catalogue is tested with. A new file in ``solvers/`` is picked
up by itself; its specimen may bring settings of a short run, and problems of its own."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from privopt import Budget, Problem, solve
from privopt.facts import Facts
from privopt.geometry import L2Ball, WholeSpace
from privopt.losses import (
    Absolute,
    Hinge,
    Huber,
    Logistic,
    SmoothedHinge,
    Squared,
)
from privopt.privacy.budget import NEIGHBOURING
from privopt.solvers import Plan, catalogue
from privopt.solvers.families.rounding import RoundingSolver
from tests.covering import covering

DELTAS = (0.0, 1e-5)
GENERAL = {
    "logistic": Problem(Logistic(), L2Ball(3.0)),
    "logistic, intercept, ridge": Problem(Logistic(), WholeSpace(), intercept=0.5, l2=0.1),
    "huber": Problem(Huber(0.5), L2Ball(3.0), data_norm=2.0),
    "clipped squares": Problem(Squared(residual_clip=1.0), L2Ball(2.0)),
    "smoothed hinge": Problem(SmoothedHinge(0.5), L2Ball(3.0), intercept=1.0),
    "hinge": Problem(Hinge(), L2Ball(3.0)),
    "absolute": Problem(Absolute(), L2Ball(3.0)),
}
PROBLEMS = GENERAL | {
    kind: problem
    for solver in catalogue().values()
    for kind, problem in solver.specimen.problems.items()
}


def applies(name: str, problem: Problem, budget: Budget, n: int = 60, p: int = 4) -> bool:
    facts = Facts(problem, n, problem.dimension(p), budget.neighbouring)
    return catalogue()[name].refuse(facts, budget) is None


def first_problem(name: str, budget: Budget) -> Problem:
    """A problem that the solver takes; a solver for tiny problems takes none of this size."""
    taken = (problem for problem in PROBLEMS.values() if applies(name, problem, budget))
    return next(taken, PROBLEMS["logistic"])


def all_cases() -> list[tuple[str, str, str, float]]:
    """(solver, problem, relation, delta) for everything that is not refused."""
    return [
        (name, problem, relation, delta)
        for name, problem, relation, delta in product(
            sorted(catalogue()), PROBLEMS, NEIGHBOURING, DELTAS
        )
        if problem in {*GENERAL, *catalogue()[name].specimen.problems}
        # One kink rounded off is like another.
        and not (problem == "absolute" and isinstance(catalogue()[name], RoundingSolver))
        and applies(name, PROBLEMS[problem], Budget(1.0, delta, relation))  # type: ignore[arg-type]
    ]


def few_cases() -> list[tuple[str, str, str, float]]:
    """Those in which every solver meets every problem, and every relation with either delta; and
    every problem each relation with either delta."""
    cases = [(name, problem, (relation, delta)) for name, problem, relation, delta in all_cases()]
    return [(name, problem, *rest) for name, problem, rest in covering(cases)]


def make_plan(name: str, problem: Problem, budget: Budget, n: int, p: int, **choices: Any) -> Plan:
    solver = catalogue()[name]
    facts = Facts(problem, n, problem.dimension(p), budget.neighbouring)
    settings = solver.settings(facts, budget, **{**solver.specimen.short, **choices})
    return Plan(solver, facts, budget, settings)


def public_run(
    name: str, problem: Problem, budget: Budget, n_public: int = 60, seed: int | None = 0
):
    """Everything a call of ``solve`` makes public."""

    def run(X: np.ndarray, y: np.ndarray) -> Any:
        result = solve(
            problem,
            X,
            y,
            budget=budget,
            solver=name,
            n_public=n_public,
            random_state=seed,
            **catalogue()[name].specimen.short,
        )
        return result.theta, result.certificate.to_json(), result.plan.settings

    return run


def sample(n: int, p: int, seed: int = 0, classification: bool = True):
    """Rows in the unit ball and labels from a logistic or a linear model."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    theta = rng.standard_normal(p)
    theta *= 3 / np.linalg.norm(theta)
    z = X @ theta
    if classification:
        return X, np.where(rng.random(n) < 1 / (1 + np.exp(-z)), 1.0, -1.0)
    return X, z + 0.3 * rng.standard_normal(n)
