"""Smooth functions of single columns that fit how the column is spread: one noisy release.

Released: histograms of the shaped columns. What follows from them is post-processing: cosines of a
column's mid-ranks, made orthonormal under its noisy histogram, each weighed down by a power of its
number. With a ridge on their coefficients that weight is a penalty on roughness, and new features
add only the sum of squared weights to the effective dimension.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from privopt.mechanisms.gate import Gate
from privopt.mechanisms.on_grid import gaussian_noise, laplace_noise
from privopt.oracle import ColumnHistograms, Oracle, RowMap, ShapeTables
from privopt.oracle.column_shapes import BINS, Shaped

MOST = 4.0
"""Functions are cut here, in units of their standard deviation."""
RESOLVED = 1e-3
"""A function of which less than this share is new is left out."""


@dataclass(frozen=True, slots=True)
class ShapeLearner:
    """Learn, privately, functions of columns to fit shapes with.

    Parameters
    ----------
    n : int
        Public number of records.
    noise : {"gaussian", "pure"}
    multiplier : float
        Noise of the histograms in units of their sensitivity.
    columns : tuple of (index, low, high)
    harmonics : int
        Functions of each column.
    roughness : float
        Function k is multiplied by k to minus this power.
    discrete_noise : bool, default=False
    """

    n: int
    noise: Literal["gaussian", "pure"]
    multiplier: float
    columns: tuple[Shaped, ...]
    harmonics: int
    roughness: float
    discrete_noise: bool = False

    def widen(
        self, oracle: Oracle, gate: Gate, row_map: RowMap, clip: float
    ) -> tuple[ShapeTables, RowMap]:
        """Tables, and the map of rows that have their functions as features: these are centred and
        scaled as they are, and clipped with their row, at ``clip`` times its root mean square."""
        tables, variance = self.run(oracle, gate)
        more = tables.width
        return tables, replace(
            row_map,
            centre=np.append(row_map.centre, np.zeros(more)),
            scale=np.append(row_map.scale, np.ones(more)),
            clip_norm=math.hypot(row_map.clip_norm, clip * math.sqrt(variance)),
        )

    def run(self, oracle: Oracle, gate: Gate) -> tuple[ShapeTables, float]:
        """One release through the gate; tables, and the sum of their released variances."""
        pure = self.noise == "pure"
        question = ColumnHistograms(self.columns, "l1" if pure else "l2")
        counting = (laplace_noise if pure else gaussian_noise)(self.multiplier, self.discrete_noise)
        sealed = oracle.everything().ask(question, resolution=counting.resolution)
        deviation = self.multiplier * float(sealed.sensitivity.radius)
        deviation *= math.sqrt(2) if pure else 1.0
        counts = gate.release(counting, sealed).reshape(len(self.columns), BINS)
        weights = np.arange(1.0, self.harmonics + 1) ** -self.roughness
        values = np.empty((len(self.columns), BINS, self.harmonics))
        variance = 0.0
        for j, each in enumerate(counts):
            shares = _on_simplex(each / self.n)
            functions = ranked_cosines(shares, self.harmonics, deviation / self.n)
            values[j] = functions * weights
            variance += float(shares @ (values[j] ** 2).sum(axis=1))
        return ShapeTables(self.columns, values), variance


def ranked_cosines(shares: np.ndarray, many: int, noise: float) -> np.ndarray:
    """cos(pi k F) for k = 1, 2, ..., F the mid-rank of each bin, orthonormal under ``shares`` and
    to the constant; zeros where the histogram, whose bins have this noise, does not resolve one."""
    ranks = np.cumsum(shares) - shares / 2
    kept = [np.ones(len(shares))]
    found = np.zeros((len(shares), many))
    for k in range(1, many + 1):
        raw = np.cos(math.pi * k * ranks)
        own = float(shares @ raw**2)
        left = raw
        for _ in range(2):  # twice is enough
            for one in kept:
                left = left - (shares @ (left * one)) * one
        variance = float(shares @ left**2)
        if variance <= max(RESOLVED * own, noise):
            continue
        kept.append(left / math.sqrt(variance))
        found[:, k - 1] = np.clip(kept[-1], -MOST, MOST)
    return found


def _on_simplex(shares: np.ndarray) -> np.ndarray:
    """The nearest non-negative vector of sum 1."""
    falling = np.sort(shares)[::-1]
    excess = (np.cumsum(falling) - 1) / np.arange(1, len(shares) + 1)
    last = np.flatnonzero(falling > excess)[-1]
    return np.maximum(shares - excess[last], 0.0)
