"""Compose privacy-loss distributions, each many times, and read epsilon off the sum, quickly.

dp-accounting does both in loops that take seconds for ten thousand steps; these are the same sums
in vector form. Every approximation is on the side of more privacy spent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.fft import next_fast_len
from scipy.signal import lfilter

from privopt.privacy.profiles import ROUNDING

UNIT = 4 * float(np.finfo(float).eps)
TAIL = 1e-15
"""Mass of a composed loss that may fall outside the window; it is counted as lost."""


MOST_CELLS = 2**24
"""Cells of a sum: enough for every epsilon that protects, and a bound on memory for others."""


class TooFine(Exception):
    """The sum would span so many times the cells that it may have: a coarser grid is needed."""

    @property
    def times(self) -> float:
        return float(self.args[0])


def composed(parts: Sequence[tuple[Any, int]]) -> Any:
    """The loss of all parts, each used so many times, as a dp-accounting distribution."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    (first, times), *others = parts
    if times == 1 and not others:
        return first
    both = not all(distribution._symmetric for distribution, _ in parts)
    pmfs = [
        _sum([(getattr(one, side).to_dense_pmf(), count) for one, count in parts])
        for side in ("_pmf_remove", "_pmf_add")[: 1 + both]
    ]
    return pld.PrivacyLossDistribution(*pmfs)


def epsilon_of(distribution: Any, delta: float) -> float:
    """Smallest epsilon >= 0 at which both directions have at most delta, rounded up."""
    return max(_epsilon(pmf.to_dense_pmf(), delta) for pmf in _directions(distribution))


def _directions(distribution: Any) -> list[Any]:
    one, other = distribution._pmf_remove, distribution._pmf_add
    return [one] if distribution._symmetric else [one, other]


def _sum(parts: Sequence[tuple[Any, int]]) -> Any:
    """One convolution of all parts: their spectra, each to its power, are multiplied."""
    laws = []
    for mass, lower, times in _paired([(np.asarray(p._probs), p._lower_loss, t) for p, t in parts]):
        place = lower + np.arange(mass.size)
        laws.append((mass[mass > 0], place[mass > 0], times))
    low, high = _window(laws)
    if high - low > MOST_CELLS:
        raise TooFine((high - low) / MOST_CELLS)
    length: int = next_fast_len(int(high - low + 1), real=True)  # type: ignore[assignment]
    spectrum = np.ones(length // 2 + 1, dtype=complex)
    for mass, place, times in laws:
        # Loss 0 at index 0 keeps the angles small, and so the rounding error of a high power.
        circle = np.bincount(place % length, weights=mass, minlength=length)
        spectrum *= np.fft.rfft(circle) ** times
    kept = np.fft.irfft(spectrum, length)[np.arange(low, high + 1) % length]
    # Each use adds the rounding error of a sum that should be 1.
    uses = sum(times for _, times in parts)
    finite = sum(times * math.log1p(-pmf._infinity_mass) for pmf, times in parts)
    lost = TAIL + uses * UNIT - math.expm1(finite)
    pmf = parts[0][0]
    return type(pmf)(pmf._discretization, int(low), kept, lost, pessimistic_estimate=True)


def _paired(laws: list[Law]) -> list[Law]:
    """Short laws that are used once, convolved two by two until they are long."""
    short = [law for law in laws if law[2] == 1 and law[0].size < LONG]
    done = [law for law in laws if law[2] != 1 or law[0].size >= LONG]
    while len(short) > 1:
        next_ones = [short.pop()] if len(short) % 2 else []
        for (one, at, _), (other, there, _) in zip(short[::2], short[1::2], strict=True):
            both = np.convolve(one, other), at + there, 1
            (next_ones if both[0].size < LONG else done).append(both)
        short = next_ones
    return done + short


LONG = 1024
"""Beyond so many points a law is left to the one transform of all."""

Law = tuple[np.ndarray, Any, int]
"""Masses, their places on the grid or the first of them, and how many times."""


def _window(laws: Sequence[Law]) -> tuple[int, int]:
    """Ends between which all but TAIL of the sum lies: Chernoff bounds at a few orders."""
    square = 0.0
    for mass, place, times in laws:
        total = mass.sum()
        mean = float(mass @ place) / total
        square += float(mass @ (place - mean) ** 2) / total * times
    spread = math.sqrt(max(square, 1.0))
    needed = math.log(2 / TAIL)
    low = sum(int(place[0]) * times for _, place, times in laws)
    high = sum(int(place[-1]) * times for _, place, times in laws)
    for scale in 2.0 ** np.arange(-5, 5):
        order = scale * math.sqrt(2 * needed) / spread
        for sign in (1, -1):
            moment = sum(
                times * _log_moment(mass, sign * order * place) for mass, place, times in laws
            )
            bound = (moment + needed) / order
            if sign > 0:
                high = min(high, math.ceil(bound))
            else:
                low = max(low, math.floor(-bound))
    return low, max(high, low)


def _log_moment(mass: np.ndarray, exponents: np.ndarray) -> float:
    top = float(exponents.max())
    return top + math.log(float(mass @ np.exp(exponents - top)))


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
