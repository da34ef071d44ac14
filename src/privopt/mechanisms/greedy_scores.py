"""Scores of coordinates for greedy descent: how much one exact step along each would gain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from privopt.geometry import Separable
from privopt.oracle.sensitivity import SensitivityNorm

Rule = Literal["gs-s", "gs-r", "gs-q"]


@dataclass(frozen=True, eq=False)
class GreedyScores:
    """From the gradient g of the smooth part to one score for each coordinate j.

    With psi the penalty, w the point and M_j the smoothness along j:

    * gs-s: min over subgradients xi of psi_j at w_j of |g_j + xi| / sqrt(M_j);
    * gs-r: sqrt(M_j) |prox(w_j - g_j/M_j) - w_j|;
    * gs-q: sqrt(2 Q_j), Q_j the decrease of the quadratic model by the best step along j.

    All equal |g_j| / sqrt(M_j) without a penalty, and each moves by at most 1/sqrt(M_j) times the
    movement of g_j: a distance to a convex set; a prox is non-expansive; and Q_j has slope -d with
    d the best step, where M_j-strong convexity gives |d| <= sqrt(2 Q_j / M_j). Q_j itself has no
    such bound, its root does.
    """

    rule: Rule
    at: np.ndarray
    smoothness: np.ndarray
    penalty: Separable
    norm_in: SensitivityNorm = "coordinates"
    norm_out: SensitivityNorm = "range"

    def stretch(self, radius: Any) -> Any:
        """Two scores move apart by at most the sum of what each can move."""
        each = np.asarray(radius) / np.sqrt(self.smoothness)
        if each.size == 1:
            return 2 * float(each[0]) * (1 + 1e-12)
        return float(np.partition(each, -2)[-2:].sum()) * (1 + 1e-12)

    def apply(self, payload: Any) -> Any:
        penalty = self.penalty
        if np.isfinite(penalty.low).any() or np.isfinite(penalty.high).any():
            return self._scores(slice(None), payload)
        # Most coefficients are zero, where the best step has a closed form.
        scores = np.abs(payload)
        if penalty.l1:
            scores = np.maximum(scores - penalty.l1, 0.0)
        steep = self.smoothness + penalty.l2
        if self.rule == "gs-q":
            scores /= np.sqrt(steep)
        else:
            scores *= np.sqrt(self.smoothness) / (steep if self.rule == "gs-r" else self.smoothness)
        others = np.flatnonzero(self.at)
        scores[others] = self._scores(others, payload[others])
        return scores

    def _scores(self, where: Any, slopes: Any) -> Any:
        """Scores of some coordinates with these slopes, by their definition."""
        at, smoothness, penalty = self.at[where], self.smoothness[where], self.penalty
        root = np.sqrt(smoothness)
        if self.rule == "gs-s":
            return penalty.slope_distance(at, slopes) / root
        step = penalty.prox(at - slopes / smoothness, 1 / smoothness) - at
        if self.rule == "gs-r":
            return root * np.abs(step)
        change = penalty.value(at + step) - penalty.value(at)
        gain = -slopes * step - 0.5 * smoothness * step**2 - change
        return np.sqrt(np.maximum(2 * gain, 0.0))
