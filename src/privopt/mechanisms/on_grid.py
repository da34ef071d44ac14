"""Hardened additive noise: integer noise on an integer sum, times the grid's step at the end.

Noise in floating point leaves traces of the value it was added to in the low-order bits of the
result. Here value and noise are integers, their sum is exact, and what follows is a function of
that sum alone. The grid is chosen so that the sampler's one scale is the noise that is wanted.

Sums and noise wrap around modulo 2^64. That cannot hurt privacy, since the result is a function of
the noisy integer; ``headroom`` says whether it can happen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from privopt.mechanisms.additive import Gaussian, Laplace, NormGamma, check_multiplier
from privopt.mechanisms.mask import narrow, pure_mask, pure_scale
from privopt.mechanisms.standard import Coins, of_gaussian, of_pure
from privopt.noise import Source, discrete_gaussian, discrete_laplace
from privopt.noise.discrete import (
    GAUSSIAN_DISTANCE,
    GAUSSIAN_LOG_RATIO,
    GAUSSIAN_STD,
    LAPLACE_DISTANCE,
    LAPLACE_SCALE,
    OUTSIDE,
)
from privopt.noise.rounded import norm_gamma, norm_gamma_numerics
from privopt.oracle.counting import grid_step
from privopt.oracle.sensitivity import Grid, Sensitivity, SensitivityNorm
from privopt.privacy.budget import Refused
from privopt.privacy.events import Numerics
from privopt.privacy.kinds import GaussianKind, Kind, Pure

FINEST = 2.0**44
"""A sensitivity of more steps leaves too few bits for a sum."""
COUNTED_NOISE = 4.0
"""Steps by which counting moves norm-Gamma noise, in each coordinate, for two neighbours at most:
its quotient and its nearest integer are off by less than one each."""


class OnGrid:
    """A mechanism that adds integers to integers."""

    __slots__ = ()

    @property
    def resolution(self) -> float:
        """How many steps of the grid make up the sensitivity."""
        raise NotImplementedError

    def numerics(self, sensitivity: Sensitivity) -> Numerics:
        """How far the noise is from the law that the event speaks of."""
        raise NotImplementedError

    def _grid(self, sensitivity: Sensitivity) -> Grid:
        """The grid of a sensitivity, or a refusal: on another one the noise would have another
        scale."""
        if sensitivity.grid is None or sensitivity.grid.step != grid_step(
            sensitivity.radius, self.resolution
        ):
            raise Refused(
                "hardened noise has a grid of its own: ask with resolution=mechanism.resolution."
            )
        return sensitivity.grid

    def _noisy(self, payload: Any, noise: np.ndarray, sensitivity: Sensitivity) -> np.ndarray:
        if payload.dtype != np.int64:
            raise Refused("hardened noise takes integers.")
        # Two roundings follow, of the integer and of the product: functions of the noisy integer.
        return (payload + noise) * self._grid(sensitivity).step

    def _noise_of(self, payload: Any, result: Any, sensitivity: Sensitivity) -> np.ndarray:
        return np.asarray(result - payload * self._grid(sensitivity).step)


@dataclass(frozen=True, slots=True)
class DiscreteGaussian(OnGrid):
    """Add discrete Gaussian noise, of standard deviation multiplier * radius in units of the grid,
    to each coordinate of an integer vector bounded in l2.

    Formal guarantee: a vector of integers moves by at most ``resolution`` = GAUSSIAN_STD /
    multiplier in l2, so (1/multiplier)-GDP holds up to ``numerics``: the sampler is within that of
    the rounded Gaussian, which is a function of the Gaussian mechanism
    (docs/proofs/discrete-gaussian.md).
    """

    multiplier: float
    accepts: SensitivityNorm = "l2"

    def __post_init__(self) -> None:
        check_multiplier(self.multiplier)
        check_resolution(self.multiplier, self.resolution)

    @property
    def resolution(self) -> float:
        return GAUSSIAN_STD / self.multiplier

    def kinds(self, sensitivity: Sensitivity) -> tuple[Kind, ...]:
        mu = 1 / self.multiplier
        return (GaussianKind(mu, mu * (sensitivity.single / sensitivity.radius)),)

    def numerics(self, sensitivity: Sensitivity) -> Numerics:
        count = self._grid(sensitivity).coordinates
        return Numerics(count * GAUSSIAN_LOG_RATIO, count * (GAUSSIAN_DISTANCE + OUTSIDE))

    def run(self, payload: Any, sensitivity: Sensitivity, source: Source) -> np.ndarray:
        return self._noisy(payload, discrete_gaussian(source, payload.shape), sensitivity)

    def standard_noise(
        self, payload: Any, result: Any, sensitivity: Sensitivity, kind: Kind, coins: Coins
    ) -> np.ndarray:
        noise = self._noise_of(payload, result, sensitivity)
        return of_gaussian(noise, sensitivity.radius, kind)


@dataclass(frozen=True, slots=True)
class DiscreteLaplace(OnGrid):
    """Add discrete Laplace noise, of scale multiplier * radius in units of the grid, to each
    coordinate of an integer vector bounded in l1.

    Formal guarantee: a vector of integers moves by at most LAPLACE_SCALE / multiplier in l1, and
    chances fall by e^(-1/LAPLACE_SCALE) a step: (1/multiplier)-DP, up to ``numerics``.
    """

    multiplier: float
    accepts: SensitivityNorm = "l1"

    def __post_init__(self) -> None:
        check_multiplier(self.multiplier)
        check_resolution(self.multiplier, self.resolution)

    @property
    def resolution(self) -> float:
        return LAPLACE_SCALE / self.multiplier

    def kinds(self, sensitivity: Sensitivity) -> tuple[Kind, ...]:
        return (Pure(1 / self.multiplier),)

    def numerics(self, sensitivity: Sensitivity) -> Numerics:
        return Numerics(0.0, self._grid(sensitivity).coordinates * LAPLACE_DISTANCE)

    def run(self, payload: Any, sensitivity: Sensitivity, source: Source) -> np.ndarray:
        return self._noisy(payload, discrete_laplace(source, payload.shape), sensitivity)

    def standard_noise(
        self, payload: Any, result: Any, sensitivity: Sensitivity, kind: Kind, coins: Coins
    ) -> np.ndarray:
        noise = self._noise_of(payload, result, sensitivity)
        return of_pure(noise, sensitivity.radius, 1.0, kind)


@dataclass(frozen=True, slots=True)
class DiscreteNormGamma(OnGrid):
    """Add norm-Gamma noise of a scale a little above multiplier * radius, counted in whole steps,
    to an integer vector bounded in l2, and a mask of discrete Laplace noise.

    Formal guarantee: (1/multiplier)-DP, up to ``numerics``. The sum with exact norm-Gamma noise
    takes the share 1 - ``PURE_SHARE`` of it; what is counted instead is within ``norm_gamma_error``
    and a rounding of that, and the mask covers both for the rest (docs/proofs/masks.md).
    """

    multiplier: float
    coordinates: int
    accepts: SensitivityNorm = "l2"

    def __post_init__(self) -> None:
        check_multiplier(self.multiplier)
        check_resolution(self.multiplier, self.resolution)

    @property
    def resolution(self) -> float:
        return 1 / pure_mask(self.multiplier, 1.0, self.coordinates, COUNTED_NOISE).step

    def kinds(self, sensitivity: Sensitivity) -> tuple[Kind, ...]:
        return (Pure(1 / self.multiplier),)

    def numerics(self, sensitivity: Sensitivity) -> Numerics:
        if self._grid(sensitivity).coordinates != self.coordinates:
            raise Refused(f"this noise is for {self.coordinates} coordinates.")
        ratio, distance = norm_gamma_numerics(self.coordinates)
        return Numerics(ratio, distance + self.coordinates * LAPLACE_DISTANCE)

    def run(self, payload: Any, sensitivity: Sensitivity, source: Source) -> np.ndarray:
        real = norm_gamma(source, pure_scale(self.multiplier, sensitivity.radius), self.coordinates)
        counted = np.rint(real / self._grid(sensitivity).step).astype(np.int64)
        return self._noisy(payload, counted + discrete_laplace(source, payload.shape), sensitivity)

    def standard_noise(
        self, payload: Any, result: Any, sensitivity: Sensitivity, kind: Kind, coins: Coins
    ) -> np.ndarray:
        noise = self._noise_of(payload, result, sensitivity)
        return of_pure(noise, sensitivity.radius, 2.0, kind)


def gaussian_noise(multiplier: float, discrete_noise: bool) -> Gaussian | DiscreteGaussian:
    """Gaussian noise on exact integers, or in floating point."""
    return DiscreteGaussian(multiplier) if discrete_noise else Gaussian(multiplier)


def laplace_noise(multiplier: float, discrete_noise: bool) -> Laplace | DiscreteLaplace:
    """Laplace noise on exact integers, or in floating point."""
    return DiscreteLaplace(multiplier) if discrete_noise else Laplace(multiplier)


def norm_gamma_noise(
    multiplier: float, coordinates: int, discrete_noise: bool
) -> NormGamma | DiscreteNormGamma:
    """Norm-Gamma noise on exact integers, or in floating point."""
    return DiscreteNormGamma(multiplier, coordinates) if discrete_noise else NormGamma(multiplier)


def choose_discrete(
    wish: bool | None, gaussian: bool, multiplier: float, records: int, coordinates: int = 1
) -> bool:
    """Whether noise on an l2 sum is hardened: where it can be, unless told. ``records`` is public;
    noise that is not Gaussian is norm-Gamma."""
    possible = headroom(multiplier, records)
    if not gaussian:
        mask = pure_mask(multiplier, 1.0, coordinates, COUNTED_NOISE)
        possible = mask.fits() and narrow(multiplier, coordinates) and room(1 / mask.step, records)
    if wish and not possible:
        raise ValueError(
            "discrete_noise=True needs a noise multiplier that leaves room on the grid of "
            f"integers, and {multiplier:g} does not here: leave it out, or give "
            "discrete_noise=False."
        )
    return possible if wish is None else bool(wish)


def headroom(multiplier: float, records: int) -> bool:
    """``room`` for Gaussian and Laplace noise."""
    return room(max(GAUSSIAN_STD, LAPLACE_SCALE) / multiplier, records)


def room(resolution: float, records: int) -> bool:
    """Whether a sum over so many records, each within the sensitivity, stays far from 2^63."""
    return 1 <= resolution <= FINEST and records * resolution <= 2.0**61


def check_resolution(multiplier: float, resolution: float) -> None:
    if not 1 <= resolution <= FINEST:
        raise ValueError(
            f"a noise multiplier of {multiplier:g} leaves no room on the grid of integers: "
            "use discrete_noise=False."
        )
