"""Simulation: how large a solver's error is on made-up data of the same shape.

Bounds hold for the worst data; how loose they are on ordinary data differs from solver to solver,
so that a ranking by bounds alone may put a solver first that measures a hundred times worse. Here
each solver is run, with the settings it would really use, on rows drawn from public facts alone
(``made_up``), in several situations, because nobody knows which one the records are in. What is
predicted is the median over situations; solvers are ranked by the geometric mean of the shares they
lose of what the trivial model loses.

Shape: the errors of private methods depend on n and the budget through n mu (mu in Gaussian, or
epsilon in pure, units). So errors are simulated at fixed nodes of n mu, with no more records than
it takes, and interpolated in logarithms between two nodes: predictions fall where records or budget
grow. Beyond ``most_parameters`` columns fewer stand for them, with the same ratios of columns to
records and of sqrt(p) to n mu; the error is then the bound times what it is too large by there. No
data is touched and nothing private is spent: plans depend on public facts, and a wrong prediction
can only make the planner choose worse.
"""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from privopt.cache import remembered
from privopt.facts import Facts
from privopt.geometry import Box, L1Ball, L2Ball, LpBall, Polytope, Simplex, WholeSpace
from privopt.mechanisms import Gate
from privopt.noise import SeededSource
from privopt.oracle import Oracle
from privopt.planner.made_up import SEED, made_data, situations
from privopt.planner.objective import Objective
from privopt.planner.opinions import opinion_of
from privopt.privacy import Budget, Refused
from privopt.privacy.profiles import gaussian_epsilon, gaussian_mu
from privopt.solvers import Plan, Prediction, Settings, Solver, families

QUICK = (WholeSpace, L2Ball, L1Ball, Box, Simplex)
"""Domains onto which projecting is quick; on ``SLOW`` ones the best by its bound is simulated when
somebody asks, and nothing is compared."""
SLOW = (LpBall, Polytope)
FEW_SITUATIONS, MANY_PARAMETERS = 3, 64
"""How many situations are enough on slow domains, or for so many parameters."""
MOST_PARAMETERS, MOST_SLOW = 200, 32
"""Beyond, so many stand for more; fewer where projecting is slow."""
FEWEST_RECORDS, MOST_RECORDS = 256, 1024
LARGEST_MU = 3.0
"""Amplification by sampling and the cost of curvature change beyond; more records are taken."""
FIRST, APART, LAST = 4.0, 2.0, 11
"""Nodes of n mu: the first, the ratio of one to the one before, and how many come after it."""
DELTA = 1e-6
"""Of all nodes that are not pure: what counts is mu."""
RUNS, STEPS = 16, 3000
"""Runs of a solver in one situation, over p; steps of all of them together."""
SMALL = 3e-4
"""Errors below this share of what the trivial model loses are ties: on made-up data, which is never
as ill-conditioned as real data, they say nothing."""
LEAST = 1e-7
"""Shares below this are the precision of the minimum they are measured from."""
HOPELESS = 5.0
"""Times the least error in the plain situation from which on a solver is not looked at in others.
"""


@dataclass(frozen=True)
class Measured:
    """Of one solver at one node, by situation: the excess, what the trivial model loses, and what
    is lost of accuracy or R2."""

    excess: tuple[float, ...]
    trivial: tuple[float, ...]
    points: tuple[float, ...]

    @property
    def prediction(self) -> Prediction:
        shares = np.maximum(np.array(self.excess) / np.array(self.trivial), LEAST)
        return Prediction(
            error=float(np.median(shares * np.array(self.trivial))),
            score=float(np.exp(np.mean(np.log(shares + SMALL)))),
            share=float(np.median(shares)),
            worst=float(shares.max()),
            points=float(np.median(self.points)),
        )


