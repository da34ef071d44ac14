"""Private Frank-Wolfe: T private choices of a vertex, for l1 balls, simplices and vertex lists.

Algorithm: theta <- (1 - eta_t) theta + eta_t s_t with eta_t = 2/(t+2), where s_t is the vertex with
the smallest noisy inner product with the gradient. eta_0 = 1 forgets the start, so that theta has
at most T non-zeros on an l1 ball, and the error grows with the logarithm of the number of
coordinates only.

Each coordinate of a record's gradient is at most c B: features are clipped to [-B, B], the slope
to [-c, c]. So one record moves two vertices' scores apart by at most c B D1 (twice that under
replace_one), with D1 the l1 diameter of the polytope. Everything is on the scale of the sum: the
range carries no 1/n, and noise for the mean applied to the sum would be n times too quiet.

Bound on the expected mean excess risk, with K vertices, noise of scale b and the curvature
Gamma = smoothness * (B D1)^2 + l2 D2^2 of the mean: 2 Gamma/(T+2) + b log(K) / n. It falls like
n^(-2/3) at its best T. The default takes a fifth of that T, which measures better than the T that
is best for the bound: the gap falls faster than 1/T in practice.

Modes. "dense" computes every score and adds noise to each. "exact" draws from the same law without
computing them: on sparse rows a step costs microseconds whatever the number of features (l1 ball
and simplex, no l2 term; the default for sparse matrices with many columns). "stale" is as private
and follows another gradient: a record's slope is renewed when a step passes the record, and by a
public schedule. Both are described in ``oracle.vertex_draw`` and ``oracle.incremental_gradient``.

References: Frank and Wolfe (1956); Jaggi (2013); Talwar, Thakurta and Zhang (2015), whose Laplace
scale needs a factor of 2 because the scores are not monotone; Raff, Khanna and Lu (2023) for sparse
rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from privopt.facts import Facts
from privopt.geometry import L1Ball, Simplex
from privopt.mechanisms import ExponentialMechanism, Gate, PermuteAndFlip
from privopt.mechanisms.maps import Shift, VertexScores
from privopt.oracle import CoordinateClippedGradient, Oracle, RowBounds
from privopt.privacy import Budget
from privopt.privacy.profiles import concentrated_rho
from privopt.problem import Problem
from privopt.solvers.families.rounding import RoundingSolver
from privopt.solvers.families.vertices import (
    choice_multiplier,
    refuse_vertices,
    vertex_bounds,
    vertex_curvature,
)
from privopt.solvers.solver import Settings, Tick, no_tick
from privopt.solvers.specimen import VERTEX_PROBLEMS, Attack, Specimen

MOST_STEPS = 1000
SHARE = 0.2
"""Part of the steps that are best for the bound; the best of a grid lay between 0.1 and 0.2."""


MANY = 10_000
"""Features from which on a sparse matrix is followed by columns."""

Mode = Literal["dense", "exact", "stale"]


@dataclass(frozen=True)
class FrankWolfeSettings(Settings):
    """Number of choices, the clip of a record's slope, and noise in units of the scores' range."""

    n_iter: int
    slope_clip: float
    noise: Literal["gumbel", "pure"]
    noise_multiplier: float
    ridge: float
    mode: Mode


class FrankWolfe(RoundingSolver):
    """Frank-Wolfe with private choices of the vertices.

    Formal guarantee
    ----------------
    Every relation, every loss. Privacy rests on the clips of features and slope alone: a choice by
    Gumbel noise of eta^-1 times the range of the scores is eta-bounded-range, and T of them are
    T eta^2/8-zCDP; under pure differential privacy each is (epsilon/T)-DP, by permute-and-flip in
    the dense mode. All iterates may be published. Steps, clips and step sizes are data-free.
    """

    chunks: ClassVar[bool] = True
    name: ClassVar[str] = "frank_wolfe"
    summary: ClassVar[str] = (
        "private choices of vertices: l1 ball, simplex, vertex list; many features"
    )
    specimen: ClassVar[Specimen] = Specimen(
        problems=VERTEX_PROBLEMS,
        short={"n_iter": 6},
        records=150,
        attack=Attack(choices=lambda budget: {"n_iter": 1}),
    )

    def refuse_smooth(self, facts: Facts, budget: Budget) -> str | None:
        return refuse_vertices(self.name, facts)

    def row_bounds(self, problem: Problem) -> RowBounds:
        return vertex_bounds(problem)

    def smooth_settings(self, facts: Facts, budget: Budget, **choices: Any) -> FrankWolfeSettings:
        n_iter: int | None = choices.pop("n_iter", None)
        clip: float = choices.pop("slope_clip", facts.problem.loss.lipschitz)
        mode: Mode | None = choices.pop("mode", None)
        if choices:
            raise ValueError(f"{self.name} has no setting named {sorted(choices)[0]!r}.")
        if n_iter is not None and n_iter < 1:
            raise ValueError(f"n_iter must be positive, got {n_iter}.")
        if not 0 < clip < math.inf:
            raise ValueError(f"slope_clip must be positive and finite, got {clip!r}.")
        steps = self._steps(facts, budget, clip) if n_iter is None else n_iter
        mode = self._mode(facts, mode)
        return FrankWolfeSettings(
            bound=self._bound(facts, budget, clip, steps),
            passes=float(steps * facts.repeats),
            n_iter=steps,
            slope_clip=clip,
            noise="pure" if budget.pure and mode == "dense" else "gumbel",
            noise_multiplier=choice_multiplier(budget, steps * facts.repeats),
            ridge=facts.strong_convexity,
            mode=mode,
        )

    def _mode(self, facts: Facts, mode: Mode | None) -> Mode:
        domain = facts.problem.domain
        lazy = isinstance(domain, (L1Ball, Simplex)) and facts.strong_convexity == 0
        if mode is None:
            return "exact" if lazy and facts.sparse and facts.p >= MANY else "dense"
        if mode not in ("dense", "exact", "stale"):
            raise ValueError(f'mode must be "dense", "exact" or "stale", got {mode!r}.')
        if mode != "dense" and not lazy:
            raise ValueError(
                f'mode="{mode}" needs an L1Ball or a Simplex and no l2 term: use mode="dense".'
            )
        return mode

    def run_smooth(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: FrankWolfeSettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        p = oracle.dimension
        query = CoordinateClippedGradient(problem.loss, settings.slope_clip, oracle.bounds, p)
        choose = ExponentialMechanism if settings.noise == "gumbel" else PermuteAndFlip
        mechanism = choose(settings.noise_multiplier)
        scores = VertexScores(problem.domain, p)
        view = oracle.everything()
        if settings.mode != "dense":
            path = view.follow(query, problem.domain.centre(p), stale=settings.mode == "stale")
            followed = path.gradient().through(scores)
            for t in range(settings.n_iter):
                chosen = gate.release(mechanism, followed)
                path.move(*scores.entry(chosen), 2 / (t + 2))
                tick(t + 1, settings.n_iter)
            return path.theta()
        theta = problem.domain.centre(p)
        for t in range(settings.n_iter):
            gradient = view.ask(query, theta)
            if settings.ridge:
                gradient = gradient.through(Shift(settings.ridge * theta, "linf"))
            chosen = gate.release(mechanism, gradient.through(scores))
            step = 2 / (t + 2)
            theta = (1 - step) * theta + step * scores.vertex(chosen)
            tick(t + 1, settings.n_iter)
        return theta

    # ------------------------------------------------------------ the bound
    def _bound(self, facts: Facts, budget: Budget, clip: float, steps: int) -> float:
        domain = facts.problem.domain
        sensitivity = facts.relation_factor * clip * vertex_bounds(facts.problem).largest
        scale = (
            choice_multiplier(budget, steps * facts.repeats)
            * sensitivity
            * domain.diameter("l1", facts.p)
        )
        choices = math.log(VertexScores(domain, facts.p).count)
        return 2 * vertex_curvature(facts) / (steps + 2) + scale * choices / facts.n

    def _steps(self, facts: Facts, budget: Budget, clip: float) -> int:
        """A fifth of the number of steps with the smallest bound, a sum of a falling and a
        growing power of the number of steps."""
        falling = 2 * vertex_curvature(facts)
        growing = self._bound(facts, budget, clip, 1) - falling / 3
        if budget.pure:
            best = math.sqrt(falling / growing)
        else:
            root = math.sqrt(facts.repeats / (8 * concentrated_rho(budget.epsilon, budget.delta)))
            growing *= root / choice_multiplier(budget, facts.repeats)
            best = (2 * falling / growing) ** (2 / 3)
        return max(1, min(MOST_STEPS, round(SHARE * best)))


SOLVER = FrankWolfe()
