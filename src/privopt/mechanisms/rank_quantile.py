"""A quantile by ranks: the exponential mechanism on how many records lie on either side.

References
----------
Smith (2011), STOC. The exponents are derived in the class below.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from privopt.losses import Quantile
from privopt.mechanisms.density.draws import (
    CELLS,
    DEEPEST,
    NUMERICS,
    middle_of,
    pick,
    weights_of,
)
from privopt.mechanisms.standard import Coins, of_place
from privopt.noise import Source
from privopt.noise.source import volume
from privopt.oracle.objective import Objective
from privopt.oracle.sensitivity import Sensitivity, SensitivityNorm
from privopt.privacy.budget import Refused
from privopt.privacy.events import Numerics
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
    accepts: SensitivityNorm = "function"

    def __post_init__(self) -> None:
        if not 0 < self.multiplier < math.inf:
            raise ValueError(f"multiplier must be positive and finite, got {self.multiplier!r}.")
        if not -math.inf < self.low < self.high < math.inf:
            raise ValueError("bounds must be two finite numbers, the lower one first.")
        if not 0 < self.widening < math.inf:
            raise ValueError(f"widening must be positive and finite, got {self.widening!r}.")

    def kinds(self, sensitivity: Sensitivity) -> tuple[Kind, ...]:
        if not sensitivity.sampling.full:
            raise Refused("RankQuantile is accounted for all records, not a sample.")
        return (BoundedRange(1 / self.multiplier),)

    def numerics(self, sensitivity: Sensitivity) -> Numerics:
        return NUMERICS

    def run(self, payload: Objective, sensitivity: Sensitivity, source: Source) -> np.ndarray:
        if volume(source) == 0:
            knots, scores = self.scores(payload)
            j = int(np.argmin(np.where(np.diff(knots) > 0, scores, np.inf)))
            return np.array([middle_of(int(knots[j] + knots[j + 1]) // 2, self.low, self.high)])
        knots, masses = self.law(payload, sensitivity)
        j = pick(source, masses)
        cell = int(knots[j]) + int(source.noise.integers(0, int(knots[j + 1] - knots[j])))
        return np.array([middle_of(cell, self.low, self.high)])

    def standard_noise(
        self,
        payload: Objective,
        result: np.ndarray,
        sensitivity: Sensitivity,
        kind: Kind,
        coins: Coins,
    ) -> np.ndarray:
        """The place of the release on the line, by the law's distribution function."""
        assert isinstance(kind, BoundedRange)
        knots, masses = replace(self, multiplier=1 / kind.eta).law(payload, sensitivity)
        sums = np.concatenate([[0.0], np.cumsum(masses)]) / masses.sum()
        cell = (float(result[0]) - self.low) / (self.high - self.low) * CELLS
        # Knots may meet; the last of those that do begins the piece.
        j = int(np.clip(np.searchsorted(knots, cell, side="right") - 1, 0, len(masses) - 1))
        share = (cell - float(knots[j])) / max(float(knots[j + 1] - knots[j]), 1.0)
        return of_place(float(sums[j] + share * (sums[j + 1] - sums[j])), 0.0, coins)

    def log_weights(
        self, payload: Objective, sensitivity: Sensitivity, points: np.ndarray
    ) -> np.ndarray:
        """At cells of the grid."""
        knots, masses = self.law(payload, sensitivity)
        j = np.clip(np.searchsorted(knots, points, side="right") - 1, 0, len(masses) - 1)
        with np.errstate(divide="ignore"):
            return np.log(masses[j] / np.maximum(np.diff(knots)[j], 1))

    def landmarks(self, payload: Objective, sensitivity: Sensitivity) -> np.ndarray:
        """The first cell of each piece."""
        return self.scores(payload)[0][:-1]

    def law(self, payload: Objective, sensitivity: Sensitivity) -> tuple[np.ndarray, np.ndarray]:
        """Knots, and the mass between each two of them; all cells of a piece are alike."""
        assert isinstance(payload.loss, Quantile)
        knots, scores = self.scores(payload)
        widths = np.diff(knots)
        # The factor pays for the rounding of the others.
        unit = (1 - 2.0**-50) / (self.multiplier * movement(payload.loss.q, sensitivity))
        least = scores[widths > 0].min()
        depths = np.where(widths > 0, unit * (scores - least), 2 * DEEPEST)
        return knots, weights_of(depths) * widths

    def scores(self, payload: Objective) -> tuple[np.ndarray, np.ndarray]:
        """Knots, as edges of the grid's cells, and the score between each two of them."""
        assert isinstance(payload.loss, Quantile)
        rows = payload.rows
        # A record that is not empty has a row of positive size.
        alive = np.asarray(rows.weights(np.zeros(1), lambda z, y, size: size), dtype=float) > 0
        values = np.asarray(rows.weights(np.zeros(1), lambda z, y, size: y), dtype=float)[alive]
        # Values are rounded to the grid one by one. It goes on beyond the bounds as far as any
        # widening reaches, and further out all values are alike.
        wide = self.widening / (self.high - self.low) * CELLS
        width = int(min(max(np.rint(wide), 1.0), 2.0 * CELLS))
        with np.errstate(over="ignore"):
            shares = np.clip((values - self.low) / (self.high - self.low), -3.0, 4.0)
        places = np.sort(np.rint(shares * CELLS).astype(np.int64))
        ends = np.concatenate([places - width, places + width])
        ends = np.sort(ends[(ends > 0) & (ends < CELLS)])
        knots = np.concatenate([[0], ends, [CELLS]])
        below = np.searchsorted(places + width, knots[:-1], side="right")
        up_to = np.searchsorted(places - width, knots[:-1], side="right")
        # q N in two parts, so that counts meet a whole number and nothing is lost to rounding.
        part, over = payload.loss.q.as_integer_ratio()
        whole, rest = divmod(part * len(places), over)
        aim = rest / over
        return knots, np.maximum(0.0, np.maximum(below - whole - aim, aim - (up_to - whole)))


def movement(q: float, sensitivity: Sensitivity) -> float:
    """The range of a score's change: both arguments of its maximum move by at most max(q, 1-q)
    either way with one record more; by at most one either way if a record is replaced."""
    return 2.0 if sensitivity.radius > sensitivity.single else 2 * max(q, 1 - q)
