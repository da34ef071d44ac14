"""Privacy profiles delta(epsilon) in closed form, and their inverses on the safe side.

Every function here rounds towards *more* privacy spent: an epsilon is never reported too small,
a mu never returned too large.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr, ndtr

# Relative slack that covers the rounding error of log_ndtr and of one subtraction.
ROUNDING = 1e-9
MAX_EPSILON = 1e8


def gaussian_delta(epsilon: float, mu: float) -> float:
    r"""Exact profile of a mu-GDP mechanism (Balle and Wang, 2018).

    delta = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), computed in logarithms so
    that it keeps its relative precision far into the tail.
    """
    if mu <= 0:
        return 0.0 if epsilon >= 0 else -math.expm1(epsilon)
    upper = float(log_ndtr(mu / 2 - epsilon / mu))
    lower = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    gap = lower - upper
    return 0.0 if gap >= 0 else math.exp(upper) * -math.expm1(gap)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Smallest epsilon with ``gaussian_delta(epsilon, mu) <= delta``, rounded up."""
    if mu <= 0:
        return 0.0
    return smallest_epsilon(lambda epsilon: gaussian_delta(epsilon, mu), delta)


@lru_cache(maxsize=1024)
def gaussian_mu(epsilon: float, delta: float) -> float:
    """Largest mu whose Gaussian profile meets (epsilon, delta), rounded down."""
    if delta <= 0:
        return 0.0
    return largest(lambda mu: gaussian_delta(epsilon, mu) * (1 + ROUNDING) <= delta, 1.0)


def smallest_epsilon(profile: Callable[[float], float], delta: float) -> float:
    """Invert a non-increasing profile delta(epsilon) on the safe side."""

    def enough(epsilon: float) -> bool:
        return profile(epsilon) * (1 + ROUNDING) <= delta

    if delta <= 0:
        return math.inf
    if enough(0.0):
        return 0.0
    high = 1.0
    while not enough(high):
        high *= 2
        if high > MAX_EPSILON:
            return math.inf
    low = 0.0 if high == 1.0 else high / 2
    return _bisect(low, high, enough)


def largest(holds: Callable[[float], bool], start: float) -> float:
    """Largest positive x for which a predicate that holds for small x holds, rounded down."""
    high = start
    while holds(high):
        high *= 2
        if high > MAX_EPSILON:
            return high
    low = high / 2
    while not holds(low):
        low /= 2
        if low < 1e-12:
            return 0.0
    return -_bisect(-2 * low, -low, lambda x: holds(-x))


def smallest_holding(surplus: Callable[[float], float], start: float, tolerance: float) -> float:
    """Smallest positive x with ``surplus(x) <= 0``, for a surplus that falls as x grows.

    Returned is a point where it holds, at most a relative ``tolerance`` above one where it fails;
    infinity if it never holds. Regula falsi in log x: surplus is about linear in it for a ratio of
    losses, so that few evaluations, each of which may be costly, are enough.
    """
    width, widest = math.log1p(tolerance), math.log(1e12)
    place = math.log(start)
    fails: tuple[float, float] | None = None
    holds: tuple[float, float] | None = None
    while fails is None or holds is None:
        value = surplus(math.exp(place))
        if value <= 0:
            holds = place, value
        else:
            fails = place, value
        if abs(place) > widest:
            break
        # Losses fall about like 1/x: jump there, and a little beyond.
        place += math.copysign(min(max(abs(value), 0.5), 3.0) + 0.05, value if value else -1.0)
    if holds is None or fails is None:
        return math.inf if holds is None else math.exp(holds[0])
    guesses = 0
    while (gap := holds[0] - fails[0]) > width:
        middle = 0.5 * (fails[0] + holds[0])
        slope = (fails[1] - holds[1]) / gap
        if guesses % 6 < 5 and 0 < slope < math.inf:  # now and then a halving, to be sure to end
            guess = holds[0] + holds[1] / slope
            # Beyond the guess on the side whose end is farther off: this brings that end near.
            guess += math.copysign(0.4 * width, middle - guess)
            middle = min(max(guess, fails[0] + 0.1 * width), holds[0] - 0.1 * width)
        guesses += 1
        value = surplus(math.exp(middle))
        if value <= 0:
            holds = middle, value
        else:
            fails = middle, value
    return math.exp(holds[0])


def _bisect(fails: float, holds: float, predicate: Callable[[float], bool]) -> float:
    """Halve the bracket down to relative 1e-12; always return a point where the predicate holds."""
    for _ in range(200):
        middle = 0.5 * (fails + holds)
        if abs(holds - fails) <= 1e-12 * abs(holds):
            break
        if predicate(middle):
            holds = middle
        else:
            fails = middle
    return holds


