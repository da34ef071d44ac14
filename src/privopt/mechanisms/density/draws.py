"""Draws of an integer whose chances are known to a few units in the last place, and stay so.

A choice among weights goes down a tree of their sums, one coin for each level. A coin compares two
sums exactly, as integers, with 128 random bits, so a rare outcome is as accurate as a frequent one:
the error is a factor on each chance. ``docs/proofs/density-draws.md`` derives the two constants.
"""

from __future__ import annotations

import math

import numpy as np

from privopt.noise import Source
from privopt.privacy.events import Numerics

CELLS = 1 << 40
"""Cells that an interval is cut into."""
DEEPEST = 128.0
"""A log weight so far below the largest one counts as none."""
LOG_RATIO = 2.0**-42
"""Bound on |log(chance / chance of the law)|."""
DISTANCE = 2.0**-100
"""Bound on the mass that is left out and on what finite coins miss."""
NUMERICS = Numerics(LOG_RATIO, DISTANCE)


def coin(source: Source, left: float, right: float) -> bool:
    """Heads with chance left / (left + right), exactly but for 2^-128."""
    high, low = source.noise.integers(0, 2**64, 2, dtype=np.uint64).tolist()
    (a, i), (b, j) = left.as_integer_ratio(), right.as_integer_ratio()
    ours, theirs = a * j, b * i
    return ((high << 64) | low) * (ours + theirs) < ours << 128


def pick(source: Source, weights: np.ndarray) -> int:
    """An index with chance proportional to its weight; weights are not negative, one is not 0."""
    levels = [weights]
    while len(levels[-1]) > 1:
        last = levels[-1]
        if len(last) % 2:
            last = levels[-1] = np.append(last, 0.0)
        levels.append(last[::2] + last[1::2])
    index = 0
    for level in reversed(levels[:-1]):
        index = 2 * index
        index += not coin(source, float(level[index]), float(level[index + 1]))
    return index


def geometric(source: Source, rate: float, count: int) -> int:
    """One of 0 .. count-1 with chances proportional to exp(-rate i), rate >= 0."""
    if rate == 0.0:
        return int(source.noise.integers(0, count))
    start = 0
    while count > 1:
        half = count // 2
        left = -math.expm1(-rate * half)
        right = math.exp(-rate * half) * -math.expm1(-rate * (count - half))
        if coin(source, left, right):
            count = half
        else:
            start, count = start + half, count - half
    return start


def weights_of(depths: np.ndarray) -> np.ndarray:
    """exp(-depth), nothing beyond ``DEEPEST``."""
    return np.where(depths <= DEEPEST, np.exp(-np.minimum(depths, DEEPEST)), 0.0)


def cell_of(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """The edge between cells of [low, high] next to each value: a function of the value alone."""
    share = (np.clip(values, low, high) - low) / (high - low)
    return np.clip(np.rint(share * CELLS), 0, CELLS).astype(np.int64)


def middle_of(cell: int, low: float, high: float) -> float:
    """The middle of a cell: a function of its number."""
    return min(max(low + (cell + 0.5) / CELLS * (high - low), low), high)
