"""Losses of counts and amounts whose logarithm is linear, with slope and curvature bounded.

The slope of a likelihood under the log link has no bound: a count far above its rate pulls as hard
as it is large, a rate far above its count as hard as the rate. Its scalar slope is clipped to
[-c, c]. That keeps the loss convex (a clipped increasing function increases) and C^{1,1}, and is
exact where the clip is not reached.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from array_api_compat import array_namespace

from privopt.losses.loss import Array, Loss, Standard
from privopt.losses.squared import default_width

LEAST_MEAN = 1e-9


@dataclass(frozen=True)
class LogLink(Loss):
    """f(z, y) for a label y >= 0 whose expected value is exp(z); a negative label counts as 0.

    Subclasses give the slope without its clip, an increasing function of z, by its inverse and its
    integral. Rates are compared with labels, not margins: neither loses digits to the other.
    """

    compares: ClassVar[bool] = False

    @property
    @abstractmethod
    def clip(self) -> float:
        """The largest absolute slope c."""

    @abstractmethod
    def _label(self, y: Array) -> Array:
        """The label, cut where nothing changes any more."""

    @abstractmethod
    def _integral(self, z: Array, y: Array) -> Array:
        """f without the clip."""

    @abstractmethod
    def _steep(self, z: Array, y: Array) -> Array:
        """df/dz without the clip."""

    @abstractmethod
    def _bend(self, z: Array, y: Array) -> Array:
        """d2f/dz2 without the clip."""

    @abstractmethod
    def _margins(self, y: Array) -> tuple[Array, Array]:
        """Where the slope without the clip reaches -c and c; infinite where it never does."""

    def value(self, z: Array, y: Array) -> Array:
        y = self._labels(z, y)
        low, high = self._margins(y)
        xp = array_namespace(z)
        inner = xp.minimum(xp.maximum(z, low), high)
        return self._integral(inner, y) + self.clip * abs(z - inner)

    def slope(self, z: Array, y: Array) -> Array:
        y = self._labels(z, y)
        return self._steep(z, y).clip(-self.clip, self.clip)

    def curvature(self, z: Array, y: Array) -> Array:
        return self.least_curvature(z, y, 0.0 * z)

    def least_curvature(self, z: Array, y: Array, width: Array) -> Array:
        # Where the slope is not clipped the curvature is monotone in z: the ends are enough.
        y = self._labels(z, y)
        low, high = self._margins(y)
        xp = array_namespace(z)
        inside = (z - width > low) & (z + width < high)
        least = xp.minimum(self._bend(z - width, y), self._bend(z + width, y))
        return xp.where(inside, least, xp.zeros_like(least))

    @property
    def lipschitz(self) -> float:
        return self.clip

    def _labels(self, z: Array, y: Array) -> Array:
        return self._label(array_namespace(z).zeros_like(z) + y)

    def _range(self, margin: float, label: float) -> float:
        # Slopes fall with y: the loss rises most for the label 0, and falls most for the largest,
        # down to where the rate is the label, or to the end.
        if math.isinf(margin) or math.isinf(label):
            return 2.0 * margin * self.clip
        least = min(max(math.log(label), -margin), margin) if label > 0.0 else -margin
        z = np.array([-margin, margin, least])
        rise, fall = self.value(z, 0.0 * z), self.value(z, 0.0 * z + label)
        return float(max(rise[1] - rise[0], fall[0] - min(fall[1], fall[2])))


def relative(mean: float, deviation: float) -> tuple[float, float]:
    """Mean of labels in [0, 1], and their deviation in units of it.

    Labels in [0, 1] have a mean of at least their mean square, whatever noise makes of it.
    """
    mean = max(mean, deviation**2, LEAST_MEAN)
    return mean, deviation / mean


def standard(loss: LogLink, mean: float, plenty: float, unit: float = 1.0) -> Standard:
    """The loss on labels in units of their mean; its margins are taken from the mean's."""
    size = EXPECTED_SPREAD * default_width(plenty) ** 1.5
    return Standard(loss, math.log(mean), 0.0, mean, unit, size, linear=False)


EXPECTED_SPREAD = 0.7
"""Deviation to expect of the logarithms of rates."""
