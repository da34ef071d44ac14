"""Choose an algorithm: rank every solver by its proved bound, and say why the others refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from privopt.facts import Facts
from privopt.privacy import Budget, Refused
from privopt.problem import Problem
from privopt.solvers import Plan, Solver, catalogue, solver_named

TIE = 1.25
"""Bounds this close say nothing about which solver is better: the fewer passes go first."""


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
        return self.plans[0]

    def __str__(self) -> str:
        from privopt.planner.explain import as_text

        return as_text(self)


def rank(facts: Facts, budget: Budget, hardened: bool | str = "auto") -> Ranking:
    """Try every solver of the catalogue on public facts."""
    plans: list[Plan] = []
    refused: dict[str, str] = {}
    for name, solver in catalogue().items():
        sentence = solver.refuse(facts, budget) or _soft(solver, hardened)
        try:
            if sentence is None:
                settings = solver.settings(facts, budget, **_hard(solver, hardened))
                plans.append(Plan(solver, facts, budget, settings))
        except ValueError as problem:
            if hardened is not True:
                raise
            sentence = str(problem)
        if sentence is not None:
            refused[name] = sentence
    bounds = {plan.name: plan.settings.bound for plan in plans}
    # A solver that is measured worse than another is ranked as if its bound were not smaller.
    after = {
        plan.name: max(bounds[name] for name in (plan.name, *plan.solver.behind) if name in bounds)
        for plan in plans
    }
    first = [plan for plan in plans if plan.promised]
    least = min((after[plan.name] for plan in first if not plan.solver.reference), default=0.0)

    def order(plan: Plan) -> tuple[bool, bool, bool, bool, float]:
        bound, solver = after[plan.name], plan.solver
        tied = bound <= TIE * least
        last = plan.settings.passes if tied else bound
        unproved = not plan.promised
        return unproved, solver.reference, solver.prefer(facts, budget) is None, not tied, last

    return Ranking(facts, budget, tuple(sorted(plans, key=order)), refused)


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
    hardened: bool | str = "auto",
    **choices: Any,
) -> Plan:
    """The best plan, or the plan of a named solver with some settings chosen by hand.

    ``hardened``: "auto" releases exact integers where a solver can, True takes no other solver, and
    False stays with floating point.
    """
    if not isinstance(hardened, bool) and hardened != "auto":
        raise ValueError(f'hardened must be True, False or "auto", got {hardened!r}.')
    if solver == "auto":
        if choices:
            raise ValueError('settings can be chosen only for a named solver, not for "auto".')
        return rank(facts, budget, hardened).best
    named = solver_named(solver)
    sentence = named.refuse(facts, budget) or _soft(named, hardened)
    if sentence is not None:
        raise Refused(sentence)
    settings = named.settings(facts, budget, **_hard(named, hardened), **choices)
    return Plan(named, facts, budget, settings)


def _soft(solver: Solver, hardened: bool | str) -> str | None:
    """A sentence for a solver that cannot do what is asked."""
    if hardened is True and not solver.hardens:
        return f"{solver.name} adds its noise in floating point: leave hardened=True out."
    return None


def _hard(solver: Solver, hardened: bool | str) -> dict[str, bool]:
    """The choice, for solvers that have one."""
    return {"hardened": hardened} if solver.hardens and isinstance(hardened, bool) else {}
