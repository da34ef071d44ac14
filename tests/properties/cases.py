"""The table that every solver of the catalogue is tested with. A new file in ``solvers/`` is picked
up by itself; only a setting that makes its test run short may be added here."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from privopt import Budget, Problem, solve
from privopt.facts import Facts
from privopt.geometry import Box, L1Ball, L2Ball, LpBall, Simplex, WholeSpace
from privopt.losses import (
    Absolute,
    Gamma,
    Hinge,
    Huber,
    Logistic,
    PhaseRetrieval,
    Poisson,
    SmoothedHinge,
    SmoothedQuantile,
    Squared,
    TukeyBiweight,
    Welsch,
)
from privopt.privacy.budget import NEIGHBOURING
from privopt.solvers import Plan, catalogue

SHORT: dict[str, dict[str, Any]] = {
    "noisy_gd": {"n_iter": 12},
    "frank_wolfe": {"n_iter": 6},
    "mirror_descent": {"n_iter": 6},
    "phased_mirror_descent": {"n_iter": 3},
    "poly_sfw": {"batch_size": 4},
    "stationary_frank_wolfe": {"n_iter": 6, "iterate": 4},
    "proximal_guided": {"n_iter": 2, "rounds": 4, "phases": 2, "iterate": 3},
    "greedy_coordinate": {"n_iter": 4},
    "coordinate_descent": {"n_iter": 8},
    "noisy_sgd": {"n_iter": 12},
    "one_point_sgd": {"n_iter": 12},
    "localization": {"n_iter": 12},
    "bolt_on_sgd": {"batch_size": 7},
    "phased_localization": {"batch_size": 5},
    "dp_ftrl": {"epochs": 2, "batch_size": 20},
    "dp_ftrl_least_squares": {"steps": 7},
}
# Short runs that still get near the optimum of a small problem.
ENOUGH: dict[str, dict[str, Any]] = {
    "noisy_gd": {"n_iter": 60},
    "noisy_sgd": {"n_iter": 200, "batch_size": 100},
    "dp_ftrl": {"epochs": 1, "batch_size": None},
}
# One pass over 400 records leaves a sampling error that no budget removes.
WITHOUT_NOISE = {"phased_localization": 0.25, "bolt_on_sgd": 0.1, "dp_ftrl": 0.2}
# A choice shows its noise where scores differ by about as much: that takes some records.
RECORDS = {"frank_wolfe": 150, "greedy_coordinate": 150, "stationary_frank_wolfe": 150}
DELTAS = (0.0, 1e-5)
ONE_PASS = {"tree_sfw", "poly_sfw", "variance_reduced_sfw"}
NONCONVEX = {"stationary_frank_wolfe", "proximal_guided"}
# Problems that are there for the sake of these solvers; the others have enough of their own.
FOR: dict[str, set[str]] = {
    "l1 ball": {"frank_wolfe", "noisy_gd", "mirror_descent", "phased_mirror_descent", *ONE_PASS},
    "l1.5 ball": {"noisy_gd", "mirror_descent", "phased_mirror_descent", *ONE_PASS},
    "simplex, ridge": {"frank_wolfe", "mirror_descent", "phased_mirror_descent", *ONE_PASS},
    "box, ridge": {"greedy_coordinate", "coordinate_descent"},
    "welsch, l1 ball": NONCONVEX,
    "tukey, l2 ball, ridge": NONCONVEX,
    "phase retrieval, l1.5 ball": NONCONVEX,
    "least squares": {"dp_ftrl_least_squares"},
    "bounded columns": {"standardized_objective"},
    "bounded columns, hinge": {"standardized_objective"},
    "bounded columns, squares": {"standardized_regression"},
    "bounded columns, huber": {"standardized_regression"},
    "bounded columns, quantile": {"standardized_regression"},
    "bounded columns, counts": {"standardized_regression"},
    "bounded columns, amounts": {"standardized_regression"},
}
PROBLEMS = {
    "logistic": Problem(Logistic(), L2Ball(3.0)),
    "logistic, intercept, ridge": Problem(Logistic(), WholeSpace(), intercept=0.5, l2=0.1),
    "huber": Problem(Huber(0.5), L2Ball(3.0), data_norm=2.0),
    "clipped squares": Problem(Squared(residual_clip=1.0), L2Ball(2.0)),
    "smoothed hinge": Problem(SmoothedHinge(0.5), L2Ball(3.0), intercept=1.0),
    "hinge": Problem(Hinge(), L2Ball(3.0)),
    "absolute": Problem(Absolute(), L2Ball(3.0)),
    "l1 ball": Problem(Squared(residual_clip=1.0), L1Ball(2.0), column_bounds=1.0),
    "l1.5 ball": Problem(Logistic(), LpBall(1.5, 2.0), intercept=0.5),
    "simplex, ridge": Problem(Logistic(), Simplex(3.0), intercept=0.5, l2=0.1),
    "box, ridge": Problem(Huber(0.5), Box(-1.0, 2.0), column_bounds=1.0, l2=0.05),
    "welsch, l1 ball": Problem(Welsch(0.7), L1Ball(1.0), column_bounds=1.0),
    "tukey, l2 ball, ridge": Problem(TukeyBiweight(2.0), L2Ball(1.0), intercept=0.5, l2=0.1),
    "phase retrieval, l1.5 ball": Problem(PhaseRetrieval(0.5), LpBall(1.5, 1.0)),
    "least squares": Problem(Squared(), L2Ball(1.5), intercept=0.5, l2=0.01),
    "bounded columns": Problem(Logistic(), WholeSpace(), intercept=0.5, column_bounds=1.0),
    "bounded columns, hinge": Problem(SmoothedHinge(0.5), intercept=0.5, column_bounds=1.0),
    "bounded columns, squares": Problem(
        Squared(residual_clip=0.5), intercept=0.5, l2=0.01, column_bounds=1.0
    ),
    "bounded columns, huber": Problem(Huber(0.2), intercept=0.5, column_bounds=1.0),
    "bounded columns, quantile": Problem(
        SmoothedQuantile(0.9, 0.1), intercept=0.5, column_bounds=1.0
    ),
    "bounded columns, counts": Problem(Poisson(), intercept=0.5, column_bounds=1.0),
    "bounded columns, amounts": Problem(Gamma(), intercept=0.5, l2=0.01, column_bounds=1.0),
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
        if name in FOR.get(problem, {name})
        and applies(name, PROBLEMS[problem], Budget(1.0, delta, relation))  # type: ignore[arg-type]
    ]


def make_plan(name: str, problem: Problem, budget: Budget, n: int, p: int, **choices: Any) -> Plan:
    solver = catalogue()[name]
    facts = Facts(problem, n, problem.dimension(p), budget.neighbouring)
    settings = solver.settings(facts, budget, **{**SHORT.get(name, {}), **choices})
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
            **SHORT.get(name, {}),
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
