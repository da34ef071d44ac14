"""Up to three dimensions: enumerate a public grid. Pure for any loss, convex or not.

The exponential mechanism is exact for every base measure, so a grid costs accuracy and no privacy.
"""

from __future__ import annotations

import math

import numpy as np

from privopt.mechanisms.density.body import Body
from privopt.mechanisms.density.draws import pick, weights_of
from privopt.mechanisms.density.target import Target
from privopt.noise import Source

MOST_DIMENSION = 3
MOST_POINTS = 200_000


def sides(body: Body, spacing: float) -> list[int]:
    """Number of grid points along each axis of the box."""
    return [max(1, math.ceil(width / spacing)) for width in body.high - body.low]


def points(body: Body, spacing: float) -> np.ndarray:
    """Centres of equal cells that lie in the body; its own centre if there are none."""
    axes = [
        low + (np.arange(count) + 0.5) * ((high - low) / count)
        for low, high, count in zip(body.low, body.high, sides(body, spacing), strict=True)
    ]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, body.dimension)
    grid = grid[body.inside(grid)]
    return grid if len(grid) else body.centre[None]


def sample(target: Target, source: Source, spacing: float) -> np.ndarray:
    """One point of the grid with probability proportional to exp(-potential)."""
    grid = points(target.body, spacing)
    depths = target.depths(grid)
    return grid[pick(source, weights_of(depths - depths.min()))]
