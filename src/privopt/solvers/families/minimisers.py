"""What solvers that release a minimiser have in common: noise, tolerances, sensitivities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from privopt.facts import Facts
from privopt.losses import Smoothed
from privopt.mechanisms.mask import (
    choose_masked,
    mask_over,
)
from privopt.mechanisms.objective_perturbation import Noise
from privopt.mechanisms.stable_sgd import CLOSED
from privopt.privacy import Budget, Refused
from privopt.privacy.profiles import gaussian_mu
from privopt.solvers.families.rounding import refuse_kink

MOST_CONDITION = 1e6
"""Condition number of the sum with a rounded kink; the rounding is wider rather than beyond it."""
TOLERANCE = 1e-3
"""Distance of the computed minimiser from the exact one, in units of L / Lambda."""


def refuse_unless_convex(name: str, facts: Facts) -> str | None:
    """A sentence for a loss without a certified minimiser."""
    if not facts.convex:
        return f"{name} needs a convex loss; {facts.loss_name} is not convex."
    if not facts.smooth and facts.problem.loss.pieces(np.ones(1)) is None:
        return refuse_kink(name, facts)
    if not math.isfinite(facts.lipschitz()):
        return (
            f"{name} needs a Lipschitz loss; {facts.loss_name} is not: "
            "use Squared(residual_clip=...) or Huber(width)."
        )
    return None


def refuse_unless_smooth_and_convex(name: str, facts: Facts) -> str | None:
    """A sentence for a loss without a stable gradient step."""
    if not facts.convex:
        return f"{name} needs a convex loss; {facts.loss_name} is not convex."
    if not facts.smooth:
        return refuse_kink(name, facts)
    return refuse_unless_convex(name, facts)


def rounding(facts: Facts, lam: float, wanted: float) -> tuple[float, float]:
    """Half-width of the parabola in place of a kink, and what it adds to the sum of losses: as much
    as wanted, or more where the minimiser would become too hard to find."""
    if facts.smooth:
        return 0.0, 0.0
    unit = Smoothed(facts.problem.loss, 1.0)
    stiff = facts.n * unit.smoothness_in("l2", facts.row_bound("l2"))
    width = max(wanted / (facts.n * unit.excess), stiff / (lam * MOST_CONDITION))
    return width, facts.n * unit.excess * width


def noise_multiplier(facts: Facts, budget: Budget, noise: Noise, share: float = 1.0) -> float:
    """Noise of one release a model, in units of its sensitivity, for a share of the budget:
    of epsilon if pure, of mu^2 if Gaussian. One part in 1e12 keeps rounded sums within it."""
    if noise == "pure":
        return facts.repeats / (share * budget.epsilon) * (1 + 1e-12)
    mu = gaussian_mu(budget.epsilon, budget.delta)
    return math.sqrt(facts.repeats / share) / mu * (1 + 1e-12)


def moments(noise: Noise, p: int, scale: float) -> tuple[float, float]:
    """E||b||^2 and a bound on E||b|| for noise of this scale in p dimensions."""
    if noise == "pure":
        return p * (p + 1) * scale**2, p * scale
    return p * scale**2, math.sqrt(p) * scale


def output_sensitivity(facts: Facts, lam: float, tolerance: float) -> float:
    return (facts.relation_factor + 2 * tolerance) * facts.lipschitz() / lam


def strong_convexity(name: str, facts: Facts, chosen: float | None, risk: Any) -> float:
    """Lambda: what the problem has, or more where that lowers the bound or was asked for."""
    ridge = facts.strong_convexity
    if chosen is not None and not 0 <= chosen < math.inf:
        raise ValueError(f"regularisation must be non-negative and finite, got {chosen!r}.")
    if chosen is not None and max(chosen, ridge) == 0:
        raise Refused(
            f"{name} needs a strongly convex objective, and regularisation=0 forbids to add any: "
            "leave regularisation out or set Problem(l2=...)."
        )
    if chosen is not None:
        return max(float(chosen), ridge)
    scale = facts.n * facts.lipschitz() / facts.radius()
    grid = scale * np.geomspace(1e-10, 1e6, 321)
    return float(min([*([ridge] if ridge > 0 else []), *grid[grid > ridge]], key=risk))


def choose_noise(facts: Facts, budget: Budget) -> Noise:
    """Pure noise while p + 1 < (epsilon/mu)^2, the point where its expected square is smaller."""
    if budget.pure or facts.vector:
        return "pure"
    if facts.prior:
        return "gaussian" if facts.prior_epsilon == math.inf else "pure"
    epsilon = budget.epsilon / facts.repeats
    mu = gaussian_mu(budget.epsilon, budget.delta) / math.sqrt(facts.repeats)
    return "pure" if facts.p + 1 < (epsilon / mu) ** 2 else "gaussian"


def least_tolerance(facts: Facts, multiplier: float) -> float:
    """Four times what an enclosed gradient and the noise may be off by, in units of L.

    A record's slope is enclosed up to 4 eps of its ``slope_size`` and up to 2 eps of its margin, or
    residual, where the loss still bends.
    """
    unit, loss = float(np.finfo(float).eps), facts.problem.loss
    if facts.vector:  # see ``VectorObjective.enclosed``
        own = 64 + 2 * facts.p + 16
        far = 4 * loss.smoothness * (2 * facts.radius() + facts.problem.size) / facts.lipschitz()
        return 4 * unit * (facts.n * (own + far) + 64 * multiplier * facts.p)
    steepest = loss.lipschitz if math.isfinite(loss.lipschitz) else 1.0
    slope = 4 * max(1.0, loss.slope_size / steepest if math.isfinite(loss.lipschitz) else 1.0)
    bends = loss.linear_beyond + loss.classification
    # |z| f''(z) of a logistic loss is below f''(0); under a log link |z| stays moderate.
    bends = bends if math.isfinite(bends) else 4.0 if loss.classification else 20.0
    curved = 2 * loss.smoothness * bends / steepest if loss.smooth else 0.0
    each = max(4 + math.log2(facts.n + 1), 2 * (slope + curved))
    return 4 * unit * (facts.n * each + 64 * multiplier * facts.p)


def choose_stable(
    wish: bool | None, facts: Facts, noise: Noise, multiplier: float, moved: float
) -> bool:
    """Whether noise on the result of stable steps, which move by so much, is hardened: where it can
    be, unless told; a projection that is computed step by step is known too roughly."""
    if not isinstance(facts.problem.domain, CLOSED):
        if wish:
            raise ValueError(
                "discrete_noise=True needs a projection in closed form: use a ball, a box, a "
                "simplex or no constraint."
            )
        return False
    return choose_masked(wish, mask_over(noise, multiplier, moved, facts.p), facts.radius())
