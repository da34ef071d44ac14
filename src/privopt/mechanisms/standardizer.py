"""Private standardisation: a few noisy sums that make any later solver see well-scaled rows.

Released: a histogram of row norms, whose quantile bounds the rows; the sums of features and of
their squares. What follows from them (centre, scale, clip) is post-processing, and so is the map.
Diagonal scaling needs only 2p noisy numbers, so it survives a small epsilon.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from privopt.mechanisms.gate import Gate
from privopt.mechanisms.on_grid import gaussian_noise, laplace_noise, norm_gamma_noise
from privopt.oracle import Moments, NormHistogram, Oracle, RowMap

BINS = 64
SMALLEST_NORM = 0.01


@dataclass(frozen=True, slots=True)
class Standardizer:
    """Learn, privately, how to centre, scale and clip rows with entries in [-1, 1].

    Parameters
    ----------
    n : int
        Public number of records.
    noise : {"gaussian", "pure"}
    norm_multiplier, moment_multiplier : float
        Noise of the two releases in units of their sensitivity.
    quantile : float, default=0.9
        Rows are bounded at this quantile of their norms while moments are taken.
    column : float, default=2.0
        Height of the constant column beside features of about unit variance.
    clip : float, default=0.8
        Mapped rows are clipped to this multiple of their root mean square.
    discrete_noise : bool, default=False
        Sums and noise in exact integers.
    """

    n: int
    noise: Literal["gaussian", "pure"]
    norm_multiplier: float
    moment_multiplier: float
    quantile: float = 0.9
    column: float = 2.0
    clip: float = 0.8
    discrete_noise: bool = False

    def run(self, oracle: Oracle, gate: Gate) -> RowMap:
        """Two releases through the gate, then the public map they lead to."""
        return self.learn(oracle, gate)[0]

    def learn(self, oracle: Oracle, gate: Gate) -> tuple[RowMap, float]:
        """The map, and the standard deviation of the noise in each of its centres."""
        features = oracle.dimension - (oracle.bounds.intercept != 0)
        edges = norm_edges(features)
        pure = self.noise == "pure"
        histogram = NormHistogram(tuple(edges.tolist()), "l1" if pure else "l2")
        counting = (laplace_noise if pure else gaussian_noise)(
            self.norm_multiplier, self.discrete_noise
        )
        sealed = oracle.everything().ask(histogram, resolution=counting.resolution)
        spread = (
            self.norm_multiplier * float(sealed.sensitivity.radius) * (math.sqrt(2) if pure else 1)
        )
        counts = gate.release(counting, sealed)
        bound = norm_bound(edges, counts, self.quantile, self.n, spread)

        # ||x * x|| <= ||x||^2, and <= ||x|| because entries lie in [-1, 1].
        moments = Moments(bound, min(bound, bound**2))
        adding = (
            norm_gamma_noise(self.moment_multiplier, 2 * features, self.discrete_noise)
            if pure
            else gaussian_noise(self.moment_multiplier, self.discrete_noise)
        )
        sealed = oracle.everything().ask(moments, resolution=adding.resolution)
        movement = float(sealed.sensitivity.radius)
        sums = gate.release(adding, sealed)
        spread = self.moment_multiplier * movement * (math.sqrt(2 * features + 1) if pure else 1.0)
        found = map_from(sums, moments, spread, self.n, column=self.column, clip=self.clip)
        return found, spread * bound / self.n


def norm_edges(features: int) -> np.ndarray:
    """Bins of row norms, for entries in [-1, 1]."""
    return np.geomspace(SMALLEST_NORM, 1.0, BINS) * math.sqrt(features)


def map_from(
    sums: np.ndarray,
    moments: Moments,
    spread: float,
    n: float,
    *,
    column: float,
    clip: float,
    floor: float = 0.0,
) -> RowMap:
    """Centre, scale and clip, from noisy moments of n records; ``spread`` is the standard deviation
    of their noise. A column counts as no narrower than ``floor``."""
    features = len(sums) // 2
    mean = np.clip(sums[:features] * moments.first / n, -1.0, 1.0)
    square = sums[features:] * moments.second / n
    variance = np.maximum(square - mean**2, 0.0)
    noise = spread * moments.second / n
    # A column whose variance drowns in noise is shrunk, not blown up.
    known = variance + noise + floor**2
    size = np.sum(np.maximum(variance, noise / 2) / known) + column**2
    return RowMap(mean, 1 / np.sqrt(known), column, clip * math.sqrt(float(size)))


def norm_bound(
    edges: np.ndarray, counts: np.ndarray, quantile: float, n: int, noise: float
) -> float:
    """The first edge below which a quantile of n records lies, by noisy counts of the bins.

    All of it is post-processing. The counts are moved to the nearest ones that are non-negative and
    add up to at most n, which removes most of the noise in empty bins. Where noise of this standard
    deviation would hide even half of the records, in the largest of all bins, the counts say
    nothing, and the largest edge is safe.
    """
    if noise * math.sqrt(2 * math.log(len(edges))) > n / 2:
        return float(edges[-1])
    enough = np.flatnonzero(np.cumsum(_at_most(counts, n)) >= quantile * n)
    return float(edges[enough[0] if len(enough) else -1])


def _at_most(counts: np.ndarray, total: float) -> np.ndarray:
    """The nearest non-negative vector whose sum is at most this: subtract a constant, cut at 0."""
    falling = np.sort(counts)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(counts) + 1)
    beyond = np.flatnonzero(falling > excess)
    return np.maximum(counts - max(float(excess[beyond[-1]]), 0.0), 0.0)
