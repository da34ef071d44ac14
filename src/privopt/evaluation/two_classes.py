"""Two classes: one table of counts by bin of the score, end of the bin and label.

One record is in one bin with one label, its weight divided between the two ends: 1 in l1. So one
table at the whole budget gives accuracy, confusion, calibration, losses, ROC and AUC.

AUC. Pairs of records in different bins are ordered by their bins. Of pairs in one bin a share
1/2 + h is in order. If the log-odds of the label change by at most J within the bin, |h| <=
tanh(J/4)/2, however the scores lie in it: no ROC lies above that of the likelihood ratio, whose
slopes are then within a factor e^J, and the largest area of such a curve over the diagonal is that
of a curve with one kink, at slopes e^(J/2) and e^(-J/2). J is the width of the bin times the slope
of the noisy counts' log-odds, but at least the width, what a calibrated score has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit

from privopt.evaluation.bins import Function, ScoreBins, log_loss_of, square_loss_of
from privopt.evaluation.estimate import Estimate, NoisyCounts
from privopt.oracle import Shares

CLEAR = 2.0
"""Standard deviations of noise from which on a count says something about a slope."""


@dataclass(frozen=True)
class TwoClasses:
    """The table's layout. ``bins`` is None for a model that gives no score. Unless the class is
    known to be the side of zero where the score lies, it has an axis of its own."""

    bins: ScoreBins | None
    by_score: bool
    probabilities: bool

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Class predicted (if not told by the bin), bin, end of the bin, label."""
        if self.bins is None:
            return 2, 1, 1, 2
        return 1 if self.by_score else 2, self.bins.count, 2, 2

    @property
    def width(self) -> int:
        return math.prod(self.shape)

    @property
    def answers(self) -> int:
        return 1 if self.bins is None else 2

    def shares(self, answers: np.ndarray, labels: np.ndarray) -> Shares:
        """What each record adds; nothing where there is no answer or no label."""
        there = np.isfinite(answers[:, 0]) & (labels >= 0)
        if self.bins is not None:
            there &= ~np.isnan(answers[:, 1])
        said = np.where(there, answers[:, 0], 0).astype(np.intp)
        label = np.where(there, labels, 0).astype(np.intp)
        if self.bins is None:
            places = np.ravel_multi_index((said, 0 * said, 0 * said, label), self.shape)
            return Shares(places[:, None], there[:, None].astype(float), self.width)
        scores = np.where(there, answers[:, 1], 0.0)
        bin_, share = self.bins.places(scores, said == 1 if self.by_score else None)
        first = 0 * said if self.by_score else said
        left = np.ravel_multi_index((first, bin_, 0 * said, label), self.shape)
        right = np.ravel_multi_index((first, bin_, 0 * said + 1, label), self.shape)
        weights = np.stack([1 - share, share], axis=1) * there[:, None]
        return Shares(np.stack([left, right], axis=1), weights, self.width)


