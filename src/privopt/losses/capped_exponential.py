"""A capped loss whose minimiser is the log-odds: what a private classifier minimises."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from array_api_compat import array_namespace

from privopt.losses.loss import Array, Loss


@dataclass(frozen=True)
class CappedExponential(Loss):
    """f(m) = e^-m / 2 for m >= 0 and (1 - m) / 2 below, in the margin m = y z, for y = -1 or +1.

    Its slope is at most 1/2, half of the logistic loss's, and the same at zero. Of all losses with
    that cap whose expectation is least at the log-odds it has the largest curvature everywhere:
    such a loss has the slopes u(z) sigmoid(z) for y = -1 and -u(z) sigmoid(-z) for y = +1 with one
    u, the cap asks u(z) <= 1 / (2 sigmoid(|z|)), and here that is an equality.

    The minimiser: with P(y = +1) = p and z > 0, -p e^-z / 2 + (1 - p) / 2 = 0 at the log-odds of p.
    """

    one_signed: ClassVar[bool] = True
    classification: ClassVar[bool] = True

    def value(self, z: Array, y: Array) -> Array:
        xp = array_namespace(z)
        margin = y * z
        return 0.5 * (xp.exp(-xp.clip(margin, min=0.0)) - xp.clip(margin, max=0.0))

    def slope(self, z: Array, y: Array) -> Array:
        xp = array_namespace(z)
        return -0.5 * y * xp.exp(-xp.clip(y * z, min=0.0))

    def curvature(self, z: Array, y: Array) -> Array:
        xp = array_namespace(z)
        margin = y * z
        bent = 0.5 * xp.exp(-xp.clip(margin, min=0.0))
        return xp.where(margin >= 0.0, bent, xp.zeros_like(bent))

    def expected_curvature(self, z: Array, y: Array) -> Array:
        """p(z) e^-z / 2 for z > 0 and, by symmetry, sigmoid(-|z|) / 2 with p = sigmoid: the label
        is drawn from the log-odds z. The observed curvature is 0 where the margin is negative."""
        xp = array_namespace(z)
        small = xp.exp(-abs(z))
        return 0.5 * small / (1.0 + small)

    @property
    def most_expected(self) -> float:
        return 0.25

    @property
    def lipschitz(self) -> float:
        return 0.5

    @property
    def smoothness(self) -> float:
        """sup of e^-m / 2 for m >= 0."""
        return 0.5

    def _range(self, margin: float, label: float) -> float:
        if not math.isfinite(margin):
            return math.inf
        high, low = self.value(np.array([-margin, margin]), np.ones(2))
        return float(high - low)
