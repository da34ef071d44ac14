r"""Random allocation: each record in exactly one of T batches, uniformly random and secret, with
Gaussian noise on the sum of each ("balls and bins").

**The pair.** Let one record move a batch by at most mu standard deviations of its noise, and let Q
be the law of s of the T releases (all of them, or those so far) without the record, P with it.
Given where all others are, which the record does not change, the ratio of P to Q is

    R = (1/T) (T - s + sum_{t <= s} X_t),   X_t = exp(<g_t, y_t> - |g_t|^2 / 2),

in units of the noise, where g_t, the record's gradient at step t, |g_t| <= mu, may depend on all
that was released before. Under Q and given that past, <g_t, y_t> ~ N(0, |g_t|^2): X_t is lognormal
with mean 1, and in convex order it grows with |g_t|. So for convex f, going from the last step to
the first, E_Q f(R) is largest if all |g_t| = mu, where the X_t are independent: replace X_s given
the past, see that the result is a convex function of the sum of the others, and go on. Every delta,
in both directions (record there or not first), is E_Q f(R) of a convex f: (r - e^eps)_+ and
(1 - e^eps r)_+. The pair of ratio R with independent X_t therefore dominates every adaptive run,
under zero_out and add_remove; batches of noise-free averages over others' places are mixtures,
which convexity covers. (Chua et al., 2024, have this pair; it is sharp for g_t orthogonal.) Passes
of records whose places are drawn anew compose. Under replace_one this says nothing.

**The numbers.** The loss is log R, one number, and R needs the law of a sum of lognormals. It is
found by doubling, on geometric grids: wherever a value v falls between two grid points, its mass is
spread over them so that mass and mean stay, which makes the law larger in convex order. A value
beyond the grid is spread over 0 and infinity. The result is again the ratio of a pair, larger in
convex order than the true one, so by Blackwell's theorem it dominates the true pair, and so do
compositions: no figure is below the truth. The spread adds less than 1e-2 of the variance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtr

from privopt.privacy.budget import Neighbouring, replaces
from privopt.privacy.kinds import Kind, gaussian_distribution

FINE = 0.04
"""Step of a grid in standard deviations of the logarithm of what is on it."""
REACH = 9.5
"""Standard deviations of the noise that the grid of one batch covers."""
LOST = 1e-17
"""Share of the mean that the top of a grid may give away."""


@dataclass(frozen=True)
class Ratios:
    """Values of a sum of ratios with their masses under Q; ``infinite`` of its mean lies beyond
    all values, where Q has no mass."""

    values: np.ndarray  # ascending; the first is 0
    masses: np.ndarray
    infinite: float


@dataclass(frozen=True, slots=True)
class AllocatedGaussian(Kind):
    """``turns`` successive batches, each record in exactly one of them, uniformly random; ``taken``
    of them released with Gaussian noise. Not under replace_one.

    ``mu`` is one record's own sensitivity in standard deviations.
    """

    name: ClassVar[str] = "allocated_gaussian"
    turns: int
    taken: int
    mu: float

    def __post_init__(self) -> None:
        if not 1 <= self.taken <= self.turns:
            raise ValueError(f"{self.taken} of {self.turns} batches cannot have been released.")
        if not 0 < self.mu < math.inf:
            raise ValueError(f"mu must be positive and finite, got {self.mu!r}.")

    def distribution(self, step: float, neighbouring: Neighbouring) -> Any | None:
        if replaces(neighbouring):
            return None
        if self.turns == 1:
            return gaussian_distribution(self.mu, step)
        return allocated_distribution(self.turns, self.taken, self.mu, step)

    def strength(self) -> float:
        return self.mu


def allocated_distribution(turns: int, taken: int, mu: float, step: float) -> Any:
    """Losses of a record in one of ``turns`` batches, ``taken`` of which were released."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    found = _summed(taken, mu)
    ratio = (found.values + (turns - taken)) / turns
    p, infinite = ratio * found.masses, found.infinite / turns
    there = ratio > 0
    loss = np.log(ratio[there])
    present = _on_grid(loss, p[there], found.masses[there], infinite, step)
    never = float(found.masses[~there].sum())
    absent = _on_grid(-loss[::-1], found.masses[there][::-1], p[there][::-1], never, step)
    return pld.PrivacyLossDistribution(present, absent)


