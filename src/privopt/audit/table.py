"""The audited table: every solver of the catalogue on a pair that pushes it to its guarantee.

A new solver is audited as it is; its specimen may give it a shorter run or a pair that comes closer
to its guarantee.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from privopt.audit.entries import ENTRIES
from privopt.audit.entry_attacks import ATTACKED, attacked, audit_entry, takes_budget
from privopt.audit.fits import estimators, settled, takes
from privopt.audit.neighbours import EMPTY, Pair
from privopt.audit.statistical import Finding, audit
from privopt.audit.trials import Trial
from privopt.facts import Facts
from privopt.mechanisms import HOOK, Gate
from privopt.noise import SeededSource, Source
from privopt.oracle import Oracle
from privopt.privacy import Budget, Certificate, Neighbouring
from privopt.problem import Problem
from privopt.solvers import Plan, catalogue, execute, row_bounds
from privopt.solvers.specimen import Attack, PairName

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


PAIRS: dict[PairName, Callable[[Budget, int, int, bool], Pair]] = {
    "lone": lone_pair,
    "crowd": crowd_pair,
    "opposed": opposed_pair,
    "peak": peak_pair,
    "class": class_pair,
    "class crowd": class_crowd_pair,
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

    A ``solver`` may be named, or any estimator, or another public way in.
    """
    names = [*sorted(catalogue()), *ESTIMATORS, *attacked()]
    known = sorted({*names, *estimators(), *ENTRIES})
    if solver is not None and solver not in known:
        raise ValueError(f"unknown solver or estimator {solver!r}; choose from {', '.join(known)}.")
    return [
        Row(name, epsilon, delta, neighbouring)
        for name in (names if solver is None else attacked(solver) or [solver])
        for delta in deltas
        for epsilon in epsilons
        if _audited(name, Budget(epsilon, delta, neighbouring))
    ]


def _audited(name: str, budget: Budget) -> bool:
    """Whether a solver takes a problem of the audit, an estimator its pair."""
    if name in catalogue():
        return _problem(name, budget) is not None
    if name in ATTACKED:
        return takes_budget(name, Budget(EPSILONS[0], budget.delta, budget.neighbouring))
    if name not in estimators() and name not in ESTIMATORS:
        return False
    return name in ESTIMATORS or takes(
        estimators()[name], budget, [crowd_pair(budget, FIT_RECORDS, 1, True)]
    )


def audit_row(row: Row, *, runs: int, confidence: float, seed: int = 0) -> Finding:
    """Audit one row of the table."""
    if row.solver in ATTACKED:
        budget = Budget(row.epsilon, row.delta, row.neighbouring)
        return audit_entry(row.solver, budget, runs=runs, confidence=confidence, seed=seed)
    run, pair, certificate = case(row)
    solver = catalogue().get(row.solver)
    share = solver.specimen.attack.share if solver else ESTIMATOR_SHARE
    count = max(20, round(share * runs))
    return audit(run, pair, certificate, runs=count, confidence=confidence, seed=seed)


def case(row: Row) -> tuple[Trial, Pair, Certificate]:
    """The function, the pair and the certificate of a row."""
    budget = Budget(row.epsilon, row.delta, row.neighbouring)
    return _solve(row.solver, budget) if row.solver in catalogue() else _fit(row.solver, budget)


def _problem(name: str, budget: Budget) -> Problem | None:
    solver = catalogue()[name]
    for problem in solver.specimen.attack.problems:
        if solver.refuse(_facts(solver.specimen.attack, problem, budget), budget) is None:
            return problem
    return None


def _facts(attack: Attack, problem: Problem, budget: Budget) -> Facts:
    dimension = problem.dimension(attack.p)
    return Facts(problem, attack.n, dimension, budget.neighbouring, attack.classes)


def _solve(name: str, budget: Budget) -> tuple[Trial, Pair, Certificate]:
    """The solver's own run through a gate; its certificate comes from one complete run."""
    solver, problem = catalogue()[name], _problem(name, budget)
    attack = solver.specimen.attack
    if problem is None:
        raise ValueError(f"{name} refuses every problem of the audit.")
    facts = _facts(attack, problem, budget)
    plan = Plan(solver, facts, budget, solver.settings(facts, budget, **attack.choices(budget)))
    classification = problem.loss.classification and not solver.joint
    pair = PAIRS[attack.pair(budget)](budget, attack.n, attack.p, classification)

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