def renyi_epsilon(curve: Callable[[float], float], delta: float) -> float:
    """Convert a Renyi curve to epsilon at delta, with the tight conversion.

    epsilon = min over alpha > 1 of R(alpha) + log(1 - 1/alpha) - log(delta alpha) / (alpha - 1)
    (Canonne, Kamath and Steinke, 2020). Any alpha gives a valid bound, so an inexact minimiser
    only costs tightness.
    """
    if delta <= 0:
        return math.inf

    def bound(log_excess: float) -> float:
        excess = math.exp(log_excess)
        alpha = 1 + excess
        value = curve(alpha) + math.log(excess / alpha) - math.log(delta * alpha) / excess
        return value if math.isfinite(value) else MAX_EPSILON

    coarse = np.linspace(-7, 14, 85)
    best = coarse[int(np.argmin([bound(x) for x in coarse]))]
    found = minimize_scalar(bound, bounds=(best - 0.3, best + 0.3), method="bounded")
    return max(0.0, min(bound(best), bound(float(found.x))) * (1 + ROUNDING))


@lru_cache(maxsize=1024)
def concentrated_rho(epsilon: float, delta: float) -> float:
    """Largest rho for which rho-zCDP gives (epsilon, delta), rounded down."""
    if delta <= 0:
        return 0.0
    return largest(lambda rho: renyi_epsilon(lambda a: rho * a, delta) <= epsilon, 1.0)


# ---------------------------------------------------------------- objective perturbation
def truncated_tail(t: np.ndarray, mu: float) -> np.ndarray:
    """E(1 - e^(t - W))_+ for W = (mu^2/2 + mu Z)_+, Z standard normal."""
    t = np.asarray(t, dtype=float)
    positive = np.maximum(t, 0.0)
    upper = log_ndtr(mu / 2 - positive / mu)
    lower = positive + log_ndtr(-mu / 2 - positive / mu)
    above = np.exp(upper) * -np.expm1(np.minimum(lower - upper, 0.0))
    below = 1 - 2 * np.exp(np.minimum(t, 0.0)) * ndtr(-mu / 2)
    return np.where(t >= 0, above, below)


def folded_tail(t: np.ndarray, mu: float, shift: float, slope: np.ndarray | float) -> np.ndarray:
    """E(1 - e^(t - W))_+ for W = shift + slope mu |Z|, Z standard normal."""
    s = np.asarray(t, dtype=float) - shift
    k = np.maximum(np.asarray(slope, dtype=float) * mu, 1e-300)
    below = 1 - 2 * np.exp(np.minimum(s, 0.0) + k**2 / 2 + log_ndtr(-k))
    start = np.maximum(s, 0.0) / k
    near = log_ndtr(-start)
    far = np.maximum(s, 0.0) + k**2 / 2 + log_ndtr(-start - k)
    above = 2 * np.exp(near) * -np.expm1(np.minimum(far - near, 0.0))
    return np.maximum(np.where(s > 0, above, below), 0.0)


def rayleigh_tail(s: np.ndarray, scale: float) -> np.ndarray:
    """E(1 - e^(s - W))_+ for W = scale times a chi variable with two degrees of freedom."""
    s = np.asarray(s, dtype=float)
    start = np.maximum(s, 0.0) / scale
    beyond = scale * math.sqrt(2 * math.pi) * np.exp(s + scale**2 / 2 + log_ndtr(-start - scale))
    return np.where(s < 0, -np.expm1(np.minimum(s, 0.0)), 0.0) + beyond


def replace_tail(t: np.ndarray, mu: float, log_determinant: float) -> np.ndarray:
    """Replace-one profile of Gaussian objective perturbation for a generalised linear model.

    The two records project the noise on two directions; |s| + |s'| is the larger of two orthogonal
    projections of lengths 2 cos(phi) and 2 sin(phi), so a union bound gives
    max over phi of F(2 cos phi) + F(2 sin phi). F grows with its argument, so bounding each small
    interval of phi by its two outer ends makes the maximum rigorous.
    """
    t = np.atleast_1d(np.asarray(t, dtype=float))[:, None]
    angle = np.linspace(0.0, math.pi / 4, 129)
    shift = log_determinant + 2 * mu**2
    total = folded_tail(t, mu, shift, 2 * np.cos(angle[:-1])) + folded_tail(
        t, mu, shift, 2 * np.sin(angle[1:])
    )
    return np.minimum(total.max(axis=1), 1.0)


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_PANELS = np.linspace(-9.5, 9.5, 41)


def after_gaussian(
    tail: Callable[[np.ndarray], np.ndarray], epsilon: float, mu: float, kink: float
) -> float:
    """E over G of tail(epsilon - mu^2/2 - mu G): a profile composed with a mu-GDP mechanism.

    Panels of Gauss-Legendre nodes, split where the tail has its kink; what lies beyond 9.5 standard
    deviations is counted as lost.
    """
    if mu <= 0:
        return float(tail(np.array([epsilon]))[0])
    split = (epsilon - mu**2 / 2 - kink) / mu
    edges = np.unique(np.clip(np.append(_PANELS, split), -9.5, 9.5))
    half = np.diff(edges)[:, None] / 2
    g = (edges[:-1, None] + half) + half * _NODES
    density = np.exp(-(g**2) / 2) / math.sqrt(2 * math.pi)
    values = tail((epsilon - mu**2 / 2 - mu * g).ravel()).reshape(g.shape)
    return float(np.sum(half * _WEIGHTS * density * values)) + 2 * float(ndtr(-9.5))
