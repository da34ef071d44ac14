"""Bassily, Smith and Thakurta's sampler: a lazy Metropolis walk on a grid of a cube.

The domain C lies in a cube; outside C the density is bent down by the gauge of C. The walk runs for
as many steps as its conductance bound asks, so that each point's probability is within a factor
exp(+-epsilon_2) of the target's; walks that end outside C are repeated. In practice enumeration of
the same grid is faster wherever the walk is feasible: kept as a reference.

References
----------
Bassily, Smith and Thakurta (2014), FOCS, section III; Applegate and Kannan (1991), STOC.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from privopt.geometry import Box, Domain, L1Ball, L2Ball
from privopt.losses import Loss
from privopt.mechanisms.density import Target, body_of
from privopt.mechanisms.density.mode import mode
from privopt.mechanisms.standard import Coins, of_point
from privopt.noise import Source
from privopt.noise.source import volume
from privopt.oracle.objective import Objective
from privopt.oracle.sensitivity import Sensitivity, SensitivityNorm
from privopt.oracle.values import loss_range
from privopt.privacy.budget import Refused
from privopt.privacy.kinds import Kind, Pure

MIXING_SHARE = 0.05
"""epsilon_2 as a share of epsilon; the exponent gets the rest, 1 - 4 MIXING_SHARE."""
MOST_POINTS = 200_000


@dataclass(frozen=True)
class WalkConstants:
    """Public constants of a walk: exponent, penalty, grid and number of steps."""

    inverse_temperature: float
    penalty: float
    spacing: float
    side: int
    steps: float

    @classmethod
    def planned(
        cls, loss: Loss, size: float, domain: Domain, n: int, p: int, records: int, epsilon: float
    ) -> WalkConstants:
        """Constants for n records whose rows are at most ``size`` long.

        With a = k n L rho the penalty 2 (a + p) leaves at least half of the mass in C. The log
        density has Lipschitz constant G = k n L + penalty / r; spacing 1 / (G sqrt(p)) gives
        conductance at least spacing / (2 e p side), a spectral gap of at least half its square, and
        relative error eta after log(1 / (smallest probability * eta)) / gap steps.
        """
        inner, outer, cube = _sizes(domain, p)
        error = 1 - math.exp(-MIXING_SHARE * epsilon)
        steep = n * loss.lipschitz_in("l2", size)
        k = (1 - 4 * MIXING_SHARE) * epsilon / (records * loss_range(loss, size, domain, p))
        penalty = 2 * (k * steep * outer + p)
        lipschitz = k * steep + penalty / inner
        side = math.ceil(cube * lipschitz * math.sqrt(p))
        spacing = cube / side
        conductance = spacing / (2 * math.e * p * cube)
        smallest = p * math.log(side) + lipschitz * cube * math.sqrt(p)
        steps = 2 / conductance**2 * (smallest + math.log(1 / error))
        return cls(k, penalty, spacing, side, math.ceil(steps))


def _sizes(domain: Domain, p: int) -> tuple[float, float, float]:
    """Radius of a ball inside, largest distance from the centre, side of a cube outside."""
    if isinstance(domain, L2Ball):
        return domain.size, domain.size, 2 * domain.size
    if isinstance(domain, L1Ball):
        return domain.size / math.sqrt(p), domain.size, 2 * domain.size
    if isinstance(domain, Box):
        half = body_of(domain, p).high / 2 - body_of(domain, p).low / 2
        if len(half) == p:
            return float(half.min()), float(np.linalg.norm(half)), 2 * float(half.max())
    raise Refused(f"grid_walk knows no cube around {type(domain).__name__}: use L2Ball or Box.")


@dataclass(frozen=True, slots=True)
class GridWalk:
    """Release the end of the walk.

    Parameters
    ----------
    multiplier : float
        1 / epsilon of the release.
    domain : Domain
        L2Ball, L1Ball or a Box with sides of positive length.
    n : int
        Public number of records: the mixing bound is for at most as many.

    Formal guarantee
    ----------------
    epsilon-DP with epsilon = epsilon_1 + 4 epsilon_2: epsilon_1 from the exponent, epsilon_2 the
    log-distance of the walk from its target (twice for the point, twice for conditioning on C).
    Rests on the mixing bound above, and on the loss being convex (the isoperimetric inequality).
    """

    multiplier: float
    domain: Domain
    n: int
    accepts: SensitivityNorm = "function"

    def __post_init__(self) -> None:
        if not 0 < self.multiplier < math.inf:
            raise ValueError(f"multiplier must be positive and finite, got {self.multiplier!r}.")
        if self.n < 1:
            raise ValueError(f"n must be a positive number of records, got {self.n!r}.")

    def kinds(self, sensitivity: Sensitivity) -> tuple[Kind, ...]:
        facts = sensitivity.facts
        if facts is None or not facts.convex or not 0 < facts.lipschitz < math.inf:
            raise Refused("grid_walk needs a convex Lipschitz loss.")
        if not sensitivity.sampling.full:
            raise Refused("grid_walk is accounted for all records, not a sample.")
        return (Pure(1 / self.multiplier),)

    def run(self, payload: Objective, sensitivity: Sensitivity, source: Source) -> np.ndarray:
        if payload.rows.count > self.n:
            raise Refused("grid_walk was planned for fewer records than there are.")
        walk, target = self.prepared(payload, sensitivity)
        if volume(source) == 0:
            return target.body.thetas(mode(target)[None])[0]
        grid, heights = self.density(walk, target)
        inside = target.body.inside(grid)
        levels = heights.tolist()
        while True:
            end = _walk(levels, walk, target.dimension, source)
            if inside[end]:
                return target.body.thetas(grid[end][None])[0]

    def standard_noise(
        self,
        payload: Objective,
        result: np.ndarray,
        sensitivity: Sensitivity,
        kind: Kind,
        coins: Coins,
    ) -> np.ndarray:
        """The place of the end among all points inside. The walk is within epsilon_2 of that law:
        too near to be told from it by an audit."""
        assert isinstance(kind, Pure)
        walk, target = replace(self, multiplier=1 / kind.epsilon).prepared(payload, sensitivity)
        points, heights = self.density(walk, target)
        inside = target.body.inside(points)
        points, heights = points[inside], heights[inside]
        chosen = int(np.argmin(np.sum((target.body.thetas(points) - result) ** 2, axis=1)))
        return of_point(np.exp(heights - heights.max()), points, chosen, coins)

    def log_weights(
        self, payload: Objective, sensitivity: Sensitivity, points: np.ndarray
    ) -> np.ndarray:
        return -self.prepared(payload, sensitivity)[1].depths(points)

    def landmarks(self, payload: Objective, sensitivity: Sensitivity) -> np.ndarray:
        return body_of(self.domain, payload.dimension).landmarks()

    def prepared(
        self, payload: Objective, sensitivity: Sensitivity
    ) -> tuple[WalkConstants, Target]:
        p, bounds = payload.dimension, payload.rows.bounds
        records = round(sensitivity.radius / sensitivity.single)
        walk = WalkConstants.planned(
            payload.loss, bounds.size, self.domain, self.n, p, records, 1 / self.multiplier
        )
        body = body_of(self.domain, p)
        return walk, Target(payload, body, walk.inverse_temperature, 0.0, np.zeros(p))

    def density(self, walk: WalkConstants, target: Target) -> tuple[np.ndarray, np.ndarray]:
        """The grid and the log of the unnormalised target on it."""
        p, body = target.dimension, target.body
        middle = (np.arange(walk.side) + 0.5 - walk.side / 2) * walk.spacing
        grid = np.stack(np.meshgrid(*[middle] * p, indexing="ij"), axis=-1).reshape(-1, p)
        grid = grid + body.centre
        gauge = np.array([self.domain.gauge(theta) for theta in body.thetas(grid)])
        return grid, -target.depths(grid) - walk.penalty * np.maximum(gauge - 1, 0.0)


def _walk(levels: list[float], walk: WalkConstants, p: int, source: Source) -> int:
    """Where a lazy Metropolis walk from the middle of the grid ends."""
    side, left = walk.side, int(walk.steps)
    strides = [side ** (p - 1 - j) for j in range(p)]
    at = sum(side // 2 * stride for stride in strides)
    while left > 0:
        count = min(left, 1 << 16)
        left -= count
        # Each of the 2p neighbours with probability 1/(4p); otherwise stay.
        picks = source.noise.integers(0, 4 * p, count)
        coins = np.log1p(-source.noise.random(count))
        moving = np.flatnonzero(picks < 2 * p)
        for pick, coin in zip(picks[moving].tolist(), coins[moving].tolist(), strict=True):
            stride = strides[pick >> 1]
            place = at // stride % side
            if pick & 1:
                there = at + stride if place + 1 < side else at
            else:
                there = at - stride if place > 0 else at
            if coin <= levels[there] - levels[at]:
                at = there
    return at
