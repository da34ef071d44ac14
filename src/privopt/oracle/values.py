"""Sums of loss values: differences to a public reference point, bounded record by record.

A density over a domain needs the sum of losses only up to a constant, and a record may move it by
no more than the range of its own loss. In floating point a sum of plain values does not keep that:
one value of 1e17 swallows all others. So each record enters as f(z, y) - f(z_0, y), z_0 its margin
at a public point, clipped to Lipschitz constant times |z - z_0|, and rounded to an integer number
of public steps; integers add up exactly. What a record adds depends on it alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from privopt.geometry import Domain
from privopt.losses import Loss
from privopt.oracle.counting import as_numpy
from privopt.oracle.objective import Objective
from privopt.oracle.rows import Rows

RANGE_STEPS = 2.0**44
"""Steps of the grid in the range of one record's loss."""
AT_ONCE = 1 << 18
"""Records whose steps are added in 64-bit integers; beyond, in integers without a limit."""
FAR = 2.0**20
"""A value so many times the range has too few bits left for a difference."""
AT_ONCE_POINTS = 64


def loss_range(loss: Loss, size: float, domain: Domain, p: int) -> float:
    """Largest max - min on the domain of one record's loss, for rows of norm at most ``size``.

    The smaller of two enforced bounds: the loss's own range over all margins that rows and domain
    allow, with labels of any size; and Lipschitz constant times diameter.
    """
    if not domain.bounded:
        return math.inf
    return min(
        loss.range_on(size * _farthest(domain, p), math.inf),
        loss.lipschitz_in("l2", size) * domain.diameter("l2", p),
    )


def _farthest(domain: Domain, p: int) -> float:
    return float(np.linalg.norm(domain.centre(p))) + domain.radius("l2", p)


