"""What coordinate methods have in common: constants along coordinates, steps, bound."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.optimize import minimize_scalar

from privopt.facts import EXPECTED_MARGIN, Facts
from privopt.geometry import Box, Separable, WholeSpace
from privopt.losses import Loss
from privopt.privacy import Budget
from privopt.privacy.profiles import concentrated_rho
from privopt.problem import Problem
from privopt.solvers.families.rounding import refuse_kink
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
        return refuse_kink(name, facts)
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
    facts: Facts,
    l1: float,
    steps: int,
    choice_error: float,
    update_loss: float,
    *,
    greedy: bool = True,
) -> float:
    """Excess of the mean after so many steps of the recursion at the head of the greedy solver;
    with ``greedy=False`` for coordinates drawn at random, of which each counts for a p-th."""
    n, p, problem = facts.n, facts.p, facts.problem
    start = Separable.over(problem.domain, n * l1, n * problem.l2).prox(np.zeros(p), 1.0)
    few = p if problem.sparsity is None or start.any() or not greedy else problem.sparsity
    far = facts.diameter() if facts.bounded else 2 * _size(facts)
    wide = facts.diameter("linf") if facts.bounded else math.inf
    own = n * problem.l2
    stiff = n * problem.loss.smoothness * entry_bounds(problem).largest ** 2 + own
    excess = n * _start_gap(facts, l1, few, far, start)
    for t in range(steps):
        among = p if few == p else min(p, few + t)
        square = max(stiff * min(far**2, among * wide**2), excess)
        slope = math.sqrt(max(excess**2 / (square * among), 2 * excess * own / (stiff * among)))
        excess += update_loss - 0.5 * max(slope - choice_error, 0.0) ** 2
    return excess / n


def _size(facts: Facts) -> float:
    """The l2 size to expect of a model of few coefficients on the whole space."""
    few = facts.problem.sparsity
    if few is None or facts.problem.theta_norm is not None:
        return facts.radius()
    return EXPECTED_MARGIN / (entry_bounds(facts.problem).largest * math.sqrt(few))


def _start_gap(facts: Facts, l1: float, few: int, far: float, start: np.ndarray) -> float:
    """The most by which the start's mean exceeds that of a model of few coefficients, no further
    than ``far`` from it."""
    problem, loss = facts.problem, facts.problem.loss
    bounds = entry_bounds(problem)
    margin = min(bounds.largest * math.sqrt(few), bounds.size) * far
    penalty = l1 * float(np.abs(start).sum()) + problem.l2 * float(start @ start) / 2
    gap = loss.lipschitz * margin
    if loss.classification and not start.any():
        gap = min(gap, max(_fall(loss, margin, label) for label in (-1.0, 1.0)))
    return gap + penalty


@lru_cache(maxsize=256)
def _fall(loss: Loss, margin: float, label: float) -> float:
    """How far a convex loss falls from margin 0 to its least within so large margins."""

    def value(z: float) -> float:
        return float(loss.value(np.array([z]), np.array([label]))[0])

    inside = minimize_scalar(value, bounds=(-margin, margin), method="bounded").fun
    return value(0.0) - min(value(-margin), value(margin), float(inside))
