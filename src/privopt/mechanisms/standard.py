"""What a release's noise was, in numbers that must be independent standard normal ones.

Each mechanism that adds or draws something says so of itself (``mechanism.Described``), with the
scale that the event declares and not with its own. An audit then tests one law for all of them.
What is drawn and not added, a choice or a point, is turned into a normal number by its
distribution function, with a coin inside a jump: exact for every law.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import gammainc, gammaincc, gammainccinv, gammaincinv, ndtri

from privopt.noise import SeededSource
from privopt.privacy.kinds import Concentrated, GaussianKind, Kind, ObjectiveGaussian, Pure

SMALLEST = 1e-300


class Coins:
    """An audit's coins, for places inside the jumps of a law."""

    def __init__(self, seed: int) -> None:
        self._coins = SeededSource(seed).noise

    def toss(self) -> float:
        return float(self._coins.random())


def of_gaussian(noise: np.ndarray, radius: float, kind: Kind) -> np.ndarray:
    """Gaussian noise of standard deviation radius / mu."""
    assert isinstance(kind, (GaussianKind, ObjectiveGaussian))
    return np.ravel(noise) * (kind.mu / radius)


def of_norm(noise: np.ndarray, scale: float, order: float, kind: Kind) -> np.ndarray:
    """Noise x whose law depends on ||x||_r / scale alone: density exp(-||x||_r / scale) where
    ``kind`` is pure, exp(-||x||_r^2 / (2 scale^2)) where it is concentrated.

    With ||x||_r of a known law and a direction from the cone measure, x s / ||x||_r has independent
    coordinates of density exp(-|x|^r) if s^r is Gamma(p/r).
    """
    assert isinstance(kind, (Pure, Concentrated))
    unit = np.ravel(noise) / scale
    p, length = unit.size, float(np.linalg.norm(unit, order))
    if length == 0:
        return np.zeros(p)
    at = (p, length) if isinstance(kind, Pure) else (p / 2, length**2 / 2)
    low, high = gammainc(*at), gammaincc(*at)
    inverse, place = (gammaincinv, low) if low < high else (gammainccinv, high)
    s = inverse(p / order, max(place, SMALLEST)) ** (1 / order)
    x = np.abs(unit / length * s)
    upper = gammaincc(1 / order, x**order) / 2
    return -np.sign(unit) * ndtri(np.maximum(upper, SMALLEST))


def of_pure(noise: np.ndarray, radius: float, order: float, kind: Kind) -> np.ndarray:
    """Noise of an l_r norm with scale radius / epsilon."""
    assert isinstance(kind, Pure)
    return of_norm(noise, radius / kind.epsilon, order, kind)


def of_place(below: float, chance: float, coins: Coins) -> np.ndarray:
    """A draw with so much chance below it, and so much of its own."""
    u = below + coins.toss() * chance
    upper = 1 - u if u < 1 else SMALLEST
    z = ndtri(max(u, SMALLEST)) if u < 0.5 else -ndtri(max(upper, SMALLEST))
    return np.array([float(z)])


def of_choice(chances: np.ndarray, ranks: np.ndarray, chosen: int, coins: Coins) -> np.ndarray:
    """A choice with these chances, in the order of ``ranks``, equal ones as they come."""
    order = np.argsort(ranks, kind="stable")
    place = int(np.flatnonzero(order == chosen)[0])
    share = chances[order] / chances.sum()
    return of_place(float(share[:place].sum()), float(share[place]), coins)


def places_on_lines(
    log_density: Callable[[np.ndarray], np.ndarray],
    inside: Callable[[np.ndarray], np.ndarray],
    point: np.ndarray,
    longest: float,
    coins: Coins,
) -> np.ndarray:
    """A draw from a density on a convex set, a number for each of the set's axes.

    Given a line through the draw, its place on that line has a known law. The draw then moves to a
    fresh place on the line, which is a draw as well and tells nothing of the first place; so the
    places on lines along one axis after the other are independent.
    """
    found = []
    for way in np.eye(point.size):
        low, high = (sign * _reach(inside, point, sign * way, longest) for sign in (-1.0, 1.0))
        at = mass = np.zeros(0)
        for _ in range(2):  # once over the whole line, once where nearly all of the mass is
            at = np.linspace(low, high, 129)
            heights = log_density(point + at[:, None] * way)
            mass = np.exp(heights - heights.max())
            there = np.flatnonzero(mass > 1e-9)
            low, high = at[max(there[0] - 1, 0)], at[min(there[-1] + 1, at.size - 1)]
        sums = np.concatenate([[0.0], np.cumsum((mass[1:] + mass[:-1]) / 2)])
        found.append(of_place(float(np.interp(0.0, at, sums / sums[-1])), 0.0, coins))
        point = point + float(np.interp(coins.toss(), sums / sums[-1], at)) * way
    return np.concatenate([np.zeros(0), *found])


def of_point(chances: np.ndarray, points: np.ndarray, chosen: int, coins: Coins) -> np.ndarray:
    """A point of a grid: its first coordinate, its second given the first, and so on."""
    found, left = [np.zeros(0)], np.arange(len(points))
    for values in points.T:
        here, mine = values[left], values[chosen]
        below = float(chances[left[here < mine]].sum())
        same = left[here == mine]
        total = float(chances[left].sum())
        found.append(of_place(below / total, float(chances[same].sum()) / total, coins))
        left = same
    return np.concatenate(found)


def _reach(
    inside: Callable[[np.ndarray], np.ndarray], point: np.ndarray, way: np.ndarray, longest: float
) -> float:
    """How far the set goes from a point."""
    low, high = 0.0, longest
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if inside((point + middle * way)[None])[0] else (low, middle)
    return low
