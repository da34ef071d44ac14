"""Whether standardised noise is what it must be: independent standard normal numbers.

The energy of noise says nothing of its shape: one number added to every entry has the right energy,
and so has noise on the diagonal alone, or noise that returns in a later release. Each mechanism
turns its noise into numbers z that are independent and standard normal if it follows its event
(``mechanisms.standard``). For every fixed unit vector u the sum of <u, z>^2 over N releases is then
chi-square with N degrees of freedom, exactly; so is the sum of |sum_t a_t z_t|^2 over runs, with a
unit vector a over releases, which takes all coordinates at once. Directions are random, drawn anew
for each audit by its seed, besides a few that are likely to go wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy import stats
from scipy.special import chdtr, chdtrc, ndtr

from privopt.noise import Generator

MOST_COORDINATES = 64
"""Single coordinates that are looked at; all of them enter the other directions."""
RANDOM = 8
"""Random directions over coordinates, and over releases."""
LAGS = 6
"""Distances of two releases of one run."""
KEPT = 20_000
"""Numbers whose distribution is compared with the normal one."""


def scale_p_values(noise: list[np.ndarray], generator: Generator) -> list[float]:
    """Two-sided p-values of the scale and of the whole law of the noise of one group of releases,
    all sizes together: energy, mean, and the largest distance of the distribution functions."""
    z = np.concatenate([np.ravel(one) for one in noise]) if noise else np.zeros(0)
    if z.size == 0:
        return []
    mean = abs(float(z.sum())) / math.sqrt(z.size)
    some = z if z.size <= KEPT else generator.choice(z, KEPT, replace=False)
    law = stats.kstest(ndtr(some), "uniform").pvalue
    return [_p_value(z), 2 * float(ndtr(-mean)), float(law)]


def shape_p_values(runs: list[list[np.ndarray]], generator: Generator) -> list[float]:
    """One two-sided p-value for each direction; ``runs`` holds each run's noise, release by
    release, all of one size. Exact: no false alarm beyond the number of directions times the level.
    """
    runs = [run for run in runs if run]
    found = [_p_value(part) for part in _over_coordinates(runs, generator)]
    return found + [_p_value(part) for part in _over_releases(runs, generator)]


def _over_coordinates(runs: list[list[np.ndarray]], generator: Generator) -> Iterator[np.ndarray]:
    """Projections of each release on the same directions."""
    z = np.array([np.ravel(one) for run in runs for one in run])
    p = z.shape[1] if z.ndim == 2 else 0
    if p == 0:
        return
    some = np.arange(p)
    if p > MOST_COORDINATES:
        some = generator.choice(p, MOST_COORDINATES, replace=False)
    yield from z.T[some]
    if p > 1:
        yield z.sum(axis=1) / math.sqrt(p)
        yield z @ np.where(np.arange(p) % 2, -1.0, 1.0) / math.sqrt(p)
        for _ in range(RANDOM):
            yield z @ _unit(p, generator)


def _over_releases(runs: list[list[np.ndarray]], generator: Generator) -> Iterator[np.ndarray]:
    """Combinations of releases, all coordinates of each: of one run and of two."""
    stacked = [np.array([np.ravel(one) for one in run]) for run in runs]
    most = max((len(run) for run in stacked), default=0)
    lags = np.unique(np.append(1, generator.integers(1, max(most, 2), LAGS))) if most > 1 else []
    for lag in lags:
        # A release may be in a sum and a difference with the one before and the one after it, but
        # not in one statistic: two turns take all pairs.
        for turn in (0, 1):
            one, other = [], []
            for run in stacked:
                first = np.flatnonzero(np.arange(len(run)) // lag % 2 == turn)
                first = first[first + lag < len(run)]
                one.append(run[first])
                other.append(run[first + lag])
            yield from _of_two(np.concatenate(one), np.concatenate(other))
    if most > 1:
        for way in [np.ones(most), *(_unit(most, generator) for _ in range(RANDOM))]:
            # Runs of fewer releases take the beginning of the direction.
            parts = [
                way[: len(run)] @ run / math.sqrt(way[: len(run)] @ way[: len(run)])
                for run in stacked
            ]
            yield np.concatenate(parts)
    shuffled = [stacked[i] for i in generator.permutation(len(stacked))]
    for order in (stacked, shuffled):
        for turn in (0, 1):
            pairs = list(zip(order[turn::2], order[turn + 1 :: 2], strict=False))
            if pairs:
                cut = [min(len(a), len(b)) for a, b in pairs]
                one = np.concatenate([a[:n] for (a, _), n in zip(pairs, cut, strict=True)])
                other = np.concatenate([b[:n] for (_, b), n in zip(pairs, cut, strict=True)])
                yield from _of_two(one, other)


def _of_two(one: np.ndarray, other: np.ndarray) -> Iterator[np.ndarray]:
    if one.size:
        yield (one + other) / math.sqrt(2)
        yield (one - other) / math.sqrt(2)


def _unit(dimension: int, generator: Generator) -> np.ndarray:
    way = generator.standard_normal(dimension)
    return way / np.linalg.norm(way)


def _p_value(numbers: np.ndarray) -> float:
    """Of a sum of squares; normal numbers may be too large and too small together."""
    total = float(np.sum(np.square(numbers)))
    low, high = chdtr(numbers.size, total), chdtrc(numbers.size, total)
    return float(min(1.0, 2 * min(low, high)))
