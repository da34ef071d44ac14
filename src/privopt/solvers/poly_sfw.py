"""Recursive Frank-Wolfe: one pass over the data, one private vertex for each few records.

Problem: min over an l1 ball, a simplex or a list of vertices of the expected value of
f(<x, theta>, y) + l2/2 ||theta||^2 for independent records, f smooth and Lipschitz.

Algorithm: the gradient estimate starts as the mean over half of the records, and every step takes m
fresh records in: g <- (1 - eta) g + mean of [grad f(theta_t) - (1 - eta) grad f(theta_(t-1))]. Then
theta <- (1 - eta) theta + eta s, s the privately chosen vertex with the smallest inner product.

Sensitivity. Each record's difference of slopes is clipped to d = min((2 - eta) c,
eta c + (1 - eta) eta smoothness margin), which a smooth loss never reaches since the iterate moves
by at most eta diameters a step; margin is the largest |<x, u>| between two points of the set. So a
record of the first half (n_0 of them) moves the estimate of step t by a c B (1 - eta)^t / n_0 in
every coordinate, a record that entered at step k by a d B (1 - eta)^(t-k) / m, with a = 2 under
replace_one and 1 under zero_out. Its loss decays: rho_k = range^2/(8 scale^2) times a geometric
series. The noise is that of the worst record, of either half.

Bound on the expected excess population risk, M steps, curvature Gamma, l1 diameter D1, N vertices:
(1 - eta)^(M+1) h + eta Gamma/2 + D1 sqrt(2 v log(2p)) + scale * log N, with h the largest excess at
the start and v = (c B)^2/n_0 + (d B)^2/(m eta (2 - eta)). It falls like 1/sqrt(n), with a constant
that makes it worth its noise from some 10^6 records on; tree_sfw, as fast, is far better.

References: Bassily, Guzman and Nandi (2021), COLT, with the sensitivities corrected (half of the
records make the first estimate, and the set's diameter is twice its radius); Zhang, Shen, Mokhtari,
Hassani and Karbasi (2020) for the estimator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from privopt.facts import Facts
from privopt.mechanisms import ExponentialMechanism, Gate
from privopt.mechanisms.maps import Shift, VertexScores
from privopt.oracle import (
    CoordinateClippedGradient,
    Oracle,
    RowBounds,
)
from privopt.privacy import Budget
from privopt.privacy.profiles import concentrated_rho
from privopt.problem import Problem
from privopt.solvers.families.recursive_gradients import (
    RecursiveGradient,
    dearest_record,
    difference_clip,
)
from privopt.solvers.families.rounding import RoundingSolver
from privopt.solvers.families.vertices import (
    largest_margin,
    refuse_one_pass,
    selection_error,
    vertex_curvature,
)
from privopt.solvers.solver import Settings, Tick, entry_bounds, no_tick
from privopt.solvers.specimen import BALL_PROBLEMS, TINY, VERTEX_PROBLEMS, Attack, Specimen

MOST_STEPS = 20_000


@dataclass(frozen=True)
class PolySettings(Settings):
    """Records of the first estimate and of a step, steps, eta, clips, and noise in units of a
    sensitivity of one."""

    first: int
    batch_size: int
    n_iter: int
    step: float
    slope_clip: float
    difference_clip: float
    noise: Literal["gumbel"]
    noise_multiplier: float
    ridge: float


class PolySFW(RoundingSolver):
    """One-pass Frank-Wolfe with a recursive gradient estimate.

    Formal guarantee
    ----------------
    ``zero_out`` and ``replace_one``, delta > 0, every loss. Privacy rests on the clips of features,
    slopes and differences of slopes, and on every record entering the estimate once; smoothness is
    not assumed. Each choice is bounded-range; a record pays for all choices after its entry by
    zCDP, with the public decay that its contribution has suffered.
    """

    name: ClassVar[str] = "poly_sfw"
    summary: ClassVar[str] = "one pass of private vertex choices with a recursive gradient estimate"
    specimen: ClassVar[Specimen] = Specimen(
        problems={**BALL_PROBLEMS, **VERTEX_PROBLEMS},
        short={"batch_size": 4},
        attack=Attack((TINY,), n=16, choices=lambda budget: {"batch_size": 8}),
    )

    def refuse_smooth(self, facts: Facts, budget: Budget) -> str | None:
        return refuse_one_pass(self.name, facts, budget, 2, "its first estimate and one step")

    def row_bounds(self, problem: Problem) -> RowBounds:
        return entry_bounds(problem)

    def smooth_settings(self, facts: Facts, budget: Budget, **choices: Any) -> PolySettings:
        first = facts.n // 2
        batch: int = choices.pop("batch_size", max(1, math.ceil((facts.n - first) / MOST_STEPS)))
        step: float | None = choices.pop("step", None)
        clip: float = choices.pop("slope_clip", facts.problem.loss.lipschitz)
        if choices:
            raise ValueError(f"{self.name} has no setting named {sorted(choices)[0]!r}.")
        if not 1 <= batch <= facts.n - first:
            raise ValueError(f"batch_size must lie in 1..{facts.n - first}, got {batch}.")
        if step is not None and not 0 < step < 1:
            raise ValueError(f"step must lie in (0, 1), got {step!r}.")
        if not 0 < clip < math.inf:
            raise ValueError(f"slope_clip must be positive and finite, got {clip!r}.")
        steps = (facts.n - first) // batch
        rho = concentrated_rho(budget.epsilon, budget.delta) / facts.repeats
        grid = [0.9 * (steps + 1) ** (-i / 30) for i in range(31)] if step is None else [step]
        bound, eta, multiplier = min(
            _bound(facts, rho, clip, first, batch, steps, eta) for eta in grid
        )
        return PolySettings(
            bound=bound,
            passes=1.0,
            first=first,
            batch_size=batch,
            n_iter=steps,
            step=eta,
            slope_clip=clip,
            difference_clip=difference_clip(facts, clip, eta),
            noise="gumbel",
            noise_multiplier=multiplier,
            ridge=facts.problem.l2,
        )

    def run_smooth(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: PolySettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        p, eta = oracle.dimension, settings.step
        gradient = CoordinateClippedGradient(problem.loss, settings.slope_clip, oracle.bounds, p)
        mechanism = ExponentialMechanism(settings.noise_multiplier)
        scores, theta = VertexScores(problem.domain, p), problem.domain.centre(p)
        sizes = [settings.first] + [settings.batch_size] * settings.n_iter
        estimates = RecursiveGradient(oracle, gradient, sizes, eta, settings.difference_clip)
        for t in range(len(sizes)):
            estimate = estimates.at(theta)
            if settings.ridge:
                estimate = estimate.through(Shift(settings.ridge * theta, "linf"))
            chosen = gate.release(mechanism, estimate.through(scores))
            theta = (1 - eta) * theta + eta * scores.vertex(chosen)
            tick(t + 1, len(sizes))
        return theta


def _bound(
    facts: Facts, rho: float, clip: float, first: int, batch: int, steps: int, eta: float
) -> tuple[float, float, float]:
    """Bound, eta, and the noise multiplier of the worst record."""
    entry, change = entry_bounds(facts.problem).largest, difference_clip(facts, clip, eta)
    keep = (1 - eta) ** 2
    dearest = dearest_record(facts, entry, clip, first, batch, steps, eta)
    multiplier = math.sqrt(dearest / (8 * rho)) * (1 + 1e-12)
    variance = (clip * entry) ** 2 / first + (change * entry) ** 2 / (batch * (1 - keep))
    far = facts.problem.domain.diameter("l2", facts.p)
    start = clip * largest_margin(facts) + facts.problem.l2 * far**2
    bound = (1 - eta) ** (steps + 1) * start + eta * vertex_curvature(facts) / 2
    return bound + selection_error(facts, variance, multiplier), eta, multiplier


SOLVER = PolySFW()
