"""The squared loss, with or without a clipped residual."""

from __future__ import annotations

import math
from dataclasses import dataclass

from privopt.losses.residual import HuberisedResidual


@dataclass(frozen=True)
class Squared(HuberisedResidual):
    """f(z, y) = (z - y)^2 / 2.

    Parameters
    ----------
    residual_clip : float, optional
        Clip the slope z - y to [-c, c]; f continues linearly beyond, convex and C^{1,1}.
        None: no clip, and the loss is not Lipschitz.
    """

    residual_clip: float | None = None

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

    @property
    def strong_convexity(self) -> float:
        return 1.0 if self.residual_clip is None else 0.0
