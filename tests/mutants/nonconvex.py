"""Planted bugs of the solvers for losses that are not convex."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from privopt import Budget, Problem
from privopt.facts import Facts
from privopt.geometry import L1Ball, L2Ball
from privopt.losses import Welsch
from privopt.mechanisms import additive, selection
from privopt.oracle import CoordinateClippedGradient, GradientDifference
from privopt.privacy import Accountant, spend
from privopt.solvers import Plan, catalogue, declare, stationary_frank_wolfe
from privopt.solvers.proximal_guided import ProximalGuided
from privopt.solvers.stationary_frank_wolfe import StationaryFrankWolfe

from .checks import law, replayed
from .integers import HALF_GAUSSIAN, UNSHORTENED
from .mutant import Check, Mutant

DELTA = 1e-5
SQUARE = Problem(Welsch(0.7), L1Ball(1.0), column_bounds=1.0)
ROUND = Problem(Welsch(0.7), L2Ball(1.0))


@dataclass(frozen=True)
class Rough(Welsch):
    """A loss that claims to be a hundred times smoother than it is.

    Of margin and label apart, so that no table holds it to that.
    """

    def slope(self, z, y):  # type: ignore[no-untyped-def]
        return super().slope(z, 1.5 * y)

    @property
    def smoothness(self) -> float:
        return 0.01


FULL: dict[str, Any] = {"n_iter": 5, "iterate": 5}
ONE: dict[str, Any] = {"n_iter": 5, "iterate": 5, "one_pass": True}
GUIDED: dict[str, Any] = {"n_iter": 2, "rounds": 3, "phases": 2, "iterate": 3}
PLAIN = {**GUIDED, "discrete_noise": False}
EXACT = {**GUIDED, "discrete_noise": True}


def within_budget(name: str, problem: Problem, relation: Any, **choices: Any) -> Check:
    def check() -> str | None:
        budget, solver = Budget(1.0, DELTA, relation), catalogue()[name]
        facts = Facts(problem, 60, 3, relation)
        plan = Plan(solver, facts, budget, solver.settings(facts, budget, **choices))
        epsilon = Accountant(relation).epsilon(spend(declare(plan)), DELTA)
        return f"plans to spend {epsilon:.3g}, not 1" if epsilon > 1 + 1e-9 else None

    return check


IN_BUDGET = within_budget("stationary_frank_wolfe", ROUND, "replace_one", step=0.2, **ONE)


def later_records_pay() -> str | None:
    """A record that enters after the first estimate pays for two records' differences."""
    budget, solver = Budget(1.0, DELTA, "replace_one"), catalogue()["stationary_frank_wolfe"]
    facts = Facts(ROUND, 40, 3, "replace_one")
    plan = Plan(solver, facts, budget, solver.settings(facts, budget, step=0.2, **ONE))
    s = plan.settings
    moved = 2 * s.difference_clip / s.batch_size / s.noise_multiplier
    expected = moved**2 * sum(0.8 ** (2 * later) for later in range(4))
    ((step, _),) = spend(declare(plan)).leaves()[(1,)].items()
    paid = sum(kind.mu**2 for kind in step.kinds)
    close = math.isclose(paid, expected, rel_tol=1e-9)
    return None if close else f"a record pays {paid:.4g}, not {expected:.4g}"


def _half(honest: Any) -> Any:
    return lambda source, scale, *rest: honest(source, scale / 2, *rest)


def _unclipped(self: GradientDifference, rows: Any, at: Any) -> Any:
    return self.gradient.total(rows, at) - self.keep * self.gradient.total(rows, self.before)


def _raw(self: CoordinateClippedGradient, margins: Any, labels: Any, sizes: Any) -> Any:
    return np.nan_to_num(2 * self.loss.slope(margins, labels))


def _best_iterate(honest: Any) -> Any:
    """The index chosen by looking: where the records' loss is least."""

    def run(self: Any, oracle: Any, gate: Any, problem: Any, settings: Any, *rest: Any) -> Any:
        theta = honest(self, oracle, gate, problem, settings, *rest)
        points = [theta, problem.domain.centre(oracle.dimension)]
        losses = [
            oracle._rows.total(point, lambda z, y, size: problem.loss.value(z, y))
            for point in points
        ]
        return points[int(np.argmin(losses))]

    return run


def _one_estimate(*arguments: Any, honest: Any = stationary_frank_wolfe.dearest_record) -> float:
    """A record paid as if it moved a single estimate."""
    *others, _, eta = arguments
    return honest(*others, 0, eta)


def nonconvex() -> Iterator[Mutant]:
    for name, owner, problem, choices in (
        ("stationary_frank_wolfe", StationaryFrankWolfe, ROUND, FULL),
        ("proximal_guided", ProximalGuided, ROUND, PLAIN),
    ):
        yield Mutant(
            f"{name}: half the gaussian noise",
            ((additive, "gaussian", _half(additive.gaussian)),),
            law(name, DELTA, runs=30, problem=problem, **choices),
            "law",
        )
        yield Mutant(
            f"{name}: slopes are not clipped, and twice as steep",
            ((CoordinateClippedGradient, "weigh", _raw),),
            replayed(name, "zero_out", DELTA, problem=problem, **choices),
            "replay",
            quick=name == "proximal_guided",
        )
        yield Mutant(
            f"{name}: the iterate is chosen by its loss",
            ((owner, "run", _best_iterate(owner.run)),),
            replayed(name, "replace_one", DELTA, problem=problem, **choices),
            "replay",
        )
    yield Mutant(
        "proximal_guided: half the gaussian noise, on integers",
        (HALF_GAUSSIAN,),
        law("proximal_guided", DELTA, runs=30, problem=ROUND, **EXACT),
        "law",
    )
    yield Mutant(
        "proximal_guided: slopes are not clipped, and twice as steep, on integers",
        ((CoordinateClippedGradient, "weigh", _raw), UNSHORTENED),
        replayed("proximal_guided", "zero_out", DELTA, problem=ROUND, **EXACT),
        "replay",
    )
    yield Mutant(
        "stationary_frank_wolfe: half the gumbel noise",
        ((selection, "gumbel", _half(selection.gumbel)),),
        law("stationary_frank_wolfe", DELTA, runs=300, problem=SQUARE, **FULL),
        "law",
        quick=False,
    )
    yield Mutant(
        "stationary_frank_wolfe: differences of gradients are not clipped",
        ((GradientDifference, "total", _unclipped),),
        replayed(
            "stationary_frank_wolfe",
            "zero_out",
            DELTA,
            problem=Problem(Rough(0.7), L2Ball(1.0)),
            **ONE,
        ),
        "replay",
    )
    yield Mutant(
        "stationary_frank_wolfe: noise for a single estimate of one pass",
        ((stationary_frank_wolfe, "dearest_record", _one_estimate),),
        IN_BUDGET,
        "accounting",
    )
    yield Mutant(
        "stationary_frank_wolfe: a replaced record counts once",
        ((GradientDifference, "diameter", lambda self: self.radius()),),
        later_records_pay,
        "accounting",
    )
