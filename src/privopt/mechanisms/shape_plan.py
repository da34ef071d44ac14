"""How shapes of columns are planned: how many functions, how rough, and what their histograms cost.

All of it follows from n, the budget and the number of shaped columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from privopt.facts import Facts
from privopt.losses import CappedLogistic, Logistic, SmoothedHinge
from privopt.mechanisms.objective_perturbation import Noise
from privopt.mechanisms.on_grid import choose_discrete
from privopt.mechanisms.shape_learner import ShapeLearner
from privopt.oracle import RowMap, ShapeTables
from privopt.oracle.column_shapes import Shaped
from privopt.privacy import Budget
from privopt.privacy.kinds import GaussianKind, Kind, Pure
from privopt.privacy.profiles import gaussian_mu

SHARE_OF_SHAPES = 0.05
"""Of mu^2 or epsilon, for the histograms of shaped columns."""
HARMONICS: dict[Noise, int] = {"gaussian": 12, "pure": 4}
FEW = 6
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
    if not many or isinstance(facts.problem.loss, CappedLogistic | SmoothedHinge):
        return Shapes()
    each = plenty * facts.p / many
    usual, roughness = HARMONICS[noise], 0.5
    if each < ENOUGH_FOR_ROUGH:
        # Measured: a regression loses less with few functions, a classifier with smooth ones.
        if isinstance(facts.problem.loss, Logistic):
            roughness = 1.5
        else:
            usual = min(usual, FEW)
    if each < ENOUGH_FOR_SHAPES:
        usual = 0
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


def in_integers(wish: bool | None, multiplier: float | None, facts: Facts) -> bool | None:
    """The wish for all releases; False where the histograms have no room in integers."""
    if multiplier is None or choose_discrete(wish, True, multiplier, facts.n):
        return wish
    return False


class ShapeSettings(Protocol):
    """What settings of a solver say of shapes."""

    @property
    def n(self) -> int: ...
    @property
    def noise(self) -> Noise: ...
    @property
    def discrete_noise(self) -> bool: ...
    @property
    def shape_multiplier(self) -> float | None: ...
    @property
    def harmonics(self) -> int: ...
    @property
    def roughness(self) -> float: ...


def shape_learner(settings: ShapeSettings, columns: tuple[Shaped, ...]) -> ShapeLearner | None:
    """What learns the shapes that were planned; None where there are none."""
    if settings.shape_multiplier is None:
        return None
    return ShapeLearner(
        settings.n,
        settings.noise,
        settings.shape_multiplier,
        columns,
        settings.harmonics,
        settings.roughness,
        settings.discrete_noise,
    )


def by_bins(coefficients: np.ndarray, tables: ShapeTables) -> np.ndarray:
    """Coefficients of columns, of indicators of every bin of the shaped ones, and the constant."""
    plain = len(coefficients) - 1 - tables.width
    bins = tables.summed(coefficients[plain:-1]).ravel()
    return np.concatenate([coefficients[:plain], bins, coefficients[-1:]])


def of_columns(row_map: RowMap, tables: ShapeTables | None) -> RowMap:
    """The map of the columns alone."""
    columns = slice(row_map.dimension - 1 - (tables.width if tables else 0))
    return replace(row_map, centre=row_map.centre[columns], scale=row_map.scale[columns])
