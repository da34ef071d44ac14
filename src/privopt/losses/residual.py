"""Losses that are quadratic in a small residual and linear in a large one."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from array_api_compat import array_namespace

from privopt.losses.loss import Array, Loss


@dataclass(frozen=True)
class HuberisedResidual(Loss):
    """f(z, y) = h(z - y) with h(r) = r^2/2 for |r| <= w and w|r| - w^2/2 beyond; w may be infinite.

    The slope is the residual clipped to [-w, w], so f is convex and C^{1,1} for every w.
    """

    @property
    @abstractmethod
    def linear_from(self) -> float:
        """The width w from which on h is linear."""

    def value(self, z: Array, y: Array) -> Array:
        size = abs(z - y)
        # The square of an unclipped residual may rightly be infinite.
        with np.errstate(over="ignore"):
            if math.isinf(self.linear_from):
                return 0.5 * size * size
            inner = size.clip(max=self.linear_from)
            return inner * (size - 0.5 * inner)

    def slope(self, z: Array, y: Array) -> Array:
        residual = z - y
        if math.isinf(self.linear_from):
            return residual
        # The method, not xp.clip: the wrapped function takes many passes on NumPy.
        return residual.clip(-self.linear_from, self.linear_from)

    def curvature(self, z: Array, y: Array) -> Array:
        size = abs(z - y)
        return array_namespace(size).astype(size <= self.linear_from, size.dtype)

    @property
    def linear_beyond(self) -> float:
        return self.linear_from

    def least_curvature(self, z: Array, y: Array, width: Array) -> Array:
        return self.curvature(abs(z - y) + width, 0.0 * y)

    @property
    def lipschitz(self) -> float:
        return self.linear_from

    @property
    def smoothness(self) -> float:
        return 1.0

    def _range(self, margin: float, label: float) -> float:
        # h is even and convex, so the largest label is the worst: integrate h' from start on.
        if math.isinf(label):
            return 2.0 * margin * self.lipschitz
        start = max(label - margin, 0.0)
        length = margin + min(margin, label)
        curved = max(0.0, min(length, self.linear_from - start))
        drop = curved * (start + 0.5 * curved)
        return drop if curved == length else drop + (length - curved) * self.linear_from
