"""A question as part of a longer vector, in units in which every such question has one bound.

A stream asks vectors of one length and one movement. Questions of different kinds take turns in it:
each has its own place, and zeros stand where the others would.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from privopt.oracle.queries import CountableQuery
from privopt.oracle.sensitivity import SensitivityNorm


@dataclass(frozen=True, slots=True)
class Embedded:
    """``question`` over ``unit``, at ``offset`` in a vector of ``length``.

    A record contributes at most 1, and two records differ by at most 2: ``unit`` is the larger of
    the question's radius and half its diameter. Zeros move nothing.
    """

    question: CountableQuery
    offset: int
    length: int
    norm: SensitivityNorm = "l2"

    def __post_init__(self) -> None:
        if self.question.norm != self.norm:
            raise ValueError("parts of a vector bounded in l2 are bounded in l2.")

    @property
    def unit(self) -> float:
        return max(float(self.question.radius()), float(self.question.diameter()) / 2)

    def radius(self) -> float:
        return 1.0

    def diameter(self) -> float:
        return 2.0

    def total(self, rows: Any, at: np.ndarray) -> np.ndarray:
        return self._placed(self.question.total(rows, at) / self.unit)

    def count(self, rows: Any, at: np.ndarray, step: float) -> np.ndarray:
        """Integers of the question itself, on a grid ``unit`` times as wide: so many of its steps
        make up its bound as steps of this one make up 1."""
        return self._placed(self.question.count(rows, at, step * self.unit))

    def _placed(self, part: np.ndarray) -> np.ndarray:
        whole = np.zeros(self.length, dtype=part.dtype)
        whole[self.offset : self.offset + len(part)] = part
        return whole
