"""Losses of two lines with a parabola in place of the kink."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from array_api_compat import array_namespace

from privopt.losses.loss import Array, Loss


class SmoothedLines(Loss):
    """The mean of f(z + u, y) over u uniform on [-width, width], for f of two lines.

    Convex and C^{1,1} with the Lipschitz constant of f; it exceeds f by at most jump * width / 4,
    where jump is how far the slope of f rises at its kink.
    """

    width: float

    @property
    @abstractmethod
    def lines(self) -> Loss:
        """The loss with the kink."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", float(self.width))
        if not (math.isfinite(self.width) and self.width > 0.0):
            name = type(self).__name__
            raise ValueError(f"{name} needs a positive finite width; got {self.width}.")

    @property
    def one_signed(self) -> bool:  # type: ignore[override]
        return self.lines.one_signed

    @property
    def classification(self) -> bool:  # type: ignore[override]
        return self.lines.classification

    @property
    def jump(self) -> float:
        """How far the slope rises: for the label for which that is most."""
        _, below, above = self._pieces(np.array([-1.0, 1.0]))
        return float(np.max(above - below))

    @property
    def excess(self) -> float:
        """The most by which this exceeds the loss with the kink."""
        return self.jump * self.width / 4.0

    def value(self, z: Array, y: Array) -> Array:
        kink, below, above = self._pieces(y + 0.0 * z)
        # With s = r + w clipped to u in [0, 2w], the mean of max(r + u, 0) is u (s - u/2) / (2w).
        s = z - kink + self.width
        u = s.clip(0.0, 2.0 * self.width)
        return below * (z - kink) + (above - below) * (u / (2.0 * self.width) * (s - 0.5 * u))

    def slope(self, z: Array, y: Array) -> Array:
        kink, below, above = self._pieces(y + 0.0 * z)
        u = (z - kink + self.width).clip(0.0, 2.0 * self.width)
        return below + (above - below) * (u / (2.0 * self.width))

    def curvature(self, z: Array, y: Array) -> Array:
        distance = abs(z - self._pieces(y + 0.0 * z)[0])
        xp = array_namespace(distance)
        return self.smoothness * xp.astype(distance <= self.width, distance.dtype)

    def least_curvature(self, z: Array, y: Array, width: Array) -> Array:
        distance = abs(z - self._pieces(y + 0.0 * z)[0]) + width
        xp = array_namespace(distance)
        return self.smoothness * xp.astype(distance <= self.width, distance.dtype)

    @property
    def lipschitz(self) -> float:
        return self.lines.lipschitz

    @property
    def smoothness(self) -> float:
        return self.jump / (2.0 * self.width)

    @property
    def linear_beyond(self) -> float:
        return self.lines.linear_beyond + self.width

    def _range(self, margin: float, label: float) -> float:
        if math.isinf(margin):
            return math.inf
        if not self.classification and label >= margin + self.width:
            return 2.0 * margin * self.lipschitz  # a line, for the farthest label
        # Convex in z, so that the farthest labels are the worst.
        far = 1.0 if self.classification else label
        y = np.array([-far, far])
        kink, below, above = self._pieces(y)
        least = kink + self.width * (-2.0 * below / (above - below) - 1.0)
        ends = np.maximum(self.value(-margin + 0.0 * y, y), self.value(margin + 0.0 * y, y))
        return float(np.max(ends - self.value(least.clip(-margin, margin), y)))

    def _pieces(self, y: Array) -> tuple[Array, Array, Array]:
        pieces = self.lines.pieces(y)
        assert pieces is not None
        return pieces


@dataclass(frozen=True)
class Smoothed(SmoothedLines):
    """A loss of two lines with a parabola in place of its kink.

    Parameters
    ----------
    loss : Loss
        Two lines that meet in a kink: Absolute, Quantile or Hinge.
    width : float
        Half-width of the parabola, in units of the margin.
    """

    loss: Loss
    width: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss.pieces(np.ones(1)) is None:
            raise ValueError(f"Smoothed needs a loss of two lines; got {type(self.loss).__name__}.")

    @property
    def lines(self) -> Loss:
        return self.loss
