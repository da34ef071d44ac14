"""The audited table: every solver of the catalogue on a pair that pushes it to its guarantee.

A new solver is audited without an entry here; an entry only gives it a shorter run or a pair that
comes closer to its guarantee.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from privopt.audit.fits import estimators, settled, takes
from privopt.audit.neighbours import EMPTY, Pair
from privopt.audit.statistical import Finding, audit
from privopt.audit.trials import Trial
from privopt.facts import Facts
from privopt.geometry import L1Ball, L2Ball, WholeSpace
from privopt.losses import Absolute, Huber, Logistic, Squared, TukeyBiweight
from privopt.mechanisms import HOOK, Gate
from privopt.noise import SeededSource, Source
from privopt.oracle import Oracle
from privopt.privacy import Budget, Certificate, Neighbouring
from privopt.problem import Problem
from privopt.solvers import Plan, catalogue, execute, row_bounds

Data = tuple[np.ndarray, np.ndarray]
ESTIMATORS = ("LogisticRegression", "LogisticRegression(bounds)")
ESTIMATOR_SHARE = 0.5
FIT_RECORDS = 20
EPSILONS = (1.0, 4.0)
DELTAS = (0.0, 1e-5)


def lone_pair(budget: Budget, n: int, p: int, classification: bool) -> Pair:
    """One record at the bound among empty ones: whatever is released is about that record."""
    X, y = np.full((n, p), np.nan), np.full(n, np.nan)
    row, far = 1e3 * np.eye(p)[0], 1.0 if classification else 1e3
    return changed_first(budget.neighbouring, (X, y), (row, far), (row, -far))


def crowd_pair(budget: Budget, n: int, p: int, classification: bool) -> Pair:
    """One record at the bound that contradicts all others."""
    X, y = np.zeros((n, p)), np.ones(n)
    return changed_first(budget.neighbouring, (X, y), (np.ones(p), -1.0), (-np.ones(p), -1.0))


def opposed_pair(budget: Budget, n: int, p: int, classification: bool) -> Pair:
    """One record that pulls against a few others: a density that they gather at one end of the
    domain is thin at the other, where one record makes the largest difference."""
    X, y = np.full((n, p), np.nan), np.full(n, np.nan)
    few = min(n - 1, max(1, round(2 / budget.epsilon)))
    X[1 : few + 1], y[1 : few + 1] = 1e3 * np.eye(p)[0], -1e3
    row = 1e3 * np.eye(p)[0]
    return changed_first(budget.neighbouring, (X, y), (row, 1e3), (row, -1e3))


def peak_pair(budget: Budget, n: int, p: int, classification: bool) -> Pair:
    """As ``lone_pair``, for a loss that is steepest at a residual of one and flat far away."""
    X, y = np.full((n, p), np.nan), np.full(n, np.nan)
    row = 1e3 * np.eye(p)[0]
    return changed_first(budget.neighbouring, (X, y), (row, 1.0), (row, -1.0))


def class_pair(budget: Budget, n: int, p: int, classification: bool) -> Pair:
    """As ``lone_pair``, for labels that are numbers of classes."""
    X, y = np.full((n, p), np.nan), np.full(n, np.nan)
    row = 1e3 * np.eye(p)[0]
    return changed_first(budget.neighbouring, (X, y), (row, 1.0), (-row, 1.0))


def class_crowd_pair(budget: Budget, n: int, p: int, classification: bool) -> Pair:
    """As ``crowd_pair``, for labels that are numbers of classes."""
    X, y = np.zeros((n, p)), np.zeros(n)
    return changed_first(budget.neighbouring, (X, y), (np.ones(p), 1.0), (-np.ones(p), 1.0))


def changed_first(
    neighbouring: Neighbouring,
    others: Data,
    record: tuple[np.ndarray, float],
    replaced: tuple[np.ndarray, float],
) -> Pair:
    """The pair in which the first record is ``record`` and, on the other side, gone, empty or
    replaced."""
    X, y = (side.copy() for side in others)
    X[0], y[0] = record
    ids = tuple(range(len(X)))
    if neighbouring == "add_remove":
        return Pair("lone record", (X, y), (X[1:], y[1:]), ids, ids[1:])
    Z, w = X.copy(), y.copy()
    Z[0], w[0] = EMPTY if neighbouring == "zero_out" else replaced
    return Pair("lone record", (X, y), (Z, w), ids, ids)


@dataclass(frozen=True)
class Setting:
    """How a solver is pushed to its guarantee: problems to try, records, settings, pair."""

    problems: tuple[Problem, ...]
    n: int = 4
    p: int = 1
    choices: Callable[[Budget], dict[str, Any]] = field(default=lambda budget: {})
    pair: Callable[[Budget, int, int, bool], Pair] = lone_pair
    share: float = 1.0
    """Share of the runs, for what takes long."""
    classes: int = 1
    """Of a solver that fits them all together: labels are then 0, ..., classes - 1."""


# A label far away keeps the slope at its bound for every theta, with either sign.
SATURATED = (Problem(Huber(0.5), L2Ball(50.0)), Problem(Absolute(), L2Ball(3.0)))
COLUMNS = Problem(Logistic(), WholeSpace(), intercept=0.5, column_bounds=1.0)
TARGETS = Problem(Huber(0.2), WholeSpace(), intercept=0.5, column_bounds=1.0)
VERTICES = Problem(Huber(0.5), L1Ball(5.0))
# On so small a set gradients hardly change, and records of the first estimate pay the most.
TINY = Problem(Huber(0.5), L1Ball(0.01))
FREE = Problem(Huber(0.5), WholeSpace())
SQUARES = Problem(Squared(), L2Ball(1.0))
MANY = Problem(Logistic(), WholeSpace(), intercept=0.5)
PEAKED = Problem(TukeyBiweight(5**0.5), L2Ball(0.05))
DEFAULT = Setting((*SATURATED, VERTICES, FREE, COLUMNS, TARGETS))


def _density_pair(budget: Budget, n: int, p: int, classification: bool) -> Pair:
    """Gaussian noise only moves, whatever the others do; a bounded range wants an end."""
    pair = opposed_pair if budget.pure else lone_pair
    return pair(budget, n, p, classification)


def _noise(budget: Budget) -> dict[str, Any]:
    """The noise that delta is for; in so few dimensions solvers would not take it themselves."""
    return {"noise": "pure" if budget.pure else "gaussian"}


def _stiff(budget: Budget) -> dict[str, Any]:
    """A regulariser beside which the curvature of one record costs next to nothing."""
    return {**_noise(budget), "regularisation": 300.0}


SETTINGS: dict[str, Setting] = {
    "noisy_gd": replace(DEFAULT, choices=lambda budget: {"n_iter": 3}),
    "objective_perturbation": replace(DEFAULT, choices=_stiff),
    "approximate_minima": replace(DEFAULT, choices=_stiff),
    "output_perturbation": replace(DEFAULT, choices=_noise),
    "localization": replace(
        DEFAULT, choices=lambda b: _stiff(b) if b.pure else {"n_iter": 2, **_noise(b)}
    ),
    "exponential_sampling": replace(DEFAULT, n=8, choices=_noise, pair=_density_pair),
    "grid_walk": replace(DEFAULT, n=1, share=0.2),
    "noisy_sgd": replace(DEFAULT, choices=lambda budget: {"n_iter": 4, "batch_size": 1}),
    "one_point_sgd": replace(DEFAULT, choices=lambda budget: {"n_iter": 6}),
    "bolt_on_sgd": replace(DEFAULT, n=16, choices=_noise),
    "phased_localization": replace(DEFAULT, n=16, choices=_noise),
    "dp_ftrl": replace(DEFAULT, choices=lambda budget: {"epochs": 4, "batch_size": 1}),
    "dp_ftrl_least_squares": Setting((SQUARES,), choices=lambda budget: {"steps": 4}),
    "frank_wolfe": replace(DEFAULT, choices=lambda budget: {"n_iter": 1}),
    "mirror_descent": replace(DEFAULT, choices=lambda budget: {"n_iter": 3}),
    "phased_mirror_descent": replace(DEFAULT, n=16, choices=lambda budget: {"n_iter": 2}),
    "tree_sfw": Setting((TINY,), n=16, choices=lambda budget: {"phases": 1}),
    "poly_sfw": Setting((TINY,), n=16, choices=lambda budget: {"batch_size": 8}),
    "variance_reduced_sfw": replace(DEFAULT, n=16, choices=lambda budget: {"phases": 1}),
    "stationary_frank_wolfe": Setting((PEAKED,), choices=lambda b: {"n_iter": 2}, pair=peak_pair),
    "proximal_guided": Setting(
        (PEAKED,), choices=lambda b: {"n_iter": 2, "rounds": 1}, pair=peak_pair
    ),
    "greedy_coordinate": replace(DEFAULT, p=2, choices=lambda budget: {"n_iter": 1}),
    "coordinate_descent": replace(DEFAULT, choices=lambda budget: {"n_iter": 2}),
    "standardized_regression": Setting((TARGETS,), n=20, choices=_noise, pair=crowd_pair),
    "standardized_objective": Setting((COLUMNS,), n=20, choices=_stiff, pair=crowd_pair),
    "joint_softmax": Setting((MANY,), choices=lambda b: {"n_iter": 3}, pair=class_pair, classes=3),
    "standardized_softmax": Setting(
        (COLUMNS,), n=20, choices=lambda b: {"n_iter": 3}, pair=class_crowd_pair, classes=3
    ),
}


@dataclass(frozen=True)
class Row:
    """One row of the table, by plain values: it travels to another process."""

    solver: str
    epsilon: float
    delta: float
    neighbouring: Neighbouring = "zero_out"


def rows(
    neighbouring: Neighbouring = "zero_out",
    solver: str | None = None,
    epsilons: tuple[float, ...] = EPSILONS,
    deltas: tuple[float, ...] = DELTAS,
) -> list[Row]:
    """Everything that is audited: solvers and estimators, pure and not, at every epsilon.

    A ``solver`` may be named, or any estimator.
    """
    names = [*sorted(catalogue()), *ESTIMATORS]
    known = sorted({*names, *estimators()})
    if solver is not None and solver not in known:
        raise ValueError(f"unknown solver or estimator {solver!r}; choose from {', '.join(known)}.")
    return [
        Row(name, epsilon, delta, neighbouring)
        for name in (names if solver is None else [solver])
        for delta in deltas
        for epsilon in epsilons
        if _audited(name, Budget(epsilon, delta, neighbouring))
    ]


def _audited(name: str, budget: Budget) -> bool:
    """Whether a solver takes a problem of the audit, an estimator its pair."""
    if name in catalogue():
        return _problem(name, budget) is not None
    return name in ESTIMATORS or takes(
        estimators()[name], budget, [crowd_pair(budget, FIT_RECORDS, 1, True)]
    )


def audit_row(row: Row, *, runs: int, confidence: float, seed: int = 0) -> Finding:
    """Audit one row of the table."""
    run, pair, certificate = case(row)
    known = SETTINGS.get(row.solver, DEFAULT).share
    share = known if row.solver in catalogue() else ESTIMATOR_SHARE
    count = max(20, round(share * runs))
    return audit(run, pair, certificate, runs=count, confidence=confidence, seed=seed)


def case(row: Row) -> tuple[Trial, Pair, Certificate]:
    """The function, the pair and the certificate of a row."""
    budget = Budget(row.epsilon, row.delta, row.neighbouring)
    return _solve(row.solver, budget) if row.solver in catalogue() else _fit(row.solver, budget)


def _problem(name: str, budget: Budget) -> Problem | None:
    setting = SETTINGS.get(name, DEFAULT)
    for problem in setting.problems:
        facts = _facts(setting, problem, budget)
        if catalogue()[name].refuse(facts, budget) is None:
            return problem
    return None


def _facts(setting: Setting, problem: Problem, budget: Budget) -> Facts:
    dimension = problem.dimension(setting.p)
    return Facts(problem, setting.n, dimension, budget.neighbouring, setting.classes)


def _solve(name: str, budget: Budget) -> tuple[Trial, Pair, Certificate]:
    """The solver's own run through a gate; its certificate comes from one complete run."""
    solver, setting, problem = (
        catalogue()[name],
        SETTINGS.get(name, DEFAULT),
        _problem(name, budget),
    )
    if problem is None:
        raise ValueError(f"{name} refuses every problem of the audit.")
    facts = _facts(setting, problem, budget)
    plan = Plan(solver, facts, budget, solver.settings(facts, budget, **setting.choices(budget)))
    classification = problem.loss.classification and not solver.joint
    pair = setting.pair(budget, setting.n, setting.p, classification)

    def oracle(X: np.ndarray, y: np.ndarray, source: Source) -> Oracle:
        return Oracle.over(
            X,
            y,
            neighbouring=budget.neighbouring,
            bounds=row_bounds(plan),
            source=source,
            classification=classification,
        )

    def run(X: np.ndarray, y: np.ndarray, source: Source) -> Any:
        gate = Gate(source, hook=HOOK.get())
        return solver.run_all([oracle(X, y, source)], gate, problem, plan.settings).thetas

    source = SeededSource(0)
    _, certificate = execute(plan, [oracle(*pair.first, source)], source)
    return run, pair, certificate


def _fit(name: str, budget: Budget) -> tuple[Trial, Pair, Certificate]:
    """The estimator as a user calls it; that it chooses its solver is left to the first fit."""
    name, _, bounded = name.partition("(")
    options: dict[str, Any] = {"bounds": (-1.0, 1.0)} if bounded else {}
    pair = crowd_pair(budget, FIT_RECORDS, 1, True)
    fit, first = settled(estimators()[name], budget, pair.first, **options)
    return fit, pair, first.privacy_
