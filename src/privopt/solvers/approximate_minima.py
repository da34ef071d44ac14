"""Approximate minima perturbation: objective perturbation with a coarse, first-order minimiser.

Problem: min over a domain of sum of f(<x_i, theta>, y_i), f convex and smooth, rows bounded.

Algorithm: draw b once, go down sum + lambda/2 ||theta - c||^2 + <b, theta> over the domain by
gradients alone until the gradient mapping g has ||g|| <= gamma/2, and release that point with noise
xi for a sensitivity of 2 gamma / lambda = 4 ||g|| / lambda: the computed minimisers of two data
sets are each within gamma / lambda of their own exact ones.
The tolerance gamma is public and fixed beforehand; noise is never redrawn, and a tolerance that is
not met is never loosened.

How it differs from ``objective_perturbation``: there the tolerance is so small that it costs one
hundredth of the budget and its noise cannot be seen, and Newton steps reach it. Here a tenth of the
budget buys a tolerance about a hundred times coarser, and no Hessian is ever formed: for problems
with so many parameters that a linear system of their size is too much.

Bound: E[excess of the sum] <= E||b||^2 / (2 lambda) + lambda R^2 / 2 + (n beta + lambda)/2
E||xi||^2.

References: Iyengar, Near, Song, Thakkar, Thakurta and Wang (2019), IEEE S&P; the sensitivity there
printed as gamma / lambda is twice that.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

from privopt.facts import Facts
from privopt.mechanisms.objective_perturbation import Method
from privopt.privacy import Budget
from privopt.solvers.families.minimisers import least_tolerance, moments
from privopt.solvers.families.objective import (
    ObjectiveSettings,
    ObjectiveSolver,
    discrete_tolerance,
)
from privopt.solvers.specimen import Attack, Specimen, stiff


class ApproximateMinima(ObjectiveSolver):
    """Approximate minima perturbation.

    Formal guarantee
    ----------------
    Every relation. That of ``objective_perturbation`` with another split of the budget between the
    perturbation and the tolerance. Privacy uses: convexity and smoothness of the loss (checked),
    Lipschitz constant and row norms (enforced), a minimiser certified by its gradient norm
    (enforced, paid for by output noise).
    """

    name: ClassVar[str] = "approximate_minima"
    summary: ClassVar[str] = "objective perturbation, minimised by gradients to a coarse tolerance"
    method: ClassVar[Method] = "gradient"
    output_share: ClassVar[float] = 0.1
    output_noise: ClassVar[float] = 0.2
    specimen: ClassVar[Specimen] = Specimen(attack=Attack(choices=stiff))

    def smooth_settings(self, facts: Facts, budget: Budget, **choices: Any) -> ObjectiveSettings:
        tolerance: float | None = choices.pop("tolerance", None)
        found = super().smooth_settings(facts, budget, **choices)
        if tolerance is not None:
            if not least_tolerance(facts, found.noise_multiplier) <= tolerance < math.inf:
                raise ValueError(
                    f"tolerance {tolerance!r} is below the rounding error of a gradient."
                )
            covering = discrete_tolerance(
                facts,
                found.noise,
                found.regularisation,
                found.noise_multiplier,
                found.output_multiplier,
            )
            if choices.get("discrete_noise") and tolerance < covering:
                raise ValueError(
                    f"discrete_noise=True needs a tolerance of at least {covering:.2g} here, "
                    f"got {tolerance!r}."
                )
            discrete_noise = found.discrete_noise and tolerance >= covering
            found = replace(found, tolerance=float(tolerance), discrete_noise=discrete_noise)
        lam = found.regularisation
        scale = found.output_multiplier * 2 * found.tolerance * facts.lipschitz() / lam
        spread, _ = moments(found.noise, facts.p, scale)
        if found.noise == "pure" and found.discrete_noise:
            spread *= 2 * facts.p / (facts.p + 1)  # Laplace noise on each coordinate
        steep = facts.n * facts.smoothness() + lam
        return replace(found, bound=found.bound + steep / 2 * spread / facts.n, passes=200.0)


SOLVER = ApproximateMinima()
