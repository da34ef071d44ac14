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
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.special import gammaln

from privopt.facts import Facts
from privopt.geometry import L1Ball, LpBall, MirrorMap, Simplex, mirror_of
from privopt.geometry.norms import dual_order
from privopt.mechanisms import (
    DiscreteGaussian,
    Gate,
    Gaussian,
    GeneralizedGaussian,
    KNorm,
    choose_discrete,
    gaussian_noise,
)
from privopt.oracle import CoordinateClippedGradient, Oracle, RowBounds
from privopt.oracle.sensitivity import norm_named
from privopt.privacy import Budget
from privopt.privacy.profiles import concentrated_rho, gaussian_mu
from privopt.problem import Problem
from privopt.solvers.solver import Settings, Solver, Tick, entry_bounds, no_tick

MOST_STEPS = 1000
NEAR = 1.05
"""A bound this close to the best one is worth fewer steps."""

Noise = Literal["gaussian", "generalized", "pure"]
ShapedNoise = Gaussian | DiscreteGaussian | GeneralizedGaussian | KNorm


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


# ---------------------------------------------------------------- what l_p geometry has in common
def refuse_geometry(name: str, facts: Facts) -> str | None:
    """What a method with a mirror map needs."""
    domain = facts.problem.domain
    if not math.isfinite(facts.problem.loss.lipschitz):
        return (
            f"{name} needs a Lipschitz loss to clip at; {facts.loss_name} is not: "
            "use Squared(residual_clip=...) or Huber(width)."
        )
    if isinstance(domain, LpBall) and domain.order > 2:
        return f"{name} is for p <= 2; on an l_p ball with p > 2 use noisy_gd or noisy_sgd."
    if not isinstance(domain, (L1Ball, LpBall, Simplex)):
        return f"{name} needs an L1Ball, an LpBall with p <= 2 or a Simplex as its domain."
    if isinstance(domain, Simplex) and facts.p < 2:
        return f"{name} needs at least two coordinates; one of a simplex is known already."
    return None


def check_noise(noise: Noise, clip: float, budget: Budget) -> None:
    if noise not in ("gaussian", "generalized", "pure"):
        raise ValueError(f'noise must be "gaussian", "generalized" or "pure", got {noise!r}.')
    if budget.pure and noise != "pure":
        raise ValueError(f'noise="{noise}" needs delta > 0; use noise="pure".')
    if not 0 < clip < math.inf:
        raise ValueError(f"slope_clip must be positive and finite, got {clip!r}.")


def noisy_gradient(
    problem: Problem, oracle: Oracle, settings: Any
) -> tuple[CoordinateClippedGradient, ShapedNoise]:
    """The clipped gradient, bounded in the norm of the noise, and the noise."""
    query = CoordinateClippedGradient(
        problem.loss,
        settings.slope_clip,
        oracle.bounds,
        oracle.dimension,
        norm_named(settings.noise_order),
    )
    if settings.noise == "gaussian":
        return query, gaussian_noise(settings.noise_multiplier, settings.discrete_noise)
    shaped = GeneralizedGaussian if settings.noise == "generalized" else KNorm
    return query, shaped(settings.noise_multiplier, settings.noise_order)


def choose_shaped(wish: bool | None, noise: Noise, multiplier: float, records: int) -> bool:
    """Whether noise is hardened: Gaussian noise is where it can be, the other two never."""
    if noise == "gaussian":
        return choose_discrete(wish, True, multiplier, records)
    if wish:
        raise ValueError(f'discrete_noise=True needs noise="gaussian", not {noise!r}.')
    return False


def noise_order(noise: Noise, mirror: MirrorMap) -> float:
    """Exponent of the norm that the noise is calibrated in: at least 2, where squares of norms are
    smooth, and at most 2 log d, from where on all norms are within a factor of sqrt(e)."""
    if noise == "gaussian":
        return 2.0
    return max(2.0, min(dual_order(mirror.order), 2 * math.log(mirror.dimension)))


def noise_multiplier(noise: Noise, budget: Budget, releases: int) -> float:
    """Noise of one of several releases in units of its sensitivity."""
    if noise == "pure":
        return releases / budget.epsilon * (1 + 1e-12)
    if noise == "generalized":
        rho = concentrated_rho(budget.epsilon, budget.delta)
        return math.sqrt(releases / (2 * rho)) * (1 + 1e-12)
    return math.sqrt(releases) / gaussian_mu(budget.epsilon, budget.delta) * (1 + 1e-12)


def steepness(facts: Facts, mirror: MirrorMap) -> float:
    """Lipschitz constant of a record's loss, the ridge included, in the map's norm."""
    row = entry_bounds(facts.problem).in_norm(dual_order(mirror.order), facts.p)
    # ||theta||_q <= ||theta||_p on a ball around the origin and on a simplex.
    domain = facts.problem.domain
    far = domain.scale if isinstance(domain, Simplex) else facts.radius("linf")
    return facts.problem.loss.lipschitz * row + facts.problem.l2 * far


def noise_size(
    facts: Facts, mirror: MirrorMap, noise: Noise, clip: float, multiplier: float
) -> float:
    """Root of the expected square of one release's noise, in the dual norm."""
    order = noise_order(noise, mirror)
    sensitivity = facts.relation_factor * clip * entry_bounds(facts.problem).in_norm(order, facts.p)
    if noise == "gaussian":
        return multiplier * sensitivity * gaussian_length(dual_order(mirror.order), facts.p)
    if noise == "generalized":
        return multiplier * sensitivity * math.sqrt((order - 1) * facts.p)
    return multiplier * sensitivity * math.sqrt(facts.p * (facts.p + 1))


def gaussian_length(order: float, p: int) -> float:
    """Bound on the root of E||g||_q^2 for a standard Gaussian in R^p, q = ``order``.

    By Jensen's inequality (p E|g|^q)^(1/q) for q >= 2; beyond 2 log p a smaller exponent is better.
    """
    q = max(2.0, min(order, 2 * math.log(p)))
    moment = q / 2 * math.log(2) + gammaln((q + 1) / 2) - math.log(math.pi) / 2
    return float(math.exp((math.log(p) + moment) / q))


SOLVER = MirrorDescent()
