"""Compose a privacy-loss distribution with itself many times, and read epsilon off it, quickly.

dp-accounting does both in loops that take seconds for ten thousand steps; these are the same sums
in vector form. Every approximation is on the side of more privacy spent.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.fft import next_fast_len
from scipy.signal import lfilter

from privopt.privacy.profiles import ROUNDING

UNIT = 4 * float(np.finfo(float).eps)
TAIL = 1e-15
"""Mass of a composed loss that may fall outside the window; it is counted as lost."""


def self_composed(distribution: Any, times: int) -> Any:
    """The loss of ``times`` adaptive uses, as a dp-accounting distribution."""
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as pld

    if times == 1:
        return distribution
    pmfs = _directions(distribution)
    if not all(isinstance(pmf, pld_pmf.DensePLDPmf) for pmf in pmfs):
        return distribution.self_compose(times)
    return pld.PrivacyLossDistribution(*(_power(pmf, times) for pmf in pmfs))


def epsilon_of(distribution: Any, delta: float) -> float:
    """Smallest epsilon >= 0 at which both directions have at most delta, rounded up."""
    return max(_epsilon(pmf.to_dense_pmf(), delta) for pmf in _directions(distribution))


def _directions(distribution: Any) -> list[Any]:
    one, other = distribution._pmf_remove, distribution._pmf_add
    return [one] if distribution._symmetric else [one, other]


def _power(pmf: Any, times: int) -> Any:
    mass = np.asarray(pmf._probs, dtype=float)
    place = pmf._lower_loss + np.arange(mass.size)
    low, high = _window(mass, place, times)
    length: int = next_fast_len(int(high - low + 1), real=True)  # type: ignore[assignment]
    # Loss 0 at index 0 keeps the angles small, and so the rounding error of a high power.
    circle = np.bincount(place % length, weights=mass, minlength=length)
    many = np.fft.irfft(np.fft.rfft(circle) ** times, length)
    kept = many[np.arange(low, high + 1) % length]
    # Each use adds the rounding error of a sum that should be 1.
    lost = TAIL + times * UNIT - math.expm1(times * math.log1p(-pmf._infinity_mass))
    return type(pmf)(pmf._discretization, int(low), kept, lost, pessimistic_estimate=True)


def _window(mass: np.ndarray, place: np.ndarray, times: int) -> tuple[int, int]:
    """Ends between which all but TAIL of the sum lies: Chernoff bounds at a few orders."""
    mass, place = mass[mass > 0], place[mass > 0]
    total = mass.sum()
    mean = float(mass @ place) / total
    spread = math.sqrt(max(float(mass @ (place - mean) ** 2) / total * times, 1.0))
    needed = math.log(2 / TAIL)
    low, high = int(place[0]) * times, int(place[-1]) * times
    for scale in 2.0 ** np.arange(-5, 5):
        order = scale * math.sqrt(2 * needed) / spread
        for sign in (1, -1):
            top = float((sign * order * place).max())
            moment = top + math.log(float(mass @ np.exp(sign * order * place - top)))
            bound = (times * moment + needed) / order
            if sign > 0:
                high = min(high, math.ceil(bound))
            else:
                low = max(low, math.floor(-bound))
    return low, max(high, low)


def _epsilon(pmf: Any, delta: float) -> float:
    step, lost = pmf._discretization, pmf._infinity_mass
    mass = np.asarray(pmf._probs, dtype=float)
    if lost > delta:
        return math.inf
    first = pmf._lower_loss
    if first > 0:
        first, mass = 0, np.concatenate([np.zeros(first), mass])
    # beyond[i]: mass above grid point i; discounted[i]: the same, times e^(loss_i - loss).
    beyond = np.concatenate([np.cumsum(mass[::-1])[::-1][1:], [0.0]])
    discounted = lfilter([0.0, math.exp(-step)], [1.0, -math.exp(-step)], mass[::-1])[::-1]
    profile = lost + beyond - discounted
    above = np.flatnonzero(profile > delta)
    last = int(above[-1]) if above.size else -1  # the answer lies just above this grid point
    if last < -first:
        return 0.0
    ahead = math.log((lost + beyond[last] - delta) / discounted[last])
    return ((first + last) * step + min(max(ahead, 0.0), step)) * (1 + ROUNDING)
