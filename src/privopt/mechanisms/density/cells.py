"""Up to four dimensions, any convex potential: adaptive rejection in cells of a box.

In each cell the tangent plane at one of its points lies below the potential, so its exponential, a
product of truncated exponentials, lies above the density: mass and draws are closed forms. Where
the plane falls towards the outside of the body, its least value on the body is the better bound. A
rejected point splits its cell along the coordinate that lost most. Exact for every history of
rejections; a body inside the box is met by rejecting what lies outside.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from privopt.mechanisms.density.segments import log_mean_exp, position
from privopt.mechanisms.density.target import Target, checked
from privopt.noise import Source

BATCH = 64
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
    if not target.body.round or target.dimension == 1:
        return _sample(target, source)
    # At the edge of a ball the density is a thin layer: cells along its normal fit it.
    frame = _frame(target)
    point = _sample(replace(target, body=target.body.turned(frame)), source)
    return target.body.centre + frame @ point


def _frame(target: Target) -> np.ndarray:
    """An orthogonal frame whose first column points to where the potential pushes in the end."""
    body = target.body
    at = body.centre
    for _ in range(20):
        slope = target.gradient(at)
        length = float(np.linalg.norm(slope))
        if length == 0:
            break
        at = at / 2 + (body.centre - body.radius / length * slope) / 2
    columns = np.column_stack([at - body.centre, np.eye(target.dimension)])
    return np.linalg.qr(columns)[0]


def _sample(target: Target, source: Source) -> np.ndarray:
    body = target.body
    cells = _tangent(target, body.low[None], body.high[None])
    masses = cells.log_masses()
    while True:
        # Few cells mean a coarse envelope: then a few trials suffice to see where to cut.
        count = min(max(len(masses) // 4, 2), BATCH)
        weights = np.cumsum(np.exp(masses - masses.max()))
        picks = np.searchsorted(weights, weights[-1] * source.noise.random(count), side="right")
        picks = np.minimum(picks, len(masses) - 1)
        chosen = cells.take(picks)
        widths = chosen.high - chosen.low
        share = position(source.noise.random(widths.shape), chosen.slope * widths)
        points = chosen.low + share * widths
        inside = body.inside(points)
        # Accepting uses one coin per trial, whatever became of the others.
        coins = np.log1p(-source.noise.random(count))
        heights = -target.potentials(points)
        log_acceptance = np.where(inside, heights - chosen.tops(points), -np.inf)
        accepted = np.flatnonzero(coins <= checked(log_acceptance, target.rounding))
        if len(accepted):
            return points[accepted[0]]
        cells, masses = _split(target, cells, masses, picks, points, heights, inside)


def _tangent(target: Target, low: np.ndarray, high: np.ndarray) -> Cells:
    point = low / 2 + high / 2
    return _plane(target, low, high, point, -target.potentials(point), -target.slopes(point))


def _plane(
    target: Target,
    low: np.ndarray,
    high: np.ndarray,
    point: np.ndarray,
    height: np.ndarray,
    slope: np.ndarray,
) -> Cells:
    plane = Cells(low, high, point, height, slope)
    most = plane.height + target.body.supports(slope) - np.sum(slope * point, axis=1)
    return _smaller(plane, Cells(low, high, point, most, np.zeros_like(slope)))


def _smaller(one: Cells, other: Cells) -> Cells:
    """In each cell the plane with the smaller mass."""
    first = one.log_masses() <= other.log_masses()
    return Cells(
        one.low,
        one.high,
        np.where(first[:, None], one.point, other.point),
        np.where(first, one.height, other.height),
        np.where(first[:, None], one.slope, other.slope),
    )


def _split(
    target: Target,
    cells: Cells,
    masses: np.ndarray,
    picks: np.ndarray,
    points: np.ndarray,
    heights: np.ndarray,
    inside: np.ndarray,
) -> tuple[Cells, np.ndarray]:
    """Halve each cell that held a rejected point."""
    index, first = np.unique(picks, return_index=True)
    parents = cells.take(index)
    where = points[first]
    # What a cut along a coordinate can gain: the plane's wrong slope along it, times the side; for
    # a point outside the body, how much the potential changes along the side.
    widths = parents.high - parents.low
    slope = -target.slopes(where)
    wrong = slope - np.where(inside[first][:, None], parents.slope, 0.0)
    lost = np.abs(wrong) * widths
    sides = widths / (target.body.high - target.body.low)
    axis = np.where(lost.max(axis=1) < 0.1, sides.argmax(axis=1), lost.argmax(axis=1))
    rows, middle = np.arange(len(index)), parents.low / 2 + parents.high / 2
    low, high = parents.low.copy(), parents.high.copy()
    high[rows, axis] = middle[rows, axis]
    low[rows, axis] = middle[rows, axis]
    low, high = np.concatenate([parents.low, low]), np.concatenate([high, parents.high])
    alive = target.body.meets(low, high)
    owner = np.concatenate([rows, rows])[alive]
    old = parents.take(owner)
    old.low, old.high = low[alive], high[alive]
    # The rejected point brings a plane of its own; the parent's may still be the better one.
    own = (where[owner], heights[first][owner], slope[owner])
    new = _smaller(_plane(target, old.low, old.high, *own), old)
    new = _smaller(_tangent(target, old.low, old.high), new)
    keep = np.setdiff1d(np.arange(len(masses)), index)
    return (
        cells.take(keep).joined(new),
        np.concatenate([masses[keep], new.log_masses()]),
    )
