"""Simulation: how far a solver's proved bound is above its error on made-up data of the same shape.

Bounds hold for the worst data; how loose they are on ordinary data differs from solver to solver,
so that a ranking by bounds alone may put a solver first that measures a hundred times worse. Here
each solver is run, with the settings it would really use, on rows drawn from public facts alone.
What is kept is the ratio of measured excess and bound, the *looseness*: it changes slowly with n,
p and epsilon, which the bound carries, and is simulated once for each coarse shape.

Shape: the errors of private methods depend on n and the budget through n mu (mu in Gaussian, or
epsilon in pure, units), so the simulation takes fewer records and a larger budget with the same
product; both n mu and p are rounded. No data is touched and nothing private is spent: plans depend
on public facts, and a wrong looseness can only make the planner choose worse.
"""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from privopt.cache import remembered
from privopt.facts import Facts
from privopt.geometry import Box, L1Ball, L2Ball, Simplex, WholeSpace
from privopt.losses import Loss, Smoothed
from privopt.mechanisms import Gate
from privopt.noise import SeededSource
from privopt.oracle import Oracle
from privopt.privacy import Budget, Refused
from privopt.privacy.profiles import gaussian_epsilon, gaussian_mu
from privopt.problem import Problem
from privopt.solvers import Settings, Solver, families

MOST_PARAMETERS = 256
QUICK = (WholeSpace, L2Ball, L1Ball, Box, Simplex)
"""Domains onto which projecting is quick."""
FEWEST_RECORDS, MOST_RECORDS = 400, 1500
LARGEST_EPSILON = 6.0
"""Amplification by sampling and the cost of curvature change beyond; more records are taken."""
STEPS = 2500
"""Steps of one solver over all its runs: few parameters need more runs, many steps allow fewer."""
SMALL = 3e-4
"""Errors below this share of what the trivial model loses are ties: on made-up data, which is never
as ill-conditioned as real data, they say nothing."""
SEED = 20140623


