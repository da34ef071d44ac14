"""A quantile by ranks: the exponential mechanism on how many records lie on either side.

References
----------
Smith (2011), STOC. The exponents are derived in the class below.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privopt.losses import Quantile
from privopt.mechanisms.density.segments import choose
from privopt.noise import Source
from privopt.noise.source import volume
from privopt.oracle.objective import Objective
from privopt.oracle.reach import Reach, ReachNorm
from privopt.privacy.budget import Refused
from privopt.privacy.kinds import BoundedRange, Kind


@dataclass(frozen=True, slots=True)
class RankQuantile:
    """Release theta in [low, high] with density proportional to exp(-k score(theta)).

    The payload is the quantile loss of labels d_i on rows that are one constant column. With w the
    widening, N the number of records that are not empty and T = q N,

        score(theta) = max(0, #{d_i < theta - w} - T, T - #{d_i <= theta + w}),

    the rank error of the best point within w of theta.

    Parameters
    ----------
    multiplier : float
        k = 1 / (multiplier a), a = 2 max(q, 1-q); under replace_one a = 2.
    low, high : float
        Public bounds.
    widening : float
        Public and positive: gives an atom of the data a neighbourhood to be found in. Without it a
        value shared by many records has no length and is never returned.

    Formal guarantee
    ----------------
    One record more changes both arguments of the maximum by between -max(q, 1-q) and max(q, 1-q),
    so the score does too: its change has a range of at most a, and the release is
    (1/multiplier)-bounded range. Replacing one record leaves T and changes a count by at most one:
    a = 2.
    """

    multiplier: float
    low: float
    high: float
    widening: float
    accepts: ReachNorm = "function"

    def __post_init__(self) -> None:
        if not 0 < self.multiplier < math.inf:
            raise ValueError(f"multiplier must be positive and finite, got {self.multiplier!r}.")
        if not -math.inf < self.low < self.high < math.inf:
            raise ValueError("bounds must be two finite numbers, the lower one first.")
        if not 0 < self.widening < math.inf:
            raise ValueError(f"widening must be positive and finite, got {self.widening!r}.")

    def kinds(self, reach: Reach) -> tuple[Kind, ...]:
        if not reach.sampling.full:
            raise Refused("RankQuantile is accounted for all records, not a sample.")
        return (BoundedRange(1 / self.multiplier),)

    def run(self, payload: Objective, reach: Reach, source: Source) -> np.ndarray:
        knots, scores = self.scores(payload)
        movement = 2.0
        if reach.radius == reach.single:
            assert isinstance(payload.loss, Quantile)
            movement = 2 * max(payload.loss.q, 1 - payload.loss.q)
        if volume(source) == 0:
            j = int(np.argmin(np.where(np.diff(knots) > 0, scores, np.inf)))
            return np.array([knots[j] / 2 + knots[j + 1] / 2])
        widths = np.diff(knots)
        with np.errstate(divide="ignore"):
            heights = np.log(widths) - scores / (self.multiplier * movement)
        j = choose(source, heights)
        return np.array([knots[j] + source.noise.random() * widths[j]])

    def scores(self, payload: Objective) -> tuple[np.ndarray, np.ndarray]:
        """Knots, and the score between each two of them."""
        assert isinstance(payload.loss, Quantile)
        rows = payload.rows
        # A record that is not empty has a row of positive size.
        alive = np.asarray(rows.weights(np.zeros(1), lambda z, y, size: size), dtype=float) > 0
        values = np.asarray(rows.weights(np.zeros(1), lambda z, y, size: y), dtype=float)
        # Far beyond the bounds all values are alike; clipping them keeps the sums exact.
        span = self.high - self.low + self.widening
        values = np.sort(np.clip(values[alive], self.low - 2 * span, self.high + 2 * span))
        inner = np.concatenate([values - self.widening, values + self.widening])
        inner = np.sort(inner[(inner > self.low) & (inner < self.high)])
        knots = np.concatenate([[self.low], inner, [self.high]])
        middle = knots[:-1] / 2 + knots[1:] / 2
        below = np.searchsorted(values + self.widening, middle, side="left")
        up_to = np.searchsorted(values - self.widening, middle, side="right")
        aim = payload.loss.q * len(values)
        return knots, np.maximum(0.0, np.maximum(below - aim, aim - up_to))
