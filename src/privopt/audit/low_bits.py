"""Whether low-order bits of released numbers tell two neighbouring data sets apart.

Noise in floating point makes some doubles possible after one value and impossible after its
neighbour (Mironov, 2012). The events tried here look at nothing else: does a released number lie on
a public grid at all, and what are the low bits of its place there? A release that is an integer
times the grid's step always lies on it, with low bits that are fair coins.
"""

from __future__ import annotations

import numpy as np

from privopt.audit.bounds import epsilon_bound, rate_above, rate_below

BITS = 10


def low_bit_events(released: np.ndarray, unit: float) -> np.ndarray:
    """One row for each number, one column for each event: off the grid, and each low bit."""
    place = np.rint(released / unit)
    off = place * unit != released
    whole = np.where(np.abs(place) < 2.0**62, place, 0.0).astype(np.int64)
    bits = (whole[:, None] >> np.arange(BITS)) & 1
    return np.column_stack([off, bits.astype(bool)])


def low_bits(
    first: np.ndarray, second: np.ndarray, unit: float, *, confidence: float = 0.95
) -> float:
    """Lower bound on epsilon from low-order bits of numbers released on two neighbours.

    ``first`` and ``second`` hold one number for each of many runs; ``unit`` is the public step of
    the grid they should lie on, or for noise in floating point the last place of a value. A fifth
    of the runs chooses the event and its direction, the others are counted once.
    """
    events = [low_bit_events(np.asarray(numbers, dtype=float), unit) for numbers in (first, second)]
    pilots = [len(one) // 5 for one in events]
    tried = [one[:pilot].mean(axis=0) for one, pilot in zip(events, pilots, strict=True)]
    counts = [one[pilot:].sum(axis=0) for one, pilot in zip(events, pilots, strict=True)]
    runs = [len(one) - pilot for one, pilot in zip(events, pilots, strict=True)]
    level = (1 - confidence) / 2
    seen = [np.log((t * p + 1) / ((1 - t) * p + 1)) for t, p in zip(tried, pilots, strict=True)]
    best = int(np.argmax(np.abs(seen[0] - seen[1])))
    high = int(seen[1][best] > seen[0][best])
    true = rate_above(counts[high][best], runs[high], level)
    false = rate_below(counts[1 - high][best], runs[1 - high], level)
    return float(epsilon_bound(true, false, 0.0))