class Simulation:
    """Runs of solvers on one made-up data set of about the same shape."""

    def __init__(self, facts: Facts, budget: Budget) -> None:
        small = facts.p <= MOST_PARAMETERS and isinstance(facts.problem.domain, QUICK)
        features = facts.p > (facts.problem.intercept > 0)
        scalar = features and not facts.vector
        self.possible = small and scalar and facts.convex and not facts.prior
        self.facts, self.budget = shape(facts, budget) if self.possible else (facts, budget)

    def predicted(self, solver: Solver, bound: float) -> float | None:
        """Error of a solver with this bound: the bound as loose as simulated, or the simulated
        excess where nothing is proved; None where it cannot be simulated cheaply."""
        loose = self.looseness(solver)
        if loose is None:
            return None
        return max(loose * bound if math.isfinite(bound) else loose, self.floor)

    def looseness(self, solver: Solver) -> float | None:
        """Simulated excess over proved bound, or over 1 where there is none; None where it cannot
        be simulated cheaply."""
        facts, budget = self.facts, self.budget
        if not self.possible or solver.joint or solver.refuse(facts, budget) is not None:
            return None
        found = self._kept(solver.name, lambda: self._measured(solver), fingerprint(solver))
        return None if found == "refused" else float(found)

    @cached_property
    def floor(self) -> float:
        """Simulated errors below this are no different from each other."""
        return float(self._kept("trivial", lambda: max(SMALL * self._trivial(), 1e-12), ""))

    def _kept(self, what: str, make: Callable[[], float | str], source: str) -> Any:
        key = {
            "what": what,
            "source": source or _digest((__file__,)),
            "facts": repr(self.facts),
            "epsilon": round(self.budget.epsilon, 6),
            "delta": self.budget.delta,
            "neighbouring": self.budget.neighbouring,
        }
        # In a context of its own: an audit that watches this one is not to see made-up data.
        return remembered("looseness", key, lambda: Context().run(make), _plausible)

    def _trivial(self) -> float:
        """What a model that has learned nothing loses."""
        objective, centre = self._objective, self.facts.problem.domain.centre(self.facts.p)
        return objective(centre) - objective.least

    @cached_property
    def _objective(self) -> _Objective:
        return _Objective(self.facts.problem, *made_data(self.facts))

    def _measured(self, solver: Solver) -> float | str:
        settings = solver.settings(self.facts, self.budget)
        public = settings.public()
        steps = public.get("n_iter", max(200, round(settings.passes)))
        runs = min(max(3, 24 // self.facts.p), max(2, STEPS // steps))
        if "discrete_noise" in public:  # made-up data needs no protection of its low-order bits
            settings = replace(settings, **{"discrete_noise": False})
        found = []
        for seed in range(runs):
            try:
                found.append(self._objective(self._run(solver, settings, seed)))
            except Refused:
                return "refused"
        # What is left below the objective's own precision says nothing.
        excess = max(float(np.mean(found)) - self._objective.least, 1e-9)
        return excess / settings.bound if math.isfinite(settings.bound) else excess

    def _run(self, solver: Solver, settings: Settings, seed: int) -> np.ndarray:
        source, problem = SeededSource(SEED + seed), self.facts.problem
        oracle = Oracle.over(
            self._objective.rows,
            self._objective.y,
            neighbouring=self.budget.neighbouring,
            bounds=solver.row_bounds(problem),
            source=source,
            classification=problem.loss.classification,
        )
        # One of the models that share the budget stands for all.
        return solver.run(oracle, Gate(source), problem, settings)


def shape(facts: Facts, budget: Budget) -> tuple[Facts, Budget]:
    """A smaller problem with about the same ratio of signal and noise."""
    mu = budget.epsilon if budget.pure else gaussian_mu(budget.epsilon, budget.delta)
    signal = 2.0 ** round(math.log2(facts.n * mu))
    p = facts.p if facts.problem.domain.dimension or facts.p <= 4 else _rounded(facts.p)
    largest = LARGEST_EPSILON
    if not budget.pure:
        largest = gaussian_mu(max(LARGEST_EPSILON, budget.epsilon), budget.delta)
    n = min(facts.n, max(FEWEST_RECORDS, 6 * p, min(math.ceil(signal / largest), MOST_RECORDS)))
    epsilon = signal / n if budget.pure else gaussian_epsilon(signal / n, budget.delta)
    units = facts.problem.units
    if units is not None:  # columns like one another, as made-up ones are
        units = (float(np.exp(np.mean(np.log(units)))),) * (p - bool(facts.problem.intercept))
    # Made-up rows follow a linear model.
    problem = replace(facts.problem, shaped=(), units=units)
    return replace(facts, problem=problem, n=n, p=p), replace(budget, epsilon=epsilon)


def fingerprint(solver: Solver) -> str:
    """Of the code that a simulation of it runs through: its own file, what solvers share, and this
    one. A change to any of them makes the kept result one of another solver."""
    shared = sorted(Path(families.__file__).parent.glob("*.py"))
    try:
        own = (inspect.getfile(type(solver)),)
    except (OSError, TypeError):  # written where there is no file
        own = ()
    return _digest((*own, *map(str, shared), __file__))


@cache
def _digest(files: tuple[str, ...]) -> str:
    found = hashlib.sha256()
    for file in files:
        with suppress(OSError):  # a program without its sources keeps nothing that changes
            found.update(Path(file).read_bytes())
    return found.hexdigest()[:16]


def _rounded(p: int) -> int:
    """The nearest of 6, 8, 11, 16, 23, 32, ..."""
    return round(2 ** (round(2 * math.log2(p)) / 2))


def _plausible(found: Any) -> bool:
    return found == "refused" or (isinstance(found, float) and 0 < found < math.inf)


def made_data(facts: Facts) -> tuple[np.ndarray, np.ndarray]:
    """Rows within the declared norm, of correlated columns that differ in size; labels that follow
    a linear model with noise."""
    problem, coins = facts.problem, SeededSource(SEED).coins
    features = facts.p - (problem.intercept > 0)
    sizes = coins.uniform(0.3, 1.0, features)
    X = (
        coins.standard_normal((facts.n, features)) + 0.4 * coins.standard_normal((facts.n, 1))
    ) * sizes
    X *= 0.8 * problem.row_norm / math.sqrt(float(np.mean(np.sum(X**2, axis=1))))
    X *= np.minimum(1.0, problem.row_norm / np.linalg.norm(X, axis=1))[:, None]
    margins = X @ (coins.standard_normal(features) * sizes) + 1e-300
    margins /= math.sqrt(float(np.mean(margins**2)))
    if problem.loss.classification:
        return X, np.where(coins.random(facts.n) < 1 / (1 + np.exp(-1.5 * margins)), 1.0, -1.0)
    return X, np.clip(0.4 * margins + 0.2 * coins.standard_normal(facts.n), -1.0, 1.0)


class _Objective:
    """The mean loss plus ridge on made-up rows, and its minimum."""

    def __init__(self, problem: Problem, X: np.ndarray, y: np.ndarray) -> None:
        column = np.full((len(X), int(problem.intercept > 0)), problem.intercept)
        self.problem, self.rows, self.y = problem, X, y
        self.X = np.hstack([X, column])

    def __call__(self, theta: np.ndarray) -> float:
        loss = self.problem.loss.value(self.X @ theta, self.y)
        return float(np.mean(loss) + self.problem.l2 / 2 * theta @ theta)

    @cached_property
    def least(self) -> float:
        """By accelerated projected gradients; kinks are rounded off ever less."""
        loss, theta = self.problem.loss, self.problem.domain.centre(self.X.shape[1])
        curved = [loss] if loss.smooth else [Smoothed(loss, width) for width in (0.1, 0.01, 1e-3)]
        for rounded in curved:
            theta = self._descend(rounded, theta)
        return self(theta)

    def _descend(self, loss: Loss, theta: np.ndarray) -> np.ndarray:
        size = float(np.linalg.eigvalsh(self.X.T @ self.X / len(self.y))[-1])
        step = 1 / (loss.smoothness * size + self.problem.l2)
        ahead, weight = theta, 1.0
        for _ in range(600):
            slope = loss.slope(self.X @ ahead, self.y) / len(self.y)
            gradient = slope @ self.X + self.problem.l2 * ahead
            new = self.problem.domain.project(ahead - step * gradient)
            if (ahead - new) @ (new - theta) > 0:
                weight = 1.0
            heavier = (1 + math.sqrt(1 + 4 * weight**2)) / 2
            ahead = new + (weight - 1) / heavier * (new - theta)
            theta, weight = new, heavier
        return theta
