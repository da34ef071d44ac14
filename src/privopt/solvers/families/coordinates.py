"""What coordinate methods have in common: constants along coordinates, steps, bound."""

from __future__ import annotations

import math

import numpy as np

from privopt.facts import Facts
from privopt.geometry import Box, WholeSpace
from privopt.privacy import Budget
from privopt.privacy.profiles import concentrated_rho
from privopt.problem import Problem
from privopt.solvers.solver import entry_bounds

MOST_STEPS = 1000


def refuse_coordinates(name: str, facts: Facts) -> str | None:
    """Why a coordinate method does not apply, in a sentence."""
    domain = facts.problem.domain
    if not math.isfinite(facts.problem.loss.lipschitz):
        return (
            f"{name} needs a Lipschitz loss to clip at; {facts.loss_name} is not: "
            "use Squared(residual_clip=...) or Huber(width)."
        )
    if not facts.smooth:
        return f"{name} needs a smooth loss; {facts.loss_name} is not smooth."
    if not isinstance(domain, (Box, WholeSpace)):
        return (
            f"{name} needs a domain that splits into coordinates; {type(domain).__name__} does "
            "not: use Box or WholeSpace."
        )
    return None


def smoothness_along(problem: Problem, n: int, p: int) -> np.ndarray:
    """Public smoothness of the sum along each coordinate, from the bounds on features."""
    return n * problem.loss.smoothness * entry_bounds(problem).each(p) ** 2


def check_step(n_iter: int | None, clip: float, factor: float, l1: float) -> None:
    """Refuse settings that mean nothing."""
    if n_iter is not None and n_iter < 1:
        raise ValueError(f"n_iter must be positive, got {n_iter}.")
    if not 0 < clip < math.inf:
        raise ValueError(f"slope_clip must be positive and finite, got {clip!r}.")
    if not 0 < factor < math.inf:
        raise ValueError(f"step_factor must be positive and finite, got {factor!r}.")
    if not 0 <= l1 < math.inf:
        raise ValueError(f"l1 must be non-negative and finite, got {l1!r}.")


def strength(facts: Facts, budget: Budget) -> float:
    """n sqrt(2 rho) / (2 a log p): what a coordinate's slope is in units of a choice's noise."""
    if budget.pure:
        found = budget.epsilon / facts.repeats
    else:
        found = math.sqrt(2 * concentrated_rho(budget.epsilon, budget.delta) / facts.repeats)
    return facts.n * found / (2 * facts.relation_factor * max(1.0, math.log(facts.p)))


def step_count(facts: Facts, budget: Budget) -> int:
    """Steps until noise takes more than a step gains: 0.75 strength^0.8, from measurements on made
    data with few and with many large coefficients, of which the best power lay between the 2/3 of
    the convex theory and 1; about two thirds of that power where noise grows with the number of
    steps and not with its root."""
    power = 0.5 if budget.pure else 0.8
    return max(1, min(MOST_STEPS, round(0.75 * strength(facts, budget) ** power)))


def descend_bound(
    facts: Facts, l1: float, steps: int, choice_error: float, update_loss: float
) -> float:
    """Excess of the mean after so many steps of the recursion at the head of this file."""
    n, p, problem = facts.n, facts.p, facts.problem
    bounds = entry_bounds(problem)
    far = facts.diameter() if facts.bounded else 2 * facts.radius()
    wide = math.sqrt(p) * far
    excess = n * (problem.loss.lipschitz * bounds.largest + l1) * wide
    excess += n * problem.l2 * far**2
    stiff = n * problem.loss.smoothness * bounds.largest**2
    size = math.sqrt(p * max(stiff * far**2, excess))
    for _ in range(steps):
        excess += update_loss - 0.5 * max(excess / size - choice_error, 0.0) ** 2
    return excess / n
