"""Objective perturbation with data-free regularisation: settings, run and bound."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import minimize_scalar

from privopt.facts import Facts
from privopt.mechanisms import Gate, ObjectivePerturbation
from privopt.mechanisms.mask import LIMIT, Mask, integer_scale
from privopt.mechanisms.objective_perturbation import Method, Noise, noise_error
from privopt.numerics.convex import UNIT
from privopt.numerics.enclosed_newton import PROJECTION
from privopt.oracle import Oracle
from privopt.privacy import Accountant, Budget, Refused, charge_of
from privopt.privacy.kinds import GaussianKind, ObjectiveGaussian
from privopt.privacy.profiles import gaussian_mu
from privopt.privacy.spend import Charge
from privopt.problem import Problem
from privopt.solvers.families.minimisers import choose_noise, least_tolerance
from privopt.solvers.families.rounding import RoundingSolver, refuse_kink
from privopt.solvers.solver import Settings, Tick, no_tick

OUTPUT_SHARE = 0.01
"""Share of epsilon (pure) or of mu^2 (Gaussian) that pays for the solver's tolerance."""
OUTPUT_NOISE = 0.02
"""Noise that pays for the tolerance, relative to the least noise in theta."""
MANY, ROOM = 250_000, 8.0
"""So many records are worth a tolerance that is wider by so much: an exact sum of their gradients
takes as long as five ordinary ones."""
MOST_COARSE = 5.0
"""A release is hardened by itself where that makes the tolerance no coarser than this: output noise
is then a tenth of the least noise in theta, which makes noise of both half a percent larger."""


@dataclass(frozen=True)
class ObjectiveSettings(Settings):
    """See ``mechanisms.ObjectivePerturbation`` for the fields."""

    noise: Noise
    noise_multiplier: float
    regularisation: float
    tolerance: float
    output_multiplier: float
    ridge: float
    discrete_noise: bool


