"""Masks: integer noise over a vector that was computed in floating point.

An exact mechanism releases a real vector r. The program has a computed one, v, and a proof that
||v - r|| <= error for every data set: the certificate of a minimiser, the rounding of noise. Given
r, the computed vectors of two neighbours differ by at most 2 error. So v, counted in whole steps of
a public grid, plus integer noise for that movement, is one more release that composes with the
exact one, whatever its low-order bits were; r itself is never published. What leaves is a function
of the noisy integers alone. ``docs/proofs/masks.md`` is the proof.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from privopt.noise import Source, discrete_gaussian, discrete_laplace
from privopt.noise.discrete import (
    GAUSSIAN_DISTANCE,
    GAUSSIAN_LOG_RATIO,
    GAUSSIAN_STD,
    LAPLACE_DISTANCE,
    LAPLACE_SCALE,
    OUTSIDE,
)
from privopt.noise.rounded import norm_gamma_error
from privopt.privacy.budget import Refused
from privopt.privacy.events import Numerics

Noise = Literal["pure", "gaussian"]

LIMIT = 2.0**62
"""Counts beyond this are moved to it, which brings no two of them further apart."""
ROUNDING = 2.0**11
"""Steps by which counting moves two vectors apart, in each coordinate, at most: a quotient below
``LIMIT`` is off by 2^9 and its nearest integer by 1/2, on either side; the rest is for noise that
is counted apart, and for the rounding of the step itself."""

PURE_SHARE = 0.005
"""Share of epsilon that the mask over norm-Gamma noise takes."""
PURE_WIDTH = 0.02
"""Scale of that mask in units of the noise's standard deviation in one coordinate."""
PURE_GROWTH = 1.03
"""Bounds are computed for noise this many times as wide. The mean square of hardened norm-Gamma
noise is that of noise 1.006 times as wide, 1/(1 - share) and the mask; the rest is for tails."""


@dataclass(frozen=True, slots=True)
class Mask:
    """Integer noise for a vector that moves by at most ``movement`` in l2 between neighbours.

    Formal guarantee: (1/multiplier)-GDP with Gaussian noise, (1/multiplier)-DP with pure noise
    (discrete Laplace on each coordinate, for an l1 movement of sqrt(p) ``movement``), up to
    ``numerics``. In steps g of the grid, counted vectors differ by at most
    movement/g + rounding sqrt(p) in l2, and g is such that the sampler's one scale is
    ``multiplier`` times that.
    """

    noise: Noise
    multiplier: float
    movement: float
    dimension: int
    rounding: float = ROUNDING

    @property
    def step(self) -> float:
        """The step of the grid; refuses more coordinates than the sampler's scale has room for."""
        if not self.fits():
            raise Refused(
                "there are too many coordinates for exact integers: use discrete_noise=False."
            )
        movement = self.movement * (math.sqrt(self.dimension) if self.noise == "pure" else 1.0)
        return self.multiplier * movement / self._room

    @property
    def _room(self) -> float:
        """What counting leaves of the sampler's scale."""
        root = math.sqrt(self.dimension)
        steps = self.rounding * root * (root if self.noise == "pure" else 1.0)
        return integer_scale(self.noise) - self.multiplier * steps

    def fits(self, size: float = 0.0) -> bool:
        """Whether counting costs less than half of the sampler's scale, and counts of a vector of
        this size stay eight times below their limit."""
        enough = self._room >= integer_scale(self.noise) / 2
        return enough and 8 * size <= LIMIT * self.step if size else enough

    def numerics(self) -> Numerics:
        """How far the integer noise is from its law."""
        if self.noise == "pure":
            return Numerics(0.0, self.dimension * LAPLACE_DISTANCE)
        return Numerics(
            self.dimension * GAUSSIAN_LOG_RATIO, self.dimension * (GAUSSIAN_DISTANCE + OUTSIDE)
        )

    def count(self, value: np.ndarray) -> np.ndarray:
        """The nearest integer vector, in steps of the grid."""
        farthest = LIMIT * self.step  # exact, and so is the quotient of the two
        return np.rint(np.clip(value, -farthest, farthest) / self.step).astype(np.int64)

    def cover(self, counts: np.ndarray, source: Source) -> np.ndarray:
        """The noisy integers times the step: a function of them alone."""
        draw = discrete_laplace if self.noise == "pure" else discrete_gaussian
        return (counts + draw(source, counts.shape)) * self.step


def integer_scale(noise: Noise) -> float:
    """Scale of the integer noise in steps of the grid."""
    return LAPLACE_SCALE if noise == "pure" else GAUSSIAN_STD


def pure_scale(multiplier: float, output_sensitivity: float) -> float:
    """Scale of norm-Gamma noise for what the mask leaves of an epsilon of 1/multiplier."""
    return multiplier * output_sensitivity / (1 - PURE_SHARE)


def pure_mask(
    multiplier: float, output_sensitivity: float, dimension: int, rounding: float = ROUNDING
) -> Mask:
    """The mask over a vector with norm-Gamma noise: wide enough for the error of that noise, and
    for its counts to stay small."""
    scale, own = pure_scale(multiplier, output_sensitivity), multiplier / PURE_SHARE
    movement = max(2 * scale * norm_gamma_error(dimension), _wide(scale, own, dimension))
    return Mask("pure", own, movement, dimension, rounding)


def _wide(scale: float, own: float, dimension: int) -> float:
    """The movement that a mask of ``PURE_WIDTH`` covers."""
    return PURE_WIDTH * scale * math.sqrt(dimension + 1) / (own * math.sqrt(dimension))


def narrow(multiplier: float, dimension: int) -> bool:
    """Whether the pure mask is no wider than ``PURE_WIDTH`` says."""
    scale, own = pure_scale(multiplier, 1.0), multiplier / PURE_SHARE
    return 2 * scale * norm_gamma_error(dimension) <= _wide(scale, own, dimension)


def mask_over(noise: Noise, multiplier: float, output_sensitivity: float, dimension: int) -> Mask:
    """The integer noise on a result of this sensitivity."""
    if noise == "pure":
        return pure_mask(multiplier, output_sensitivity, dimension)
    return Mask("gaussian", multiplier, output_sensitivity, dimension)


def choose_masked(wish: bool | None, mask: Mask, size: float) -> bool:
    """Whether noise on a result of about this size is hardened: where it can be, unless told."""
    possible = mask.fits(size)
    if wish and not possible:
        raise ValueError(
            "discrete_noise=True has no room for so many coordinates or so little noise: leave it "
            "out, or give discrete_noise=False."
        )
    if wish is None:
        own = mask.multiplier * PURE_SHARE
        return possible and (mask.noise == "gaussian" or narrow(own, mask.dimension))
    return bool(wish)
