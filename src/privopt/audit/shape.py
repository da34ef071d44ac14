"""Whether noise is spread as declared: independent over coordinates and between releases.

The energy of noise says nothing of its shape: one number added to every entry has the right energy,
and so has noise on the diagonal alone. Here the noise of each release is first turned into what
must be independent standard normal numbers z, whatever its law: coordinate by coordinate for
Laplace noise, by its length for norm-Gamma and generalized Gaussian noise. For every fixed unit
vector u the sum of <u, z>^2 over N releases is then chi-square with N degrees of freedom, exactly.
The directions are: each coordinate, all of them with equal and with alternating signs, and the sum
and the difference of two releases that follow each other, of one run and of two runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy import stats

from privopt.privacy.kinds import Concentrated, GaussianKind, Kind, ObjectiveGaussian, Pure

MOST_COORDINATES = 64
"""Single coordinates that are looked at; all of them enter the other directions."""


def as_normal(kind: Kind, unit: np.ndarray, order: float) -> np.ndarray | None:
    """Noise in units of its scale as independent standard normal numbers; None if unknown.

    ``order`` is that of the norm in which pure and concentrated noise is declared. With
    ||unit||_r of a known law and a direction from the cone measure, x = unit s / ||unit||_r has
    independent coordinates of density exp(-|x|^r) if s^r is Gamma(p/r).
    """
    unit = np.ravel(unit)
    if isinstance(kind, (GaussianKind, ObjectiveGaussian)):
        return unit
    if not isinstance(kind, (Pure, Concentrated)) or not math.isfinite(order):
        return None
    p, length = unit.size, float(np.linalg.norm(unit, order))
    if length == 0:
        return np.zeros(p)
    pure = isinstance(kind, Pure)
    place = stats.gamma(p).cdf(length) if pure else stats.chi2(p).cdf(length**2)
    x = unit / length * stats.gamma(p / order).ppf(np.clip(place, 1e-300, 1 - 1e-16)) ** (1 / order)
    upper = stats.gennorm(order).sf(np.abs(x))
    return np.sign(x) * stats.norm.isf(np.maximum(upper, 1e-300))


def shape_p_values(runs: list[list[np.ndarray]]) -> list[float]:
    """One two-sided p-value for each direction; ``runs`` holds each run's noise, release by
    release, all of one size. Exact: no false alarm beyond the number of directions times the level.
    """
    found = [_p_value(part) for part in _over_coordinates([z for run in runs for z in run])]
    following = [(a, b) for run in runs for a, b in zip(run[::2], run[1::2], strict=False)]
    apart = [(a[0], b[0]) for a, b in zip(runs[::2], runs[1::2], strict=False) if a and b]
    for pairs in (following, apart):
        if pairs:
            one, other = (np.array(side) for side in zip(*pairs, strict=True))
            found += [
                _p_value((one + other) / math.sqrt(2)),
                _p_value((one - other) / math.sqrt(2)),
            ]
    return found


def _over_coordinates(noise: list[np.ndarray]) -> Iterator[np.ndarray]:
    """Projections of each release on fixed directions."""
    z = np.array(noise)
    p = z.shape[1]
    yield from z.T[:MOST_COORDINATES]
    if p > 1:
        yield z.sum(axis=1) / math.sqrt(p)
        yield z @ np.where(np.arange(p) % 2, -1.0, 1.0) / math.sqrt(p)


def _p_value(numbers: np.ndarray) -> float:
    law, total = stats.chi2(numbers.size), float(np.sum(numbers**2))
    return float(min(1.0, 2 * min(law.cdf(total), law.sf(total))))
