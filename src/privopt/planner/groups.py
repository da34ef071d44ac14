"""Plans whose guarantee holds for several records together: all rows of one user.

A solver calibrates its noise for one record. Here it is given a smaller budget, found by search,
at which the loss of the whole group (``privopt.privacy.groups``) meets the budget that was asked
for. The dry run's events decide, not a formula for each solver.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from privopt.facts import Facts
from privopt.planner.choose import choose, rank
from privopt.privacy import Accountant, Budget, Refused, spend
from privopt.privacy.groups import grouped
from privopt.privacy.profiles import gaussian_epsilon, gaussian_mu
from privopt.solvers import Plan, declare

CLOSE, AIM = 0.99, 0.996
"""A plan that spends this much of the budget is not improved further; what the search aims at."""

Make = Callable[[Facts, Budget, str], Plan]
"""From facts, a budget for one record and a solver's name to a plan."""


def choose_for_group(
    facts: Facts, budget: Budget, solver: str = "auto", make: Make = choose
) -> Plan:
    """The best plan whose budget holds for ``facts.group`` records together.

    Solvers whose loss for a group is not known are passed over, or refused if asked for by name.
    """
    if facts.group == 1:
        return make(facts, budget, solver)
    start = _share(budget, facts.group)
    if solver != "auto":
        return _meeting(facts, budget, solver, make, start)
    reason = "no solver applies to groups of records."
    for plan in rank(facts, replace(budget, epsilon=start)).plans:
        try:
            return _meeting(facts, budget, plan.name, make, start)
        except Refused as refused:
            reason = str(refused)
    raise Refused(reason)


def _share(budget: Budget, size: int) -> float:
    """Epsilon of one record, were all noise of one kind: exact for pure and for Gaussian noise."""
    if budget.pure:
        return budget.epsilon / size * (1 - 1e-12)
    return gaussian_epsilon(gaussian_mu(budget.epsilon, budget.delta) / size, budget.delta)


def _meeting(facts: Facts, budget: Budget, solver: str, make: Make, epsilon: float) -> Plan:
    """A plan that meets the group's budget and leaves at most a hundredth of it."""
    accountant = Accountant(budget.neighbouring)
    best: Plan | None = None
    below: tuple[float, float] | None = None
    above: tuple[float, float] | None = None
    for _ in range(12):
        plan = replace(make(facts, replace(budget, epsilon=epsilon), solver), budget=budget)
        spent = grouped(spend(declare(plan)), facts.group, kept_together=True)
        found = accountant.epsilon(spent, budget.delta)
        if found <= budget.epsilon:
            best, below = plan, (epsilon, found)
            if found >= CLOSE * budget.epsilon:
                break
        else:
            above = (epsilon, found)
        epsilon = _next(below, above, AIM * budget.epsilon)
    if best is None:
        raise Refused(f"{solver} leaves no budget for one of {facts.group} rows of a user.")
    return best


def _next(
    below: tuple[float, float] | None, above: tuple[float, float] | None, wanted: float
) -> float:
    """Where the group's epsilon should be the wanted one: on the line through what is known, in
    logarithms; in proportion to one point while there is no other."""
    if below is None or above is None:
        at, found = cast(tuple[float, float], below or above)
        return at * min(max(wanted / found, 0.1), 10.0)
    (low, first), (high, second) = below, above
    part = math.log(wanted / first) / math.log(second / first)
    return low * (high / low) ** min(max(part, 0.1), 0.9)
