"""Queries: public questions about records. The clip lives inside, so bound and clip agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from array_api_compat import array_namespace

from privopt.losses import Loss
from privopt.oracle.reach import ReachNorm
from privopt.oracle.rows import Rows


class Query(Protocol):
    """A sum over records of a map that no record can push beyond a declared bound."""

    @property
    def norm(self) -> ReachNorm: ...
    def radius(self) -> Any:
        """Bound on one record's contribution: its movement under zero_out and add_remove."""
        ...

    def diameter(self) -> Any:
        """Bound on the difference of two records' contributions: replace_one."""
        ...

    def total(self, rows: Rows, at: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True, slots=True)
class ClippedGradient:
    """Sum of the records' loss gradients, each clipped to an l2 norm of ``clip_norm``.

    For a generalised linear model the gradient is slope times row, so clipping the scalar slope to
    clip_norm / ||row|| clips the gradient exactly, and the result is the gradient of a convex
    function again. Per-example gradients are never formed.
    """

    loss: Loss
    clip_norm: float
    norm: ReachNorm = "l2"

    def radius(self) -> float:
        return self.clip_norm

    def diameter(self) -> float:
        return 2 * self.clip_norm

    def total(self, rows: Rows, at: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            total = rows.weighted_sum(at, self._weigh)
            if np.isfinite(total).all():
                return total
            return rows.weighted_sum(at, self._weigh_carefully)

    def _weigh(self, margins: Any, labels: Any, sizes: Any) -> Any:
        slope = self.loss.slope(margins, labels)
        return slope * (self.clip_norm / (abs(slope) * sizes).clip(min=self.clip_norm))

    def _weigh_carefully(self, margins: Any, labels: Any, sizes: Any) -> Any:
        xp = array_namespace(margins)
        weights = self._weigh(margins, labels, sizes)
        return xp.where(xp.isfinite(weights), weights, xp.zeros_like(weights))


@dataclass(frozen=True, slots=True)
class CountRecords:
    """Number of records that are not empty."""

    norm: ReachNorm = "l2"

    def radius(self) -> float:
        return 1.0

    def diameter(self) -> float:
        return 1.0

    def total(self, rows: Rows, at: np.ndarray) -> np.ndarray:
        return np.array([rows.total(np.zeros(rows.dimension), lambda z, y, size: z * 0.0 + 1.0)])
