"""How shapes of columns are planned: how many functions, how rough, and what their histograms cost.

All of it follows from n, the budget and the number of shaped columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from privopt.facts import Facts
from privopt.losses import Logistic
from privopt.mechanisms.objective_perturbation import Noise
from privopt.oracle import ShapeTables
from privopt.privacy import Budget
from privopt.privacy.kinds import GaussianKind, Kind, Pure
from privopt.privacy.profiles import gaussian_mu

SHARE_OF_SHAPES = 0.05
"""Of mu^2 or epsilon, for the histograms of shaped columns."""
HARMONICS: dict[Noise, int] = {"gaussian": 12, "pure": 4}
ENOUGH_FOR_SHAPES, ENOUGH_FOR_ROUGH = 32.0, 256.0
"""n mu per shaped column below which shapes stay straight, and from which they may be rough."""


@dataclass(frozen=True)
class Shapes:
    """How many functions of each shaped column are fitted, and how rough they may be."""

    harmonics: int = 0
    roughness: float = 0.0

    def dilution(self, facts: Facts) -> float:
        """By what the effective dimension grows."""
        squares = sum(k ** (-2 * self.roughness) for k in range(1, self.harmonics + 1))
        return 1 + len(facts.problem.shaped) * squares / facts.p


def planned_shapes(facts: Facts, plenty: float, noise: Noise, choices: dict[str, Any]) -> Shapes:
    """None at all where noise would eat them. ``plenty`` is the linear model's n mu / p: a public
    rule."""
    many = len(facts.problem.shaped)
    if not many or not isinstance(facts.problem.loss, Logistic):
        return Shapes()
    each = plenty * facts.p / many
    usual = 0 if each < ENOUGH_FOR_SHAPES else HARMONICS[noise]
    roughness = 1.5 if each < ENOUGH_FOR_ROUGH else 0.5
    harmonics, roughness = choices.pop("harmonics", usual), choices.pop("roughness", roughness)
    return Shapes(harmonics, roughness) if harmonics else Shapes()


def shape_noise(
    facts: Facts, budget: Budget, noise: Noise, shapes: Shapes
) -> tuple[float | None, tuple[Kind, ...]]:
    """Noise multiplier of the histograms and their privacy loss."""
    if not shapes.harmonics:
        return None, ()
    if noise == "pure":
        multiplier = 1 / (SHARE_OF_SHAPES * budget.epsilon)
        return multiplier, (Pure(1 / multiplier),)
    mu = gaussian_mu(budget.epsilon, budget.delta)
    multiplier = 1 / (mu * math.sqrt(SHARE_OF_SHAPES))
    return multiplier, (GaussianKind(1 / multiplier, 1 / multiplier),)


def by_bins(coefficients: np.ndarray, tables: ShapeTables) -> np.ndarray:
    """Coefficients of columns, of indicators of every bin of the shaped ones, and the constant."""
    plain = len(coefficients) - 1 - tables.width
    bins = tables.summed(coefficients[plain:-1]).ravel()
    return np.concatenate([coefficients[:plain], bins, coefficients[-1:]])
