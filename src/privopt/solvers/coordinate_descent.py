"""Private coordinate descent along coordinates drawn at random: the baseline of the greedy one.

Algorithm: at each of T steps draw a coordinate from public coins, release that coordinate of the
gradient with noise, take a proximal step along it. The answer averages the second half of the
iterates.

Bound on the expected excess of the sum at the last iterate, with v the variance of an update over
2 M_j: that of ``greedy_coordinate`` without an error of choice, for k = p, since a coordinate drawn
at random gains a p-th of what all gain together. The average is at most the mean of the second half
of that sequence. The number of steps is the best for it, so that noise never takes more than the
descent was promised to gain.

References: Mangold, Bellet, Salmon and Tommasi (2022); Richtarik and Takac (2014).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from privopt.facts import Facts
from privopt.geometry import Separable
from privopt.mechanisms import Gate, choose_discrete, gaussian_noise, laplace_noise
from privopt.mechanisms.coordinate_steps import step_along
from privopt.noise import SeededSource
from privopt.oracle import CoordinateClippedGradient, Oracle, RowBounds
from privopt.privacy import Budget
from privopt.privacy.profiles import gaussian_mu
from privopt.problem import Problem
from privopt.solvers.families.coordinates import (
    MOST_STEPS,
    check_step,
    descend_bound,
    refuse_coordinates,
    smoothness_along,
)
from privopt.solvers.families.rounding import RoundingSolver
from privopt.solvers.solver import Settings, Tick, entry_bounds, no_tick
from privopt.solvers.specimen import BOX_PROBLEMS, Attack, Specimen


@dataclass(frozen=True)
class CoordinateDescentSettings(Settings):
    """Steps, clip, penalties of the mean, noise, and the seed of the public coins."""

    n_iter: int
    slope_clip: float
    step_factor: float
    noise: Literal["gaussian", "pure"]
    noise_multiplier: float
    l1: float
    l2: float
    n: int
    seed: int
    discrete_noise: bool


class CoordinateDescent(RoundingSolver):
    """Coordinate descent with public random coordinates and private steps.

    Formal guarantee
    ----------------
    Every relation, every loss. Privacy rests on the clips of features and slope alone: T Gaussian
    releases of single coordinates are exactly mu-GDP together, T Laplace releases epsilon-DP. The
    coordinates come from public coins. Noise is hardened unless ``discrete_noise=False``: exact
    integers on a grid.
    """

    name: ClassVar[str] = "coordinate_descent"
    summary: ClassVar[str] = "private steps along coordinates drawn at random"
    weights: ClassVar[bool] = False
    has_discrete_noise: ClassVar[bool] = True
    specimen: ClassVar[Specimen] = Specimen(
        problems=BOX_PROBLEMS,
        short={"n_iter": 8},
        attack=Attack(choices=lambda budget: {"n_iter": 2}),
    )

    def refuse_smooth(self, facts: Facts, budget: Budget) -> str | None:
        return refuse_coordinates(self.name, facts)

    def row_bounds(self, problem: Problem) -> RowBounds:
        return entry_bounds(problem)

    def smooth_settings(
        self, facts: Facts, budget: Budget, **choices: Any
    ) -> CoordinateDescentSettings:
        n_iter: int | None = choices.pop("n_iter", None)
        clip: float = choices.pop("slope_clip", facts.problem.loss.lipschitz)
        factor: float = choices.pop("step_factor", 1.0)
        l1: float = choices.pop("l1", 0.0)
        seed: int = choices.pop("seed", 0)
        discrete_noise: bool | None = choices.pop("discrete_noise", None)
        if choices:
            raise ValueError(f"{self.name} has no setting named {sorted(choices)[0]!r}.")
        check_step(n_iter, clip, factor, l1)
        tried = [n_iter] if n_iter else _step_counts(facts)
        bound, steps, multiplier = min(_bound(facts, budget, clip, l1, steps) for steps in tried)
        releases = steps * facts.repeats
        return CoordinateDescentSettings(
            bound=bound,
            passes=float(releases),
            n_iter=steps,
            slope_clip=clip,
            step_factor=factor,
            noise="pure" if budget.pure else "gaussian",
            noise_multiplier=multiplier,
            l1=l1,
            l2=facts.problem.l2,
            n=facts.n,
            seed=seed,
            discrete_noise=choose_discrete(discrete_noise, True, multiplier, facts.n),
        )

    def run_smooth(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: CoordinateDescentSettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        p, n = oracle.dimension, settings.n
        query = CoordinateClippedGradient(
            problem.loss, settings.slope_clip, oracle.bounds, p, "coordinates"
        )
        move = (gaussian_noise if settings.noise == "gaussian" else laplace_noise)(
            settings.noise_multiplier, settings.discrete_noise
        )
        penalty = Separable.over(problem.domain, n * settings.l1, n * settings.l2)
        smoothness = smoothness_along(problem, n, p)
        order = SeededSource(settings.seed).coins.integers(0, p, settings.n_iter)  # public coins
        theta = penalty.prox(np.zeros(p), 1.0)
        walk = oracle.everything().coordinate_gradient(query, theta)
        total, mass = np.zeros(p), 0
        for t, j in enumerate(order.tolist(), 1):
            (slope,) = gate.release(
                move, walk.ask_along(j, move.accepts, resolution=move.resolution)
            )
            theta[j] = step_along(
                float(theta[j]), slope, float(smoothness[j]), settings.step_factor, penalty.at(j)
            )
            walk.move(j, float(theta[j]))
            if t > settings.n_iter // 2:
                total, mass = total + theta, mass + 1
            tick(t, settings.n_iter)
        return total / mass


def _step_counts(facts: Facts) -> list[int]:
    """Numbers of steps worth trying."""
    return sorted({round(MOST_STEPS ** (i / 24)) for i in range(25)})


def _bound(
    facts: Facts, budget: Budget, clip: float, l1: float, steps: int
) -> tuple[float, int, float]:
    """The bound of so many steps, with their noise in units of the sensitivity."""
    releases = steps * facts.repeats
    if budget.pure:
        multiplier = releases / budget.epsilon * (1 + 1e-12)
    else:
        root = math.sqrt(releases) / gaussian_mu(budget.epsilon, budget.delta)
        multiplier = root * (1 + 1e-12)
    noise = facts.relation_factor * clip * multiplier
    loss = (2 if budget.pure else 1) * noise**2 / (2 * facts.n * facts.problem.loss.smoothness)
    # Every bound of the second half is below the one at its start plus what noise adds since.
    half = descend_bound(facts, l1, steps // 2, 0.0, loss, greedy=False)
    return half + (steps - steps // 2) * loss / facts.n, steps, multiplier


SOLVER = CoordinateDescent()
