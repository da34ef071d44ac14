"""One dimension, piecewise linear losses: exact inversion of the distribution function.

Absolute, quantile and hinge losses have one kink per record, so the density is the exponential of a
piecewise linear function with a knot per record: O(n log n).
"""

from __future__ import annotations

import numpy as np

from privopt.mechanisms.density.segments import draw
from privopt.mechanisms.density.target import Target
from privopt.noise import Source


def sample(target: Target, source: Source) -> np.ndarray:
    """One draw; needs one dimension, a loss with ``pieces`` and no ridge."""
    return np.array([draw(source, *piecewise(target))])


def piecewise(target: Target) -> tuple[np.ndarray, np.ndarray]:
    """Knots in [low, high] and the log density at them, up to a constant."""
    body = target.body
    low, high = float(body.low[0]), float(body.high[0])
    slope = np.asarray(target.margins(body.axes[:, 0]), dtype=float)
    offset = np.asarray(target.margins(body.origin), dtype=float)
    pieces = target.objective.loss.pieces(np.asarray(target.labels(), dtype=float))
    assert pieces is not None
    moving = slope != 0.0
    slope, offset = slope[moving], offset[moving]
    kink, below, above = (part[moving] for part in pieces)
    with np.errstate(over="ignore"):
        at = np.clip((kink - offset) / slope, low, high)
    # A negative slope turns the margin's axis around.
    left = slope * np.where(slope > 0, below, above)
    right = slope * np.where(slope > 0, above, below)
    order = np.argsort(at, kind="stable")
    knots = np.concatenate([[low], at[order], [high]])
    slopes = np.sum(left) + np.concatenate([[0.0], np.cumsum((right - left)[order])])
    values = np.concatenate([[0.0], np.cumsum(slopes * np.diff(knots))])
    heights = -target.inverse_temperature * (values - values.min())
    return knots, heights
