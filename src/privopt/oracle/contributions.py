"""Sums of vectors that people make elsewhere and send: clipped as they come, added up, sealed.

Each contribution is cut to the declared length here, whatever its sender did to it, and is gone
once it is added: the sum alone is kept. On a grid it becomes integers, cut off toward zero, so that
sums are exact in any order.
"""

from __future__ import annotations

import math

import numpy as np

from privopt.oracle.counting import margin, shorten
from privopt.oracle.sealed import KEY, Sealed
from privopt.oracle.sensitivity import Sensitivity
from privopt.privacy.budget import Refused


class Contributions:
    """The sum of one step, of vectors of ``width`` numbers and of l2 norm ``sensitivity.single``
    at most.

    A vector that is not finite, or whose squares overflow, counts as zero.
    """

    def __init__(self, width: int, sensitivity: Sensitivity) -> None:
        if sensitivity.norm != "l2":
            raise Refused(f"contributions are bounded in l2, not in {sensitivity.norm}.")
        grid = sensitivity.grid
        if grid is not None and grid.coordinates != width:
            raise Refused("the grid counts other coordinates than the contributions have.")
        self._sensitivity, self._width = sensitivity, width
        self._total = np.zeros(width, dtype=float if grid is None else np.int64)

    @np.errstate(all="ignore")  # a warning that one contribution causes would tell of it
    def add(self, vector: np.ndarray) -> None:
        """Add what one person sent."""
        if vector.shape != (self._width,):
            raise ValueError(f"a contribution has {self._width} numbers.")
        vector = vector.astype(float)
        length = math.sqrt(float(vector @ vector))
        if not math.isfinite(length):
            return
        factor = float(shorten(length, float(self._sensitivity.single), self._width))
        self._total += counted(vector, factor, self._step)

    def add_counts(self, counts: np.ndarray) -> None:
        """Add whole steps of the grid that others have clipped, counted and added up: nobody
        checks here how long they are."""
        if self._sensitivity.grid is None or counts.dtype != np.int64:
            raise Refused("counts are integers, for a sum on a grid.")
        if counts.shape != (self._width,):
            raise ValueError(f"a contribution has {self._width} numbers.")
        self._total += counts

    def sealed(self) -> Sealed:
        """The sum so far, to be released once."""
        return Sealed(KEY, self._total, self._sensitivity)

    @property
    def _step(self) -> float | None:
        return None if self._sensitivity.grid is None else self._sensitivity.grid.step


def counted(vector: np.ndarray, factor: float, step: float | None) -> np.ndarray:
    """A vector times a factor, in whole steps of a grid if there is one."""
    if step is None:
        return vector * factor
    return np.trunc(vector * (factor / step)).astype(np.int64)


def counts_within(vector: np.ndarray, bound: float, most: int) -> np.ndarray:
    """Integers in proportion to a vector of norm ``bound`` at most; longer ones are cut. Their own
    norm is ``most`` at most: what a person makes who trusts nobody to clip."""
    vector = np.asarray(vector, dtype=float)
    with np.errstate(all="ignore"):
        length = math.sqrt(float(vector @ vector))
        if not math.isfinite(length):
            return np.zeros(vector.shape, dtype=np.int64)
        factor = float(shorten(length, bound, vector.size))
        return counted(vector, factor, bound / (most * (1 - margin(vector.size))))
