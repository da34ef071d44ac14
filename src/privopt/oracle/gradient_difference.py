"""Differences of gradients at two points, clipped record by record."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from privopt.oracle.queries import CoordinateClippedGradient
from privopt.oracle.rows import Rows, WalkableRows
from privopt.oracle.sensitivity import SensitivityNorm
from privopt.privacy.budget import Refused


@dataclass(frozen=True, eq=False)
class GradientDifference:
    """Sum of the records' gradients at the asked point less ``keep`` times those at ``before``.

    Recursive gradient estimators rest on this difference being small when the points are near each
    other. That would make smoothness an assumption of privacy; here each record's difference of
    slopes (both clipped as the gradient itself is) is clipped to ``difference_clip``, so that
    nothing is assumed. A smooth loss never reaches a clip of
    (1 - keep) slope_clip + keep * smoothness * |<x, at - before>|.
    """

    gradient: CoordinateClippedGradient
    before: np.ndarray
    keep: float
    difference_clip: float

    def __post_init__(self) -> None:
        if not 0 < self.difference_clip < math.inf or not 0 <= self.keep <= 1:
            raise ValueError("a difference of gradients needs a positive clip and keep in [0, 1].")

    @property
    def norm(self) -> SensitivityNorm:
        return self.gradient.norm

    def radius(self) -> Any:
        return self.difference_clip * (self.gradient.radius() / self.gradient.slope_clip)

    def diameter(self) -> Any:
        return 2 * self.radius()

    def total(self, rows: Rows, at: np.ndarray) -> np.ndarray:
        self.gradient.check(rows)
        if not isinstance(rows, WalkableRows):
            if rows.count:
                raise Refused("differences of gradients are computed on dense or sparse rows only.")
            return np.zeros(rows.dimension)
        with np.errstate(all="ignore"):
            now, old = (
                rows.weigh_margins(rows.margins(point), slice(None), self.gradient.weigh)
                for point in (at, self.before)
            )
            change = (now - self.keep * old).clip(-self.difference_clip, self.difference_clip)
            return rows.pull(change)
