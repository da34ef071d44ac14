"""Additive noise: Gaussian, Laplace, norm-Gamma and their l_r relatives, in units of the
sensitivity.

References: Dwork, McSherry, Nissim and Smith (2006) for Laplace noise; Dong, Roth and Su (2022) for
the exact profile of Gaussian noise; Chaudhuri, Monteleoni and Sarwate (2011) for norm-Gamma noise;
Hardt and Talwar (2010) for noise of other norms; Gopi, Lee, Liu, Shen and Tian (2023) for the
generalized Gaussian.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from privopt.mechanisms.standard import Coins, of_gaussian, of_norm, of_pure
from privopt.noise import Source, gaussian, generalized_gaussian, k_norm, laplace, norm_gamma
from privopt.oracle.sensitivity import Sensitivity, SensitivityNorm, norm_named
from privopt.privacy.kinds import Concentrated, GaussianKind, Kind, Pure


def check_multiplier(multiplier: float) -> None:
    if not 0 < multiplier < math.inf:
        raise ValueError(f"a noise multiplier must be positive and finite, got {multiplier!r}.")


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Add N(0, (multiplier * radius)^2) to each coordinate of a value bounded in l2.

    Formal guarantee: exactly (1/multiplier)-GDP.
    """

    multiplier: float
    accepts: SensitivityNorm = "l2"
    resolution: ClassVar[None] = None  # no grid

    def __post_init__(self) -> None:
        check_multiplier(self.multiplier)

    def kinds(self, sensitivity: Sensitivity) -> tuple[Kind, ...]:
        mu = 1 / self.multiplier
        return (GaussianKind(mu, mu * (sensitivity.single / sensitivity.radius)),)

    def run(self, payload: Any, sensitivity: Sensitivity, source: Source) -> np.ndarray:
        payload = np.asarray(payload, dtype=float)
        return payload + gaussian(source, self.multiplier * sensitivity.radius, payload.shape)

    def standard_noise(
        self, payload: Any, result: Any, sensitivity: Sensitivity, kind: Kind, coins: Coins
    ) -> np.ndarray:
        return of_gaussian(np.asarray(result - payload), sensitivity.radius, kind)


@dataclass(frozen=True, slots=True)
class Laplace:
    """Add Laplace noise of scale multiplier * radius to each coordinate of a value bounded in l1.

    Formal guarantee: (1/multiplier)-DP.
    """

    multiplier: float
    accepts: SensitivityNorm = "l1"
    resolution: ClassVar[None] = None  # no grid

    def __post_init__(self) -> None:
        check_multiplier(self.multiplier)

    def kinds(self, sensitivity: Sensitivity) -> tuple[Kind, ...]:
        return (Pure(1 / self.multiplier),)

    def run(self, payload: Any, sensitivity: Sensitivity, source: Source) -> np.ndarray:
        payload = np.asarray(payload, dtype=float)
        return payload + laplace(source, self.multiplier * sensitivity.radius, payload.shape)

    def standard_noise(
        self, payload: Any, result: Any, sensitivity: Sensitivity, kind: Kind, coins: Coins
    ) -> np.ndarray:
        return of_pure(np.asarray(result - payload), sensitivity.radius, 1.0, kind)


@dataclass(frozen=True, slots=True)
class NormGamma:
    """Add noise with density proportional to exp(-||b||_2 / (multiplier * radius)).

    Formal guarantee: (1/multiplier)-DP for a value bounded in l2, in any dimension.
    """

    multiplier: float
    accepts: SensitivityNorm = "l2"
    resolution: ClassVar[None] = None  # no grid

    def __post_init__(self) -> None:
        check_multiplier(self.multiplier)

    def kinds(self, sensitivity: Sensitivity) -> tuple[Kind, ...]:
        return (Pure(1 / self.multiplier),)

    def run(self, payload: Any, sensitivity: Sensitivity, source: Source) -> np.ndarray:
        payload = np.asarray(payload, dtype=float)
        noise = norm_gamma(source, self.multiplier * sensitivity.radius, payload.size)
        return payload + noise.reshape(payload.shape)

    def standard_noise(
        self, payload: Any, result: Any, sensitivity: Sensitivity, kind: Kind, coins: Coins
    ) -> np.ndarray:
        return of_pure(np.asarray(result - payload), sensitivity.radius, 2.0, kind)


