"""Up to four dimensions, any convex potential: adaptive rejection in cells of a box.

In each cell the tangent plane at one of its points lies below the potential, so its exponential, a
product of truncated exponentials, lies above the density: mass and draws are closed forms. A
rejected point splits its cell along the coordinate that lost most. Exact for every history of
rejections; a body inside the box is met by rejecting what lies outside.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privopt.mechanisms.density.segments import log_mean_exp, position
from privopt.mechanisms.density.target import Target, checked
from privopt.noise import Source

BATCH = 32
MOST_DIMENSION = 4


@dataclass(eq=False)
class Cells:
    """Boxes with a plane each: the log density at x is at most height + <slope, x - point>."""

    low: np.ndarray
    high: np.ndarray
    point: np.ndarray
    height: np.ndarray
    slope: np.ndarray

    def log_masses(self) -> np.ndarray:
        widths = self.high - self.low
        corner = self.height + np.sum(self.slope * (self.low - self.point), axis=1)
        return corner + np.sum(np.log(widths) + log_mean_exp(self.slope * widths), axis=1)

    def take(self, index: np.ndarray) -> Cells:
        return Cells(*(part[index] for part in self._parts()))

    def joined(self, other: Cells) -> Cells:
        pairs = zip(self._parts(), other._parts(), strict=True)
        return Cells(*(np.concatenate(pair) for pair in pairs))

    def tops(self, points: np.ndarray) -> np.ndarray:
        return self.height + np.sum(self.slope * (points - self.point), axis=1)

    def _parts(self) -> tuple[np.ndarray, ...]:
        return self.low, self.high, self.point, self.height, self.slope


def sample(target: Target, source: Source) -> np.ndarray:
    """One draw; needs a convex potential."""
    body = target.body
    cells = _tangent(target, body.low[None], body.high[None])
    masses = cells.log_masses()
    while True:
        weights = np.cumsum(np.exp(masses - masses.max()))
        picks = np.searchsorted(weights, weights[-1] * source.noise.random(BATCH), side="right")
        picks = np.minimum(picks, len(masses) - 1)
        chosen = cells.take(picks)
        widths = chosen.high - chosen.low
        share = position(source.noise.random(widths.shape), chosen.slope * widths)
        points = chosen.low + share * widths
        inside = body.inside(points)
        # Accepting uses one coin per trial, whatever became of the others.
        coins = np.log1p(-source.noise.random(BATCH))
        heights = np.full(BATCH, -np.inf)
        heights[inside] = -target.potentials(points[inside]) if inside.any() else 0.0
        log_acceptance = checked(heights - chosen.tops(points))
        accepted = np.flatnonzero(coins <= log_acceptance)
        if len(accepted):
            return points[accepted[0]]
        cells, masses = _split(target, cells, masses, picks, points, inside)


def _tangent(target: Target, low: np.ndarray, high: np.ndarray) -> Cells:
    point = low / 2 + high / 2
    return Cells(low, high, point, -target.potentials(point), -target.slopes(point))


def _split(
    target: Target,
    cells: Cells,
    masses: np.ndarray,
    picks: np.ndarray,
    points: np.ndarray,
    inside: np.ndarray,
) -> tuple[Cells, np.ndarray]:
    """Halve each cell that held a rejected point."""
    index, first = np.unique(picks, return_index=True)
    parents = cells.take(index)
    where = points[first]
    # What a cut along a coordinate can gain: the plane's wrong slope along it, times the side.
    lost = np.abs((-target.slopes(where) - parents.slope) * (parents.high - parents.low))
    sides = (parents.high - parents.low) / (target.body.high - target.body.low)
    # A point outside the body says nothing about curvature: cut the longest side.
    flat = ~inside[first] | (lost.sum(axis=1) <= 0)
    axis = np.where(flat, sides.argmax(axis=1), lost.argmax(axis=1))
    rows, middle = np.arange(len(index)), parents.low / 2 + parents.high / 2
    low, high = parents.low.copy(), parents.high.copy()
    high[rows, axis] = middle[rows, axis]
    low[rows, axis] = middle[rows, axis]
    low, high = np.concatenate([parents.low, low]), np.concatenate([high, parents.high])
    # A half too thin for floating point keeps its parent's plane and is never cut again.
    twice = np.concatenate([np.arange(len(index))] * 2)
    old = parents.take(twice)
    old = Cells(low, high, old.point, old.height, old.slope)
    alive = _meets(target, low, high)
    old = old.take(np.flatnonzero(alive))
    new = _tangent(target, old.low, old.high)
    old_masses, new_masses = old.log_masses(), new.log_masses()
    better = new_masses <= old_masses
    for name in ("point", "height", "slope"):
        ours, theirs = getattr(new, name), getattr(old, name)
        shape = better if ours.ndim == 1 else better[:, None]
        setattr(new, name, np.where(shape, ours, theirs))
    keep = np.setdiff1d(np.arange(len(masses)), index)
    return (
        cells.take(keep).joined(new),
        np.concatenate([masses[keep], np.minimum(old_masses, new_masses)]),
    )


def _meets(target: Target, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Whether a cell may hold a point of the body, by its ball alone."""
    nearest = np.clip(target.body.centre, low, high)
    gap = np.sum((nearest - target.body.centre) ** 2, axis=1)
    return gap <= target.body.radius**2 * (1 + 1e-9)
