"""Coefficients with standard errors, whatever they were computed from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np
from scipy.special import ndtri

USUAL = 0.95
"""The level that a standard error is quoted at: it is so much of that interval's half."""
LONGEST, LONGEST_SQUARES = 3.0, 2.0
"""Length of all slopes per standard deviation of their columns that is taken for granted where some
are not identified; of squares, in deviations of the target."""


class Coefficients(Protocol):
    """Released coefficients, the constant last, with what is known of their errors.

    ``std_err_sampling``: of having only so many records; None if it cannot be told from noise.
    ``identified``: for each, False where noise leaves nothing to say; its interval is then the
    whole line. ``conditional``: whether other intervals rest on a bound that is taken for granted.
    """

    @property
    def value(self) -> np.ndarray: ...
    @property
    def std_err(self) -> np.ndarray: ...
    @property
    def std_err_sampling(self) -> np.ndarray | None: ...
    @property
    def identified(self) -> np.ndarray: ...
    @property
    def conditional(self) -> bool: ...
    @property
    def kind(self) -> str: ...
    def interval(self, level: float) -> np.ndarray: ...
    def p_values(self) -> np.ndarray: ...
    def mapped(self, matrix: np.ndarray, shift: np.ndarray) -> Self: ...


@dataclass(frozen=True, eq=False)
class Linear:
    """theta -> matrix theta + shift: from the parameters that were fitted to those reported."""

    matrix: np.ndarray
    shift: np.ndarray

    def then(self, matrix: np.ndarray, shift: np.ndarray) -> Linear:
        return replace(self, matrix=matrix @ self.matrix, shift=matrix @ self.shift + shift)

    def __call__(self, theta: np.ndarray) -> np.ndarray:
        return self.matrix @ theta + self.shift


def through(theta: Linear | None, q: int) -> Linear:
    """The given map, or the identity."""
    return Linear(np.eye(q), np.zeros(q)) if theta is None else theta


def normal_quantile(level: float) -> float:
    """z of a two-sided interval."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, for example 0.95; got {level!r}.")
    return float(ndtri(0.5 + level / 2))
