"""Sums of vectors that people make elsewhere and send: clipped as they come, added up, sealed.

Each contribution is cut to the declared length here, whatever its sender did to it, and is gone
once it is added: the sum alone is kept. On a grid it becomes integers, cut off toward zero, so that
sums are exact in any order.
"""

from __future__ import annotations

import math

import numpy as np

from privopt.oracle.counting import EXACT, margin, shorten
from privopt.oracle.sealed import KEY, Sealed
from privopt.oracle.sensitivity import Sensitivity
from privopt.privacy.budget import Refused

PIECE = 1 << 15


class Contributions:
    """The sum of one step, of vectors of ``width`` numbers and of l2 norm ``sensitivity.single``
    at most.

    A vector that is not finite, or whose squares overflow, counts as zero.
    """

    def __init__(self, width: int, sensitivity: Sensitivity) -> None:
        self._sealed = False
        if sensitivity.norm != "l2":
            raise Refused(f"contributions are bounded in l2, not in {sensitivity.norm}.")
        grid = sensitivity.grid
        if grid is not None and grid.coordinates != width:
            raise Refused("the grid counts other coordinates than the contributions have.")
        self._sensitivity, self._width = sensitivity, width
        self._recent, self._piece = np.zeros(width), np.empty(min(width, PIECE))
        self._total = None if grid is None else np.zeros(width, dtype=np.int64)
        self._room = self._most = math.inf  # how many may be added up before floats are not exact
        if grid is not None:
            self._room = self._most = math.floor(EXACT * grid.step / float(sensitivity.single))

    @np.errstate(all="ignore")  # a warning that one contribution causes would tell of it
    def add(self, vector: np.ndarray, unit: float = 1.0) -> None:
        """Add what one person sent, in units of so much."""
        if vector.shape != (self._width,):
            raise ValueError(f"a contribution has {self._width} numbers.")
        squared = 0.0
        for start in range(0, self._width, PIECE):
            part = self._double(vector[start : start + PIECE])
            squared += float(np.einsum("i,i->", part, part))  # no threads for so little
        length = math.sqrt(squared) if squared >= 0 else math.nan
        if not math.isfinite(length):
            return
        factor = float(shorten(length, float(self._sensitivity.single) * unit, self._width)) / unit
        if self._step is not None:
            factor /= self._step
            self._make_room()
        for start in range(0, self._width, PIECE):
            part = self._double(vector[start : start + PIECE])
            part *= factor
            total = self._recent[start : start + PIECE]
            total += part if self._step is None else np.trunc(part, out=part)

    def _double(self, part: np.ndarray) -> np.ndarray:
        """A piece in double precision, where the processor has it at hand; gone with the next."""
        piece = self._piece[: len(part)]
        np.copyto(piece, part)
        return piece

    def _make_room(self) -> None:
        """Sums of integers in double precision are exact up to ``EXACT``."""
        if self._room < 1:
            self._flush()
        self._room -= 1

    def _flush(self) -> None:
        assert self._total is not None
        self._total += self._recent.astype(np.int64)
        self._recent[:], self._room = 0.0, self._most

    def add_counts(self, counts: np.ndarray) -> None:
        """Add whole steps of the grid that others have clipped, counted and added up: nobody
        checks here how long they are."""
        if self._sensitivity.grid is None or counts.dtype != np.int64:
            raise Refused("counts are integers, for a sum on a grid.")
        if counts.shape != (self._width,):
            raise ValueError(f"a contribution has {self._width} numbers.")
        assert self._total is not None
        self._total += counts

    def sealed(self) -> Sealed:
        """The sum so far, to be released once."""
        if self._sealed:
            raise Refused("a sum of contributions is released once.")
        self._sealed = True
        if self._total is None:
            return Sealed(KEY, self._recent, self._sensitivity)
        self._flush()
        return Sealed(KEY, self._total, self._sensitivity)

    @property
    def _step(self) -> float | None:
        return None if self._sensitivity.grid is None else self._sensitivity.grid.step


def counts_within(vector: np.ndarray, bound: float, most: int) -> np.ndarray:
    """Integers in proportion to a vector of norm ``bound`` at most; longer ones are cut. Their own
    norm is ``most`` at most: what a person makes who trusts nobody to clip."""
    vector = np.asarray(vector, dtype=float)
    with np.errstate(all="ignore"):
        length = math.sqrt(float(vector @ vector))
        if not math.isfinite(length):
            return np.zeros(vector.shape, dtype=np.int64)
        factor = float(shorten(length, bound, vector.size))
        return np.trunc(vector * (factor * most * (1 - margin(vector.size)) / bound)).astype(
            np.int64
        )
