"""Choices of vertices: what Frank-Wolfe methods need, and what a choice costs."""

from __future__ import annotations

import math

from privopt.facts import Facts
from privopt.geometry import L1Ball, LpBall, Polytope, Simplex
from privopt.geometry.norms import Norm, dual, dual_order, order_named
from privopt.mechanisms.maps import VertexScores
from privopt.oracle import RowBounds
from privopt.privacy import Budget
from privopt.privacy.profiles import concentrated_rho
from privopt.problem import Problem
from privopt.solvers.families.passes import refuse_unless_ordered
from privopt.solvers.families.rounding import refuse_kink
from privopt.solvers.solver import entry_bounds


def choice_multiplier(budget: Budget, choices: int) -> float:
    """Noise of one of several choices over the range of its scores: 1/eta.

    zCDP of eta^2/8 each, or pure composition where that allows less noise.
    """
    eta = budget.epsilon / choices
    if not budget.pure:
        rho = concentrated_rho(budget.epsilon, budget.delta)
        eta = max(eta, math.sqrt(8 * rho / choices))
    return (1 + 1e-12) / eta


def refuse_vertices(name: str, facts: Facts) -> str | None:
    """What a choice of vertices along gradients needs."""
    domain = facts.problem.domain
    if not math.isfinite(facts.problem.loss.lipschitz):
        return (
            f"{name} needs a Lipschitz loss to clip at; {facts.loss_name} is not: "
            "use Squared(residual_clip=...) or Huber(width)."
        )
    if not facts.smooth:
        return refuse_kink(name, facts)
    if not isinstance(domain, (L1Ball, Simplex, Polytope)):
        return (
            f"{name} needs the vertices of a polytope; {type(domain).__name__} has no "
            "short list of them: use L1Ball, Simplex or Polytope."
        )
    if domain.diameter("l1", facts.p) == 0:
        return f"{name} needs at least two vertices; a single one is the answer already."
    return None


def vertex_bounds(problem: Problem) -> RowBounds:
    """Entries clipped to the declared column bounds, or rows to their norm."""
    if problem.column_bounds is None:
        return RowBounds(problem.row_norm, problem.intercept)
    return RowBounds(math.inf, problem.intercept, problem.column_bounds)


def vertex_curvature(facts: Facts) -> float:
    """Curvature constant of the mean over the domain."""
    bounds, domain = vertex_bounds(facts.problem), facts.problem.domain
    far = domain.diameter("l2", facts.p)
    margin = min(bounds.largest * domain.diameter("l1", facts.p), bounds.size * far)
    return facts.problem.loss.smoothness * margin**2 + facts.problem.l2 * far**2


def refuse_one_pass(name: str, facts: Facts, budget: Budget, least: int, what: str) -> str | None:
    """What one-pass Frank-Wolfe on vertices needs."""
    sentence = refuse_vertices(name, facts)
    if sentence is not None:
        return sentence
    if budget.pure:
        return f'{name} needs delta > 0: give one, or use solver="frank_wolfe".'
    if facts.n < least:
        return f"{name} needs at least {least} records for {what}: collect more."
    return refuse_unless_ordered(name, facts)


def largest_margin(facts: Facts, *, from_centre: bool = False) -> float:
    """Largest |<x, u>| for a row x and the difference u of two points of the domain, or of one
    point and the centre."""
    bounds, domain = entry_bounds(facts.problem), facts.problem.domain
    far = domain.radius if from_centre else domain.diameter
    norms: tuple[Norm, ...] = ("l1", "l2", "linf")
    found = [
        bounds.in_norm(order_named(dual(norm)), facts.p) * far(norm, facts.p) for norm in norms
    ]
    if isinstance(domain, LpBall):
        row = bounds.in_norm(dual_order(domain.order), facts.p)
        found.append(row * domain.size * (1 if from_centre else 2))
    return min(found)


def selection_error(facts: Facts, variance: float, scale: float) -> float:
    """Loss of a choice by estimates with this variance proxy in every coordinate, and by noise of
    this scale for a gradient that moves by one."""
    domain = facts.problem.domain
    assert isinstance(domain, (L1Ball, Simplex, Polytope))
    far = domain.diameter("l1", facts.p)
    count = VertexScores(domain, facts.p).count
    sampling = math.sqrt(2 * variance * math.log(2 * facts.p))
    return far * (sampling + scale * math.log(count))


def largest_fall(facts: Facts) -> float:
    """Bound on F(centre) - min F: by the slope, or by the range of a loss that stops growing."""
    loss, centre = facts.problem.loss, facts.problem.domain.centre(facts.p)
    by_slope = loss.lipschitz * largest_margin(facts, from_centre=True)
    ridge = facts.problem.l2 / 2 * float(centre @ centre)
    return min(by_slope, loss.range_on(math.inf, 0.0)) + ridge
