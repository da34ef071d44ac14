"""Variance-reduced Frank-Wolfe on l_p balls, 1 <= p <= 2: one pass, every node released once.

Problem: min over an l_p ball of the expected value of f(<x, theta>, y) + l2/2 ||theta||^2 for
independent records, f smooth and Lipschitz.

Algorithm: the tree of ``tree_sfw``. Here each node's gradient (at a root) or difference of
gradients (at a right child) is released once with Gaussian noise, a leaf adds up the released
values on its path, and the linear minimiser over the ball is exact. Every record is in one node and
every node is released once: no composition, whatever the number of leaves.

Sensitivity, as sums in l2: a c X for a root and a d X for a right child, with c the clip of slopes,
d = min(2c, smoothness * share * margin) that of their differences (see ``tree_sfw``), X the l2
bound of rows, a = 2 under replace_one and 1 under zero_out.

Bound on the expected excess population risk, K leaves, diameter D in l_p, q dual to p:
2 Gamma/(K+2) + D sqrt(kappa v + w), with Gamma = smoothness (Y D)^2 + l2 (D_2)^2, Y the l_q bound
of rows; v = (2 c Y)^2/b plus the sum over depths of (2 d Y)^2 2^j/b is the estimate's variance,
times kappa = q - 1 (at most e (2 log p - 1)) by the smoothness of the squared norm; w is the
expected square of the noise on a path in l_q. The rate is sqrt(kappa/n) + kappa sqrt(p)/(n mu).

References: Bassily, Guzman and Nandi (2021), COLT; Asi, Feldman, Koren and Talwar (2021) for the
tree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from privopt.facts import Facts
from privopt.geometry import L1Ball, LpBall
from privopt.geometry.norms import dual_order
from privopt.mechanisms import Gate, Gaussian
from privopt.oracle import CoordinateClippedGradient, GradientDifference, Oracle, RowBounds
from privopt.privacy import Budget
from privopt.privacy.profiles import gaussian_mu
from privopt.problem import Problem
from privopt.solvers.families.mirror_steps import gaussian_length
from privopt.solvers.families.passes import refuse_unless_ordered
from privopt.solvers.families.rounding import RoundingSolver, refuse_kink
from privopt.solvers.families.trees import MOST_PHASES, difference_clip, largest_batch, leaves
from privopt.solvers.solver import Settings, Tick, entry_bounds, no_tick
from privopt.solvers.specimen import BALL_PROBLEMS, VERTEX_PROBLEMS, Attack, Specimen


@dataclass(frozen=True)
class VarianceReducedSettings(Settings):
    """Phases, records of a root, the clips, and noise in units of each node's sensitivity."""

    phases: int
    batch_size: int
    slope_clip: float
    margin: float
    noise: Literal["gaussian"]
    noise_multiplier: float
    ridge: float


