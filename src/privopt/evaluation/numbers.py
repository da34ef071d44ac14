"""Regressions: sums of powers of residuals and of targets, each cut to a public bound.

A residual of a = |y - prediction| / c (1 if it is larger) counts as (a^4, a^2 - a^4, a - a^2,
1 - a), or in a fifth place if it was cut: five numbers that are not negative and 1 together. Their
sums give mean absolute and mean squared error and the variances of both exactly, and say how many
residuals were cut. A target of m = (y - middle) / half of the range counts as the squares and
products (m^2, |m| - m^2) on its own side of 0, and 1 - |m|. The two blocks share the budget.

R2 = 1 - sum r^2 / sum (y - mean)^2. Both sums are of squares, so the two parts of a record pull its
numerator r^2 - (1 - R2) (y - mean)^2 in opposite directions, and its second moment is at most that
of the parts added: sum r^4 + (1 - R2)^2 sum (y - mean)^4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from privopt.evaluation.estimate import Estimate, NoisyCounts
from privopt.oracle import Shares

RESIDUAL, TARGET = 5, 5
SHARE = 0.6
"""Of the budget, for residuals."""


@dataclass(frozen=True)
class Numbers:
    """Public bounds: targets lie in [low, high], residuals count up to ``cut``."""

    low: float
    high: float
    cut: float

    answers = 1
    width = RESIDUAL + TARGET

    def shares(self, answers: np.ndarray, targets: np.ndarray) -> Shares:
        """What each record adds; nothing where there is no target."""
        said = answers[:, 0]
        there = np.isfinite(targets) & ~np.isnan(said)
        y = np.clip(np.where(there, targets, self.low), self.low, self.high)
        with np.errstate(all="ignore"):
            a = np.abs(y - np.where(there, said, y)) / self.cut
        a = np.where(np.isnan(a), math.inf, a)
        beyond = a > 1
        b = np.where(beyond, 0.0, np.minimum(a, 1))
        residual = [b**4, b**2 - b**4, b - b**2, np.where(beyond, 0.0, 1 - b), beyond * 1.0]
        m = (y - (self.low + self.high) / 2) / ((self.high - self.low) / 2)
        size, upper = np.abs(m), m > 0
        target = [
            np.where(upper, size**2, 0.0),
            np.where(upper, size - size**2, 0.0),
            np.where(upper, 0.0, size**2),
            np.where(upper, 0.0, size - size**2),
            1 - size,
        ]
        weights = np.stack(
            [SHARE * part for part in residual] + [(1 - SHARE) * part for part in target], axis=1
        )
        places = np.broadcast_to(np.arange(self.width), weights.shape)
        return Shares(places, weights * there[:, None], self.width)


@dataclass(frozen=True, eq=False)
class NumbersResult:
    """What the released vector says."""

    layout: Numbers
    counts: NoisyCounts

    def _block(self, where: slice, share: float) -> NoisyCounts:
        found = self.counts.part(where)
        return replace(found, sums=found.sums / share, variances=found.variances / share**2)

    def metrics(self) -> dict[str, Estimate]:
        """R2, RMSE, MAE and the share of residuals that were cut."""
        cut = self.layout.cut
        found = self._block(slice(0, RESIDUAL), SHARE)
        every = np.ones(RESIDUAL)
        squares = found.ratio([1, 1, 0, 0, 1], every, square=np.array([1.0, 0, 0, 0, 1]))
        sizes = found.ratio([1, 1, 1, 0, 1], every, square=np.array([1.0, 1, 0, 0, 1]))
        return {
            "r2": self._r2(),
            "rmse": squares.through(lambda value: cut * math.sqrt(max(value, 0.0))),
            "mae": sizes.through(lambda value: cut * value),
            "share of residuals cut": found.ratio([0, 0, 0, 0, 1], every),
        }

    def _r2(self) -> Estimate:
        half = (self.layout.high - self.layout.low) / 2
        target = self._block(slice(RESIDUAL, None), 1 - SHARE)
        count = max(float(target.sums.sum()), 1.0)
        mean = float(np.clip(np.array([1, 1, -1, -1, 0]) @ target.sums / count, -1, 1))
        # The sum of (m - mean)^2, linear in what was released.
        own = np.array([1, 0, 1, 0, 0.0]) - 2 * mean * np.array([1, 1, -1, -1, 0]) + mean**2
        residuals = self._block(slice(0, RESIDUAL), SHARE)
        above = np.concatenate([np.array([1, 1, 0, 0, 1.0]) * self.layout.cut**2, np.zeros(TARGET)])
        below = np.concatenate([np.zeros(RESIDUAL), own * half**2])
        joined = replace(
            residuals,
            sums=np.concatenate([residuals.sums, target.sums]),
            variances=np.concatenate([residuals.variances, target.variances]),
        )
        # A record's square (m - mean)^4 is at most (1 + |mean|)^2 (m - mean)^2.
        fourth = (1 + abs(mean)) ** 2 * max(float(own @ target.sums), 1.0) * half**4
        square = np.array([1.0, 0, 0, 0, 1]) * self.layout.cut**4
        sampling = float(joined.records[:RESIDUAL] @ square), fourth * joined.group
        unexplained = joined.fraction(above, below, sampling)
        return Estimate(
            1 - unexplained.value,
            1 - unexplained.high,
            1 - unexplained.low,
            unexplained.sampling,
            unexplained.noise,
        )

    def confusion(self) -> None:
        return None

    def roc(self) -> list[tuple[float, Estimate, Estimate]]:
        return []

    def calibration(self) -> list[tuple[float, Estimate, float]]:
        return []


def numbers_or_missing(target: np.ndarray) -> np.ndarray:
    """Targets as numbers; NaN where a cell holds none."""
    if target.dtype.kind in "biuf":
        return np.asarray(target, dtype=float)
    found = np.full(len(target), np.nan)
    for i, value in enumerate(target.tolist()):  # a cell that is no number must not tell of itself
        try:
            found[i] = float(value)
        except Exception:
            continue
    return found
