"""Standard errors of the mean of several fits on disjoint parts of the records."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.stats import t

from privopt.inference.coefficients import USUAL, Linear, normal_quantile, through


@dataclass(frozen=True, eq=False)
class Parts:
    """Mean of k independent fits, one a line, and Student's interval of k - 1 degrees of freedom.

    Records are dealt by fair coins, so parts are samples of the same kind and the fits independent
    and alike, their noise included: the interval is one for their common expectation, whatever the
    solver. Sampling and noise cannot be told apart.
    """

    fits: np.ndarray
    reported: Linear | None = None
    kind: str = "parts"
    conditional: bool = False

    def mapped(self, matrix: np.ndarray, shift: np.ndarray) -> Parts:
        done = through(self.reported, self.fits.shape[1])
        return replace(self, reported=done.then(matrix, shift))

    @cached_property
    def _found(self) -> np.ndarray:
        report = through(self.reported, self.fits.shape[1])
        return self.fits @ report.matrix.T + report.shift

    @property
    def identified(self) -> np.ndarray:
        return np.ones(self._found.shape[1], dtype=bool)

    @property
    def value(self) -> np.ndarray:
        return self._found.mean(axis=0)

    @property
    def std_err(self) -> np.ndarray:
        return self._found.std(axis=0, ddof=1) / math.sqrt(len(self._found))

    @property
    def std_err_sampling(self) -> None:
        return None

    def interval(self, level: float = USUAL) -> np.ndarray:
        normal_quantile(level)  # refuses what is no level
        half = float(t.ppf(0.5 + level / 2, len(self._found) - 1)) * self.std_err
        return np.column_stack([self.value - half, self.value + half])

    def p_values(self) -> np.ndarray:
        return 2 * t.sf(np.abs(self.value) / self.std_err, len(self._found) - 1)
