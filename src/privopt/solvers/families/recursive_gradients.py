"""A recursive estimate of the gradient: every record enters once, and decays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privopt.facts import Facts
from privopt.oracle import (
    CoordinateClippedGradient,
    GradientDifference,
    Oracle,
    Query,
    RunningSum,
    Sealed,
)
from privopt.solvers.families.vertices import largest_margin


class RecursiveGradient:
    """The running estimate of the mean gradient; every question takes the next records in."""

    def __init__(
        self,
        oracle: Oracle,
        gradient: CoordinateClippedGradient,
        sizes: Sequence[int],
        eta: float,
        difference_clip: float,
    ) -> None:
        self._parts = zip(oracle.shuffled().parts(sizes), sizes, strict=True)
        self._gradient, self._keep, self._clip = gradient, 1 - eta, difference_clip
        self._running_sum, self._before = RunningSum(), np.zeros(0)

    def at(self, theta: np.ndarray) -> Sealed:
        part, size = next(self._parts)
        query: Query = self._gradient
        if self._before.size:
            query = GradientDifference(self._gradient, self._before, self._keep, self._clip)
        self._before = theta
        return self._running_sum.step(self._keep, part.everything().ask(query, theta), 1 / size)


def difference_clip(facts: Facts, clip: float, eta: float) -> float:
    """Bound on what a record adds to the estimate in units of its row, at steps of size eta."""
    smooth = eta * facts.problem.loss.smoothness * largest_margin(facts)
    return min((2 - eta) * clip, eta * clip + (1 - eta) * smooth)


def dearest_record(
    facts: Facts, row: float, clip: float, first: int, batch: int, steps: int, eta: float
) -> float:
    """Sum over all estimates of the square of how far the worst record moves them, for rows of at
    most this norm: a geometric series for a record of the first part, and for a later one."""
    keep = (1 - eta) ** 2
    series = [(1 - keep**count) / (1 - keep) for count in (steps + 1, steps)]
    slopes = clip / first, difference_clip(facts, clip, eta) / batch
    moved = [facts.relation_factor * slope * row for slope in slopes]
    return max(one**2 * decay for one, decay in zip(moved, series, strict=True))
