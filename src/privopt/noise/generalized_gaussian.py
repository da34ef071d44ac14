"""Noise shaped by an l_r norm: generalized Gaussian and its pure relative, the K-norm noise.

Both have densities that depend on ||z||_r alone, so they are a direction with the cone measure of
the l_r sphere times an independent length. A vector of independent coordinates with density
proportional to exp(-|y|^r), divided by its own l_r norm, has that direction (Schechtman and Zinn,
1990), and |y| = G^(1/r) U with G ~ Gamma(1 + 1/r) and U uniform: unlike Gamma(1/r)^(1/r), this
never underflows, however large r is.
"""

from __future__ import annotations

import math

import numpy as np

from privopt.noise.source import Source, volume


def generalized_gaussian(source: Source, scale: float, p: int, order: float) -> np.ndarray:
    """Density proportional to exp(-||z||_r^2 / (2 scale^2)) in R^p, r = ``order``.

    The length has density proportional to t^(p-1) exp(-t^2 / (2 scale^2)): its square is
    2 scale^2 Gamma(p/2), so E||z||_r^2 = p scale^2. For r = 2 this is N(0, scale^2 I).
    """
    length = math.sqrt(2 * source.noise.standard_gamma(p / 2)) if p else 0.0
    return _direction(source, p, order) * (length * scale * volume(source))


def k_norm(source: Source, scale: float, p: int, order: float) -> np.ndarray:
    """Density proportional to exp(-||z||_r / scale): the length is Gamma(p, scale).

    For r = 1 these are p independent Laplace variables, for r = 2 it is norm-Gamma noise.
    """
    length = source.noise.standard_gamma(p) if p else 0.0
    return _direction(source, p, order) * (length * scale * volume(source))


def _direction(source: Source, p: int, order: float) -> np.ndarray:
    """A point of the l_r sphere, by its cone measure."""
    if not 1 <= order < math.inf:
        raise ValueError(f"the order of a norm lies in [1, infinity), got {order!r}.")
    size = source.noise.standard_gamma(1 + 1 / order, size=p) ** (1 / order)
    y = size * source.noise.uniform(-1.0, 1.0, size=p)
    largest = np.abs(y).max(initial=0.0)
    if largest == 0.0:
        return y
    y /= largest  # so that no power over- or underflows
    return y / np.sum(np.abs(y) ** order) ** (1 / order)
