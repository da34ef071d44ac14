"""What l_p geometry has in common: gradients, noise and its size in a mirror map."""

from __future__ import annotations

import math
from typing import Any, Literal

from scipy.special import gammaln

from privopt.facts import Facts
from privopt.geometry import L1Ball, LpBall, MirrorMap, Simplex
from privopt.geometry.norms import dual_order
from privopt.mechanisms import (
    DiscreteGaussian,
    Gaussian,
    GeneralizedGaussian,
    KNorm,
    choose_discrete,
    gaussian_noise,
)
from privopt.oracle import CoordinateClippedGradient, Oracle
from privopt.oracle.sensitivity import norm_named
from privopt.privacy import Budget
from privopt.privacy.profiles import concentrated_rho, gaussian_mu
from privopt.problem import Problem
from privopt.solvers.solver import entry_bounds

Noise = Literal["gaussian", "generalized", "pure"]
ShapedNoise = Gaussian | DiscreteGaussian | GeneralizedGaussian | KNorm


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
