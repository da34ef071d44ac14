"""Gaussian and norm-Gamma noise on a fine grid, each with a bound on how far the exact draw is.

Some noise is never published: objective perturbation puts it inside the objective, and a mask of
integer noise is laid over what comes out (``mechanisms.mask``). Such noise need not be an integer
underneath, but its law must be known. These draws are functions of discrete Gaussian variables K,
which are rounded Gaussians up to the error of ``discrete``: there is a standard Gaussian G with
|G - K/std| <= 1/(2 std) in each coordinate, so an exact draw lies within the stated distance.

``docs/proofs/masks.md`` derives the bounds.
"""

from __future__ import annotations

import math

import numpy as np

from privopt.noise.discrete import (
    FINE_DISTANCE,
    FINE_LOG_RATIO,
    FINE_STD,
    OUTSIDE,
    TAIL,
    fine_gaussian,
)
from privopt.noise.source import Source

UNIT = 2.0**-53


def gaussian(source: Source, std: float, p: int) -> np.ndarray:
    """p independent N(0, std^2) coordinates, but for ``std * gaussian_error(p)`` in l2."""
    return fine_gaussian(source, p) * (std / FINE_STD)


def norm_gamma(source: Source, scale: float, p: int) -> np.ndarray:
    """Density proportional to exp(-||b||_2 / scale), but for ``scale * norm_gamma_error(p)`` in l2.

    The length of p + 1 standard Gaussians times p others: W = ||H||^2 is chi-squared with p + 1
    degrees of freedom, and the mixture over W of N(0, W I) has density proportional to the integral
    of w^(-1/2) exp(-(r^2/w + w)/2), which is sqrt(2 pi) exp(-r).
    """
    drawn = fine_gaussian(source, 2 * p + 1) / FINE_STD
    return drawn[:p] * (scale * float(np.linalg.norm(drawn[p:])))


def gaussian_error(p: int) -> float:
    """l2 distance of ``gaussian`` from an exact draw, in units of its standard deviation: half a
    step in each coordinate, and three roundings of the product."""
    return math.sqrt(p) / (2 * FINE_STD) + 3 * UNIT * _length(p)


def norm_gamma_error(p: int) -> float:
    """The same for ``norm_gamma``, in units of its scale, outside a set of ``TAIL_CHANCE``.

    With exact H, G and drawn H', G': ||H|| G - ||H'|| G' = ||H|| (G - G') + (||H|| - ||H'||) G'.
    """
    halves = math.sqrt(p) * _length(p + 1) + math.sqrt(p + 1) * (_length(p) + 1)
    roundings = (p + 8) * UNIT * _length(p + 1) ** 2
    return halves / (2 * FINE_STD) + roundings


def _length(p: int) -> float:
    """A bound on the length of p standard Gaussians that fails with chance e^(-TAIL^2/2)."""
    return math.sqrt(p) + TAIL


TAIL_CHANCE = 2 * math.exp(-(TAIL**2) / 2)
"""Chance that one of two Gaussian vectors is longer than its bound: below 2^-120."""


def gaussian_numerics(p: int) -> tuple[float, float]:
    """Log ratio and distance of the law of p discrete Gaussians from rounded ones."""
    return p * FINE_LOG_RATIO, p * (FINE_DISTANCE + OUTSIDE)


def norm_gamma_numerics(p: int) -> tuple[float, float]:
    """The same for the 2p + 1 variables of ``norm_gamma``, and for the bound on their lengths."""
    ratio, distance = gaussian_numerics(2 * p + 1)
    return ratio, distance + TAIL_CHANCE
