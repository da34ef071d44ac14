"""The Gamma loss: positive amounts with a logarithm of their mean that is linear."""

from __future__ import annotations

import math
from dataclasses import dataclass

from array_api_compat import array_namespace

from privopt.losses.log_link import LogLink, relative, standard
from privopt.losses.loss import Array, Standard
from privopt.losses.squared import default_width


@dataclass(frozen=True)
class Gamma(LogLink):
    """f(z, y) = y exp(-z) + z, slope clipped at -c: half the deviance of a Gamma distribution.

    df/dz = max(1 - y exp(-z), -c) increases with z for y >= 0: f is convex. It lies in [-c, 1], so
    that L = max(c, 1), and is not ``one_signed``. Its derivative is y exp(-z) where that is below
    1 + c, and 0 elsewhere: 1 + c is the smoothness, and no cap on z is needed. What counts is the
    ratio of the amount to its mean: amounts of up to 1 + c times their mean are not clipped.

    Parameters
    ----------
    slope_clip : float, default=4.0
        The clip c, at least 1.
    """

    slope_clip: float = 4.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "slope_clip", float(self.slope_clip))
        if not 1.0 <= self.slope_clip < math.inf:
            raise ValueError(
                f"Gamma needs a finite slope_clip of at least 1; got {self.slope_clip}."
            )

    @property
    def clip(self) -> float:
        return self.slope_clip

    @property
    def smoothness(self) -> float:
        return 1.0 + self.slope_clip

    @property
    def slope_size(self) -> float:
        return 1.0 + self.slope_clip

    def standard(self, mean: float, deviation: float, plenty: float) -> Standard:
        mean, _ = relative(mean, deviation)
        return standard(Gamma(min(LEAST * default_width(plenty), MOST)), mean, plenty)

    def typical(self, plenty: float) -> Standard:
        return self.standard(0.2, 0.2, plenty)

    def _label(self, y: Array) -> Array:
        return y.clip(0.0, math.inf)

    def _integral(self, z: Array, y: Array) -> Array:
        return z + self._ratio(z, y)

    def _steep(self, z: Array, y: Array) -> Array:
        return 1.0 - self._ratio(z, y)

    def _bend(self, z: Array, y: Array) -> Array:
        return self._ratio(z, y)

    def _margins(self, y: Array) -> tuple[Array, Array]:
        """The slope is never above 1; it is -c at z = log(y / (1 + c))."""
        xp = array_namespace(y)
        positive = y > 0
        found = xp.log(xp.where(positive, y, xp.ones_like(y))) - math.log1p(self.slope_clip)
        low = xp.where(positive, found, xp.full_like(found, -math.inf))
        return low, xp.full_like(low, math.inf)

    def _ratio(self, z: Array, y: Array) -> Array:
        """y exp(-z), not beyond 1 + c."""
        xp = array_namespace(z)
        low, _ = self._margins(y)
        shift = xp.maximum(z, low)
        positive = y > 0
        exponent = xp.log(xp.where(positive, y, xp.ones_like(y))) - shift
        ratio = xp.exp(exponent.clip(max=math.log1p(self.slope_clip)))
        ratio = ratio.clip(max=1.0 + self.slope_clip)
        return xp.where(positive, ratio, xp.zeros_like(ratio))


LEAST, MOST = 2.0, 8.0
"""The clip at a small n mu / p, and where it stops to grow: an exponential distribution exceeds
three times its mean in 5 % of the cases, nine times in one of eight thousand."""
