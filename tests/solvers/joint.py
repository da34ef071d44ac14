"""Runs of the solvers that fit all classes together, for tests and planted bugs."""

from __future__ import annotations

from typing import Any

import numpy as np

from privopt import Budget, Problem
from privopt.facts import Facts
from privopt.losses import Logistic
from privopt.noise import SeededSource, Source
from privopt.oracle import Oracle
from privopt.solvers import Plan, catalogue, execute, row_bounds

CLASSES = 4
PROBLEMS = {
    "joint_softmax": Problem(Logistic(), intercept=0.5),
    "standardized_softmax": Problem(Logistic(), intercept=0.5, column_bounds=1.0),
}
NAMES = sorted(PROBLEMS)


def joint_plan(name: str, budget: Budget, n: int = 60, p: int = 4, **choices: Any) -> Plan:
    problem, solver = PROBLEMS[name], catalogue()[name]
    facts = Facts(problem, n, problem.dimension(p), budget.neighbouring, CLASSES)
    assert solver.refuse(facts, budget) is None
    settings = solver.settings(facts, budget, **{"n_iter": 6, **choices})
    return Plan(solver, facts, budget, settings)


def fitted(plan: Plan, X: Any, y: np.ndarray, source: Source) -> Any:
    oracle = Oracle.over(
        X,
        y,
        neighbouring=plan.budget.neighbouring,
        bounds=row_bounds(plan),
        source=source,
        classification=False,
    )
    return execute(plan, [oracle], source)


def joint_run(name: str, budget: Budget, seed: int = 0, **choices: Any) -> Any:
    """Everything a run makes public; labels are any numbers, as in hostile pairs."""
    plan = joint_plan(name, budget, **choices)

    def run(X: np.ndarray, y: np.ndarray) -> Any:
        answer, certificate = fitted(plan, X, y, SeededSource(seed))
        return np.stack(answer.thetas), certificate.to_json(), plan.settings

    return run


def sample(n: int, p: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, p))
    scores = X @ rng.normal(size=(p, CLASSES)) * 2 + rng.gumbel(size=(n, CLASSES))
    return X, scores.argmax(axis=1).astype(float)
