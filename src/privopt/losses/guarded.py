"""Losses that the library did not write, held to the constants that they state."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from privopt.losses.foreign import Foreign, read_only, real_numbers
from privopt.losses.loss import Array, Loss
from privopt.losses.smoothed import Smoothed
from privopt.losses.tabulated import Tabulated, tabulable
from privopt.ownership import own


@dataclass(frozen=True, repr=False)
class Guarded(Foreign):
    """A foreign loss of margin and label that no table holds: called for one record at a time.

    So a record's slope reads no other record. It stays within the stated Lipschitz constant, a
    curvature within the smoothness, and what is not a number counts as zero; it cannot fail either,
    because a refusal would tell of a record. That the code remembers nothing from one record to the
    next, that slopes rise no faster than the smoothness says, and that the loss is convex is not
    enforced: ``assumption``.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        for function in (self.inner.value, self.inner.slope, self.inner.curvature):
            for margin, label in ((0.5, 1.0), (-0.5, -1.0)):  # made up: what fails here is refused
                _number(function, np.array([margin]), np.array([label]))

    @property
    def assumption(self) -> str:
        return (
            f"the loss {self.name} remembers no record, and is as convex and as smooth as it "
            "states: not proved"
        )

    def value(self, z: Array, y: Array) -> Array:
        return self._called(self.inner.value, z, y)

    def slope(self, z: Array, y: Array) -> Array:
        return clipped(self._called(self.inner.slope, z, y), -self.lipschitz, self.lipschitz)

    def curvature(self, z: Array, y: Array) -> Array:
        low = -self.weak_convexity
        return clipped(self._called(self.inner.curvature, z, y), low, self.smoothness)

    def _range(self, margin: float, label: float) -> float:
        return 2 * margin * self.lipschitz  # which is enforced, unlike what the loss says

    def _called(self, function: Any, z: Array, y: Array) -> Array:
        """The function on one record after the other; points come as columns, labels as one."""
        xp = array_namespace(z)
        height = z.shape[0] if z.ndim else 1
        lines = xp.reshape(z, (height, z.shape[1] if z.ndim > 1 else 1))
        labels = xp.reshape(xp.broadcast_to(y, z.shape), lines.shape)
        found = xp.zeros_like(lines)
        with np.errstate(all="ignore"):
            for i in range(lines.shape[0]):
                try:
                    found[i] = _number(function, lines[i], labels[i])
                except Exception:
                    found[i] = 0.0
        return xp.reshape(found, z.shape)


def _number(function: Any, margin: Array, label: Array) -> Array:
    """What a foreign function says of one record, which it cannot edit."""
    xp = array_namespace(margin)
    one = read_only(xp.asarray(margin, copy=True))
    return real_numbers(function(one, read_only(xp.asarray(label, copy=True))), one)


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


_FIELDS = {"loss", "width"}


def met(loss: Loss) -> Loss:
    """The loss itself if the library wrote it; else as a table, or behind a guard."""
    if type(loss) in (Tabulated, Guarded) or own(loss):
        return loss
    if type(loss) is Smoothed and type(loss.loss) is Tabulated and set(vars(loss)) <= _FIELDS:
        return loss  # it reads two lines from the table
    return Tabulated(loss) if tabulable(loss) else Guarded(loss)
