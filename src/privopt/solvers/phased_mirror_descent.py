"""Phased mirror descent: regularised problems on disjoint records, each near the last answer.

Problem: min over an l_p ball (p <= 2) or a simplex of the expected value of
f(<x, theta>, y) + l2/2 ||theta||^2 for independent records, f convex and Lipschitz, smooth or not.

Algorithm: phase i takes half of the records that are left, n_i = n/2^i, and solves
min F_i(theta) + lambda_i D(theta, theta_(i-1)) with F_i the mean over its records, D the divergence
of the set's mirror map and lambda_i = 4^i/(eta n_i), by T steps of noisy mirror descent with step
sizes 2/(lambda_i (t+1)); the regulariser is part of the closed-form step. theta_i is the last
iterate. Every record belongs to one phase, so the guarantee of all phases is that of one.

Bound on the expected excess population risk. Let L be the Lipschitz constant in the map's norm and
V the expected square of the noise of a step of the mean in the dual norm. One step gives
(1 + s lambda) D(o, theta_(t+1)) <= D(o, theta_t) + s^2/2 (2 L + ||noise||)^2 in expectation, for
the exact minimiser o and step size s; with s = 2/(lambda (t+1)), and D(o, theta_0) <=
2 L^2/lambda^2 because the regulariser costs at most what the loss gains, the last iterate has
D(o, theta_T) <= a = (4 L^2/((T+1)(T+2)) + 4 (2 L + sqrt(V))^2/(T+1)) / lambda^2. The minimiser of a
lambda-strongly convex mean generalises with error 2 L^2/(lambda n). Chained over phases:
M lambda_1 + sum over i > 1 of lambda_i a_(i-1) + sum of 2 L^2/(lambda_i n_i) + L sqrt(2 a_K), M the
largest divergence from the centre. This has the form A/eta + B eta, and eta is the best one.

References: Feldman, Koren and Talwar (2020); Asi, Feldman, Koren and Talwar (2021); Bassily, Guzman
and Nandi (2021).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from privopt.facts import Facts
from privopt.geometry import MirrorMap, mirror_of
from privopt.mechanisms import Gate
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
from privopt.solvers.families.passes import phases, refuse_unless_ordered
from privopt.solvers.solver import Settings, Solver, Tick, entry_bounds, no_tick
from privopt.solvers.specimen import BALL_PROBLEMS, VERTEX_PROBLEMS, Attack, Specimen

STEPS = 100


@dataclass(frozen=True)
class PhasedMirrorSettings(Settings):
    """Declared records, steps of a phase, the factor eta, the clip of a slope, and the noise."""

    n: int
    n_iter: int
    step: float
    slope_clip: float
    noise: Noise
    noise_order: float
    noise_multiplier: float
    ridge: float
    discrete_noise: bool


class PhasedMirrorDescent(Solver):
    """Mirror descent in phases.

    Formal guarantee
    ----------------
    ``zero_out`` and ``replace_one``. Privacy rests on the clips of features and slope, and on
    disjoint phases: a record pays for the T releases of its own phase, as in ``mirror_descent``.
    It holds for every loss and every order of the records.
    """

    name: ClassVar[str] = "phased_mirror_descent"
    summary: ClassVar[str] = "mirror descent on disjoint records, each phase near the last answer"
    has_discrete_noise: ClassVar[bool] = True
    specimen: ClassVar[Specimen] = Specimen(
        problems={**BALL_PROBLEMS, **VERTEX_PROBLEMS},
        short={"n_iter": 3},
        attack=Attack(n=16, choices=lambda budget: {"n_iter": 2}),
    )

    def refuse(self, facts: Facts, budget: Budget) -> str | None:
        if facts.n < 2:
            return f"{self.name} needs at least two records for its first phase: collect more."
        return refuse_geometry(self.name, facts) or refuse_unless_ordered(self.name, facts)

    def row_bounds(self, problem: Problem) -> RowBounds:
        return entry_bounds(problem)

    def settings(self, facts: Facts, budget: Budget, **choices: Any) -> PhasedMirrorSettings:
        n_iter: int = choices.pop("n_iter", min(STEPS, facts.n))
        step: float | None = choices.pop("step", None)
        clip: float = choices.pop("slope_clip", facts.problem.loss.lipschitz)
        noise: Noise = choices.pop("noise", None) or ("pure" if budget.pure else "gaussian")
        discrete_noise: bool | None = choices.pop("discrete_noise", None)
        if choices:
            raise ValueError(f"{self.name} has no setting named {sorted(choices)[0]!r}.")
        if n_iter < 1:
            raise ValueError(f"n_iter must be positive, got {n_iter}.")
        if step is not None and not 0 < step < math.inf:
            raise ValueError(f"step must be positive and finite, got {step!r}.")
        check_noise(noise, clip, budget)
        mirror = mirror_of(facts.problem.domain, facts.p)
        multiplier = noise_multiplier(noise, budget, n_iter * facts.repeats)
        loud = noise_size(facts, mirror, noise, clip, multiplier)
        falling, rising = _bound_parts(facts, mirror, n_iter, loud)
        step = step or math.sqrt(falling / rising)
        return PhasedMirrorSettings(
            bound=falling / step + rising * step,
            passes=float(n_iter * facts.repeats),
            n=facts.n,
            n_iter=n_iter,
            step=step,
            slope_clip=clip,
            noise=noise,
            noise_order=noise_order(noise, mirror),
            noise_multiplier=multiplier,
            ridge=facts.problem.l2,
            discrete_noise=choose_shaped(discrete_noise, noise, multiplier, facts.n),
        )

    def run(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: PhasedMirrorSettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        p = oracle.dimension
        query, mechanism = noisy_gradient(problem, oracle, settings)
        mirror, theta = mirror_of(problem.domain, p), problem.domain.centre(p)
        sizes = list(phases(settings.n))
        parts = oracle.shuffled().parts(sizes)
        for phase, (records, block) in enumerate(zip(sizes, parts, strict=True), start=1):
            view = block.everything()
            length = settings.step * records / 4**phase  # 1/lambda
            anchor = mirror.to_dual(theta)
            for t in range(settings.n_iter):
                weight = 2 / (t + 1)
                sealed = view.ask(query, theta, resolution=mechanism.resolution)
                gradient = gate.release(mechanism, sealed) / records
                gradient += settings.ridge * theta
                pull = mirror.to_dual(theta) + weight * (anchor - length * gradient)
                theta = mirror.from_dual(pull / (1 + weight))
            tick(phase, len(sizes))
        return theta


def _bound_parts(facts: Facts, mirror: MirrorMap, steps: int, loud: float) -> tuple[float, float]:
    """The bound is falling/eta + rising * eta."""
    steep = steepness(facts, mirror)
    falling = rising = 0.0
    last: float | None = None  # root of the divergence left by the phase before, over eta
    for phase, records in enumerate(phases(facts.n), start=1):
        strength = 4**phase / records  # lambda * eta
        if last is None:
            falling = mirror.size * strength
        else:
            rising += strength * last**2
        rising += 2 * steep**2 / (strength * records)
        square = 4 * steep**2 / ((steps + 1) * (steps + 2))
        square += 4 * (2 * steep + loud / records) ** 2 / (steps + 1)
        last = math.sqrt(square) / strength
    assert last is not None
    return falling, rising + steep * math.sqrt(2) * last


SOLVER = PhasedMirrorDescent()