@lru_cache(maxsize=256)
def _summed(count: int, mu: float) -> Ratios:
    """A law that is larger in convex order than that of a sum of independent lognormals of mean 1
    and logarithmic deviation mu."""
    if count == 1:
        return _one(mu)
    half = _summed(count // 2, mu)
    both = _added(half, half, count - count % 2, mu)
    return both if count % 2 == 0 else _added(both, _one(mu), count, mu)


def _one(mu: float) -> Ratios:
    log = np.arange(-math.ceil(REACH / FINE), math.ceil(REACH / FINE) + 1) * FINE * mu
    z = (log + mu**2 / 2) / mu
    q, p = _between(z), _between(z - mu)  # the mean of an interval is its mass under N(mu, 1)
    ends = np.exp(log)
    upper = np.clip((p[1:-1] - ends[:-1] * q[1:-1]) / np.diff(ends), 0.0, q[1:-1])
    masses = np.zeros(len(ends) + 1)
    masses[1:-1] += q[1:-1] - upper
    masses[2:] += upper
    first = min(p[0] / ends[0], q[0])  # below the grid: between 0 and its first point
    masses[:2] += q[0] - first, first
    masses[0] += q[-1]  # above it: 0 and infinity
    return Ratios(np.append(0.0, ends), masses, float(p[-1]))


def _between(z: np.ndarray) -> np.ndarray:
    """Normal mass below all points, between successive ones, and above, from the nearer tail."""
    low, high = np.append(-np.inf, z), np.append(z, np.inf)
    flip = low > 0
    return ndtr(np.where(flip, -low, high)) - ndtr(np.where(flip, -high, low))


def _added(one: Ratios, other: Ratios, count: int, mu: float) -> Ratios:
    """Sums of two, on a grid that suits their size."""
    infinite = one.infinite + other.infinite
    deviation = math.sqrt(math.expm1(mu**2) / count)
    values = np.add.outer(one.values, other.values).ravel()
    masses = np.multiply.outer(one.masses, other.masses).ravel()
    kept = masses > 0
    values, masses = values[kept], masses[kept]
    order = np.argsort(values)
    values, masses = values[order], masses[order]
    means = values * masses
    above = np.cumsum(means[::-1])[::-1]
    below = np.cumsum(masses)
    low = values[min(np.searchsorted(below, LOST), len(values) - 1)]
    high = values[max(np.searchsorted(-above, -LOST * count) - 1, 0)]
    fine = FINE * min(mu, math.sqrt(math.log1p(deviation**2)))
    start = math.log(max(low, values[values > 0][0]))
    size = max(2, math.ceil((math.log(max(high, 1e-300)) - start) / fine) + 1)
    ends = np.exp(start + fine * np.arange(size))
    grid = np.append(0.0, ends)
    beyond = values > grid[-1]
    infinite += float(means[beyond].sum())
    place = np.clip(np.searchsorted(grid, values[~beyond], side="right") - 1, 0, size - 1)
    share = (values[~beyond] - grid[place]) / (grid[place + 1] - grid[place])
    up = np.clip(share, 0.0, 1.0) * masses[~beyond]
    found = np.bincount(place + 1, up, size + 1)
    found += np.bincount(place, masses[~beyond] - up, size + 1)
    found[0] += float(masses[beyond].sum())
    return Ratios(grid, found, infinite)


def _on_grid(loss: np.ndarray, p: np.ndarray, q: np.ndarray, infinite: float, step: float) -> Any:
    """Atoms of mass p and q = p e^-loss moved to the two grid points around each, so that both
    masses stay; ``infinite`` of p has no q."""
    from dp_accounting.pld import pld_pmf

    place = np.floor(loss / step).astype(np.int64)
    first, last = int(place.min()), int(place.max()) + 1
    # p = a + b and q = a e^(-l) + b e^(-l - step), l the lower grid point.
    with np.errstate(over="ignore", invalid="ignore"):
        upper = (p - np.exp(place * step) * q) / -math.expm1(-step)
    upper = np.clip(np.where(np.isfinite(upper), upper, p), 0.0, p)
    mass = np.bincount(place - first, p - upper, last - first + 1)
    mass += np.bincount(place - first + 1, upper, last - first + 1)
    rest = max(1.0 - float(mass.sum()), infinite)  # rounding counts as lost
    tiny = mass < 1e-40
    rest += float(mass[tiny].sum())
    mass[tiny] = 0.0
    return pld_pmf.DensePLDPmf(step, first, mass, rest, pessimistic_estimate=True)
