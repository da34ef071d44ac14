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
from privopt.oracle.reach import Grid, Reach, ReachNorm
from privopt.privacy.budget import Refused
from privopt.privacy.events import Numerics
from privopt.privacy.kinds import Gaussian as GaussianKind
from privopt.privacy.kinds import Kind, Pure

MOST_STEPS = 2.0**44
"""A reach of more steps leaves too few bits for a sum."""
COUNTED_NOISE = 4.0
"""Steps by which counting moves norm-Gamma noise, in each coordinate, for two neighbours at most:
its quotient and its nearest integer are off by less than one each."""


class OnGrid:
    """A mechanism that adds integers to integers."""

    __slots__ = ()

    @property
    def steps(self) -> float:
        """How many steps of the grid make up the reach."""
        raise NotImplementedError

    def numerics(self, reach: Reach) -> Numerics:
        """How far the noise is from the law that the event speaks of."""
        raise NotImplementedError

    def _grid(self, reach: Reach) -> Grid:
        """The grid of a reach, or a refusal: on another one the noise would have another scale."""
        if reach.grid is None or reach.grid.step != grid_step(reach.radius, self.steps):
            raise Refused("hardened noise has a grid of its own: ask with steps=mechanism.steps.")
        return reach.grid

    def _noisy(self, payload: Any, noise: np.ndarray, reach: Reach) -> np.ndarray:
        if payload.dtype != np.int64:
            raise Refused("hardened noise takes integers.")
        # Two roundings follow, of the integer and of the product: functions of the noisy integer.
        return (payload + noise) * self._grid(reach).step


@dataclass(frozen=True, slots=True)
class HardenedGaussian(OnGrid):
    """Add discrete Gaussian noise, of standard deviation multiplier * radius in units of the grid,
    to each coordinate of an integer vector bounded in l2.

    Formal guarantee: a vector of integers moves by at most ``steps`` = GAUSSIAN_STD / multiplier in
    l2, so (1/multiplier)-GDP holds up to ``numerics``: the sampler is within that of the rounded
    Gaussian, which is a function of the Gaussian mechanism (docs/proofs/discrete-gaussian.md).
    """

    multiplier: float
    accepts: ReachNorm = "l2"

    def __post_init__(self) -> None:
        check_multiplier(self.multiplier)
        check_steps(self.multiplier, self.steps)

    @property
    def steps(self) -> float:
        return GAUSSIAN_STD / self.multiplier

    def kinds(self, reach: Reach) -> tuple[Kind, ...]:
        mu = 1 / self.multiplier
        return (GaussianKind(mu, mu * (reach.single / reach.radius)),)

    def numerics(self, reach: Reach) -> Numerics:
        count = self._grid(reach).coordinates
        return Numerics(count * GAUSSIAN_LOG_RATIO, count * (GAUSSIAN_DISTANCE + OUTSIDE))

    def run(self, payload: Any, reach: Reach, source: Source) -> np.ndarray:
        return self._noisy(payload, discrete_gaussian(source, payload.shape), reach)


@dataclass(frozen=True, slots=True)
class HardenedLaplace(OnGrid):
    """Add discrete Laplace noise, of scale multiplier * radius in units of the grid, to each
    coordinate of an integer vector bounded in l1.

    Formal guarantee: a vector of integers moves by at most LAPLACE_SCALE / multiplier in l1, and
    chances fall by e^(-1/LAPLACE_SCALE) a step: (1/multiplier)-DP, up to ``numerics``.
    """

    multiplier: float
    accepts: ReachNorm = "l1"

    def __post_init__(self) -> None:
        check_multiplier(self.multiplier)
        check_steps(self.multiplier, self.steps)

    @property
    def steps(self) -> float:
        return LAPLACE_SCALE / self.multiplier

    def kinds(self, reach: Reach) -> tuple[Kind, ...]:
        return (Pure(1 / self.multiplier),)

    def numerics(self, reach: Reach) -> Numerics:
        return Numerics(0.0, self._grid(reach).coordinates * LAPLACE_DISTANCE)

    def run(self, payload: Any, reach: Reach, source: Source) -> np.ndarray:
        return self._noisy(payload, discrete_laplace(source, payload.shape), reach)


@dataclass(frozen=True, slots=True)
class HardenedNormGamma(OnGrid):
    """Add norm-Gamma noise of a scale a little above multiplier * radius, counted in whole steps,
    to an integer vector bounded in l2, and a mask of discrete Laplace noise.

    Formal guarantee: (1/multiplier)-DP, up to ``numerics``. The sum with exact norm-Gamma noise
    takes the share 1 - ``PURE_SHARE`` of it; what is counted instead is within ``norm_gamma_error``
    and a rounding of that, and the mask covers both for the rest (docs/proofs/masks.md).
    """

    multiplier: float
    coordinates: int
    accepts: ReachNorm = "l2"

    def __post_init__(self) -> None:
        check_multiplier(self.multiplier)
        check_steps(self.multiplier, self.steps)

    @property
    def steps(self) -> float:
        return 1 / pure_mask(self.multiplier, 1.0, self.coordinates, COUNTED_NOISE).step

    def kinds(self, reach: Reach) -> tuple[Kind, ...]:
        return (Pure(1 / self.multiplier),)

    def numerics(self, reach: Reach) -> Numerics:
        if self._grid(reach).coordinates != self.coordinates:
            raise Refused(f"this noise is for {self.coordinates} coordinates.")
        ratio, distance = norm_gamma_numerics(self.coordinates)
        return Numerics(ratio, distance + self.coordinates * LAPLACE_DISTANCE)

    def run(self, payload: Any, reach: Reach, source: Source) -> np.ndarray:
        real = norm_gamma(source, pure_scale(self.multiplier, reach.radius), self.coordinates)
        counted = np.rint(real / self._grid(reach).step).astype(np.int64)
        return self._noisy(payload, counted + discrete_laplace(source, payload.shape), reach)


def gaussian_noise(multiplier: float, hardened: bool) -> Gaussian | HardenedGaussian:
    """Gaussian noise on exact integers, or in floating point."""
    return HardenedGaussian(multiplier) if hardened else Gaussian(multiplier)


def laplace_noise(multiplier: float, hardened: bool) -> Laplace | HardenedLaplace:
    """Laplace noise on exact integers, or in floating point."""
    return HardenedLaplace(multiplier) if hardened else Laplace(multiplier)


def norm_gamma_noise(
    multiplier: float, coordinates: int, hardened: bool
) -> NormGamma | HardenedNormGamma:
    """Norm-Gamma noise on exact integers, or in floating point."""
    return HardenedNormGamma(multiplier, coordinates) if hardened else NormGamma(multiplier)


def choose_hardened(
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
            "hardened=True needs a noise multiplier that leaves room on the grid of integers, "
            f"and {multiplier:g} does not here: leave it out, or give hardened=False."
        )
    return possible if wish is None else bool(wish)


def headroom(multiplier: float, records: int) -> bool:
    """``room`` for Gaussian and Laplace noise."""
    return room(max(GAUSSIAN_STD, LAPLACE_SCALE) / multiplier, records)


def room(steps: float, records: int) -> bool:
    """Whether a sum over so many records, each within the reach, stays far from 2^63."""
    return 1 <= steps <= MOST_STEPS and records * steps <= 2.0**61


def check_steps(multiplier: float, steps: float) -> None:
    if not 1 <= steps <= MOST_STEPS:
        raise ValueError(
            f"a noise multiplier of {multiplier:g} leaves no room on the grid of integers: "
            "use hardened=False."
        )
