"""The Huber loss."""

from __future__ import annotations

import math
from dataclasses import dataclass

from privopt.losses.loss import Standard
from privopt.losses.residual import HuberisedResidual


@dataclass(frozen=True)
class Huber(HuberisedResidual):
    """f(z, y) = r^2/2 for |r| <= width and width |r| - width^2/2 beyond, with r = z - y.

    Parameters
    ----------
    width : float
        Where the parabola becomes a line; also the Lipschitz constant.
    """

    width: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", float(self.width))
        if not (math.isfinite(self.width) and self.width > 0.0):
            raise ValueError(f"Huber needs a positive finite width; got {self.width}.")

    @property
    def linear_from(self) -> float:
        return self.width

    def standard(self, mean: float, deviation: float, plenty: float) -> Standard:
        # Weighted, not shortened: a residual counts linearly from the width on, in every row.
        return Standard(self, mean, mean, size=deviation, linear=False)
