"""Output perturbation: minimise a strongly convex objective to a certificate, add noise, project.

Problem: min over a domain C of sum of f(<x_i, theta>, y_i) + lambda/2 ||theta||^2, f convex and
Lipschitz, rows bounded. A kink of f is rounded off (``losses.Smoothed``), so narrowly that it costs
a hundredth of the bound: privacy uses the Lipschitz constant, which stays the same.

Algorithm: Lambda = max(lambda, what the bound below wants), theta* = the minimiser over C with
strong convexity Lambda, released as project(theta* + b). One record moves theta* by at most
S = (a L + 2 tolerance L) / Lambda, a = 2 under replace_one and 1 otherwise: Lambda is public, and
the solver's tolerance is inside the sensitivity.

Bound on the expected excess of the sum: min((n beta + Lambda)/2 E||b||^2, G E||b||) +
(Lambda - lambda) R^2 / 2 with G the Lipschitz constant of the sum; the first of the two needs a
minimiser inside the domain. At the best Lambda it grows like n^(1/3): the baseline that every other
method is measured against, and of the right order only when the problem itself is strongly convex.

References: Chaudhuri, Monteleoni and Sarwate (2011), JMLR 12; Bassily, Smith and Thakurta (2014).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from privopt.facts import Facts
from privopt.losses import Smoothed
from privopt.mechanisms import Gate, Minimiser, OutputPerturbation
from privopt.mechanisms.mask import PURE_GROWTH, choose_masked, mask_over
from privopt.mechanisms.objective_perturbation import Noise
from privopt.oracle import Oracle
from privopt.privacy import Budget, Refused
from privopt.privacy.profiles import gaussian_mu
from privopt.problem import Problem
from privopt.solvers.objective_perturbation import choose_noise, least_tolerance
from privopt.solvers.solver import Settings, Solver, Tick, no_tick

ROUNDED = 0.01
"""Share of the bound that rounding off a kink may add."""

MOST_CONDITION = 1e6
"""Condition number of the sum with a rounded kink; the rounding is wider rather than beyond it."""

TOLERANCE = 1e-3
"""Distance of the computed minimiser from the exact one, in units of L / Lambda."""


@dataclass(frozen=True)
class OutputSettings(Settings):
    """Noise in units of the sensitivity; ``regularisation`` is the strong convexity of the sum, of
    which ``ridge`` belongs to the problem and pulls to the origin, the rest to the centre."""

    noise: Noise
    noise_multiplier: float
    regularisation: float
    ridge: float
    tolerance: float
    width: float
    """Half-width of the parabola in place of the loss's kink; 0 if it has none."""
    discrete_noise: bool


class OutputPerturbationSolver(Solver):
    """Output perturbation.

    Formal guarantee
    ----------------
    Every relation. Privacy uses: convexity of the loss (checked), its Lipschitz constant and the
    row norms (enforced), strong convexity of the regulariser (public), a minimiser with a certified
    distance to the exact one (enforced, inside the sensitivity). The release is an integer vector
    times a public step unless ``discrete_noise=False``.
    """

    name: ClassVar[str] = "output_perturbation"
    summary: ClassVar[str] = "one release: certified minimiser plus noise"
    has_discrete_noise: ClassVar[bool] = True
    reference: ClassVar[bool] = True

    def refuse(self, facts: Facts, budget: Budget) -> str | None:
        return refuse_unless_convex(self.name, facts)

    def settings(self, facts: Facts, budget: Budget, **choices: Any) -> OutputSettings:
        noise: Noise | None = choices.pop("noise", None)
        regularisation: float | None = choices.pop("regularisation", None)
        tolerance: float = choices.pop("tolerance", TOLERANCE)
        discrete_noise: bool | None = choices.pop("discrete_noise", None)
        if choices:
            raise ValueError(f"{self.name} has no setting named {sorted(choices)[0]!r}.")
        if noise is None:
            noise = choose_noise(facts, budget)
        if noise == "gaussian" and budget.pure:
            raise ValueError('noise="gaussian" needs delta > 0; use noise="pure".')
        if not least_tolerance(facts, 1.0) <= tolerance < math.inf:
            raise ValueError(f"tolerance {tolerance!r} is below the rounding error of a gradient.")
        ridge, radius = facts.strong_convexity, facts.radius()
        multiplier = noise_multiplier(facts, budget, noise)
        noisy = multiplier * (PURE_GROWTH if noise == "pure" else 1.0)

        def risk(lam: float) -> float:
            spread, size = moments(
                noise, facts.p, noisy * output_sensitivity(facts, lam, tolerance)
            )
            steep = facts.n * facts.lipschitz() + ridge * radius
            moved = min((facts.n * facts.smoothness() + lam) / 2 * spread, steep * size)
            return moved + (lam - ridge) * radius**2 / 2

        lam = strong_convexity(self.name, facts, regularisation, risk)
        width, added = rounding(facts, lam, ROUNDED * risk(lam))
        mask = mask_over(noise, multiplier, output_sensitivity(facts, lam, tolerance), facts.p)
        return OutputSettings(
            bound=(risk(lam) + added) / facts.n,
            passes=20.0,
            noise=noise,
            noise_multiplier=multiplier,
            regularisation=lam,
            ridge=ridge,
            tolerance=tolerance,
            width=width,
            discrete_noise=choose_masked(discrete_noise, mask, radius),
        )

    def run(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: OutputSettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        # The problem's ridge pulls to the origin, what was added to the domain's centre.
        added = 1 - settings.ridge / settings.regularisation
        centre = added * problem.domain.centre(oracle.dimension)
        minimiser = Minimiser(
            settings.regularisation,
            settings.tolerance,
            problem.domain,
            tuple(centre.tolist()),
            settings.width,
        )
        mechanism = OutputPerturbation(
            settings.noise,
            settings.noise_multiplier,
            minimiser,
            discrete_noise=settings.discrete_noise,
        )
        theta = gate.release(mechanism, oracle.everything().function(problem.loss))
        tick(1, 1)
        return problem.domain.project(theta)


def refuse_unless_convex(name: str, facts: Facts) -> str | None:
    """A sentence for a loss without a certified minimiser."""
    if not facts.convex:
        return f"{name} needs a convex loss; {facts.loss_name} is not convex."
    if not facts.smooth and facts.problem.loss.pieces(np.ones(1)) is None:
        return f"{name} needs a smooth loss or one of two lines; {facts.loss_name} is neither."
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
        smooth = {"Hinge": "SmoothedHinge(width)", "Absolute": "Huber(width)"}
        other = smooth.get(facts.loss_name)
        return (
            f"{name} needs a smooth loss; {facts.loss_name} is not smooth: "
            f'use {f"{other} or " if other else ""}solver="noisy_gd".'
        )
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


SOLVER = OutputPerturbationSolver()