class VarianceReducedSFW(RoundingSolver):
    """One-pass Frank-Wolfe on l_p balls with a tree of noisy gradient differences.

    Formal guarantee
    ----------------
    ``zero_out`` and ``replace_one``, delta > 0, every loss. Privacy rests on the clips of rows,
    slopes and differences of slopes, and on every record being in one node that is released once:
    exactly mu-GDP by parallel composition. Smoothness is not assumed.
    """

    name: ClassVar[str] = "variance_reduced_sfw"
    summary: ClassVar[str] = "one pass of Frank-Wolfe on an l_p ball, p <= 2, each node noisy once"
    specimen: ClassVar[Specimen] = Specimen(
        problems={**BALL_PROBLEMS, **VERTEX_PROBLEMS},
        attack=Attack(n=16, choices=lambda budget: {"phases": 1}),
    )

    def refuse_smooth(self, facts: Facts, budget: Budget) -> str | None:
        domain = facts.problem.domain
        if not math.isfinite(facts.problem.loss.lipschitz):
            return (
                f"{self.name} needs a Lipschitz loss to clip at; {facts.loss_name} is not: "
                "use Squared(residual_clip=...) or Huber(width)."
            )
        if not facts.smooth:
            return refuse_kink(self.name, facts)
        if not isinstance(domain, (L1Ball, LpBall)) or _order(facts) > 2:
            return f"{self.name} needs an L1Ball or an LpBall with p <= 2 as its domain."
        if budget.pure:
            return f'{self.name} needs delta > 0: give one, or use solver="mirror_descent".'
        if facts.n < 3:
            return f"{self.name} needs at least 3 records for one phase of its tree: collect more."
        return refuse_unless_ordered(self.name, facts)

    def row_bounds(self, problem: Problem) -> RowBounds:
        return entry_bounds(problem)

    def smooth_settings(
        self, facts: Facts, budget: Budget, **choices: Any
    ) -> VarianceReducedSettings:
        phases: int | None = choices.pop("phases", None)
        clip: float = choices.pop("slope_clip", facts.problem.loss.lipschitz)
        if choices:
            raise ValueError(f"{self.name} has no setting named {sorted(choices)[0]!r}.")
        if not 0 < clip < math.inf:
            raise ValueError(f"slope_clip must be positive and finite, got {clip!r}.")
        tried = range(1, MOST_PHASES + 1) if phases is None else [phases]
        possible = [t for t in tried if t >= 1 and largest_batch(facts.n, t)]
        if not possible:
            raise ValueError(f"phases={phases} does not fit {facts.n} records: take fewer.")
        mu = gaussian_mu(budget.epsilon, budget.delta)
        multiplier = math.sqrt(facts.repeats) / mu * (1 + 1e-12)
        bound, best = min((_bound(facts, clip, multiplier, t), t) for t in possible)
        return VarianceReducedSettings(
            bound=bound,
            passes=1.0,
            phases=best,
            batch_size=largest_batch(facts.n, best),
            slope_clip=clip,
            margin=_margin(facts),
            noise="gaussian",
            noise_multiplier=multiplier,
            ridge=facts.problem.l2,
        )

    def run_smooth(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: VarianceReducedSettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        p = oracle.dimension
        gradient = CoordinateClippedGradient(
            problem.loss, settings.slope_clip, oracle.bounds, p, "l2"
        )
        mechanism, theta = Gaussian(settings.noise_multiplier), problem.domain.centre(p)
        schedule = leaves(settings.phases, settings.batch_size)
        nodes = oracle.shuffled().parts([leaf.size for leaf in schedule])
        path: list[tuple[np.ndarray, np.ndarray]] = []  # estimates by depth, and their points
        for done, (leaf, node) in enumerate(zip(schedule, nodes, strict=True), start=1):
            query, parent = gradient, np.zeros(p)
            if leaf.depth:
                parent, before = path[leaf.depth - 1]
                clip = difference_clip(
                    leaf, settings.slope_clip, problem.loss.smoothness, settings.margin
                )
                query = GradientDifference(gradient, before, 1.0, clip)
            released = gate.release(mechanism, node.everything().ask(query, theta))
            estimate = parent + released / leaf.size
            path = path[: leaf.depth] + [(estimate, theta)] * (leaf.phase + 1 - leaf.depth)
            best = problem.domain.linear_minimiser(estimate + settings.ridge * theta)
            theta = (1 - leaf.step) * theta + leaf.step * best
            tick(done, len(schedule))
        return theta


def _order(facts: Facts) -> float:
    domain = facts.problem.domain
    return domain.order if isinstance(domain, LpBall) else 1.0


def _row(facts: Facts) -> float:
    """Bound of a row in the dual norm."""
    return entry_bounds(facts.problem).in_norm(dual_order(_order(facts)), facts.p)


def _diameter(facts: Facts) -> float:
    return 2 * facts.radius("linf")  # of a ball around the origin: the same in every norm above p


def _margin(facts: Facts) -> float:
    return _row(facts) * _diameter(facts)


def _bound(facts: Facts, clip: float, multiplier: float, phases: int) -> float:
    schedule = leaves(phases, largest_batch(facts.n, phases))
    loss, order = facts.problem.loss, dual_order(_order(facts))
    row, wide = _row(facts), entry_bounds(facts.problem).in_norm(2.0, facts.p)
    loud = multiplier * facts.relation_factor * gaussian_length(order, facts.p)
    r = max(2.0, 2 * math.log(facts.p))
    regularity = order - 1 if order <= r else math.e * (r - 1)
    worst: dict[int, float] = {}
    for leaf in schedule:
        slope = difference_clip(leaf, clip, loss.smoothness, _margin(facts)) if leaf.depth else clip
        own = regularity * (2 * slope * row) ** 2 / leaf.size
        own += (loud * slope * wide / leaf.size) ** 2
        worst[leaf.depth] = max(worst.get(leaf.depth, 0.0), own)
    curvature = loss.smoothness * _margin(facts) ** 2
    curvature += facts.problem.l2 * facts.diameter() ** 2
    error = _diameter(facts) * math.sqrt(sum(worst.values()))
    return 2 * curvature / (len(schedule) + 2) + error


SOLVER = VarianceReducedSFW()
