"""Bins of a score in log-odds, and how far a record stands in its bin.

A record counts in the two ends of its bin, with weights 1 - u and u if it stands at the share u of
the bin. A sum of a function of the score, taken at the ends, is then the sum of its linear
interpolation, whatever the scores are: the error of one record is between 0 and the square of the
bin's width times the curvature over 8, and known. Nothing is assumed of calibration or of how
scores lie in a bin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit

GROWTH = 4.0
"""How much wider the last bins are than the first: losses are curved in the middle."""
POINTS = 257
Function = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class ScoreBins:
    """``count`` bins, an even number, on [-limit, limit]; scores beyond stand at the ends."""

    count: int
    limit: float

    @classmethod
    def for_rows(cls, rows: int, epsilon: float, limit: float) -> ScoreBins:
        """From public numbers: narrow enough not to matter beside the noise."""
        wished = round((rows * epsilon) ** (1 / 3))
        return cls(int(2 * np.clip(wished // 2, 2, 12)), limit)

    @cached_property
    def edges(self) -> np.ndarray:
        side = (GROWTH ** np.linspace(0, 1, self.count // 2 + 1) - 1) / (GROWTH - 1) * self.limit
        return np.concatenate([-side[:0:-1], side])

    @property
    def widths(self) -> np.ndarray:
        return np.diff(self.edges)

    @property
    def ends(self) -> np.ndarray:
        """The scores at the two ends of each bin."""
        return np.stack([self.edges[:-1], self.edges[1:]], axis=1)

    @property
    def middles(self) -> np.ndarray:
        return (self.edges[:-1] + self.edges[1:]) / 2

    def places(self, scores: np.ndarray, side: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """The bin of each score and its share of the way through it. ``side``: in the upper half
        where True, in the lower where False, whatever rounding says of the score."""
        inside = np.clip(np.nan_to_num(scores), -self.limit, self.limit)
        found = np.searchsorted(self.edges[1:-1], inside, side="left")
        if side is not None:
            half = self.count // 2
            found = np.where(side, np.maximum(found, half), np.minimum(found, half - 1))
        share = (inside - self.edges[found]) / self.widths[found]
        return found, np.clip(share, 0.0, 1.0)

    def interpolated(self, function: Function) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values at the ends of each bin, and what the function may lie above its interpolation in
        this bin, at least and at most; all of shape (bins, 2)."""
        values = function(self.ends)
        share = np.linspace(0, 1, POINTS)[:, None]
        inner = function(self.edges[:-1] + share * self.widths)
        above = inner - ((1 - share) * values[:, 0] + share * values[:, 1])
        both = np.ones((1, 2))
        return values, above.min(axis=0)[:, None] * both, above.max(axis=0)[:, None] * both


def log_loss_of(label: int) -> Function:
    """Minus the logarithm of the probability of the label, from the score of label 1."""
    sign = -1.0 if label else 1.0
    return lambda z: np.logaddexp(0.0, sign * z)


def square_loss_of(label: int) -> Function:
    """The squared distance of the probability from the label."""
    return lambda z: (expit(z) - label) ** 2
