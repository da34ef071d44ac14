"""The whole empirical loss as a function of theta, for mechanisms that need it (never a solver)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from privopt.losses import Loss, bounded_slope
from privopt.oracle.enclosure import HEIGHT, Enclosed, Enclosing, add_up
from privopt.oracle.rows import RowBounds, Rows
from privopt.oracle.sensitivity import FunctionFacts

AT_ONCE = 64


def function_facts(
    loss: Loss, bounds: RowBounds, dimension: int, in_place: bool = False
) -> FunctionFacts:
    """Constants of one record's loss that clipped rows and the loss itself enforce."""
    return FunctionFacts(
        lipschitz=loss.lipschitz_in("l2", bounds.size),
        smoothness=loss.smoothness_in("l2", bounds.size),
        rank=1,
        subspace=1,
        convex=loss.convex,
        one_signed=loss.one_signed,
        dimension=dimension,
        in_place=in_place,
    )


@dataclass(frozen=True, slots=True)
class Objective:
    """Sum of the records' losses with its derivatives. A sealed payload."""

    rows: Rows
    loss: Loss

    @property
    def dimension(self) -> int:
        return self.rows.dimension

    @property
    def count(self) -> int:
        return self.rows.count

    def part(self, start: int, stop: int) -> Objective:
        """The loss of some consecutive records."""
        return Objective(self.rows.part(start, stop), self.loss)

    def value(self, theta: np.ndarray) -> float:
        return self.rows.total(theta, lambda z, y, size: self.loss.value(z, y))

    def values(self, thetas: np.ndarray) -> np.ndarray:
        """The value at each row of ``thetas``."""

        def weigh(z: Any, y: Any, size: Any) -> Any:
            return self.loss.value(z, y)

        return np.concatenate([self.rows.totals(part, weigh) for part in _parts(thetas)])

    def gradients(self, thetas: np.ndarray) -> np.ndarray:
        """The gradient at each row of ``thetas``."""

        def weigh(z: Any, y: Any, size: Any) -> Any:
            return bounded_slope(self.loss, z, y)

        return np.concatenate([self.rows.weighted_sums(part, weigh) for part in _parts(thetas)])

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        return self.rows.weighted_sum(theta, lambda z, y, size: bounded_slope(self.loss, z, y))

    def enclosed(self, head: np.ndarray, tail: np.ndarray) -> Enclosed:
        """The gradient at head + tail, with an evaluated bound on its error in l2."""
        size = self.rows.bounds.size * (1 + 1e-9)
        enclosing = Enclosing(self.loss, head, tail, size)

        def enclosed_block(X: Any, y: Any, sizes: Any, weights: Any = None) -> Any:
            return enclosing.block(X, y, weights)

        parts = self.rows.effective(enclosed_block, HEIGHT)
        return add_up(parts, self.dimension)

    def hessian(self, theta: np.ndarray) -> np.ndarray:
        return self.rows.weighted_gram(theta, lambda z, y, size: self.loss.curvature(z, y))

    def rough_hessian(self, theta: np.ndarray, share: float) -> np.ndarray:
        """The Hessian estimated from a share of the records, in pieces spread over the data."""
        pieces = 16
        width = int(self.count * share / pieces)
        starts = [self.count * i // pieces for i in range(pieces)]
        total = np.zeros((self.dimension, self.dimension))
        for start in starts:
            total += self.part(start, start + width).hessian(theta)
        return total * (self.count / (pieces * width))

    def curvatures(self, theta: np.ndarray) -> Any:
        return self.rows.weights(theta, lambda z, y, size: self.loss.curvature(z, y))

    def hessian_product(self, curvatures: Any, vector: np.ndarray) -> np.ndarray:
        return self.rows.weighted_product(curvatures, vector)


def _parts(thetas: np.ndarray) -> list[np.ndarray]:
    """Few points at a time: a block of margins has one column for each."""
    return [thetas[i : i + AT_ONCE] for i in range(0, max(len(thetas), 1), AT_ONCE)]
