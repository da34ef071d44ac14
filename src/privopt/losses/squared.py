"""The squared loss, with or without a clipped residual."""

from __future__ import annotations

import math
from dataclasses import dataclass

from privopt.losses.huber import Huber
from privopt.losses.loss import Standard
from privopt.losses.residual import HuberisedResidual

WIDEST = 2.0
"""No residual of labels and predictions in [-1, 1] is larger."""


def default_width(plenty: float) -> float:
    """Residuals that count with their square where nothing is known but n mu / p, in deviations.

    A wide parabola needs noise in proportion; it grows only as fast as the noise falls.
    """
    return max(1.0, math.sqrt(plenty / 128))


def default_clip(plenty: float) -> float:
    """A residual clip for labels in [-1, 1] of unknown deviation: the whole range where n mu / p is
    large, so that nothing is cut and nothing biased, and a quarter of it where noise rules."""
    return min(0.5 * max(1.0, plenty / 128), WIDEST)


def width_for(mean: float, deviation: float, plenty: float) -> float:
    """The width for labels in [-1, 1] of this mean and deviation, in deviations.

    A mean within about a deviation of the end of [-1, 1] says that labels are skewed: most lie at
    that end, few far away, and these few hold the mean. They need the wider parabola.
    """
    room = max(min(mean + 1, 1 - mean) / deviation, 1e-3)
    return max(1.0, min(plenty / 32, default_width(plenty) * max(1.0, 1.25 / room)))


@dataclass(frozen=True)
class Squared(HuberisedResidual):
    """f(z, y) = (z - y)^2 / 2.

    Parameters
    ----------
    residual_clip : float, optional
        Clip the slope z - y to [-c, c]; f continues linearly beyond, convex and C^{1,1}.
        None: no clip, and the loss is not Lipschitz.
    declared : bool, default=True
        False: the clip is a default, and a solver that knows the deviation of the labels takes its
        own.
    """

    residual_clip: float | None = None
    declared: bool = True

    def __post_init__(self) -> None:
        if self.residual_clip is None:
            return
        object.__setattr__(self, "residual_clip", float(self.residual_clip))
        if not (math.isfinite(self.residual_clip) and self.residual_clip > 0.0):
            raise ValueError(
                "Squared needs a positive finite residual_clip, or None for no clip; "
                f"got {self.residual_clip}."
            )

    @property
    def linear_from(self) -> float:
        return math.inf if self.residual_clip is None else self.residual_clip

    def standard(self, mean: float, deviation: float, plenty: float) -> Standard:
        clip = self.linear_from
        if not self.declared:
            clip = width_for(mean, deviation, plenty) * deviation
        # Larger than it is where n mu / p is large: the ridge that the noise asks for then fades
        # faster than the noise, and directions that few records show are not pulled to 0.
        size = deviation * default_width(plenty) ** 1.5
        loss = Huber(min(clip, WIDEST))
        return Standard(loss, mean, mean, size=size, matches_means=not self.declared)

    @property
    def strong_convexity(self) -> float:
        return 1.0 if self.residual_clip is None else 0.0
