"""What solvers that standardise rows have in common: releases before the last."""

from __future__ import annotations

import math

from privopt.facts import Facts
from privopt.mechanisms import (
    choose_discrete,
)
from privopt.mechanisms.objective_perturbation import Noise
from privopt.privacy import Budget
from privopt.privacy.kinds import GaussianKind, Kind, Pure
from privopt.privacy.profiles import gaussian_mu

CURVATURE_LEFT = 0.6
"""Of the curvature, after rows are clipped."""


def before(
    facts: Facts, budget: Budget, noise: Noise, shares: tuple[float, float, float]
) -> tuple[list[float], tuple[Kind, ...]]:
    """Noise multipliers of the releases before the last, by their shares of the budget, and their
    privacy losses: row norms and moments once for all models, labels once for each."""
    norms, moments, labels = shares
    labels /= facts.repeats
    if noise == "pure":
        multipliers = [1 / (share * budget.epsilon) for share in (norms, moments, labels)]
        kinds: list[Kind] = [Pure(1 / m) for m in multipliers]
    else:
        mu = gaussian_mu(budget.epsilon, budget.delta)
        multipliers = [1 / (mu * math.sqrt(share)) for share in (norms, moments, labels)]
        kinds = [GaussianKind(1 / m, 1 / m) for m in multipliers]
    return multipliers, (*kinds[:2], *[kinds[2]] * facts.repeats)


def choose_for_all(
    wish: bool | None, facts: Facts, noise: Noise, multipliers: list[float]
) -> bool | None:
    """The wish for the last release; False where a sum before it has no room in integers, so that
    all releases of a run are alike."""
    if wish is False:
        return False
    widths = (1, 2 * max(facts.p - 1, 1), 2)  # row norms are counts, one a record
    fits = [
        choose_discrete(wish, noise == "gaussian", multiplier, facts.n, width)
        for multiplier, width in zip(multipliers, widths, strict=True)
    ]
    return wish if all(fits) else False