@dataclass(frozen=True, eq=False)
class TwoClassesResult:
    """What the released table says."""

    layout: TwoClasses
    counts: NoisyCounts

    @cached_property
    def _table(self) -> np.ndarray:
        return self.counts.sums.reshape(self.layout.shape)

    @cached_property
    def _said(self) -> np.ndarray:
        """Whether a cell's class is the second."""
        shape = self.layout.shape
        if shape[0] == 2:
            said = np.arange(2).reshape(2, 1, 1, 1)
        else:
            said = (np.arange(shape[1]) >= shape[1] // 2).reshape(1, -1, 1, 1)
        return np.broadcast_to(said, shape) == 1

    @cached_property
    def _label(self) -> np.ndarray:
        return np.broadcast_to(np.arange(2) == 1, self.layout.shape)

    # ------------------------------------------------------------ metrics
    def metrics(self) -> dict[str, Estimate]:
        """Every metric that the table gives, by name."""
        said, label, ratio = self._said, self._label, self.counts.ratio
        right, both = said & label, np.ones(self.layout.shape)
        found = {
            "accuracy": ratio(said == label, both),
            "rate of the second class": ratio(label, both),
            "precision": ratio(right, said),
            "recall": ratio(right, label),
            "specificity": ratio(~said & ~label, ~label),
            "f1": ratio(2.0 * right, said * 1.0 + label),
        }
        if self.layout.bins is None:
            return found
        found["auc"] = self.auc()
        if self.layout.probabilities:
            found["log_loss"] = self._loss(log_loss_of, math.inf)
            found["brier"] = self._loss(square_loss_of, 1.0)
        return found

    def _loss(self, loss_of: Callable[[int], Function], most: float) -> Estimate:
        bins = self.layout.bins
        assert bins is not None
        top = float(np.logaddexp(0.0, bins.limit)) if math.isinf(most) else most
        parts = [bins.interpolated(loss_of(label)) for label in (0, 1)]
        values, least, largest = (
            np.broadcast_to(np.stack(one, axis=-1), self.layout.shape)
            for one in zip(*parts, strict=True)
        )
        both = np.ones(self.layout.shape)
        return self.counts.ratio(values, both, (0.0, top), (least, largest))

    # ------------------------------------------------------------ ranking
    @cached_property
    def _by_bin(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Noisy counts of the labels 0 and 1 in each bin, and the variance of their noise."""
        found = self._table.sum(axis=(0, 2))
        noise = self.counts.variances.reshape(self.layout.shape).sum(axis=(0, 2))
        return found[:, 0], found[:, 1], noise[:, 0]

    def auc(self) -> Estimate:
        """The chance that a record of the second class has the larger score; ties count half."""
        zeros, ones, noise = self._by_bin
        N0, N1 = float(zeros.sum()), float(ones.sum())
        sure = 3 * math.sqrt(float(noise.sum()))
        if min(N0, N1) <= sure:
            return Estimate(0.5, 0.0, 1.0, math.nan, math.nan)
        below = (np.cumsum(zeros) - zeros / 2) / N0  # share of zeros below a record of this bin
        above = (N1 - np.cumsum(ones) + ones / 2) / N1
        area = float(ones @ below) / N1
        slope0, slope1 = (above - area) / N0, (below - area) / N1
        group = self.counts.group
        sampling = group * float(np.maximum(zeros, 1) @ slope0**2 + np.maximum(ones, 1) @ slope1**2)
        pairs = len(zeros) ** 2 * float(np.mean(noise)) ** 2 / (N0 * N1) ** 2  # noise times noise
        private = float(noise @ (slope0**2 + slope1**2)) + pairs
        tied = np.maximum(zeros, 0) * np.maximum(ones, 0) / (N0 * N1)
        least, most = self._slope()
        assert self.layout.bins is not None
        jumps = self.layout.bins.widths
        reach = float(tied @ np.tanh(np.maximum(most, 1.0) * jumps / 4)) / 2
        back = float(tied @ np.tanh(np.maximum(-least, 0.0) * jumps / 4)) / 2
        z = self.counts.z * math.sqrt(sampling + private)
        value = area + (reach - back) / 2
        ends = (area - back - z, area + reach + z)
        low, high = (float(np.clip(end, 0, 1)) for end in ends)
        cut = (reach + back) / 2
        return Estimate(
            float(np.clip(value, 0, 1)), low, high, math.sqrt(sampling), math.sqrt(private), cut
        )

    def _slope(self) -> tuple[float, float]:
        """Two standard errors around the slope of the log-odds of the label in the score; without
        limits where no two bins tell it."""
        zeros, ones, noise = self._by_bin
        clear = (zeros > CLEAR * np.sqrt(noise) + 1) & (ones > CLEAR * np.sqrt(noise) + 1)
        if clear.sum() < 2 or self.layout.bins is None:
            return -math.inf, math.inf
        a, b, v = zeros[clear], ones[clear], noise[clear]
        weights = 1 / (1 / a + 1 / b + v / a**2 + v / b**2)
        x, y = self.layout.bins.middles[clear], np.log(b / a)
        x = x - weights @ x / weights.sum()
        size = float(weights @ x**2)
        slope, error = float(weights @ (x * y)) / size, 1 / math.sqrt(size)
        return slope - 2 * error, slope + 2 * error

    # ------------------------------------------------------------ curves and tables
    def roc(self) -> list[tuple[float, Estimate, Estimate]]:
        """For each edge between bins: the score, the false- and the true-positive rate of calling
        every higher score positive."""
        bins = self.layout.bins
        if bins is None:
            return []
        label, found = self._label, []
        for k in range(1, bins.count):
            high = np.broadcast_to((np.arange(bins.count) >= k)[:, None, None], self.layout.shape)
            false = self.counts.ratio(high & ~label, ~label)
            found.append((float(bins.edges[k]), false, self.counts.ratio(high & label, label)))
        return found

    def calibration(self) -> list[tuple[float, Estimate, float]]:
        """For each bin: the mean probability said, the share of the second class, and how many
        records there are. Bins that hold no more than noise are left out."""
        bins = self.layout.bins
        if bins is None or not self.layout.probabilities:
            return []
        _, _, noise = self._by_bin
        found = []
        for k in range(bins.count):
            here = np.broadcast_to((np.arange(bins.count) == k)[:, None, None], self.layout.shape)
            ends = self._table[:, k].sum(axis=(0, 2))
            count = float(ends.sum())
            if count <= max(CLEAR * math.sqrt(2 * noise[k]), 1.0):
                continue
            share = float(np.clip(ends[1] / count, 0.0, 1.0))
            said = float(expit(bins.edges[k] + share * bins.widths[k]))
            found.append((said, self.counts.ratio(here & self._label, here), count))
        return found

    def confusion(self) -> tuple[np.ndarray, np.ndarray]:
        """Noisy counts by true class and predicted class, and the deviations of their noise."""
        cells = [
            [(self._label == t) & (self._said == s) for s in (False, True)] for t in (False, True)
        ]
        sums = [[float(self._table[cell].sum()) for cell in row] for row in cells]
        variances = self.counts.variances.reshape(self.layout.shape)
        noise = [[math.sqrt(float(variances[cell].sum())) for cell in row] for row in cells]
        return np.array(sums), np.array(noise)
