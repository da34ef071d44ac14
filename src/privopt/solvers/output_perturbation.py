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
from privopt.mechanisms import Gate, Minimiser, OutputPerturbation
from privopt.mechanisms.mask import PURE_GROWTH, choose_masked, mask_over
from privopt.mechanisms.objective_perturbation import Noise
from privopt.oracle import Oracle
from privopt.privacy import Budget
from privopt.problem import Problem
from privopt.solvers.families.minimisers import (
    TOLERANCE,
    choose_noise,
    least_tolerance,
    moments,
    noise_multiplier,
    output_sensitivity,
    refuse_unless_convex,
    rounding,
    strong_convexity,
)
from privopt.solvers.solver import Settings, Solver, Tick, no_tick
from privopt.solvers.specimen import Attack, Specimen, noise_of_delta

ROUNDED = 0.01
"""Share of the bound that rounding off a kink may add."""


@dataclass(frozen=True)
class OutputSettings(Settings):
    """Noise in units of the sensitivity; ``regularisation`` is the strong convexity of the sum, of
    which ``ridge`` belongs to the problem and pulls to the origin, the rest to the centre."""

    noise: Noise
    noise_multiplier: float
    regularisation: float
    ridge: float
    tolerance: float
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
    specimen: ClassVar[Specimen] = Specimen(attack=Attack(choices=noise_of_delta))

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
            rounded=width,
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
            settings.rounded,
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


SOLVER = OutputPerturbationSolver()
