"""The quantile (pinball) loss, and its smoothed form."""

from __future__ import annotations

import math
from dataclasses import dataclass

from array_api_compat import array_namespace

from privopt.losses.loss import Array, Loss, Standard
from privopt.losses.smoothed import SmoothedLines


@dataclass(frozen=True)
class Quantile(Loss):
    """f(z, y) = (1 - q) max(z - y, 0) + q max(y - z, 0); a constant fit gives the q-quantile.

    Parameters
    ----------
    q : float
        The level, strictly between 0 and 1.
    """

    q: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "q", float(self.q))
        if not 0.0 < self.q < 1.0:
            raise ValueError(f"Quantile needs a level q strictly between 0 and 1; got {self.q}.")

    def value(self, z: Array, y: Array) -> Array:
        residual = z - y
        return array_namespace(residual).maximum((1.0 - self.q) * residual, -self.q * residual)

    def slope(self, z: Array, y: Array) -> Array:
        """Return 1 - q above the label, -q below it, and 0 at the kink."""
        residual = z - y
        xp = array_namespace(residual)
        above = xp.astype(residual > 0.0, residual.dtype)
        below = xp.astype(residual < 0.0, residual.dtype)
        return (1.0 - self.q) * above - self.q * below

    def curvature(self, z: Array, y: Array) -> Array:
        return array_namespace(z).zeros_like(z)

    @property
    def linear_beyond(self) -> float:
        return 0.0

    def pieces(self, y: Array) -> tuple[Array, Array, Array]:
        return y, 0.0 * y - self.q, 0.0 * y + (1.0 - self.q)

    @property
    def lipschitz(self) -> float:
        return max(self.q, 1.0 - self.q)

    @property
    def smoothness(self) -> float:
        return math.inf

    def _range(self, margin: float, label: float) -> float:
        return self.lipschitz * (margin + min(margin, label))


@dataclass(frozen=True)
class SmoothedQuantile(SmoothedLines):
    """The quantile loss with a parabola in place of its kink: its mean over residuals r + u, u
    uniform on [-width, width].

    With r = z - y: -q r for r <= -w, (r + w)^2 / (4 w) - q r for |r| <= w, (1 - q) r beyond. The
    slope rises in a line from -q to 1 - q, so f is convex and C^{1,1} with smoothness 1/(2 w).

    Parameters
    ----------
    q : float
        The level, strictly between 0 and 1.
    width : float
        Half-width w of the parabola, in units of the label.
    """

    q: float
    width: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "q", float(self.q))
        if not 0.0 < self.q < 1.0:
            raise ValueError(
                f"SmoothedQuantile needs a level q strictly between 0 and 1; got {self.q}."
            )

    @property
    def lines(self) -> Loss:
        return Quantile(self.q)

    def standard(self, mean: float, deviation: float, plenty: float) -> Standard:
        # Lines shorten with the row: the quantile of a shortened record is that of the record.
        return Standard(self, mean, mean, size=deviation)