class ObjectiveSolver(RoundingSolver):
    """A solver that minimises a perturbed objective to a certificate."""

    has_discrete_noise: ClassVar[bool] = True
    method: ClassVar[Method] = "newton"
    output_share: ClassVar[float] = OUTPUT_SHARE
    output_noise: ClassVar[float] = OUTPUT_NOISE

    def refuse_smooth(self, facts: Facts, budget: Budget) -> str | None:
        if not facts.convex:
            return f"{self.name} needs a convex loss; {facts.loss_name} is not convex."
        if not facts.smooth:
            return refuse_kink(self.name, facts)
        if facts.vector and not hasattr(facts.problem.loss, "hessian"):
            return (
                f"{self.name} needs constants that hold by the form of the loss; those of "
                f'{facts.loss_name} are stated: use solver="noisy_gd".'
            )
        if facts.vector and not math.isfinite(facts.problem.loss.lipschitz_on(1.0, math.inf)):
            return (
                f"{self.name} needs a loss that is Lipschitz everywhere; {facts.loss_name} is not: "
                'use solver="noisy_gd".'
            )
        if not math.isfinite(facts.lipschitz()):
            return (
                f"{self.name} needs a Lipschitz loss; {facts.loss_name} is not: "
                "use Squared(residual_clip=...) or Huber(width)."
            )
        return None

    def smooth_settings(self, facts: Facts, budget: Budget, **choices: Any) -> ObjectiveSettings:
        return objective_settings(
            self.name, facts, budget, choices, self.output_share, self.output_noise
        )

    def run_smooth(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: ObjectiveSettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        mechanism = ObjectivePerturbation(
            settings.noise,
            settings.noise_multiplier,
            settings.regularisation,
            settings.tolerance,
            settings.output_multiplier,
            centre=tuple(_centre(problem, settings, oracle.dimension).tolist()),
            method=self.method,
            domain=problem.domain,
            discrete_noise=settings.discrete_noise,
        )
        theta = gate.release(mechanism, oracle.everything().function(problem.loss))
        tick(1, 1)
        return problem.domain.project(theta)


def objective_settings(
    name: str,
    facts: Facts,
    budget: Budget,
    choices: dict[str, Any],
    share: float = OUTPUT_SHARE,
    output_noise: float = OUTPUT_NOISE,
) -> ObjectiveSettings:
    """The best regularisation by public facts, and noise that meets the budget."""
    noise: Noise | None = choices.pop("noise", None)
    regularisation: float | None = choices.pop("regularisation", None)
    discrete_noise: bool | None = choices.pop("discrete_noise", None)
    if choices:
        raise ValueError(f"{name} has no setting named {sorted(choices)[0]!r}.")
    if noise is None:
        noise = choose_noise(facts, budget)
    if noise not in ("pure", "gaussian"):
        raise ValueError(f'noise must be "pure" or "gaussian", got {noise!r}.')
    if noise == "gaussian" and budget.pure:
        raise ValueError('noise="gaussian" needs delta > 0; use noise="pure".')
    if noise == "gaussian" and facts.vector:
        raise ValueError('the theorem of Gaussian noise is for one margin: use noise="pure".')
    ridge, radius = facts.strong_convexity, facts.radius()

    def risk(lam: float) -> float:
        spread = _expected_square(facts, budget, noise, lam, share)
        return spread / (2 * lam) + max(lam - ridge, 0.0) * radius**2 / 2

    if regularisation is None:
        lam = _best_regularisation(facts, budget, noise, share, risk)
    else:
        if not 0 < regularisation < math.inf:
            raise ValueError(f"regularisation must be positive, got {regularisation!r}.")
        lam = max(float(regularisation), ridge)
    while True:
        try:
            multiplier, output = _calibrate(facts, budget, noise, lam, share)
            break
        except Refused:
            # A steep loss: determinant and output noise together cost more than was estimated.
            if regularisation is not None or lam > 1e12:
                raise
            lam *= 1.25
    tolerance = _tolerance(facts, noise, lam, multiplier, output, output_noise)
    covering = discrete_tolerance(facts, noise, lam, multiplier, output)
    if discrete_noise is None:
        discrete_noise = (
            covering <= MOST_COARSE * tolerance and Mask(noise, output, 1.0, facts.p).fits()
        )
    return ObjectiveSettings(
        bound=risk(lam) / facts.n,
        passes=20.0,
        noise=noise,
        noise_multiplier=multiplier,
        regularisation=lam,
        tolerance=max(tolerance, covering) if discrete_noise else tolerance,
        output_multiplier=output,
        ridge=ridge,
        discrete_noise=discrete_noise,
    )


def _centre(problem: Problem, settings: ObjectiveSettings, p: int) -> np.ndarray:
    """Where the whole regulariser pulls: the caller's ridge to 0, the rest to the domain's centre,
    from which the radius is measured."""
    own = min(settings.ridge / settings.regularisation, 1.0)
    return (1 - own) * problem.domain.centre(p)


def _log_determinant(facts: Facts, lam: float) -> float:
    return facts.bends * math.log1p(facts.smoothness() / lam)


def _least_regularisation(facts: Facts, budget: Budget, share: float) -> float:
    """Below this lambda the determinant alone costs the budget."""
    prior = 0.0 if facts.prior_epsilon == math.inf else facts.prior_epsilon
    epsilon = (budget.epsilon - prior) * (1 - share) / facts.repeats
    return facts.smoothness() / math.expm1(min(epsilon / facts.bends, 600.0))


def _best_regularisation(
    facts: Facts, budget: Budget, noise: Noise, share: float, risk: Callable[[float], float]
) -> float:
    """The minimiser of the bound: near sqrt(E||b||^2) / R when the determinant costs nothing."""
    least = max(facts.strong_convexity, _least_regularisation(facts, budget, share) * 1.0001)
    free = math.sqrt(_expected_square(facts, budget, noise, math.inf, share)) / facts.radius()
    low = math.log(max(least, free * 1e-6))
    found = minimize_scalar(
        lambda x: risk(math.exp(x)), bounds=(low, max(low, math.log(free)) + 14), method="bounded"
    )
    return min((math.exp(low), math.exp(float(found.x))), key=risk)


def _expected_square(facts: Facts, budget: Budget, noise: Noise, lam: float, share: float) -> float:
    """E||b||^2 as a function of lambda, close enough to the calibrated one to choose lambda by."""
    sensitivity = facts.relation_factor * facts.lipschitz()
    prior = facts.prior_epsilon if noise == "pure" else 0.0
    spare = (budget.epsilon - prior) * (1 - share) - facts.repeats * _log_determinant(facts, lam)
    if spare <= 0:
        return math.inf
    if noise == "pure":
        scale = facts.repeats * sensitivity / spare
        return facts.span * (facts.p + 1) * scale**2
    square = (gaussian_mu(spare, budget.delta) ** 2 - facts.prior_mu**2) / facts.repeats
    mu = math.sqrt(max(square, 0.0))
    return facts.span * (sensitivity / mu) ** 2 if mu > 0 else math.inf


def _calibrate(
    facts: Facts, budget: Budget, noise: Noise, lam: float, share: float
) -> tuple[float, float]:
    """Noise multiplier and output multiplier that meet the budget, never over it."""
    c = _log_determinant(facts, lam)
    if noise == "pure":
        epsilon = budget.epsilon - facts.prior_epsilon
        output = epsilon * share / facts.repeats
        spare = epsilon * (1 - share) / facts.repeats - c
        if spare <= 0:
            raise Refused(f"regularisation {lam:g} is too small for epsilon={budget.epsilon:g}.")
        # One part in 1e12 keeps the sum of rounded epsilons within the budget.
        return (1 + 1e-12) / spare, (1 + 1e-12) / output
    mu = gaussian_mu(budget.epsilon, budget.delta) / math.sqrt(facts.repeats)
    output = mu * math.sqrt(share)
    before: Charge = sum((charge_of(kind) for kind in facts.prior), Counter())

    def charge(multiplier: float) -> Charge:
        kind = ObjectiveGaussian(1 / multiplier, c, facts.one_signed)
        return charge_of(kind, GaussianKind(output, output), count=facts.repeats) + before

    accountant = Accountant(facts.neighbouring)
    multiplier = accountant.calibrate(charge, budget.epsilon, budget.delta, start=1 / mu)
    return multiplier, 1 / output


def _tolerance(
    facts: Facts, noise: Noise, lam: float, multiplier: float, output: float, ratio: float
) -> float:
    """Gradient norm, in units of L, at which the output noise is this ratio of the least noise in
    theta.

    The noise b moves theta by at least ||b|| / (n smoothness + lambda). The tolerance never goes
    below twice the rounding errors of a sum of n gradients and of a projection; of many records so
    far above that ordinary sums show that it is met, while the output noise stays unnoticed.
    """
    factor = facts.relation_factor if noise == "pure" else 1
    stiffness = facts.n * facts.smoothness() + lam
    wanted = ratio * multiplier * factor * lam / (2 * output * stiffness)
    least = least_tolerance(facts, multiplier)
    if facts.n >= MANY:
        least *= ROOM
    return max(wanted, least, _projection(facts, stiffness))


def _projection(facts: Facts, stiffness: float) -> float:
    """Twice what the rounding of a projection takes from the certificate of a minimiser over a
    domain, in units of L: see ``mapped_below``."""
    if not facts.bounded:
        return 0.0
    far = facts.radius() + float(np.linalg.norm(facts.problem.domain.centre(facts.p)))
    off = PROJECTION * UNIT * facts.p * 3 * far
    return 6 * stiffness * off / facts.lipschitz()


def discrete_tolerance(
    facts: Facts, noise: Noise, lam: float, multiplier: float, output: float
) -> float:
    """Least gradient norm, in units of L, for a release in exact integers: four times the distance
    of b from an exact draw, and output noise on which the counts of a solution of the expected size
    stay eight times below their limit."""
    factor = facts.relation_factor if noise == "pure" else 1
    error = 4 * noise_error(noise, facts.p) * multiplier * factor
    # The largest count is radius / step, and the step 2 output tolerance L / (lambda integers).
    integers = integer_scale(noise) / (math.sqrt(facts.p) if noise == "pure" else 1.0)
    room = 8 * facts.radius() * integers / LIMIT * lam / (2 * output * facts.lipschitz())
    return max(error, room) * (1 + 1e-9)
