"""Banded Toeplitz noise: only the last few steps are remembered, and sampling can amplify it.

If no record comes back before C's bands have passed, its columns do not overlap and
sens^2 = k sum of c_j^2. The coefficients minimise that times the mean of Var(b_t); all of it is
smooth in them, with gradients by Fourier transforms (McKenna, 2024).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from scipy.fft import next_fast_len
from scipy.optimize import minimize

from privopt.privacy.factorizations.factorization import NoiseStream
from privopt.privacy.factorizations.square_root import power_series
from privopt.privacy.factorizations.toeplitz import Ring, Toeplitz, inverse_series
from privopt.privacy.participation import Participation

STARTS = (0.5, 0.6, 0.7, 0.8)


@dataclass(frozen=True)
class Banded(Toeplitz):
    """Toeplitz noise with few bands, coefficients c_0 > 0, c_1, ... given."""

    name: ClassVar[str] = "banded"
    coefficients: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= len(self.coefficients) <= self.steps:
            raise ValueError(f"there are between 1 and {self.steps} bands.")
        if not self.coefficients[0] > 0 or not all(map(math.isfinite, self.coefficients)):
            raise ValueError("coefficients are finite, and the first of them is positive.")

    @classmethod
    def optimised(cls, steps: int, bands: int) -> Banded:
        """Least mean error for records that return after ``bands`` steps at the earliest; columns
        of norm one."""
        return cls(steps, best_coefficients(steps, min(bands, steps)))

    @classmethod
    def square_root(cls, steps: int, bands: int) -> Banded:
        """The first bands of the square root, with columns of norm one: nothing to optimise."""
        column = power_series(0.5, min(bands, steps))
        return cls(steps, tuple((column / np.linalg.norm(column)).tolist()))

    @classmethod
    def for_rule(cls, steps: int, participation: Participation) -> Banded:
        """As many bands as the rule's separation allows."""
        rule = participation.fitted(steps)
        return cls.optimised(steps, steps if rule.times == 1 else rule.min_separation_steps)

    def column(self) -> np.ndarray:
        column = np.zeros(self.steps)
        column[: len(self.coefficients)] = self.coefficients
        return column

    def bands(self) -> int:
        return len(self.coefficients)

    def vectors_kept(self) -> int:
        return len(self.coefficients) - 1

    def stream(self) -> NoiseStream:
        return Ring(np.array(self.coefficients))


@lru_cache(maxsize=64)
def best_coefficients(steps: int, bands: int) -> tuple[float, ...]:
    """Minimise log(sum c^2) + log(mean over t of ||B_t||^2) over the coefficients, c_0 = 1."""
    if bands == 1:
        return (1.0,)
    weights = np.arange(steps, 0, -1.0) / steps
    size = next_fast_len(2 * steps, real=True)

    def objective(rest: np.ndarray) -> tuple[float, np.ndarray]:
        column = np.zeros(steps)
        column[0], column[1:bands] = 1.0, rest
        with np.errstate(all="ignore"):
            inverse = inverse_series(column)
            sums = np.cumsum(inverse)
            error = float(weights @ sums**2)
            if not math.isfinite(error) or error > 1e12:
                return 1e9, np.zeros_like(rest)  # the line search steps back
            # d b / d c_j = - x^j b(x) / c(x): a correlation with the weighted errors.
            both = np.fft.rfft(sums, size) * np.fft.rfft(inverse, size)
            product = np.fft.irfft(both, size)[:steps]
            pull = np.fft.irfft(
                np.conj(np.fft.rfft(product, size)) * np.fft.rfft(weights * sums, size), size
            )[1:bands]
        square = 1.0 + float(rest @ rest)
        value = math.log(square) + math.log(error)
        return value, 2 * rest / square - 2 * pull / error

    best: tuple[float, np.ndarray] | None = None
    for exponent in STARTS:
        start = power_series(exponent, bands)[1:]
        found = minimize(
            objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 400, "maxcor": 20}
        )
        if best is None or found.fun < best[0]:
            best = float(found.fun), found.x
    assert best is not None
    column = np.concatenate([[1.0], best[1]])
    return tuple((column / np.linalg.norm(column)).tolist())
