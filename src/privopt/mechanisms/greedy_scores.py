"""Scores of coordinates for greedy descent: how much one exact step along each would gain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from privopt.geometry import Separable
from privopt.oracle.reach import ReachNorm

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
    norm_in: ReachNorm = "coordinates"
    norm_out: ReachNorm = "range"

    def stretch(self, radius: Any) -> Any:
        """Two scores move apart by at most the sum of what each can move."""
        each = np.asarray(radius) / np.sqrt(self.smoothness)
        return (float(np.sort(each)[-2:].sum()) if each.size > 1 else 2 * float(each[0])) * (
            1 + 1e-12
        )

    def apply(self, payload: Any) -> Any:
        root = np.sqrt(self.smoothness)
        if self.rule == "gs-s":
            return self.penalty.slope_distance(self.at, payload) / root
        step = self.penalty.prox(self.at - payload / self.smoothness, 1 / self.smoothness) - self.at
        if self.rule == "gs-r":
            return root * np.abs(step)
        change = self.penalty.value(self.at + step) - self.penalty.value(self.at)
        gain = -payload * step - 0.5 * self.smoothness * step**2 - change
        return np.sqrt(np.maximum(2 * gain, 0.0))
