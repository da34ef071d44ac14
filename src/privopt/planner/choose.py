"""Choose an algorithm: rank every solver by its predicted error, and say why the others refused."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from privopt.facts import Facts
from privopt.ownership import own
from privopt.planner.opinions import opinion_of
from privopt.planner.simulate import Expectation, Simulation
from privopt.privacy import Budget, Refused
from privopt.problem import Problem
from privopt.solvers import Frontier, Plan, Solver, catalogue, solver_named
from privopt.solvers.frontier import frontier

TIE = 1.25
"""Bounds this close say nothing about which solver is better: the fewer passes go first."""
HARD, ALIKE = 0.2, 1.5
"""Share of the trivial model's loss from which on accuracy decides, among losses so alike."""
SIMULATED_TIE = 1.1
"""The same for simulated errors, which say more."""

LARGEST = 50.0
"""Beyond this epsilon the tables of exact samplers add to delta what could be noticed: their
distance from the law counts e^epsilon times."""


@dataclass(frozen=True)
class Ranking:
    """Plans from best to worst, and one sentence for each solver that does not apply."""

    facts: Facts
    budget: Budget
    plans: tuple[Plan, ...]
    refused: dict[str, str]

    @property
    def best(self) -> Plan:
        """The plan with the smallest bound; refuses if there is none."""
        if not self.plans:
            raise Refused("no solver applies: " + " ".join(self.refused.values()))
        return replace(self.plans[0], refused=self.refused)

    def frontier(self, epsilons: Iterable[float] | None = None) -> Frontier:
        """Predicted error of the best solver at each epsilon, and what more delta or records buy.

        ``epsilons``: where to look; by default from 1/16 to 16 times the budget's own.
        """

        def predict(epsilon: float, delta: float, n: int) -> tuple[str, float]:
            facts, budget = (
                replace(self.facts, n=n),
                replace(self.budget, epsilon=epsilon, delta=delta),
            )
            found = [(plan.error_at(facts, budget), plan.name) for plan in shown]
            error, name = min(found, default=(math.inf, ""))
            return name, error

        # Where nothing was simulated, bounds decide, and a bound is no match for a simulation.
        simulated = [plan for plan in self.plans if plan.expectation is not None]
        shown = simulated or list(self.plans[:1])
        source = "simulation" if simulated else "bound"
        at = self.budget
        return frontier(predict, at.epsilon, at.delta, self.facts.n, epsilons, source)

    def __str__(self) -> str:
        from privopt.planner.explain import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return f"<pre>{html.escape(str(self))}</pre>"


def rank(facts: Facts, budget: Budget, discrete_noise: bool | str = "auto") -> Ranking:
    """Try every solver of the catalogue on public facts, references too.

    By a simulation of all of them on made-up data; by proved bounds where nothing can be simulated,
    or where a solver is known to go first. Made once for the same facts, unless they hold code or
    arrays of the caller's, which may change.
    """
    asked = (facts, budget, by_epsilon(discrete_noise, budget))
    found = _once(_ranked, tuple(catalogue().items()), asked)
    return replace(found, refused=dict(found.refused))


def _once(make: Any, solvers: Any, asked: tuple[Any, ...]) -> Any:
    """What ``make`` finds, made once for the same public facts."""
    text = repr(asked)  # 1 and 1.0 are equal, and not written alike
    try:
        hash(asked)
        kept = own(asked)
    except TypeError:
        kept = False
    return (make if kept else make.__wrapped__)(solvers, text, *asked)


@lru_cache(maxsize=256)
def _ranked(
    solvers: tuple[tuple[str, Solver], ...],
    _: str,
    facts: Facts,
    budget: Budget,
    discrete_noise: bool | str,
) -> Ranking:
    plans: list[Plan] = []
    refused: dict[str, str] = {}
    for name, solver in solvers:
        sentence = solver.refuse(facts, budget) or _soft(solver, discrete_noise)
        try:
            if sentence is None:
                settings = solver.settings(facts, budget, **_hard(solver, discrete_noise))
                plans.append(Plan(solver, facts, budget, settings))
        except ValueError as problem:
            if discrete_noise is not True:
                raise
            sentence = str(problem)
        if sentence is not None:
            refused[name] = sentence
    plans = _by_bounds(plans)
    simulation = Simulation(facts, budget)
    seen = {} if _led(plans) else simulation.compared(plans)
    if seen:
        plans = [replace(plan, expectation=seen.get(plan.name)) for plan in plans]
        found = {name: one.seen for name, one in seen.items() if one.seen}
        scores = {name: one.score for name, one in found.items()}
        if facts.problem.loss.classification:
            scores = _by_points(scores, {name: one.points for name, one in found.items()})
        plans = _by_simulation(plans, scores)
    if plans and simulation.possible:
        plans[0] = replace(plans[0], expectation=Expectation(facts, budget, plans[0].solver))
    return Ranking(facts, budget, tuple(plans), refused)


def _led(plans: list[Plan]) -> bool:
    """Whether the first plan by bounds needs no simulation of the others to be first."""
    for plan in plans[:1]:
        opinion = opinion_of(plan.name)
        leads = plan.promised and opinion.leads(plan.facts, plan.budget)
        return leads or opinion.prefer(plan.facts, plan.budget) is not None
    return False


