"""What the minimisers of this package take and give."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

UNIT = 2.0**-53
"""Rounding of one operation in double precision."""


class NotConverged(Exception):
    """A certified tolerance was not reached. The text is constant: it tells nothing of the data."""

    def __init__(self) -> None:
        super().__init__(
            "the objective was not minimised to its certified tolerance; the budget is spent and "
            "this message is itself outside the guarantee."
        )


class ConvexSet(Protocol):
    """A closed convex set, as far as a minimiser needs to know it."""

    def project(self, x: ArrayLike) -> np.ndarray: ...
    def contains(self, x: ArrayLike, tolerance: float = ...) -> bool: ...


class Enclosed(NamedTuple):
    """A vector, and how far the exact one may be from it in l2."""

    value: np.ndarray
    error: float
