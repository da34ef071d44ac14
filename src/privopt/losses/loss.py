"""The loss of one record as a function of its margin."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from privopt.geometry.norms import Norm, check_norm

TYPICAL_DEVIATION = 0.45
"""Deviation to expect of labels in [-1, 1]."""

# A NumPy array or a torch tensor; slopes are computed where the margins live.
Array = Any


@dataclass(frozen=True)
class Standard:
    """What is minimised on standardised rows, where labels are known by mean and deviation.

    Attributes
    ----------
    loss : Loss
        On labels (y - centre) / scale, and on margins from which ``offset`` is taken.
    offset : float
        The margin of the constant model; with it a margin is one for the labels as they were.
    centre, scale : float
        See ``loss``.
    unit : float
        What the loss was divided by; a ridge beside it is divided too.
    size : float
        How far margins are expected to spread; only accuracy depends on it.
    linear : bool
        Whether the margin is the prediction, so that a plane through the means fits them. A long
        row is then shortened together with its label; else its loss is weighted.
    matches_means : bool
        Whether the loss asks predictions to have the labels' mean.
    """

    loss: Loss
    offset: float
    centre: float
    scale: float = 1.0
    unit: float = 1.0
    size: float = 1.0
    linear: bool = True
    matches_means: bool = False


@dataclass(frozen=True)
class Loss(ABC):
    """A scalar function f(z, y); the loss of record (x, y) is l(theta) = f(<x, theta>, y).

    Attributes
    ----------
    convex : bool
        Whether f is convex in z for every y.
    one_signed : bool
        Whether for every fixed y the slope never changes its sign.
    classification : bool
        Whether labels are -1 and +1; otherwise they are real numbers.
    curved : bool
        Whether d2f/dz2 > 0 at every margin, for every y.
    compares : bool
        Whether a slope is computed from a difference of margin and label, which may cancel.
    """

    convex: ClassVar[bool] = True
    one_signed: ClassVar[bool] = False
    classification: ClassVar[bool] = False
    curved: ClassVar[bool] = False
    compares: ClassVar[bool] = True

    @abstractmethod
    def value(self, z: Array, y: Array) -> Array:
        """Return f(z, y)."""

    @abstractmethod
    def slope(self, z: Array, y: Array) -> Array:
        """Return df/dz, a subgradient at a kink."""

    @abstractmethod
    def curvature(self, z: Array, y: Array) -> Array:
        """Return d2f/dz2, one of the two one-sided limits at a jump; 0 at a kink."""

    def expected_curvature(self, z: Array, y: Array) -> Array:
        """Return E[d2f/dz2 | z] where the loss's own model holds, if that is known; the curvature
        itself otherwise. At most ``most_expected``."""
        return self.curvature(z, y)

    @property
    def most_expected(self) -> float:
        """sup of ``expected_curvature``."""
        return self.smoothness

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """sup |df/dz|, maybe infinite."""

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """The Lipschitz constant of df/dz; infinite if the slope jumps."""

    @property
    def smooth(self) -> bool:
        """Whether the slope is Lipschitz."""
        return math.isfinite(self.smoothness)

    @property
    def strong_convexity(self) -> float:
        """inf d2f/dz2."""
        return 0.0

    @property
    def weak_convexity(self) -> float:
        """Some w for which f(z, y) + w z^2/2 is convex in z; infinite if none is declared."""
        return 0.0 if self.convex else self.smoothness

    @property
    def slope_size(self) -> float:
        """The largest number whose rounding enters a computed slope."""
        return max(self.lipschitz, 1.0) if self.classification else self.lipschitz

    @property
    def linear_beyond(self) -> float:
        """The distance |z - y| from which on f is linear in z, on either side; maybe infinite."""
        return math.inf

    def least_curvature(self, z: Array, y: Array, width: Array) -> Array:
        """Return a lower bound, at least 0, of the d2f/dz2 of a convex f at all margins within
        `width` of z."""
        return 0.0 * z

    def standard(self, mean: float, deviation: float, plenty: float) -> Standard | None:
        """Return what to minimise for labels in [-1, 1] with this mean and deviation; None if the
        loss has no such form.

        ``plenty`` is n mu / p, public. Smoothness may depend on it and on the loss alone: it stands
        in the plan, before labels are known. The Lipschitz constant may depend on all three.
        """
        return None

    def typical(self, plenty: float) -> Standard | None:
        """Return ``standard`` for labels as they may be expected: what a plan is made with."""
        return self.standard(0.0, TYPICAL_DEVIATION, plenty)

    def pieces(self, y: Array) -> tuple[Array, Array, Array] | None:
        """Return margin of the kink, slope below and slope above it; None if not two lines."""
        return None

    def lipschitz_in(self, norm: Norm, data_bound: float) -> float:
        """Return the Lipschitz constant of l with respect to `norm` on theta.

        The dual norm of every row is at most `data_bound`: |<x, u>| <= data_bound ||u||.
        """
        check_norm(norm)
        _check_bound("data_bound", data_bound)
        return self.lipschitz * data_bound if data_bound > 0.0 else 0.0

    def smoothness_in(self, norm: Norm, data_bound: float) -> float:
        """Return the smoothness of l in `norm`; rows are bounded as in `lipschitz_in`."""
        check_norm(norm)
        _check_bound("data_bound", data_bound)
        return self.smoothness * data_bound * data_bound if data_bound > 0.0 else 0.0

    def weak_convexity_in(self, norm: Norm, data_bound: float) -> float:
        """Return w with l(u) >= l(t) + <g, u - t> - w/2 ||u - t||^2 for all t, u and a subgradient
        g of l at t; rows are bounded as in `lipschitz_in`."""
        check_norm(norm)
        _check_bound("data_bound", data_bound)
        return self.weak_convexity * data_bound * data_bound if data_bound > 0.0 else 0.0

    def range_on(self, margin_bound: float, label_bound: float) -> float:
        """Return sup over |y| <= label_bound of (max - min of f(., y) over |z| <= margin_bound).

        The labels of classification are -1 and +1, whatever `label_bound` says.
        """
        _check_bound("margin_bound", margin_bound)
        _check_bound("label_bound", label_bound)
        return self._range(float(margin_bound), float(label_bound)) if margin_bound > 0.0 else 0.0

    @abstractmethod
    def _range(self, margin: float, label: float) -> float:
        """Return `range_on` for a positive margin bound; either bound may be infinite."""


def _check_bound(name: str, bound: float) -> None:
    if not bound >= 0.0:
        raise ValueError(f"{name} must be a number that is at least 0; got {bound}.")
