"""Full-batch noisy gradient descent: works for every loss with a (sub)gradient.

Algorithm: theta <- project(theta - eta (sum of clipped gradients + noise + ridge gradient)), T
steps, then an average of the iterates.

Bounds on the expected excess of the sum, with V the expected square of one step's noise and R the
radius of the domain:

* smooth, eta <= 1/(n beta): R^2/(2 eta T) + eta V for the average of theta_1..theta_T. Gaussian
  noise has V = p s^2 L^2 T / mu^2 and the best eta T is R mu / (s L sqrt(2p)): sqrt(2p) s L R / mu.
* Lipschitz: R sqrt((n^2 L^2 + V)/T) for the average of theta_0..theta_(T-1).
* strongly convex with Lambda: eta_t = 2/(Lambda (t+1)), weights proportional to t:
  2 (G^2 + V) / (Lambda (T+1)).

Averaging is post-processing. The default averages the last half of the iterates, which measures
better than the uniform average that the bounds are about.

References: Bassily, Smith and Thakurta (2014); Song, Chaudhuri and Sarwate (2013); the step rule
for smooth losses follows from the bound above.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from privopt.facts import Facts
from privopt.mechanisms import Gate, choose_discrete, gaussian_noise, norm_gamma_noise
from privopt.mechanisms.mask import PURE_GROWTH
from privopt.oracle import Oracle, gradient_query
from privopt.privacy import Budget
from privopt.privacy.profiles import gaussian_mu
from privopt.problem import Problem
from privopt.solvers.families.gradient_steps import Average, Rule, rules, tune, weight
from privopt.solvers.solver import Settings, Solver, Tick, no_tick
from privopt.solvers.specimen import BALL_PROBLEMS, VECTOR_PROBLEMS, Attack, Specimen

MOST_STEPS = 1000
NEAR = 1.5
"""Bounds of two rules this close are alike in practice: the rule with fewer steps is taken."""


@dataclass(frozen=True)
class NoisyGDSettings(Settings):
    """Steps, step size (the numerator 2/Lambda for the strongly convex rule) and noise."""

    rule: Rule
    n_iter: int
    step: float
    clip_norm: float
    noise: Literal["gaussian", "pure"]
    noise_multiplier: float
    average: Average
    ridge: float
    discrete_noise: bool


class NoisyGD(Solver):
    """Noisy gradient descent on all records.

    Formal guarantee
    ----------------
    Every relation, every loss. Privacy rests on the clip alone: with Gaussian noise of standard
    deviation sqrt(T)/mu times the sensitivity of one step, the whole path is exactly mu-GDP; with
    norm-Gamma noise each step is (epsilon/T)-DP. Steps, step sizes and the clip are data-free.
    Noise is hardened unless ``discrete_noise=False``: exact integers on a grid.
    """

    vectors: ClassVar[bool] = True
    chunks: ClassVar[bool] = True
    name: ClassVar[str] = "noisy_gd"
    summary: ClassVar[str] = "full-batch gradient descent with noisy clipped gradients"
    has_discrete_noise: ClassVar[bool] = True
    specimen: ClassVar[Specimen] = Specimen(
        problems={**BALL_PROBLEMS, **VECTOR_PROBLEMS},
        short={"n_iter": 12},
        enough={"n_iter": 60},
        attack=Attack(choices=lambda budget: {"n_iter": 3}),
    )

    def refuse(self, facts: Facts, budget: Budget) -> str | None:
        if not math.isfinite(_first_clip(facts)):
            return (
                f"{self.name} needs a Lipschitz loss to clip at; {facts.loss_name} is not: "
                "use Squared(residual_clip=...) or Huber(width)."
            )
        return None

    def settings(self, facts: Facts, budget: Budget, **choices: Any) -> NoisyGDSettings:
        n_iter: int | None = choices.pop("n_iter", None)
        most: int = choices.pop("most_steps", MOST_STEPS)
        average: Average = choices.pop("average", "suffix")
        one = _reaches_the_mean(facts) and n_iter in (None, 1)
        first = _first_clip(facts) if one else facts.lipschitz()
        clip_norm: float = choices.pop("clip_norm", first)
        discrete_noise: bool | None = choices.pop("discrete_noise", None)
        if choices:
            raise ValueError(f"{self.name} has no setting named {sorted(choices)[0]!r}.")
        if n_iter is not None and n_iter < 1:
            raise ValueError(f"n_iter must be positive, got {n_iter}.")
        if not 0 < clip_norm < math.inf:
            raise ValueError(f"clip_norm must be positive and finite, got {clip_norm!r}.")
        if average not in ("suffix", "uniform", "last"):
            raise ValueError(f"average must be suffix, uniform or last, got {average!r}.")
        counts = [n_iter or 1] if n_iter or one else _step_counts(facts, budget, clip_norm, most)
        found: list[tuple[float, Rule, int, float]] = []
        followed: list[Rule] = ["one_step"] if one else rules(facts)
        for rule in followed:
            best: tuple[float, Rule, int, float] | None = None
            for steps in counts:
                spread = _expected_square(facts, budget, clip_norm, steps)
                step, bound = tune(facts, rule, steps, spread)
                # Of equally good numbers of steps the smallest is taken.
                if best is None or bound < best[0] * (1 - 1e-6):
                    best = (bound, rule, steps, step)
            assert best is not None
            found.append(best)
        near = [one for one in found if one[0] <= NEAR * min(found)[0]]
        bound, rule, steps, step = min(near, key=lambda one: (one[2], one[0]))
        multiplier = _multiplier(facts, budget, steps)
        return NoisyGDSettings(
            bound=bound / facts.n,
            passes=float(steps * facts.repeats),
            rule=rule,
            n_iter=steps,
            step=step,
            clip_norm=clip_norm,
            noise="pure" if budget.pure else "gaussian",
            noise_multiplier=multiplier,
            average=average,
            ridge=facts.strong_convexity,
            discrete_noise=choose_discrete(
                discrete_noise, not budget.pure, multiplier, facts.n, facts.p
            ),
        )

    def run(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: NoisyGDSettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        query = gradient_query(problem.loss, settings.clip_norm)
        mechanism = (
            norm_gamma_noise(settings.noise_multiplier, oracle.dimension, settings.discrete_noise)
            if settings.noise == "pure"
            else gaussian_noise(settings.noise_multiplier, settings.discrete_noise)
        )
        view = oracle.everything()
        theta = problem.domain.centre(oracle.dimension)
        total, mass = np.zeros_like(theta), 0.0
        for t in range(settings.n_iter + 1):
            share = weight(settings, t)
            total, mass = total + share * theta, mass + share
            if t == settings.n_iter:
                break
            sealed = view.ask(query, theta, resolution=mechanism.resolution)
            gradient = gate.release(mechanism, sealed) + settings.ridge * theta
            step = settings.step / (t + 2) if settings.rule == "strongly_convex" else settings.step
            theta = problem.domain.project(theta - step * gradient)
            tick(t + 1, settings.n_iter)
        return total / mass


def _reaches_the_mean(facts: Facts) -> bool:
    """Whether one step ends at the minimiser of every sum."""
    return facts.vector and facts.problem.loss.isotropic > 0


def _first_clip(facts: Facts) -> float:
    """The largest gradient of a record; of one step, that at the centre."""
    loss, centre = facts.problem.loss, facts.problem.domain.centre(facts.p)
    if _reaches_the_mean(facts):
        return loss.lipschitz_on(facts.problem.size, float(np.linalg.norm(centre)))
    return facts.lipschitz()


def _multiplier(facts: Facts, budget: Budget, steps: int) -> float:
    """Noise of one step in units of its sensitivity: sqrt(T)/mu, or T/epsilon for pure noise."""
    releases = steps * facts.repeats
    if budget.pure:
        return releases / budget.epsilon * (1 + 1e-12)
    return math.sqrt(releases) / gaussian_mu(budget.epsilon, budget.delta) * (1 + 1e-12)


def _expected_square(facts: Facts, budget: Budget, clip_norm: float, steps: int) -> float:
    scale = facts.relation_factor * clip_norm * _multiplier(facts, budget, steps)
    if budget.pure:
        return facts.span * (facts.p + 1) * (PURE_GROWTH * scale) ** 2
    return facts.span * scale**2


def _step_counts(facts: Facts, budget: Budget, clip_norm: float, most: int) -> list[int]:
    """Numbers of steps worth trying: a grid, and where the smooth bound stops falling."""
    counts = {round(most ** (i / 60)) for i in range(61)}
    if facts.smooth and not budget.pure:
        one = _expected_square(facts, budget, clip_norm, 1)
        path = facts.radius() / math.sqrt(2 * one)
        stiffness = facts.n * facts.smoothness() + facts.strong_convexity
        counts.add(max(1, min(most, math.ceil(stiffness * path))))
    return sorted(counts)


SOLVER = NoisyGD()
