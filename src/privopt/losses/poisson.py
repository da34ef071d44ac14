"""The Poisson loss: counts with a logarithm of their rate that is linear."""

from __future__ import annotations

import math
from dataclasses import dataclass

from array_api_compat import array_namespace

from privopt.losses.log_link import LogLink, relative, standard
from privopt.losses.loss import Array, Standard
from privopt.losses.squared import default_width, width_for


@dataclass(frozen=True)
class Poisson(LogLink):
    """f(z, y) = exp(z) - y z with z <= log(rate_cap), slope clipped to [-c, c].

    Beyond ``rate_cap`` the exponential goes on as a line: its slope is min(exp(z), K), K the cap.
    So df/dz = clip(min(exp(z), K) - y, -c, c), which increases with z: f is convex. Its derivative
    is exp(z) where exp(z) < K and the clip is not reached and 0 elsewhere, hence at most K: the
    smoothness. It changes its sign, so the loss is not ``one_signed``. Labels above K + c have the
    slope -c everywhere, and so are the same as K + c.

    Parameters
    ----------
    slope_clip : float, default=1.0
        The clip c. For labels in [0, 1] and rates up to 1 no slope is larger than 1.
    rate_cap : float, default=1.0
        The rate K above which the exponential is a line; public.
    """

    slope_clip: float = 1.0
    rate_cap: float = 1.0

    def __post_init__(self) -> None:
        for name in ("slope_clip", "rate_cap"):
            value = float(getattr(self, name))
            object.__setattr__(self, name, value)
            if not 0.0 < value < math.inf:
                raise ValueError(f"Poisson needs a positive finite {name}; got {value}.")

    @property
    def clip(self) -> float:
        return self.slope_clip

    @property
    def smoothness(self) -> float:
        return self.rate_cap

    @property
    def slope_size(self) -> float:
        return self.rate_cap + self.slope_clip

    def standard(self, mean: float, deviation: float, plenty: float) -> Standard:
        mean, deviation = relative(mean, deviation)
        width = width_for(0.0, deviation, plenty)  # in units of the mean, 0 is 1 away from it
        cap = RATE_CAP * default_width(plenty)
        widest = max(1.0 / mean, 1.0)
        return standard(Poisson(min(width * deviation, widest), cap), mean, plenty, unit=mean)

    def typical(self, plenty: float) -> Standard:
        return self.standard(0.2, 0.2, plenty)

    def _label(self, y: Array) -> Array:
        return y.clip(0.0, self.rate_cap + self.slope_clip)

    def _integral(self, z: Array, y: Array) -> Array:
        top = math.log(self.rate_cap)
        xp = array_namespace(z)
        under = xp.exp(z.clip(max=top))
        return under + self.rate_cap * (z.clip(min=top) - top) - y * z

    def _steep(self, z: Array, y: Array) -> Array:
        return (
            array_namespace(z).exp(z.clip(max=math.log(self.rate_cap))).clip(max=self.rate_cap) - y
        )

    def _bend(self, z: Array, y: Array) -> Array:
        xp = array_namespace(z)
        top = math.log(self.rate_cap)
        bend = xp.exp(z.clip(max=top)).clip(max=self.rate_cap)
        return xp.where(z < top, bend, xp.zeros_like(bend))

    def _margins(self, y: Array) -> tuple[Array, Array]:
        return self._reach((y - self.slope_clip).clip(max=self.rate_cap)), self._reach(
            y + self.slope_clip
        )

    def _reach(self, rate: Array) -> Array:
        """The margin of a rate: -inf for none, inf for one above the cap."""
        xp = array_namespace(rate)
        positive = rate > 0
        found = xp.log(xp.where(positive, rate, xp.ones_like(rate)))
        found = xp.where(positive, found, xp.full_like(found, -math.inf))
        return xp.where(rate > self.rate_cap, xp.full_like(found, math.inf), found)


RATE_CAP = 4.0
"""Rate, in units of the mean, up to which the exponential is exact at a small n mu / p."""
