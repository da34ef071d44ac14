"""The logistic loss with its slope capped: half the sensitivity, the same gradient at zero."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from array_api_compat import array_namespace

from privopt.losses.loss import Array, Loss


@dataclass(frozen=True)
class CappedLogistic(Loss):
    """f'(m) = -min(sigmoid(-m), cap) in the margin m = y z, for y = -1 or +1.

    Logistic where the record is well classified, a straight line where it is not. The cap is the
    Lipschitz constant: at 1/2 the gradient at zero, all that a small epsilon can see, stays whole
    while the noise halves. The class with the larger probability keeps the larger score.

    Parameters
    ----------
    cap : float, default=0.5
        Largest slope, in (0, 1]; 1 is the logistic loss.
    """

    cap: float = 0.5

    one_signed: ClassVar[bool] = True
    classification: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.cap <= 1:
            raise ValueError(f"cap must lie in (0, 1], got {self.cap!r}.")

    @property
    def bend(self) -> float:
        """The margin below which the loss is a straight line."""
        return -math.inf if self.cap == 1 else math.log(1 / self.cap - 1)

    def value(self, z: Array, y: Array) -> Array:
        xp = array_namespace(z)
        margin = y * z
        curved = margin if self.cap == 1 else xp.clip(margin, min=self.bend)
        half = 0.5 * curved
        size = abs(half)
        value = xp.log1p(xp.exp(-2.0 * size)) + (size - half)
        return value + self.cap * (curved - margin)

    def slope(self, z: Array, y: Array) -> Array:
        xp = array_namespace(z)
        return -y * xp.clip(0.5 * (1.0 - xp.tanh(0.5 * (y * z))), max=self.cap)

    def curvature(self, z: Array, y: Array) -> Array:
        xp = array_namespace(z)
        t = xp.tanh(0.5 * z)
        return xp.where(y * z > self.bend, 0.25 * (1.0 - t * t), xp.zeros_like(t))

    def probability(self, z: np.ndarray) -> np.ndarray:
        """Probability of the label +1 for which z has the smallest expected loss."""
        t = np.tanh(0.5 * np.asarray(z, dtype=float))
        up, down = np.minimum(0.5 * (1 + t), self.cap), np.minimum(0.5 * (1 - t), self.cap)
        return up / (up + down)

    def margin(self, probability: float) -> float:
        """The score whose ``probability`` this is: the best constant for such a share of +1."""
        high = max(probability, 1 - probability)
        # high = min(s, cap) / (min(s, cap) + 1 - s) with s = sigmoid(score) >= 1/2.
        capped = 1 - self.cap * (1 - high) / high
        share = capped if capped >= self.cap else high
        return math.copysign(math.log(share / (1 - share)), probability - 0.5)

    @property
    def lipschitz(self) -> float:
        return self.cap

    @property
    def smoothness(self) -> float:
        """sup of sigmoid' where the slope is not capped."""
        return 0.25 if self.cap >= 0.5 else self.cap * (1 - self.cap)

    def _range(self, margin: float, label: float) -> float:
        ends = np.array([-margin, margin])
        if not math.isfinite(margin):
            return math.inf
        high, low = self.value(ends, np.ones(2))
        return float(high - low)