class Simulation:
    """Runs of solvers on made-up data sets of about the same shape."""

    def __init__(self, facts: Facts, budget: Budget) -> None:
        domain = facts.problem.domain
        known = isinstance(domain, QUICK + SLOW)
        narrow = facts.p <= most_parameters(facts) or not domain.dimension
        self.possible = known and narrow and facts.features > 0 and not facts.prior
        self.facts, self.budget = facts, budget
        self._objectives: dict[tuple[int, str], Objective] = {}

    # ------------------------------------------------------------ what is asked
    def compared(self, plans: Sequence[Plan]) -> dict[str, Expectation]:
        """What to expect of all that can be simulated, at the node of n mu before.

        First in the plain situation; those that are not hopeless there in all situations.
        """
        if not self.possible or isinstance(self.facts.problem.domain, SLOW):
            return {}
        at, _, _ = place(self.facts, self.budget)
        solvers = {plan.name: plan.solver for plan in plans if _worth(plan)}
        seen = self._all(solvers, at, glance=True)
        left = _within(seen, HOPELESS)
        close = self._all({name: solvers[name] for name in left}, at)
        if not close:
            return {}
        first = min(close, key=lambda name: close[name].score)
        return {
            name: Expectation(self.facts, self.budget, solvers[first], one)
            for name, one in {**seen, **close}.items()
        }

    def at_nodes(self, solver: Solver) -> list[Prediction]:
        """At the nodes before and after, in all situations."""
        if solver.joint:
            return []
        ends = place(self.facts, self.budget)[:2]
        found = [self._all({solver.name: solver}, at).get(solver.name) for at in ends]
        return [one for one in found if one is not None]

    # ------------------------------------------------------------ runs
    def _all(
        self, solvers: Mapping[str, Solver], at: Shape, glance: bool = False
    ) -> dict[str, Prediction]:
        found = {name: self._kept(solver, at, glance) for name, solver in solvers.items()}
        return {name: one.prediction for name, one in found.items() if one is not None}

    def _kept(self, solver: Solver, at: Shape, glance: bool) -> Measured | None:
        facts, budget = at
        if solver.refuse(facts, budget) is not None:
            return None
        key = {
            "solver": solver.name,
            "source": fingerprint(solver),
            "facts": repr(facts),
            "epsilon": round(budget.epsilon, 6),
            "delta": budget.delta,
            "neighbouring": budget.neighbouring,
            "glance": glance,
        }

        def make() -> Any:
            # In a context of its own: an audit that watches this one is not to see made-up data.
            return Context().run(self._measured, solver, at, glance)

        found = remembered("simulated", key, make, _plausible)
        return None if found == "refused" else Measured(*(tuple(one) for one in found))

    def _measured(self, solver: Solver, at: Shape, glance: bool) -> Any:
        facts, budget = at
        try:
            settings = solver.settings(facts, budget)
        except (Refused, ValueError):
            return "refused"
        public = settings.public()
        steps = public.get("n_iter", max(200, round(settings.passes)))
        runs = min(max(1, RUNS // facts.p), max(1, STEPS // steps))
        if "discrete_noise" in public:  # made-up data needs no protection of its low-order bits
            settings = replace(settings, **{"discrete_noise": False})
        found = []
        for index, situation in enumerate(self._situations[: 1 if glance else None]):
            objective = self._objective(facts, situation)
            values, points = [], []
            for seed in range(runs):
                try:
                    theta = self._run(solver, settings, objective, RUNS * index + seed)
                except Refused:
                    return "refused"
                values.append(objective(theta) - objective.least)
                points.append(objective.hits(objective.minimiser) - objective.hits(theta))
            found.append(
                (float(np.mean(values)), objective.trivial - objective.least, np.mean(points))
            )
        return [[max(float(x), 1e-12 if i < 2 else 0.0) for x in one]
                for i, one in enumerate(zip(*found, strict=True))]  # fmt: skip

    @cached_property
    def _situations(self) -> tuple[str, ...]:
        found = situations(self.facts)
        slow = isinstance(self.facts.problem.domain, SLOW)
        return found[:FEW_SITUATIONS] if slow or self.facts.p > MANY_PARAMETERS else found

    def _objective(self, facts: Facts, situation: str) -> Objective:
        key = (facts.n, situation)
        if key not in self._objectives:
            rows, y = made_data(facts, situation)
            constant = np.full((facts.n, int(facts.problem.intercept > 0)), facts.problem.intercept)
            self._objectives[key] = Objective(facts.problem, np.hstack([rows, constant]), y)
        return self._objectives[key]

    def _run(
        self, solver: Solver, settings: Settings, objective: Objective, seed: int
    ) -> np.ndarray:
        source, problem = SeededSource(SEED + seed), objective.problem
        oracle = Oracle.over(
            objective.X[:, :-1] if problem.intercept > 0 else objective.X,
            objective.y,
            neighbouring=self.budget.neighbouring,
            bounds=solver.row_bounds(problem),
            source=source,
            classification=problem.loss.classification,
        )
        # One of the models that share the budget stands for all.
        return solver.run(oracle, Gate(source), problem, settings)


@dataclass(frozen=True)
class Expectation:
    """What a solver is expected to lose, computed when somebody asks.

    ``seen`` is what it lost at the node before; None if it is what ``solver`` itself loses. From
    there it falls like what ``solver`` loses, the best of those it was compared with.
    """

    facts: Facts
    budget: Budget
    solver: Solver
    seen: Prediction | None = None

    def __call__(self) -> Prediction | None:
        """Between two nodes of n mu, in logarithms; beyond the last one as errors fell there."""
        simulation = Simulation(self.facts, self.budget)
        ends = simulation.at_nodes(self.solver) if simulation.possible else []
        if len(ends) < 2:
            return self.seen
        low, high, part = place(self.facts, self.budget)
        first, last = ends
        if self.facts.p > most_parameters(self.facts):
            first, last = (
                one.times(self._bound(self.facts, self.budget) / self._bound(*shape))
                for one, shape in ((first, low), (last, high))
            )
        if part > 1:  # errors go on falling as they did, at least like 1 / (n mu)
            fall = math.log(first.error / last.error, APART)
            found = last.times(APART ** (-(part - 1) * min(max(fall, 1.0), 2.0)))
        else:
            found = first.towards(last, part)
        return found.times(1.0 if self.seen is None else self.seen.error / ends[0].error)

    def _bound(self, facts: Facts, budget: Budget) -> float:
        """The bound, or 1 where nothing is proved."""
        bound = self.solver.settings(facts, budget).bound
        return bound if math.isfinite(bound) else 1.0


Shape = tuple[Facts, Budget]


def most_parameters(facts: Facts) -> int:
    """How many columns are simulated at most."""
    return MOST_SLOW if isinstance(facts.problem.domain, SLOW) else MOST_PARAMETERS


def place(facts: Facts, budget: Budget) -> tuple[Shape, Shape, float]:
    """Two shapes between which this one lies, and how far from the first, in logarithms."""
    mu = budget.epsilon if budget.pure else gaussian_mu(budget.epsilon, budget.delta)
    signal = facts.n * mu * math.sqrt(min(1.0, most_parameters(facts) / facts.p))
    at = math.log(max(signal / FIRST, 1.0), APART)
    node = min(math.floor(at), LAST - 1)
    return shape(facts, budget, node), shape(facts, budget, node + 1), at - node


def shape(facts: Facts, budget: Budget, node: int) -> Shape:
    """A smaller problem at a node of n mu."""
    signal, n, p, most = FIRST * APART**node, facts.n, facts.p, most_parameters(facts)
    problem = facts.problem
    if p > most:
        n = max(64, round(n * most / p))
        if problem.column_bounds is not None and problem.data_norm is not None:
            # As long as before, measured by how long entries let them be.
            problem = replace(problem, data_norm=problem.data_norm * math.sqrt(most / p))
        p = most
    elif not facts.problem.domain.dimension and p > 4:
        p = _rounded(p)
    largest = LARGEST_MU if not budget.pure else 2 * LARGEST_MU
    wanted = min(max(FEWEST_RECORDS, 6 * p, signal / largest), MOST_RECORDS)
    n = 2 ** math.floor(math.log2(min(n, wanted)))
    delta = 0.0 if budget.pure else DELTA
    epsilon = signal / n if budget.pure else gaussian_epsilon(signal / n, delta)
    units = problem.units
    if units is not None:  # columns like one another, as made-up ones are
        units = (float(np.exp(np.mean(np.log(units)))),) * (p - bool(problem.intercept))
    # Made-up rows follow a linear model.
    problem = replace(problem, shaped=(), units=units)
    return replace(facts, problem=problem, n=n, p=p), replace(budget, epsilon=epsilon, delta=delta)


def _worth(plan: Plan) -> bool:
    """What is compared; not a grid, the way of densities without convexity: it takes minutes."""
    enumerated = plan.solver.convexity_free and not plan.facts.convex
    return not (plan.solver.joint or enumerated or opinion_of(plan.name).reference)


def _within(found: Mapping[str, Prediction], factor: float) -> list[str]:
    least = min((one.score for one in found.values()), default=0.0)
    return [name for name, one in found.items() if one.score <= factor * least]


def fingerprint(solver: Solver) -> str:
    """Of the code that a simulation of it runs through: its own file, what solvers share, and those
    of this simulation. A change to any of them makes the kept result one of another solver."""
    shared = sorted(Path(families.__file__).parent.glob("*.py"))
    here = Path(__file__).parent
    made = (__file__, str(here / "made_up.py"), str(here / "objective.py"))
    try:
        own = (inspect.getfile(type(solver)),)
    except (OSError, TypeError):  # written where there is no file
        own = ()
    return _digest((*own, *map(str, shared), *made))


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
    if found == "refused":
        return True
    rows = [[float(x) for x in one] for one in found]
    return len(rows) == 3 and all(math.isfinite(x) for one in rows for x in one) and all(
        len(one) == len(rows[0]) > 0 and min(one) >= 0 for one in rows
    )  # fmt: skip
