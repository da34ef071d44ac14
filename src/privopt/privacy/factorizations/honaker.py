r"""Honaker's online estimator: each node's value also uses what its two children say.

W = y + (W_left + W_right)/2 with y fresh and unit variance has variance 2 - 2^-h and is an estimate
of twice-counted noise; divided by that it is the best estimate from the nodes below it (Honaker,
2015; Kairouz et al., 2021). The right child is used by nobody else, nor is its own right child, so
the fresh parts of the whole right edge enter as one Gaussian of variance sum_{i<=h} 4^-i.

Hence B is square here too. From b_t alone the nodes cannot be told apart, and the exact loss of a
record is smaller than that of the nodes: entries of C in a node of height h are
(2 - 2^-h)/s_h for the step at its end and 2 (1 - 2^(h'-h))/s_h for steps that come in through a
node of height h', with s_h^2 = (4/3)(1 - 4^-(h+1)). All are positive. Valid as long as nothing but
the running sums (or their differences) leaves the stream.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privopt.privacy.factorizations.tree import Tree


@dataclass(frozen=True)
class Honaker(Tree):
    """The binary tree with Honaker's online estimator: half the tree's variance."""

    name: ClassVar[str] = "honaker"

    def entering(self, height: np.ndarray) -> np.ndarray:
        return (2 - 2.0**-height) / _spread(height)

    def staying(self, height: np.ndarray, before: np.ndarray) -> np.ndarray:
        return 2 * (1 - 2.0 ** (before - height)) / _spread(height)

    def scale(self, height: int) -> float:
        return math.sqrt(4 / 3 * (1 - 4.0 ** -(height + 1)))

    def carried(self, height: int, before: int) -> float:
        return 2.0 ** (before - height)

    def weight(self, height: int) -> float:
        return 1 / (2 - 2.0**-height)

    def node_variance(self, height: int) -> float:
        return 1 / (2 - 2.0**-height)

    def completing_scale(self) -> float:
        """The root has variance 2 - 2^-h in all; what the steps' nodes bring into it is known."""
        root = (self.completed_steps() - 1).bit_length()
        known = sum(4.0 ** (h - root) * (2 - 2.0**-h) for h in range(root) if self.steps >> h & 1)
        return math.sqrt(2 - 2.0**-root - known)

    def completing(self, last: np.ndarray) -> np.ndarray:
        root = (self.completed_steps() - 1).bit_length()
        return 2 * (1 - 2.0 ** (last - root)) / self.completing_scale()


def _spread(height: np.ndarray) -> np.ndarray:
    return np.sqrt(4 / 3 * (1 - 4.0 ** -(height + 1.0)))
