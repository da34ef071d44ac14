"""The softmax of several classes' scores: the loss of one record as a function of a vector."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Softmax:
    """log sum_k exp(z_k + margin [k != y]) - z_y, for scores z_1, ..., z_K and a class y.

    Without a margin it is the multinomial logistic loss. With one it is a smoothed hinge: the score
    of the record's class has to lead all others by about the margin.

    Parameters
    ----------
    classes : int
        K, public; labels are 0, ..., K - 1.
    margin : float, default=0.0
    """

    classes: int
    margin: float = 0.0

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise ValueError(f"a softmax is for two classes or more, got {self.classes}.")
        if not 0 <= self.margin < math.inf:
            raise ValueError(f"margin must be non-negative and finite, got {self.margin!r}.")

    @property
    def cap(self) -> float:
        """Length of the residual where all scores are equal, all that a small epsilon can see.

        There q_y = 1 / (1 + (K - 1) e^margin), the others share the rest, and
        ||q - e_y||^2 = (1 - q_y)^2 (1 + 1/(K - 1)). Without a margin: 1 - 1/K.
        """
        others = (self.classes - 1) * math.exp(self.margin)
        return others / (1 + others) * math.sqrt(self.classes / (self.classes - 1))

    def residuals(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """The gradient q - e_y in the scores, one line per record, computed line by line."""
        place = np.arange(len(scores))
        z = scores + self.margin
        z[place, labels] -= self.margin
        z -= z.max(axis=1, keepdims=True)
        np.exp(z, out=z)
        z /= z.sum(axis=1, keepdims=True)
        z[place, labels] -= 1.0
        return z

    def value(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """The loss of each record."""
        place = np.arange(len(scores))
        z = scores + self.margin
        z[place, labels] -= self.margin
        top = z.max(axis=1)
        return top + np.log(np.exp(z - top[:, None]).sum(axis=1)) - scores[place, labels]
