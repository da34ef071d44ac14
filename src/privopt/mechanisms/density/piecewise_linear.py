"""One dimension, piecewise linear losses: an exact draw from a public grid of 2^40 points.

Absolute, quantile and hinge losses have one kink per record. Kinks are rounded to the grid and
slopes to whole units, record by record, so the sum of losses is a convex function in exact integers
with a knot per record: O(n log n). ``docs/proofs/density-draws.md`` has the proof.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privopt.mechanisms.density.draws import (
    CELLS,
    DEEPEST,
    cell_of,
    geometric,
    middle_of,
    pick,
    weights_of,
)
from privopt.mechanisms.density.target import Target
from privopt.noise import Source

SLOPE_UNITS = 2.0**30
"""Units in the largest slope of one record, per cell."""
LIMB = 21
"""Bits of a limb: a limb times the number of cells stays below 2^62."""
ROUNDED = 1 - 2.0**-40


@dataclass(frozen=True, eq=False)
class Knots:
    """A convex function on the grid: ``slopes`` (units a cell) between the knots ``at``, its rise
    above its least knot (in units), and the log of the density for one unit."""

    at: np.ndarray
    slopes: np.ndarray
    rises: np.ndarray
    unit: float


def sample(target: Target, source: Source) -> np.ndarray:
    """One draw; needs one dimension, a loss with ``pieces`` and no ridge."""
    knots = counted(target)
    widths = np.diff(knots.at)
    rates = knots.unit * np.abs(knots.slopes).astype(float)
    falling = knots.slopes >= 0
    j = pick(source, masses(knots))
    step = geometric(source, float(rates[j]), int(widths[j]))
    cell = int(knots.at[j]) + step if falling[j] else int(knots.at[j + 1]) - 1 - step
    return np.array([middle_of(cell, float(target.body.low[0]), float(target.body.high[0]))])


def masses(knots: Knots) -> np.ndarray:
    """The mass of the cells between each two knots: a geometric series from its higher end."""
    widths = np.diff(knots.at).astype(float)
    steep = np.abs(knots.slopes).astype(float)
    # The cell next to a knot on its left is one step further from a least value on the right.
    rises = np.where(knots.slopes >= 0, knots.rises[:-1], knots.rises[1:] + steep)
    rate = knots.unit * steep
    flat = rate == 0.0
    safe = np.where(flat, 1.0, rate)
    series = np.where(flat, widths, np.expm1(-safe * widths) / np.expm1(-safe))
    depths = knots.unit * rises
    full = widths > 0
    top = depths[full].min()
    return np.where(full, weights_of(np.where(full, depths - top, 2 * DEEPEST)) * series, 0.0)


def counted(target: Target) -> Knots:
    """The sum of losses in exact integers. One record's function has a range of at most
    ``ROUNDED * units``, whatever its row, label and slopes are."""
    body, rises = target.body, target.rises
    low, high = float(body.low[0]), float(body.high[0])
    size = rises.rows.bounds.size
    full = rises.loss.lipschitz_in("l2", size)
    units = SLOPE_UNITS * CELLS * min(1.0, rises.span / (full * (high - low)))
    at, left, right = _records(target, low, high, full)
    # What a record's two lines span: both, or the larger one if they turn around.
    spans = np.abs(left) * at, np.abs(right) * (CELLS - at)
    span = np.where(left * right < 0, np.maximum(*spans), spans[0] + spans[1])
    shrink = np.minimum(1.0, ROUNDED * units / np.maximum(span, 1.0))
    below = np.trunc(left * shrink).astype(np.int64)
    above = np.maximum(np.trunc(right * shrink).astype(np.int64), below)
    order = np.argsort(at, kind="stable")
    knots = np.concatenate([[0], at[order], [CELLS]])
    slopes = below.sum() + np.concatenate([[0], np.cumsum((above - below)[order])])
    records = target.inverse_temperature * rises.span
    return Knots(knots, slopes, risen(slopes, np.diff(knots)), ROUNDED * records / units)


def _records(
    target: Target, low: float, high: float, full: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each record's kink as an edge of the grid, and its slopes in units."""
    slope = np.asarray(target.margins(target.body.axes[:, 0]), dtype=float)
    offset = np.asarray(target.margins(target.body.origin), dtype=float)
    pieces = target.rises.loss.pieces(np.asarray(target.labels(), dtype=float))
    assert pieces is not None
    with np.errstate(all="ignore"):
        kink, below, above = (np.asarray(part, dtype=float) for part in pieces)
        at = (kink - offset) / slope
        # A negative slope turns the margin's axis around.
        left = slope * np.where(slope > 0, below, above)
        right = slope * np.where(slope > 0, above, below)
    moving = (slope != 0.0) & ~np.isnan(at) & ~np.isnan(left) & ~np.isnan(right)
    left, right = (np.clip(part[moving] / full, -1.0, 1.0) * SLOPE_UNITS for part in (left, right))
    return cell_of(at[moving], low, high), left, right


def risen(slopes: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """sum of slopes * widths up to each knot, above its least value; exact integers in limbs."""
    mask = (1 << LIMB) - 1
    limbs = [slopes & mask, (slopes >> LIMB) & mask, slopes >> 2 * LIMB]
    least = int(np.searchsorted(slopes, 0))  # slopes rise, so values fall up to here
    sums = []
    for limb in limbs:
        total = np.concatenate([[0], np.cumsum(limb * widths)])
        sums.append(total - total[least])
    sums[1] += sums[0] >> LIMB
    sums[2] += sums[1] >> LIMB
    low, middle, high = sums[0] & mask, sums[1] & mask, sums[2]
    return low + middle * 2.0**LIMB + high * 2.0 ** (2 * LIMB)
