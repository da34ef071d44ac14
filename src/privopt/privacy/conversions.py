"""From the mu of a Gaussian mechanism to epsilon, by four conversions in use.

``exact`` is what this library certifies by. The others are larger and are there to compare with
published figures.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from privopt.privacy.profiles import gaussian_epsilon, renyi_epsilon

Conversion = Literal["exact", "renyi", "renyi_grid", "zcdp"]


def gaussian_conversion(mu: float, delta: float, conversion: Conversion = "exact") -> float:
    """Epsilon at delta of a mu-GDP mechanism.

    ``exact``: the Gaussian profile (Balle and Wang, 2018). ``renyi``: the curve alpha mu^2/2 with
    the conversion of Canonne, Kamath and Steinke (2020), the best alpha. ``renyi_grid``: the same
    with alpha in 1.1, 1.2, ..., 199.9, as published accounting of DP-FTRL has it. ``zcdp``:
    rho + 2 sqrt(rho log(1/delta)) with rho = mu^2/2 (Bun and Steinke, 2016).
    """
    if not 0 < delta < 1:
        raise ValueError(f"Gaussian noise needs delta in (0, 1), got {delta:g}.")
    rho = mu**2 / 2
    if conversion == "exact":
        return gaussian_epsilon(mu, delta)
    if conversion == "renyi":
        return renyi_epsilon(lambda alpha: alpha * rho, delta)
    if conversion == "renyi_grid":
        alpha = np.arange(11, 2000) / 10
        bound = alpha * rho + np.log1p(-1 / alpha) - (math.log(delta) + np.log(alpha)) / (alpha - 1)
        return max(0.0, float(bound.min()))
    if conversion == "zcdp":
        return rho + 2 * math.sqrt(rho * math.log(1 / delta))
    raise ValueError(f"conversion must be exact, renyi, renyi_grid or zcdp, got {conversion!r}.")