def _by_bounds(plans: list[Plan]) -> list[Plan]:
    """Preferred ones first, references last, then by bounds; ties by passes."""
    # A solver that is measured worse than another is ranked as if its bound were not smaller.
    bounds = {plan.name: plan.settings.bound for plan in plans}
    after = {
        plan.name: max(
            bounds[name] for name in (plan.name, *opinion_of(plan.name).behind) if name in bounds
        )
        for plan in plans
    }
    first = [plan for plan in plans if plan.promised and not _behind(plan)]
    least = min((after[plan.name] for plan in first), default=0.0)

    def order(plan: Plan) -> tuple[bool, bool, bool, bool, bool, float]:
        opinion, at = opinion_of(plan.name), (plan.facts, plan.budget)
        tied = after[plan.name] <= TIE * least
        last = plan.settings.passes if tied else after[plan.name]
        preferred, leads = opinion.prefer(*at) is not None, opinion.leads(*at)
        return not plan.promised, _behind(plan), not preferred, not leads, not tied, last

    return sorted(plans, key=order)


def _behind(plan: Plan) -> bool:
    """Whether bounds alone never put it first."""
    opinion = opinion_of(plan.name)
    return opinion.reference or opinion.measured


def _by_points(scores: dict[str, float], points: dict[str, float]) -> dict[str, float]:
    """Where all lose much of what the trivial model loses, the one that costs least accuracy goes
    first, of those that keep on real records what made-up ones promise: a model near zero loses
    little and tells nothing."""
    least = min(scores.values(), default=0.0)
    steady = [name for name in scores if opinion_of(name).steady]
    close = sorted((n for n in steady if scores[n] <= ALIKE * least), key=lambda n: points[n])
    if least < HARD or not close:
        return scores
    # Before all others, and further apart than a tie.
    return {**scores, **{name: least / 10 * (1 + k) for k, name in enumerate(close)}}


def _by_simulation(plans: list[Plan], scores: dict[str, float]) -> list[Plan]:
    """By what was lost on made-up data, whatever is promised; the others stay behind, as they were.
    Losses that are alike go by passes."""
    alike = SIMULATED_TIE * min(scores.values(), default=0.0)

    def order(plan: Plan) -> tuple[bool, bool, float]:
        score = scores.get(plan.name)
        if score is None:
            return True, False, 0.0
        return False, score > alike, plan.settings.passes if score <= alike else score

    return sorted(plans, key=order)


def plan(
    problem: Problem,
    *,
    n: int,
    p: int,
    budget: Budget,
    repeats: int = 1,
) -> Ranking:
    """Rank all solvers for n records with p features, without looking at any data.

    Parameters
    ----------
    problem : Problem
    n : int
        Number of records: public, or declared by the caller.
    p : int
        Number of features, a constant column not counted.
    budget : Budget
    repeats : int, default=1
        Number of models fitted to the same records (one per class, one against the rest).
    """
    return rank(Facts(problem, n, problem.dimension(p), budget.neighbouring, repeats), budget)


def choose(
    facts: Facts,
    budget: Budget,
    solver: str = "auto",
    *,
    discrete_noise: bool | str = "auto",
    **choices: Any,
) -> Plan:
    """The best plan, or the plan of a named solver with some settings chosen by hand.

    ``discrete_noise``: "auto" releases exact integers where a solver can and epsilon is at most
    ``LARGEST``, True takes no other solver, and False stays with floating point.
    """
    if not isinstance(discrete_noise, bool) and discrete_noise != "auto":
        raise ValueError(f'discrete_noise must be True, False or "auto", got {discrete_noise!r}.')
    if solver == "auto":
        if choices:
            raise ValueError('settings can be chosen only for a named solver, not for "auto".')
        return rank(facts, budget, discrete_noise).best
    discrete_noise = by_epsilon(discrete_noise, budget)
    asked = (facts, budget, discrete_noise, tuple(choices.items()))
    return _once(_named, solver_named(solver), asked)


@lru_cache(maxsize=256)
def _named(
    solver: Solver,
    _: str,
    facts: Facts,
    budget: Budget,
    discrete_noise: bool | str,
    choices: tuple[tuple[str, Any], ...],
) -> Plan:
    sentence = solver.refuse(facts, budget) or _soft(solver, discrete_noise)
    if sentence is not None:
        raise Refused(sentence)
    settings = solver.settings(facts, budget, **_hard(solver, discrete_noise), **dict(choices))
    return Plan(solver, facts, budget, settings)


def by_epsilon(discrete_noise: bool | str, budget: Budget) -> bool | str:
    """What "auto" means under this budget."""
    return False if discrete_noise == "auto" and budget.epsilon > LARGEST else discrete_noise


def _soft(solver: Solver, discrete_noise: bool | str) -> str | None:
    """A sentence for a solver that cannot do what is asked."""
    if discrete_noise is True and not solver.has_discrete_noise:
        return f"{solver.name} adds its noise in floating point: leave discrete_noise=True out."
    return None


def _hard(solver: Solver, discrete_noise: bool | str) -> dict[str, bool]:
    """The choice, for solvers that have one."""
    return (
        {"discrete_noise": discrete_noise}
        if solver.has_discrete_noise and isinstance(discrete_noise, bool)
        else {}
    )
