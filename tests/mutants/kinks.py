"""Planted bugs of kinks that are rounded off, and the check that kills them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from privopt import Problem
from privopt.facts import Facts
from privopt.geometry import L2Ball
from privopt.losses import Absolute, Smoothed
from privopt.losses.smoothed import SmoothedLines
from privopt.mechanisms import Gate
from privopt.noise import SeededSource
from privopt.oracle import Oracle, RowBounds
from privopt.privacy import Budget
from privopt.solvers import catalogue
from privopt.solvers.families import rounding
from privopt.solvers.solver import Plan

from .mutant import Mutant


def law_of_a_kink() -> str | None:
    """One parameter, exactly: the density of the minimiser is that of the noise at its gradient
    times the curvature, for the loss that the solver hands to its mechanism."""
    solver, budget = catalogue()["objective_perturbation"], Budget(1.0)
    problem = Problem(Absolute(), L2Ball(5.0))
    facts = Facts(problem, 100, 1, "zero_out")
    plan = Plan(solver, facts, budget, solver.settings(facts, budget))
    seen: list[tuple[Any, Any]] = []

    def catch(mechanism: Any, payload: Any, sensitivity: Any, event: Any, run: Any) -> Any:
        seen.append((mechanism, payload.loss))
        return np.zeros(1)

    oracle = Oracle.over(
        np.ones((1, 1)),
        np.ones(1),
        neighbouring="zero_out",
        bounds=RowBounds(1.0),
        source=SeededSource(0),
    )
    gate = Gate(SeededSource(0), hook=catch)
    solver.run(oracle, gate, problem, plan.settings)
    ((mechanism, loss),) = seen
    if not isinstance(loss, SmoothedLines):
        return "the kink is still there"
    scale, lam = mechanism.multiplier, mechanism.regularisation
    at = 1.0 + loss.width * np.linspace(-1.5, 1.5, 4001)
    slope = loss.slope(at, np.ones(1))
    # The curvature that the slope has, not the one that the loss states.
    bend = np.gradient(slope, at)
    worst = 0.0
    for others in (-20.0, 20.0):
        rest = others + lam * at
        ratio = (np.abs(rest) - np.abs(rest + slope)) / scale + np.log1p(bend / lam)
        worst = max(worst, float(np.abs(ratio).max()))
    within = worst + 1 / mechanism.output_multiplier
    return None if within <= 1.0 + 1e-6 else f"a loss of {within:.4f} where 1 was paid for"


def _narrow_run(
    self: Any, oracle: Any, gate: Any, problem: Any, settings: Any, tick: Any = None
) -> np.ndarray:
    loss = Smoothed(problem.loss, settings.rounded / 2)
    return self.run_smooth(oracle, gate, replace(problem, loss=loss), settings)


def kinks() -> Iterator[Mutant]:
    stated = property(lambda self: self.jump / (4 * self.width))
    by = "exact law in one dimension"
    yield Mutant(
        "the slope of a rounded kink rises twice as fast as stated",
        ((SmoothedLines, "smoothness", stated),),
        law_of_a_kink,
        by,
    )
    yield Mutant(
        "a run rounds a kink off over half the width of its plan",
        ((rounding.RoundingSolver, "run", _narrow_run),),
        law_of_a_kink,
        by,
    )