@dataclass(frozen=True, eq=False)
class Rises:
    """Sum over records of how far their losses rise above their values at a public point.

    ``span`` is the range of one record's loss on the domain, ``far`` the size from which on a
    value has no bits left for differences: such a record enters by its tangent at margin 0, with
    a slope of at most ``slope``, so that its range on the domain is at most ``span`` too. Whether
    a record is far is seen from its label alone.

    Formal guarantee
    ----------------
    ``counts``: integers; one record moves them within an interval of ``RANGE_STEPS`` on the points
    that lie inside, for every loss and all data, because they are cut off there. ``values``: the
    same up to rounding: a record's difference is off by at most 2^-29 (span + largest value on the
    domain at label 0), the step of the grid is 2^-44 span, and the sum of integers is exact.
    """

    rows: Rows
    loss: Loss
    reference: np.ndarray
    span: float
    slope: float
    far: float

    @classmethod
    def around(cls, objective: Objective, domain: Domain, reference: np.ndarray) -> Rises:
        """The rises of an objective on a bounded domain."""
        rows, loss = objective.rows, objective.loss
        p, size = rows.dimension, rows.bounds.size
        span = loss_range(loss, size, domain, p)
        width = size * domain.diameter("l2", p)
        far = math.inf
        if not loss.classification:
            if math.isfinite(loss.linear_beyond):
                rows = _with_near_labels(rows, loss, size * _farthest(domain, p))
            else:
                far = FAR * (span + loss.lipschitz * size * _farthest(domain, p))
        slope = min(loss.lipschitz, span / width) if width > 0 else loss.lipschitz
        return cls(rows.precise(), loss, reference, span, slope, far)

    @property
    def step(self) -> float:
        """Of the public grid that values are counted on."""
        return self.span / RANGE_STEPS

    @property
    def count(self) -> int:
        return self.rows.count

    # ------------------------------------------------------------ sums
    def values(self, thetas: np.ndarray) -> np.ndarray:
        """The sum of rises at each row of ``thetas``."""
        return np.array([float(_added(self._steps(theta))) for theta in thetas]) * self.step

    def counts(self, thetas: np.ndarray, inside: np.ndarray) -> np.ndarray:
        """The sum of rises in whole steps, as exact integers (an array of objects); where
        ``inside``, each record's are cut off ``RANGE_STEPS`` above its least one."""
        least = np.full(self.count, np.inf)
        for theta in thetas[inside]:
            np.minimum(least, self._steps(theta), out=least)
        found = np.empty(len(thetas), dtype=object)
        for j, theta in enumerate(thetas):
            steps = self._steps(theta)
            found[j] = _added(np.minimum(steps, least + RANGE_STEPS) if inside[j] else steps)
        return found

    def gradients(self, thetas: np.ndarray) -> np.ndarray:
        """The gradient of ``values`` at each row of ``thetas``."""

        def weigh(z: Any, y: Any, size: Any) -> Any:
            slopes = self.loss.slope(z, y).clip(-self.loss.lipschitz, self.loss.lipschitz)
            if math.isinf(self.far):
                return slopes
            zero = 0.0 * z
            return array_namespace(z).where(self._is_far(zero, y), self._line(zero, y), slopes)

        parts = [
            self.rows.weighted_sums(thetas[i : i + AT_ONCE_POINTS], weigh)
            for i in range(0, max(len(thetas), 1), AT_ONCE_POINTS)
        ]
        return np.concatenate(parts)

    # ------------------------------------------------------------ records
    def _steps(self, theta: np.ndarray) -> np.ndarray:
        """Each record's rise in whole steps, as integers in doubles."""
        z, y = self._margins(theta), self._labels
        moved = z - self._start
        with np.errstate(all="ignore"):
            rises = self.loss.value(z, y) - self._base
            if math.isfinite(self.far):
                rises = np.where(self._lines[0], self._lines[1] * moved, rises)
            most = self.loss.lipschitz * np.abs(moved)
            rises = np.clip(np.where(np.isnan(rises), 0.0, rises), -most, most)
        return np.rint(np.nan_to_num(rises / self.step)) if self.span > 0 else np.zeros_like(z)

    def _margins(self, theta: np.ndarray) -> np.ndarray:
        # An empty record's margin is 0 everywhere, so it never rises.
        return as_numpy(self.rows.weights(theta, lambda z, y, size: z))

    @cached_property
    def _start(self) -> np.ndarray:
        return self._margins(self.reference)

    @cached_property
    def _labels(self) -> np.ndarray:
        return as_numpy(self.rows.weights(self.reference, lambda z, y, size: y))

    @cached_property
    def _base(self) -> np.ndarray:
        with np.errstate(all="ignore"):
            return as_numpy(self.loss.value(self._start, self._labels))

    @cached_property
    def _lines(self) -> tuple[np.ndarray, np.ndarray]:
        zero = np.zeros_like(self._labels)
        with np.errstate(all="ignore"):
            return self._is_far(zero, self._labels), self._line(zero, self._labels)

    def _is_far(self, zero: Any, y: Any) -> Any:
        return ~(abs(self.loss.value(zero, y)) <= self.far)

    def _line(self, zero: Any, y: Any) -> Any:
        slope = self.loss.slope(zero, y).clip(-self.slope, self.slope)
        return array_namespace(slope).where(slope == slope, slope, 0.0 * zero)


def _added(steps: np.ndarray) -> int:
    """The exact sum of integers in doubles; those of one record are far below 2^53."""
    parts = (steps[i : i + AT_ONCE] for i in range(0, len(steps), AT_ONCE))
    return sum(int(part.astype(np.int64).sum()) for part in parts)


def _with_near_labels(rows: Rows, loss: Loss, margin: float) -> Rows:
    """The same losses on the domain, up to constants, with labels of moderate size."""
    most = 2 * (margin + loss.linear_beyond)
    labels = rows.weights(np.zeros(rows.dimension), lambda z, y, size: y)
    return rows.labelled(labels.clip(-most, most), False)