@dataclass(frozen=True, slots=True)
class GeneralizedGaussian:
    """Add noise with density proportional to exp(-||z||_r^2 / (2 s^2)) to a value bounded in l_r,
    r = ``order`` >= 2 and s = multiplier * radius * sqrt(r - 1).

    Formal guarantee: 1/(2 multiplier^2)-zCDP.

    Let V = ||.||_r^2 / (2 s^2) and let a neighbour shift the value by m. The square of the l_r norm
    is (r - 1)-smooth: ||x + y||^2 <= ||x||^2 + <grad ||x||^2, y> + (r - 1) ||y||^2 (for r < 2 it is
    not, and the bound is false). With a = y + (alpha - 1) m this gives both::

        (alpha - 1) V(a + m) <= (alpha - 1) (V(a) + <grad V(a), m> + (r - 1) V(m)),
        V(y) = V(a - (alpha - 1) m)
             <= V(a) - (alpha - 1) <grad V(a), m> + (r - 1) (alpha - 1)^2 V(m).

    Their sum bounds the integrand of the Renyi divergence of order alpha by
    exp(-V(y) + (r - 1) alpha (alpha - 1) V(m)); integrated over y,
    D_alpha <= alpha (r - 1) ||m||_r^2 / (2 s^2) for every alpha > 1 (equality at r = 2).

    A Gaussian calibrated in l2 has the smaller noise in every l_q, q >= 2, even where only an l_q
    bound is known; this mechanism is one statement for all of these norms.
    """

    multiplier: float
    order: float
    resolution: ClassVar[None] = None  # no grid

    def __post_init__(self) -> None:
        check_multiplier(self.multiplier)
        if not 2 <= self.order < math.inf:
            raise ValueError(
                f"generalized Gaussian noise needs an order of at least 2, got {self.order!r}: "
                "for a smaller one use Gaussian noise in l2."
            )

    @property
    def accepts(self) -> SensitivityNorm:
        return norm_named(self.order)

    def kinds(self, sensitivity: Sensitivity) -> tuple[Kind, ...]:
        return (Concentrated(1 / (2 * self.multiplier**2)),)

    def run(self, payload: Any, sensitivity: Sensitivity, source: Source) -> np.ndarray:
        payload = np.asarray(payload, dtype=float)
        scale = self.multiplier * sensitivity.radius * math.sqrt(self.order - 1)
        noise = generalized_gaussian(source, scale, payload.size, self.order)
        return payload + noise.reshape(payload.shape)

    def standard_noise(
        self, payload: Any, result: Any, sensitivity: Sensitivity, kind: Kind, coins: Coins
    ) -> np.ndarray:
        assert isinstance(kind, Concentrated)
        scale = sensitivity.radius * math.sqrt((self.order - 1) / (2 * kind.rho))
        return of_norm(np.asarray(result - payload), scale, self.order, kind)


@dataclass(frozen=True, slots=True)
class KNorm:
    """Add noise with density proportional to exp(-||z||_r / (multiplier * radius)), r = ``order``.

    Formal guarantee: (1/multiplier)-DP for a value bounded in l_r, by the triangle inequality
    (Hardt and Talwar, 2010). Order 1 is Laplace noise, order 2 norm-Gamma noise.
    """

    multiplier: float
    order: float
    resolution: ClassVar[None] = None  # no grid

    def __post_init__(self) -> None:
        check_multiplier(self.multiplier)
        if not 1 <= self.order < math.inf:
            raise ValueError(f"K-norm noise needs an order in [1, infinity), got {self.order!r}.")

    @property
    def accepts(self) -> SensitivityNorm:
        return norm_named(self.order)

    def kinds(self, sensitivity: Sensitivity) -> tuple[Kind, ...]:
        return (Pure(1 / self.multiplier),)

    def run(self, payload: Any, sensitivity: Sensitivity, source: Source) -> np.ndarray:
        payload = np.asarray(payload, dtype=float)
        noise = k_norm(source, self.multiplier * sensitivity.radius, payload.size, self.order)
        return payload + noise.reshape(payload.shape)

    def standard_noise(
        self, payload: Any, result: Any, sensitivity: Sensitivity, kind: Kind, coins: Coins
    ) -> np.ndarray:
        return of_pure(np.asarray(result - payload), sensitivity.radius, self.order, kind)
