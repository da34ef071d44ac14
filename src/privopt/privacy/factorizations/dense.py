"""Dense encoders, for reference and small streams: n x n numbers, and every earlier noise is kept.

Only X = C'C matters for privacy and for the best decoder. The lower triangular encoder with a given
X is the Cholesky factor of X reversed in both directions, reversed back: the plain factor L of
X = L L' is upper triangular as an encoder and has the wrong columns.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize

from privopt.privacy.budget import Refused
from privopt.privacy.factorizations.factorization import (
    UNIT,
    Draw,
    Factorization,
    NoiseStream,
    Rounding,
    WholeDraw,
    less_past,
)
from privopt.privacy.factorizations.square_root import SquareRoot
from privopt.privacy.factorizations.tree import Tree
from privopt.privacy.participation import Participation, Pattern

MOST_STEPS = 2048
UPHILL = 100.0
"""A logarithm of an error that no stream has."""


@dataclass(frozen=True)
class Dense(Factorization):
    """Any lower triangular encoder, as a matrix."""

    @abstractmethod
    def encoder(self) -> np.ndarray:
        """C, lower triangular with a positive diagonal."""

    def encode(self, values: np.ndarray) -> np.ndarray:
        steps = len(values)
        flat = values.reshape(steps, -1)
        return (self.encoder()[:steps, :steps] @ flat).reshape(values.shape)

    def losses_squared(
        self, patterns: Sequence[Pattern], released: int | None = None
    ) -> np.ndarray:
        gram = self._gram(self._released(released))
        return np.array([gram[np.ix_(pattern, pattern)].sum() for pattern in patterns])

    def sensitivity_squared(
        self, participation: Participation, released: int | None = None
    ) -> float:
        """Exact for a single pass and a fixed order; otherwise the bound of two stages: what each
        step can meet at most, then the heaviest steps."""
        released = self._released(released)
        rule = participation.fitted(max(released, 1))
        patterns = rule.orders(released)
        if patterns is not None:
            return float(self.losses_squared(patterns, released).max(initial=0.0))
        gram = self._gram(released)[:released, :released]
        met = heaviest(gram, rule.times, rule.min_separation_steps)
        return float(heaviest(met[:, None], rule.times, rule.min_separation_steps)[0])

    def _gram(self, released: int) -> np.ndarray:
        """|X| of the released rows: X itself where it is not negative."""
        rows = self.encoder()[:released]
        return np.abs(rows.T @ rows)

    def row_norms(self) -> np.ndarray:
        inverse = solve_triangular(self.encoder(), np.eye(self.steps), lower=True)
        return np.linalg.norm(np.cumsum(inverse, axis=0), axis=1)

    def vectors_kept(self) -> int:
        return self.steps - 1

    def stream(self) -> NoiseStream:
        return _Rows(self.encoder())

    def rounding(self, largest: float) -> Rounding:
        encoder = self.encoder()
        first = np.diag(encoder)
        unit = encoder / first[:, None]
        inverse = solve_triangular(unit, np.eye(self.steps), lower=True)
        size = float(np.abs(inverse).sum(axis=1).max()) * largest * (1 + 1e-6)
        rest = float(np.abs(unit).sum(axis=1).max())
        error = (self.steps + 2) * UNIT * rest * size
        return Rounding(1 / float(first.max()), 1 / float(first.min()), error, self.steps - 1)


class _Rows(NoiseStream):
    def __init__(self, encoder: np.ndarray) -> None:
        self._encoder = encoder
        self._kept: list[np.ndarray] = []

    def next(self, draw: Draw) -> np.ndarray:
        row, noise = self._encoder[self.step], draw()
        for weight, earlier in zip(row, self._kept, strict=False):
            noise -= weight * earlier
        noise /= row[self.step]
        self._kept.append(noise.copy())
        self.step += 1
        return noise

    def next_whole(self, draw: WholeDraw) -> np.ndarray:
        row = self._encoder[self.step] / self._encoder[self.step, self.step]
        fresh = draw(1 / float(self._encoder[self.step, self.step]))
        past = np.zeros(fresh.shape)
        for weight, earlier in zip(row, self._kept, strict=False):
            past += weight * earlier
        fresh = less_past(fresh, past)
        self._kept.append(fresh.astype(float))
        self.step += 1
        return fresh

    def vectors(self) -> list[np.ndarray]:
        return self._kept

    def load_vectors(self, step: int, vectors: list[np.ndarray]) -> None:
        if len(vectors) != step:
            raise ValueError("this is not the state of such noise at that step.")
        self._kept = vectors


@dataclass(frozen=True)
class FullHonaker(Dense):
    """The binary tree with the best estimate of each prefix from all nodes, later ones included.

    Releasing the nodes and estimating afterwards is X of the tree; the equivalent encoder makes it
    an online mechanism. Charged by nodes. Reference: it needs a matrix, and BLT noise is better.
    """

    name: ClassVar[str] = "honaker_full"

    def encoder(self) -> np.ndarray:
        return _tree_encoder(self.steps)

    def losses_squared(
        self, patterns: Sequence[Pattern], released: int | None = None
    ) -> np.ndarray:
        if self._released(released) < self.steps:
            return super().losses_squared(patterns, released)
        return Tree(self.steps, "nodes").losses_squared(patterns)

    def sensitivity_squared(
        self, participation: Participation, released: int | None = None
    ) -> float:
        if self._released(released) < self.steps:
            return super().sensitivity_squared(participation, released)
        return Tree(self.steps, "nodes").sensitivity_squared(participation)

    def row_norms(self) -> np.ndarray:
        """In a whole tree of 2^h steps, Haar vectors are eigenvectors of X with eigenvalues
        2^(h+1) - 1 and 2^l - 1, l = 1..h; blocks of a forest are independent."""
        variances, base, start = [], 0.0, 0
        for h in reversed(range(self.steps.bit_length())):
            if not self.steps >> h & 1:
                continue
            t = np.arange(1, (1 << h) + 1)
            variance = base + t**2.0 / (2.0**h * (2.0 ** (h + 1) - 1))
            for level in range(1, h + 1):
                rest = t % (1 << level)
                least = np.minimum(rest, (1 << level) - rest)
                variance += least**2.0 / (2.0**level * (2.0**level - 1))
            variances.append(variance)
            base, start = float(variance[-1]), start + (1 << h)
        return np.sqrt(np.concatenate(variances))


@dataclass(frozen=True)
class DenseOptimal(Dense):
    """Least mean error among encoders with columns of norm one that do not overlap within a record:
    X_ij = 0 for steps that are ``separation``, 2 ``separation``, ... apart (fixed order). Without a
    separation this is the best factorization for a single pass. Reference for small streams.
    """

    name: ClassVar[str] = "dense"
    separation: int | None = None

    def encoder(self) -> np.ndarray:
        return _optimal_encoder(self.steps, self.separation)


def encoder_of(gram: np.ndarray) -> np.ndarray:
    """The lower triangular C with C'C equal to a positive definite matrix."""
    return np.linalg.cholesky(gram[::-1, ::-1]).T[::-1, ::-1].copy()


