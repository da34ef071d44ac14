"""Questions about records of several classes: how many of each, and the gradient of all scores."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from privopt.losses import Softmax
from privopt.oracle.counting import margin
from privopt.oracle.queries import Query
from privopt.oracle.rows import ClassRows
from privopt.oracle.sensitivity import SensitivityNorm
from privopt.privacy.budget import Refused

FINE = 2.0**34
"""Steps that make up a record's bound in sums that no noise asks to be coarser."""


class MatrixQuery(Query, Protocol):
    """A question at one vector for each class."""

    @property
    def classes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class ClassCounts:
    """How many records each class has. Labels are 0, ..., K - 1; an empty record counts nowhere.

    One record is in one class: it moves the counts by 1; replacing it moves two of them by 1 each.
    A record with a weight counts as much of 1 as that.
    """

    classes: int
    norm: SensitivityNorm = "l2"

    def radius(self) -> float:
        return 1.0

    def diameter(self) -> float:
        return math.sqrt(2) if self.norm == "l2" else 2.0

    def total(self, rows: ClassRows, at: np.ndarray) -> np.ndarray:
        return rows.class_counts(self.classes)

    def count(self, rows: ClassRows, at: np.ndarray, step: float) -> np.ndarray:
        steps = int((1 - margin(1)) / step)
        return np.rint(rows.class_counts(self.classes, steps)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class ClassGradient:
    """Sum of the records' gradients of a softmax in the matrix of all classes' coefficients.

    A record's gradient is its residual times its row, so its Frobenius norm is the product of their
    lengths, and it is clipped to ``clip_norm``. Where a residual is longer than
    ``clip_norm`` / ||row||, the clip makes the sum no gradient of any function; privacy rests on
    the clip alone.
    """

    loss: Softmax
    clip_norm: float
    norm: SensitivityNorm = "l2"

    def __post_init__(self) -> None:
        if not 0 < self.clip_norm < math.inf:
            raise ValueError(f"clip_norm must be positive and finite, got {self.clip_norm!r}.")

    @property
    def classes(self) -> int:
        return self.loss.classes

    def radius(self) -> float:
        return self.clip_norm

    def diameter(self) -> float:
        return 2 * self.clip_norm

    def total(self, rows: ClassRows, at: np.ndarray) -> np.ndarray:
        step = self.clip_norm / FINE
        return self.count(rows, at, step) * step

    def count(self, rows: ClassRows, at: np.ndarray, step: float) -> np.ndarray:
        if not math.isfinite(rows.bounds.size):
            raise Refused("a gradient of all classes is counted for rows of bounded length.")
        return rows.outer_counts(at, self.loss.residuals, self.clip_norm, step).ravel()
