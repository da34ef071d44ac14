"""Planted bugs of l_p geometry and of one-pass Frank-Wolfe."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from privopt import Budget, Problem
from privopt.facts import Facts
from privopt.geometry import L1Ball, LpBall
from privopt.losses import Huber, Logistic
from privopt.mechanisms import additive, selection
from privopt.oracle import GradientDifference, RunningSum, sanitize
from privopt.oracle.rows import RowBounds
from privopt.privacy import Accountant, spend
from privopt.solvers import Plan, catalogue, declare, tree_sfw

from .checks import law, replayed
from .integers import HALF_GAUSSIAN, UNSHORTENED
from .mutant import Mutant

DELTA = 1e-5
ONE_PASS = ("tree_sfw", "poly_sfw", "variance_reduced_sfw")
FLAT = ("mirror_descent", "phased_mirror_descent")
BALL = Problem(Huber(0.5), LpBall(1.3, 2.0), column_bounds=1.0)
DUAL = Problem(Huber(0.5), LpBall(1.3, 2.0), dual_norm=0.4)
ROADS: tuple[tuple[bool, str, Any, tuple[Any, ...]], ...] = (
    (False, "", None, ()),
    (True, ", on integers", HALF_GAUSSIAN, (UNSHORTENED,)),
)
"""Noise in floating point and on exact integers: what halves it, and what must fall as well."""


@dataclass(frozen=True)
class Rough(Huber):
    """A loss that claims to be a hundred times smoother than it is.

    Of margin and label apart, so that no table holds it to that.
    """

    def slope(self, z, y):  # type: ignore[no-untyped-def]
        return super().slope(z, 1.5 * y)

    @property
    def smoothness(self) -> float:
        return 0.01


ROUGH = Problem(Rough(0.5), L1Ball(2.0), column_bounds=1.0)


def node_charges() -> str | None:
    """Each node of a tree is charged for the leaves it serves, with its own movement."""
    problem = Problem(Huber(0.5), L1Ball(1.0), column_bounds=1.0)
    solver, budget = catalogue()["tree_sfw"], Budget(1.0, DELTA, "replace_one")
    facts = Facts(problem, 100, 3, "replace_one")
    plan = Plan(solver, facts, budget, solver.settings(facts, budget, phases=2))
    plan = replace(plan, settings=replace(plan.settings, noise_multiplier=7.0))
    batch, found = plan.settings.batch_size, spend(declare(plan)).leaves()
    # Leaves of two phases: root, right; root, depth 2, depth 1, depth 2.
    for cell, (uses, depth) in enumerate([(2, 0), (1, 1), (4, 0), (1, 2), (2, 1), (1, 2)]):
        size = batch >> depth
        before, now = cell - uses, cell
        share = 1 - before * (before + 1) / (now * (now + 1)) if depth else 0.0
        slope = min(1.0, share * 2.0) if depth else 0.5
        expected = uses * (2 * slope * batch / size / 7.0) ** 2 / 8
        charge = found.get((cell,), {})
        paid = sum(kind.rho * count for step, count in charge.items() for kind in step.kinds)
        if not math.isclose(paid, expected, rel_tol=1e-9):
            return f"node {cell} pays {paid:.4g}, not {expected:.4g}"
    return None


def tree_within_budget() -> str | None:
    """A tree whose roots, which serve the most leaves, are what the noise is for."""
    problem = Problem(Logistic(), L1Ball(1.0), column_bounds=1.0)
    solver, budget = catalogue()["tree_sfw"], Budget(1.0, DELTA)
    facts = Facts(problem, 2000, 3, "zero_out")
    plan = Plan(solver, facts, budget, solver.settings(facts, budget, phases=4))
    epsilon = Accountant().epsilon(spend(declare(plan)), DELTA)
    return f"plans to spend {epsilon:.3g}, not 1" if epsilon > 1 + 1e-9 else None


def _short(honest: Any) -> Any:
    return lambda *arguments: honest(*arguments) / 2


def _half(honest: Any) -> Any:
    return lambda source, scale, *rest: honest(source, scale / 2, *rest)


def _unclipped(self: GradientDifference, rows: Any, at: Any) -> Any:
    return self.gradient.total(rows, at) - self.keep * self.gradient.total(rows, self.before)


def _forgetful(self: RunningSum) -> RunningSum:
    """A branch whose releases are not charged to what was there before."""
    twin = RunningSum()
    twin._total, twin._sensitivity = self._total, self._sensitivity
    return twin


def geometry() -> Iterator[Mutant]:
    for solver in FLAT:
        for noise, name in (("generalized", "generalized_gaussian"), ("pure", "k_norm")):
            yield Mutant(
                f"{solver}: half the {name} noise",
                ((additive, name, _half(getattr(additive, name))),),
                law(
                    solver,
                    0.0 if noise == "pure" else DELTA,
                    runs=30,
                    noise=noise,
                    problem=BALL,
                ),
                "law",
                quick=solver == "mirror_descent",
            )
        half = (additive, "gaussian", _half(additive.gaussian))
        short = (RowBounds, "in_norm", lambda self, order, dimension: self.largest / 2)
        for discrete, where, noise, also in ROADS:
            yield Mutant(
                f"{solver}: half the gaussian noise{where}",
                (noise or half,),
                law(solver, DELTA, runs=30, problem=BALL, discrete_noise=discrete),
                "law",
            )
            yield Mutant(
                f"{solver}: bound of rows in another norm than the noise's{where}",
                (short, *also),
                replayed(solver, "zero_out", DELTA, problem=BALL, discrete_noise=discrete),
                "replay",
            )
    for discrete, where, _, also in ROADS:
        yield Mutant(
            f"rows clipped to twice their dual norm{where}",
            ((sanitize, "order_norms", _short(sanitize.order_norms)), *also),
            replayed(
                "mirror_descent",
                "zero_out",
                DELTA,
                problem=DUAL,
                n_iter=4,
                discrete_noise=discrete,
            ),
            "replay",
        )
    yield Mutant(
        "generalized Gaussian noise without the factor of regularity",
        ((additive.GeneralizedGaussian, "run", _irregular),),
        law("mirror_descent", DELTA, runs=30, noise="generalized", problem=BALL, n_iter=4),
        "law",
    )
    for solver in ONE_PASS:
        module, name = (
            (additive, "gaussian") if solver == "variance_reduced_sfw" else (selection, "gumbel")
        )
        yield Mutant(
            f"{solver}: half the {name} noise",
            ((module, name, _half(getattr(module, name))),),
            law(solver, DELTA, runs=300 if name == "gumbel" else 30),
            "law",
            quick=name == "gaussian",
        )
        yield Mutant(
            f"{solver}: differences of gradients are not clipped",
            ((GradientDifference, "total", _unclipped),),
            replayed(solver, "zero_out", DELTA, problem=ROUGH),
            "replay",
            quick=solver == "tree_sfw",
        )
    once = ((GradientDifference, "diameter", lambda self: self.radius()),)
    yield Mutant(
        "tree_sfw: a replaced record moves a difference once", once, node_charges, "accounting"
    )
    yield Mutant(
        "tree_sfw: a branch forgets what it shares",
        ((RunningSum, "fork", _forgetful),),
        node_charges,
        "accounting",
    )
    yield Mutant(
        "tree_sfw: a node planned as if it served one leaf",
        ((tree_sfw, "leaves", _served_once),),
        tree_within_budget,
        "accounting",
    )


def _irregular(self: Any, payload: Any, sensitivity: Any, source: Any) -> Any:
    scale = self.multiplier * sensitivity.radius
    return payload + additive.generalized_gaussian(source, scale, payload.size, self.order)


def _served_once(phases: int, batch: int, honest: Any = tree_sfw.leaves) -> Any:
    return tuple(replace(leaf, uses=1) for leaf in honest(phases, batch))
