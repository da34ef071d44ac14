"""Estimates from noisy counts, with intervals that hold sampling and noise.

What is reported is a ratio of two sums over records, A = sum_c a_c H_c and B = sum_c b_c H_c, of
noisy counts H_c whose noise has the known variance v_c. Records are a sample: a record whose shares
are w_c moves A - t B by sum_c w_c (a_c - t b_c), and since its shares are at most 1 together, the
square of that is at most sum_c w_c (a_c - t b_c)^2 (Jensen). So at the true ratio t, A - t B has
mean 0 and variance at most

    sum_c (max(H_c, 1) g + v_c) (a_c - t b_c)^2,

with g the most rows of one user, whose rows may all say the same. The interval is the set of all t
that this does not reject (Fieller, 1954): it is right also where B is hardly known, and then it is
the whole range.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri


@dataclass(frozen=True)
class Estimate:
    """One number, its interval, and the standard errors it is made of.

    ``sampling``: of having only so many records. ``noise``: of the privacy. ``cut``: half of what
    the width of bins leaves open, which is in the interval too.
    """

    value: float
    low: float
    high: float
    sampling: float
    noise: float
    cut: float = 0.0

    @property
    def error(self) -> float:
        """One standard error, of sampling and noise together."""
        return math.hypot(self.sampling, self.noise)

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return f"{self.value:.4g} ({self.low:.4g} to {self.high:.4g})"

    def through(self, function: Callable[[float], float]) -> Estimate:
        """The estimate of an increasing function of what is estimated."""
        step = 1e-6 * max(abs(self.value), 1e-3)
        slope = (function(self.value + step) - function(self.value)) / step
        errors = (abs(slope) * one for one in (self.sampling, self.noise, self.cut))
        return Estimate(*map(function, (self.value, self.low, self.high)), *errors)


@dataclass(frozen=True, eq=False)
class NoisyCounts:
    """Released sums with the variances of their noise, and how many records one user may own."""

    sums: np.ndarray
    variances: np.ndarray
    group: int = 1
    level: float = 0.95

    @property
    def records(self) -> np.ndarray:
        """Counts as sampling sees them: none is taken to be without any record."""
        return np.maximum(self.sums, 1.0) * self.group

    @property
    def z(self) -> float:
        return float(ndtri(0.5 + self.level / 2))

    def part(self, where: slice) -> NoisyCounts:
        """Some of the coordinates."""
        return replace(self, sums=self.sums[where], variances=self.variances[where])

    def ratio(
        self,
        above: ArrayLike,
        below: ArrayLike,
        ends: tuple[float, float] = (0.0, 1.0),
        slack: tuple[ArrayLike, ArrayLike] | None = None,
        square: ArrayLike | None = None,
    ) -> Estimate:
        """The ratio of two sums, within its natural range.

        ``slack``: what a record may add to the numerator because of where it lies in its bin, at
        least and at most, a number for each coordinate. ``square``: in place of Jensen's bound, the
        numerator's second moments, for sums whose squares were released too.
        """
        above, below = np.asarray(above, float).ravel(), np.asarray(below, float).ravel()
        if slack is None:
            records, mixed = self.records, 0.0 if square is not None else above * below
            of_top = above**2 if square is None else np.ravel(square)
            sums = (float(np.sum(records * part)) for part in (of_top, below**2, mixed))
            return self.fraction(above, below, tuple(sums), ends)
        least, most = (np.ravel(one) for one in slack)
        low, middle, high = (
            self.ratio(above + part, below, ends) for part in (least, (least + most) / 2, most)
        )
        cut = (high.value - low.value) / 2
        return replace(middle, low=low.low, high=high.high, cut=cut)

    def fraction(
        self,
        a: np.ndarray,
        b: np.ndarray,
        moments: tuple[float, ...],
        ends: tuple[float, float] = (0.0, math.inf),
    ) -> Estimate:
        """The ratio of the sums a and b; ``moments``: second moments over records of the numerator,
        of the denominator, and of their product (0 if it may only help)."""
        top, bottom = float(a @ self.sums), float(b @ self.sums)
        of_top, of_bottom, of_both = (*moments, 0.0)[:3]
        aa = of_top + float(self.variances @ a**2)
        ab = of_both + float(self.variances @ (a * b))
        bb = of_bottom + float(self.variances @ b**2)
        lowest, highest = ends
        z2 = self.z**2
        lead, half, last = bottom**2 - z2 * bb, top * bottom - z2 * ab, top**2 - z2 * aa
        if bottom <= 0 or lead <= 0:  # the denominator may be nothing: all that is possible
            value = min(max(top / bottom, lowest), highest) if bottom > 0 else math.nan
            if math.isnan(value):
                value = (lowest + highest) / 2 if math.isfinite(highest) else math.nan
            return Estimate(value, lowest, highest, math.nan, math.nan)
        value = min(max(top / bottom, lowest), highest)
        root = math.sqrt(max(half**2 - lead * last, 0.0))
        low, high = (min(max(end / lead, lowest), highest) for end in (half - root, half + root))
        sampling = of_top - 2 * value * of_both + value**2 * of_bottom
        noise = float(self.variances @ (a - value * b) ** 2)
        spread = (math.sqrt(max(one, 0.0)) / bottom for one in (sampling, noise))
        return Estimate(value, min(low, value), max(high, value), *spread)
