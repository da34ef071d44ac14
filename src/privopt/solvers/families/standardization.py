"""What solvers that standardise rows have in common: releases before the last."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from privopt.facts import Facts
from privopt.losses import Standard
from privopt.losses.loss import TYPICAL_DEVIATION
from privopt.mechanisms import Gate, choose_discrete, gaussian_noise, norm_gamma_noise
from privopt.mechanisms.objective_perturbation import Noise
from privopt.oracle import LabelMoments, Oracle
from privopt.privacy import Budget, Refused
from privopt.privacy.kinds import GaussianKind, Kind, Pure
from privopt.privacy.profiles import gaussian_mu

CURVATURE_LEFT = 0.6
"""Of the curvature, after rows are clipped."""
ENOUGH = 32.0
"""n mu / p from which on moments take in nearly all rows, and the means say the intercept."""
USUAL, NEARLY_ALL = 0.9, 0.95
"""Share of the rows whose norms the moments take in whole."""
TYPICAL_MEAN = 0.3
"""Size to expect of the mean of labels in [-1, 1], where noise hides it."""


class LabelSettings(Protocol):
    """What a release of the labels' moments takes from a plan."""

    @property
    def noise(self) -> Noise: ...
    @property
    def label_multiplier(self) -> float: ...
    @property
    def n(self) -> int: ...
    @property
    def discrete_noise(self) -> bool: ...


def before(
    facts: Facts, budget: Budget, noise: Noise, shares: tuple[float, float, float]
) -> tuple[list[float], tuple[Kind, ...]]:
    """Noise multipliers of the releases before the last, by their shares of the budget, and their
    privacy losses: row norms and moments once for all models, labels once for each."""
    norms, moments, labels = shares
    multipliers, kinds = noise_for(budget, noise, (norms, moments, labels / facts.repeats))
    return multipliers, (*kinds[:2], *[kinds[2]] * facts.repeats)


def noise_for(
    budget: Budget, noise: Noise, shares: Sequence[float]
) -> tuple[list[float], list[Kind]]:
    """Noise multipliers of releases that take these shares of the budget, and their losses."""
    if noise == "pure":
        multipliers = [1 / (share * budget.epsilon) for share in shares]
        return multipliers, [Pure(1 / m) for m in multipliers]
    mu = gaussian_mu(budget.epsilon, budget.delta)
    multipliers = [1 / (mu * math.sqrt(share)) for share in shares]
    return multipliers, [GaussianKind(1 / m, 1 / m) for m in multipliers]


def choose_for_all(
    wish: bool | None,
    facts: Facts,
    noise: Noise,
    multipliers: list[float],
    widths: Sequence[int] | None = None,
) -> bool | None:
    """The wish for the last release; False where a sum before it has no room in integers, so that
    all releases of a run are alike. ``widths``: how many numbers each of them holds."""
    if wish is False:
        return False
    if widths is None:
        widths = (1, 2 * max(facts.p - 1, 1), 2)  # row norms are counts, one a record
    fits = [
        choose_discrete(wish, noise == "gaussian", multiplier, facts.n, width)
        for multiplier, width in zip(multipliers, widths, strict=True)
    ]
    return wish if all(fits) else False


def label_moments(
    oracle: Oracle, gate: Gate, settings: LabelSettings
) -> tuple[float, float, float]:
    """Mean and deviation of the labels, pulled to typical ones as far as noise hides them, and
    the standard deviation of the noise in the mean."""
    pure, multiplier = settings.noise == "pure", settings.label_multiplier
    adding = (
        norm_gamma_noise(multiplier, 2, settings.discrete_noise)
        if pure
        else gaussian_noise(multiplier, settings.discrete_noise)
    )
    sealed = oracle.everything().ask(LabelMoments(), resolution=adding.resolution)
    spread = multiplier * float(sealed.sensitivity.radius) / settings.n
    spread *= math.sqrt(3) if pure else 1.0  # norm-Gamma noise in two dimensions
    first, second = gate.release(adding, sealed) / settings.n
    trust = TYPICAL_MEAN**2 / (TYPICAL_MEAN**2 + spread**2)
    mean = float(np.clip(trust * first, -1.0, 1.0))
    variance = trust * (second - mean**2) + (1 - trust) * TYPICAL_DEVIATION**2
    # The noise of the squares is that of the variance: less than it cannot be told from it.
    least, most = min(spread, 1.0), max(1 - mean**2, spread)
    return mean, math.sqrt(float(np.clip(variance, max(least, 1e-6), min(most, 1.0)))), spread


def given(standard: Standard | None) -> Standard:
    if standard is None:
        raise Refused("the loss does not say what to minimise when moments of labels are known.")
    return standard
