"""One dimension, any convex potential: adaptive rejection under tangents.

The tangents' minimum lies above the concave log density and is piecewise linear, so it can be drawn
from exactly; a rejected point adds its own tangent. Exact, whatever the history of rejections.

Reference: Gilks and Wild (1992), Applied Statistics 41.
"""

from __future__ import annotations

import numpy as np

from privopt.mechanisms.density.segments import draw
from privopt.mechanisms.density.target import Target, checked
from privopt.noise import Source


def sample(target: Target, source: Source) -> np.ndarray:
    """One draw; needs one dimension and a convex potential."""
    low, high = float(target.body.low[0]), float(target.body.high[0])
    at = np.linspace(low, high, 9)
    heights = -target.potentials(at[:, None])
    slopes = -target.slopes(at[:, None])[:, 0]
    while True:
        knots, tops = hull(at, heights, slopes, low, high)
        point = draw(source, knots, tops)
        found = np.array([[point]])
        height = -float(target.potentials(found)[0])
        excess = np.array(height - np.interp(point, knots, tops))
        log_acceptance = checked(excess, target.rounding)
        if np.log1p(-source.noise.random()) <= log_acceptance:
            return found[0]
        j = int(np.searchsorted(at, point))
        at = np.insert(at, j, point)
        heights = np.insert(heights, j, height)
        slopes = np.insert(slopes, j, -float(target.slopes(found)[0, 0]))


def hull(
    at: np.ndarray, heights: np.ndarray, slopes: np.ndarray, low: float, high: float
) -> tuple[np.ndarray, np.ndarray]:
    """Knots and heights of the tangents' minimum on [low, high]."""
    gap, turn = np.diff(at), slopes[:-1] - slopes[1:]
    rise = np.diff(heights) - slopes[1:] * gap
    # Where two tangents coincide any point between serves.
    with np.errstate(divide="ignore", invalid="ignore"):
        ahead = np.where(turn > 0, rise / np.where(turn > 0, turn, 1.0), gap / 2)
    meet = at[:-1] + np.clip(ahead, 0.0, gap)
    knots = np.concatenate([[low], meet, [high]])
    tops = np.append(
        heights + slopes * (knots[:-1] - at), heights[-1] + slopes[-1] * (high - at[-1])
    )
    # At a meeting point both tangents are right; the higher one is safe against rounding.
    tops[1:-1] = np.maximum(tops[1:-1], heights[:-1] + slopes[:-1] * (meet - at[:-1]))
    return knots, tops
