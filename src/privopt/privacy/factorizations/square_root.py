"""The square root of prefix sums: C = B = A^(1/2), c(x) = (1-x)^(-1/2).

c_j = c_(j-1) (2j-1)/(2j) = 1, 1/2, 3/8, ... is positive and decreasing. sens^2 = max ||B_t||^2 is
(ln n + 0.5772 + 4 ln 2)/pi: the smallest maximal error of all Toeplitz encoders for a single pass
(Fichtenberger, Henzinger and Upadhyay, 2023; Henzinger and Upadhyay, 2025).

It keeps the noise of every earlier step: use banded or BLT noise for long streams.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from privopt.privacy.factorizations.factorization import NoiseStream
from privopt.privacy.factorizations.toeplitz import Ring, Toeplitz


@dataclass(frozen=True)
class SquareRoot(Toeplitz):
    """The square-root factorization."""

    name: ClassVar[str] = "sqrt_toeplitz"

    def column(self) -> np.ndarray:
        return power_series(0.5, self.steps)

    def row_norms(self) -> np.ndarray:
        return np.sqrt(np.cumsum(self.column() ** 2))

    def vectors_kept(self) -> int:
        return self.steps - 1

    def stream(self) -> NoiseStream:
        return Ring(self.column())


@lru_cache(maxsize=16)
def power_series(exponent: float, length: int) -> np.ndarray:
    """First coefficients of (1-x)^(-exponent)."""
    j = np.arange(1, length)
    column = np.concatenate([[1.0], np.cumprod((j - 1 + exponent) / j)])
    column.flags.writeable = False
    return column
