"""The absolute loss of phase retrieval: neither convex nor smooth, but weakly convex."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from array_api_compat import array_namespace

from privopt.losses.loss import Array, Loss


@dataclass(frozen=True)
class PhaseRetrieval(Loss):
    """f(z, y) = |h(z) - y| with h(z) = z^2 for |z| <= c and 2c|z| - c^2 beyond.

    A label is the squared size of a measurement whose sign was lost. h is convex and 2-smooth, so
    that h - y is convex and y - h + z^2 is: their maximum f is weakly convex with constant 2. The
    straight continuation makes f Lipschitz with constant 2c.

    Parameters
    ----------
    margin_clip : float
        The size c of a margin from which on its square continues straight.
    """

    margin_clip: float

    convex: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "margin_clip", float(self.margin_clip))
        if not (math.isfinite(self.margin_clip) and self.margin_clip > 0.0):
            raise ValueError(
                f"PhaseRetrieval needs a positive finite margin_clip; got {self.margin_clip}."
            )

    def value(self, z: Array, y: Array) -> Array:
        return abs(self._squared(z) - y)

    def slope(self, z: Array, y: Array) -> Array:
        """Return sign(h(z) - y) h'(z), 0 at a kink."""
        sign = array_namespace(z).sign(self._squared(z) - y)
        return 2.0 * sign * z.clip(-self.margin_clip, self.margin_clip)

    def curvature(self, z: Array, y: Array) -> Array:
        xp = array_namespace(z)
        inside = xp.astype(abs(z) <= self.margin_clip, z.dtype)
        return 2.0 * inside * xp.sign(self._squared(z) - y)

    @property
    def lipschitz(self) -> float:
        return 2.0 * self.margin_clip

    @property
    def smoothness(self) -> float:
        return math.inf

    @property
    def weak_convexity(self) -> float:
        return 2.0

    def _squared(self, z: Array) -> Array:
        inner = abs(z).clip(max=self.margin_clip)
        return inner * (2.0 * abs(z) - inner)

    def _range(self, margin: float, label: float) -> float:
        # |h - y| for h in [0, h(margin)] spreads as far as h does for a label of 0, and no farther.
        inner = min(margin, self.margin_clip)
        return inner * (2.0 * margin - inner)
