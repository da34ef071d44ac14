"""Noisy mirror descent: full-batch descent in the geometry of an l_p ball (p <= 2) or a simplex.

Problem: min over the set of the mean of f(<x_i, theta>, y_i) + l2/2 ||theta||^2, f convex and
Lipschitz, smooth or not.

Algorithm: theta <- the step of the set's mirror map (``geometry.mirror``, closed form) against eta
times the noisy sum of clipped gradients, T times; the answer is the average of the iterates.
Features are clipped to [-B, B] if ``column_bounds`` says so and rows to an l2 norm otherwise, the
slope to [-c, c]: one record's gradient is then at most c times the bound of a row, in any norm.

Bound on the expected excess of the sum: M/(eta T) + eta/2 (n L + sqrt(V))^2, with M the largest
divergence from the start, L the Lipschitz constant in the map's norm, and V the expected square of
one step's noise in the dual norm l_q. M is R^2/(2 (p - 1)) on a ball of radius R, with
p = 1 + 1/log d for l1, and scale^2 log d on a simplex; Gaussian noise of deviation s has
V <= s^2 (d E|g|^q)^(2/q). The mean excess is
O(R L (1/sqrt((p - 1) T) + sqrt(d)/((p - 1) n mu))): on an l1 ball Frank-Wolfe, which needs a smooth
loss, has a logarithm in place of sqrt(d).

Noise. "gaussian" is calibrated in l2, "generalized" in l_r with r = max(2, min(q, 2 log d)), whose
noise is never the smaller one (it is there for comparison), "pure" is K-norm noise in l_r.

References: Nemirovski and Yudin (1983); Bassily, Guzman and Nandi (2021) for private mirror descent
and generalized Gaussian noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from privopt.facts import Facts
from privopt.geometry import mirror_of
from privopt.mechanisms import (
    Gate,
)
from privopt.oracle import Oracle, RowBounds
from privopt.privacy import Budget
from privopt.problem import Problem
from privopt.solvers.families.mirror_steps import (
    Noise,
    check_noise,
    choose_shaped,
    noise_multiplier,
    noise_order,
    noise_size,
    noisy_gradient,
    refuse_geometry,
    steepness,
)
from privopt.solvers.solver import Settings, Solver, Tick, entry_bounds, no_tick
from privopt.solvers.specimen import BALL_PROBLEMS, VERTEX_PROBLEMS, Attack, Specimen

MOST_STEPS = 1000
NEAR = 1.05
"""A bound this close to the best one is worth fewer steps."""


@dataclass(frozen=True)
class MirrorDescentSettings(Settings):
    """Steps, step size, the clip of a record's slope, and the norm and scale of the noise."""

    n_iter: int
    step: float
    slope_clip: float
    noise: Noise
    noise_order: float
    noise_multiplier: float
    ridge: float
    discrete_noise: bool


class MirrorDescent(Solver):
    """Mirror descent on all records.

    Formal guarantee
    ----------------
    Every relation, every loss. Privacy rests on the clips of features and slope alone: Gaussian
    noise of sqrt(T)/mu times the sensitivity of one step makes the path exactly mu-GDP; generalized
    Gaussian noise makes each step rho/T-zCDP, K-norm noise (epsilon/T)-DP. Steps, step sizes and
    clips are data-free. Gaussian noise is hardened unless ``discrete_noise=False``: exact integers
    on a grid; the others are in floating point.
    """

    name: ClassVar[str] = "mirror_descent"
    summary: ClassVar[str] = "full-batch descent in the geometry of an l_p ball, p <= 2, or simplex"
    has_discrete_noise: ClassVar[bool] = True
    specimen: ClassVar[Specimen] = Specimen(
        problems={**BALL_PROBLEMS, **VERTEX_PROBLEMS},
        short={"n_iter": 6},
        attack=Attack(choices=lambda budget: {"n_iter": 3}),
    )

    def refuse(self, facts: Facts, budget: Budget) -> str | None:
        return refuse_geometry(self.name, facts)

    def row_bounds(self, problem: Problem) -> RowBounds:
        return entry_bounds(problem)

    def settings(self, facts: Facts, budget: Budget, **choices: Any) -> MirrorDescentSettings:
        n_iter: int | None = choices.pop("n_iter", None)
        clip: float = choices.pop("slope_clip", facts.problem.loss.lipschitz)
        noise: Noise = choices.pop("noise", None) or ("pure" if budget.pure else "gaussian")
        discrete_noise: bool | None = choices.pop("discrete_noise", None)
        if choices:
            raise ValueError(f"{self.name} has no setting named {sorted(choices)[0]!r}.")
        if n_iter is not None and n_iter < 1:
            raise ValueError(f"n_iter must be positive, got {n_iter}.")
        check_noise(noise, clip, budget)
        mirror = mirror_of(facts.problem.domain, facts.p)
        steep = steepness(facts, mirror)

        def bound_of(steps: int) -> float:
            multiplier = noise_multiplier(noise, budget, steps * facts.repeats)
            loud = noise_size(facts, mirror, noise, clip, multiplier)
            return math.sqrt(2 * mirror.size / steps) * (steep + loud / facts.n)

        counts = [n_iter] if n_iter else sorted({round(MOST_STEPS ** (i / 40)) for i in range(41)})
        best = min(bound_of(steps) for steps in counts)
        steps = next(steps for steps in counts if bound_of(steps) <= NEAR * best)
        multiplier = noise_multiplier(noise, budget, steps * facts.repeats)
        loud = noise_size(facts, mirror, noise, clip, multiplier)
        return MirrorDescentSettings(
            bound=bound_of(steps),
            passes=float(steps * facts.repeats),
            n_iter=steps,
            step=math.sqrt(2 * mirror.size / steps) / (facts.n * steep + loud),
            slope_clip=clip,
            noise=noise,
            noise_order=noise_order(noise, mirror),
            noise_multiplier=multiplier,
            ridge=facts.strong_convexity,
            discrete_noise=choose_shaped(discrete_noise, noise, multiplier, facts.n),
        )

    def run(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: MirrorDescentSettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        p = oracle.dimension
        query, mechanism = noisy_gradient(problem, oracle, settings)
        mirror, view = mirror_of(problem.domain, p), oracle.everything()
        theta, total = problem.domain.centre(p), np.zeros(p)
        for t in range(settings.n_iter):
            total += theta
            sealed = view.ask(query, theta, resolution=mechanism.resolution)
            gradient = gate.release(mechanism, sealed) + settings.ridge * theta
            theta = mirror.step(theta, settings.step * gradient)
            tick(t + 1, settings.n_iter)
        return total / settings.n_iter


SOLVER = MirrorDescent()
