"""Losses that the library did not write, held to the constants that they state."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from privopt.losses.loss import Array, Loss
from privopt.ownership import own
from privopt.privacy.budget import Refused


@dataclass(frozen=True)
class Guarded(Loss):
    """A foreign loss behind the constants that it stated when it was met.

    Whatever it computes later, a slope stays within the stated Lipschitz constant, a curvature
    within the smoothness, and what is not a number counts as zero. It is handed read-only vectors
    and never sees a record's place in an array of two axes. Its constants are read once, and its
    own ``lipschitz_in``, ``smoothness_in`` and ``weak_convexity_in`` never.

    That a record's slope depends on this record alone, that slopes rise no faster than the
    smoothness says, and that the loss is convex is not enforced: ``assumption``.
    """

    inner: Loss
    stated: tuple[float, ...] = field(init=False)
    kinds: tuple[bool, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "stated", _stated(self.inner))
        object.__setattr__(self, "kinds", _kinds(self.inner))

    @property
    def name(self) -> str:
        return type(self.inner).__name__

    @property
    def assumption(self) -> str:
        """What privacy rests on and nothing enforces."""
        return f"the loss {self.name} has the constants it states, record by record: not proved"

    # ------------------------------------------------------------ constants, read once
    @property
    def convex(self) -> bool:  # type: ignore[override]
        return self.kinds[0]

    @property
    def one_signed(self) -> bool:  # type: ignore[override]
        return self.kinds[1]

    @property
    def classification(self) -> bool:  # type: ignore[override]
        return self.kinds[2]

    @property
    def curved(self) -> bool:  # type: ignore[override]
        return self.kinds[3]

    @property
    def lipschitz(self) -> float:
        return self.stated[0]

    @property
    def smoothness(self) -> float:
        return self.stated[1]

    @property
    def strong_convexity(self) -> float:
        return self.stated[2]

    @property
    def weak_convexity(self) -> float:
        return self.stated[3]

    @property
    def linear_beyond(self) -> float:
        return self.stated[4]

    # ------------------------------------------------------------ functions, held to them
    def value(self, z: Array, y: Array) -> Array:
        return self._called(self.inner.value, z, y)

    def slope(self, z: Array, y: Array) -> Array:
        return clipped(self._called(self.inner.slope, z, y), -self.lipschitz, self.lipschitz)

    def curvature(self, z: Array, y: Array) -> Array:
        low = -self.weak_convexity
        return clipped(self._called(self.inner.curvature, z, y), low, self.smoothness)

    def least_curvature(self, z: Array, y: Array, width: Array) -> Array:
        least = self._called(self.inner.least_curvature, z, y, width)
        return clipped(least, 0.0, self.smoothness)

    def pieces(self, y: Array) -> tuple[Array, Array, Array] | None:
        found = self.inner.pieces(read_only(y))
        if found is None:
            return None
        kink, below, above = (_numbers(part, y) for part in found)
        most = self.lipschitz
        return kink, clipped(below, -most, most), clipped(above, -most, most)

    def _range(self, margin: float, label: float) -> float:
        return float(self.inner.range_on(margin, label))

    def _called(self, function: Any, z: Array, *others: Array) -> Array:
        """The function on read-only vectors, one entry per record; one real number for each."""
        xp = array_namespace(z)
        whole = z + 0.0 * others[0]  # points come as columns, labels as one
        flat = [
            read_only(xp.reshape(xp.broadcast_to(xp.asarray(one), whole.shape), (-1,)))
            for one in (z, *others)
        ]
        return xp.reshape(_numbers(function(*flat), flat[0]), whole.shape)

    def __repr__(self) -> str:
        return repr(self.inner)


def bounded_slope(loss: Loss, z: Array, y: Array) -> Array:
    """Slopes that no loss, own or foreign, takes beyond its stated Lipschitz constant."""
    slope, most = loss.slope(z, y), loss.lipschitz
    return slope if math.isinf(most) else clipped(slope, -most, most)


def clipped(values: Array, low: float, high: float) -> Array:
    """Values clipped; what is not a number counts as zero."""
    if is_numpy_array(values):
        values = np.minimum(np.maximum(values, low), high)
        return values if np.isfinite(values).all() else np.where(values == values, values, 0.0)
    xp, values = array_namespace(values), values.clip(low, high)
    return xp.where(values == values, values, xp.zeros_like(values))


def read_only(values: Array) -> Array:
    """The same numbers, where an edit cannot reach them."""
    if not is_numpy_array(values):
        return values.clone() if hasattr(values, "clone") else values
    view = values.view()
    view.flags.writeable = False
    return view


def _numbers(found: Any, like: Array) -> Array:
    """One real number for each entry of ``like``."""
    xp = array_namespace(like)
    if is_numpy_array(like):
        found = np.asarray(found)
    if tuple(found.shape) != tuple(like.shape):
        raise Refused("a loss gives one number for each record.")
    if xp.isdtype(found.dtype, "real floating"):
        return found
    if not xp.isdtype(found.dtype, ("bool", "integral")):
        raise Refused("a loss gives real numbers.")
    return xp.astype(found, xp.float64)


# ---------------------------------------------------------------- when a loss is met
def met(loss: Loss) -> Loss:
    """The loss itself if the library wrote it; else behind a guard."""
    return loss if type(loss) is Guarded or own(loss) else Guarded(loss)


def _stated(loss: Loss) -> tuple[float, ...]:
    return (
        float(loss.lipschitz),
        float(loss.smoothness),
        float(loss.strong_convexity),
        float(loss.weak_convexity),
        float(loss.linear_beyond),
    )


def _kinds(loss: Loss) -> tuple[bool, ...]:
    return bool(loss.convex), bool(loss.one_signed), bool(loss.classification), bool(loss.curved)