def heaviest(weights: np.ndarray, times: int, separation: int) -> np.ndarray:
    """Largest sum of at most ``times`` weights, ``separation`` rows apart, in each column."""
    steps = len(weights)
    before = np.zeros((steps + 1, weights.shape[1]))
    for _ in range(times):
        best = np.zeros_like(before)
        for i in range(steps):
            taken = weights[i] + before[max(0, i + 1 - separation)]
            best[i + 1] = np.maximum(best[i], taken)
        before = best
    return before[-1]


@lru_cache(maxsize=8)
def _tree_encoder(steps: int) -> np.ndarray:
    _check_size(steps)
    gram = np.zeros((steps, steps))
    for height in range(steps.bit_length()):
        for end in range(1 << height, steps + 1, 1 << height):
            gram[end - (1 << height) : end, end - (1 << height) : end] += 1.0
    return encoder_of(gram)


@lru_cache(maxsize=8)
def _optimal_encoder(steps: int, separation: int | None) -> np.ndarray:
    """L-BFGS on the free entries of X; the gradient of tr(A X^-1 A') is -X^-1 A'A X^-1."""
    _check_size(steps)
    i, j = np.tril_indices(steps, -1)
    if separation is not None:
        free = (i - j) % separation != 0
        i, j = i[free], j[free]
    prefix = np.tril(np.ones((steps, steps)))
    workload = prefix.T @ prefix

    def matrix(entries: np.ndarray) -> np.ndarray:
        gram = np.eye(steps)
        gram[i, j] = gram[j, i] = entries
        return gram

    def objective(entries: np.ndarray) -> tuple[float, np.ndarray]:
        try:
            factor = cho_factor(matrix(entries), lower=True)
        except np.linalg.LinAlgError:
            return UPHILL, np.zeros_like(entries)  # the line search steps back
        solved = cho_solve(factor, workload)
        error = float(np.trace(solved))
        pull = cho_solve(factor, solved.T)
        return np.log(error), -2 * pull[i, j] / error

    # The square root's X, drawn towards the identity until its free entries alone are enough.
    root = SquareRoot(steps).encode(np.eye(steps))
    gram = root.T @ root
    start = (gram / np.sqrt(np.outer(np.diag(gram), np.diag(gram))))[i, j]
    while np.linalg.eigvalsh(matrix(start))[0] < 1e-3:
        start *= 0.8
    found = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 5000, "maxfun": 10_000, "maxcor": 30, "ftol": 1e-13, "gtol": 1e-8},
    )
    return encoder_of(matrix(found.x))


def _check_size(steps: int) -> None:
    if steps > MOST_STEPS:
        raise Refused(
            f"this noise needs a matrix of {steps} x {steps} numbers and is meant for up to "
            f"{MOST_STEPS} steps: use BLT or banded noise."
        )
