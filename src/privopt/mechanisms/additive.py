"""Additive noise: Gaussian, Laplace and norm-Gamma, in units of the reach."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from privopt.noise import Source, gaussian, laplace, norm_gamma
from privopt.oracle.reach import Reach, ReachNorm
from privopt.privacy.kinds import Gaussian as GaussianKind
from privopt.privacy.kinds import Kind, Pure


def check_multiplier(multiplier: float) -> None:
    if not 0 < multiplier < math.inf:
        raise ValueError(f"a noise multiplier must be positive and finite, got {multiplier!r}.")


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Add N(0, (multiplier * radius)^2) to each coordinate of a value bounded in l2.

    Formal guarantee: exactly (1/multiplier)-GDP.
    """

    multiplier: float
    accepts: ReachNorm = "l2"
    steps: ClassVar[None] = None  # no grid

    def __post_init__(self) -> None:
        check_multiplier(self.multiplier)

    def kinds(self, reach: Reach) -> tuple[Kind, ...]:
        mu = 1 / self.multiplier
        return (GaussianKind(mu, mu * (reach.single / reach.radius)),)

    def run(self, payload: Any, reach: Reach, source: Source) -> np.ndarray:
        payload = np.asarray(payload, dtype=float)
        return payload + gaussian(source, self.multiplier * reach.radius, payload.shape)


@dataclass(frozen=True, slots=True)
class Laplace:
    """Add Laplace noise of scale multiplier * radius to each coordinate of a value bounded in l1.

    Formal guarantee: (1/multiplier)-DP.
    """

    multiplier: float
    accepts: ReachNorm = "l1"
    steps: ClassVar[None] = None  # no grid

    def __post_init__(self) -> None:
        check_multiplier(self.multiplier)

    def kinds(self, reach: Reach) -> tuple[Kind, ...]:
        return (Pure(1 / self.multiplier),)

    def run(self, payload: Any, reach: Reach, source: Source) -> np.ndarray:
        payload = np.asarray(payload, dtype=float)
        return payload + laplace(source, self.multiplier * reach.radius, payload.shape)


@dataclass(frozen=True, slots=True)
class NormGamma:
    """Add noise with density proportional to exp(-||b||_2 / (multiplier * radius)).

    Formal guarantee: (1/multiplier)-DP for a value bounded in l2, in any dimension.
    """

    multiplier: float
    accepts: ReachNorm = "l2"
    steps: ClassVar[None] = None  # no grid

    def __post_init__(self) -> None:
        check_multiplier(self.multiplier)

    def kinds(self, reach: Reach) -> tuple[Kind, ...]:
        return (Pure(1 / self.multiplier),)

    def run(self, payload: Any, reach: Reach, source: Source) -> np.ndarray:
        payload = np.asarray(payload, dtype=float)
        noise = norm_gamma(source, self.multiplier * reach.radius, payload.size)
        return payload + noise.reshape(payload.shape)
