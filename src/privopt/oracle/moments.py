"""Questions about features and labels themselves: moments and norms, each with its clip."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from privopt.numerics.trust_region import svec
from privopt.oracle.counting import EXACT, as_numpy, margin, shorten, whole_steps
from privopt.oracle.rows import RawRows, RowBounds, Rows
from privopt.oracle.sensitivity import SensitivityNorm
from privopt.privacy.budget import Refused


@dataclass(frozen=True, slots=True)
class LabelMoments:
    """Sums of labels and of their squares, each label clipped to [-1, 1].

    One record contributes (y, y^2), at most sqrt(2) in l2. Two records differ by
    |y - y'| sqrt(1 + (y + y')^2), which is largest, 2, for the labels -1 and 1: with d = |y - y'|
    it is at most d sqrt(1 + (2 - d)^2), and that grows with d on [0, 2].
    """

    norm: SensitivityNorm = "l2"

    def radius(self) -> float:
        return math.sqrt(2)

    def diameter(self) -> float:
        return 2.0

    def total(self, rows: Rows, at: np.ndarray) -> np.ndarray:
        def clipped(z: Any, y: Any, size: Any) -> Any:
            return y.clip(-1.0, 1.0)

        def squared(z: Any, y: Any, size: Any) -> Any:
            return y.clip(-1.0, 1.0) ** 2

        origin = np.zeros(rows.dimension)
        return np.array([rows.total(origin, clipped), rows.total(origin, squared)])

    def count(self, rows: RawRows, at: np.ndarray, step: float) -> np.ndarray:
        """Each part is shortened by two steps, so that cutting off, which moves the difference of
        two records by at most sqrt(2) steps, leaves it within the diameter."""
        origin = np.zeros(rows.dimension)
        labels = as_numpy(rows.weights(origin, lambda z, y, size: y.clip(-1.0, 1.0)))
        labels = labels * rows.active()
        parts = np.stack([labels, labels**2]) * ((1 - margin(2) - 2 * step) / step)
        return np.trunc(parts).astype(np.int64).sum(axis=1)


@dataclass(frozen=True, slots=True)
class NormHistogram:
    """How many records have their features' l2 norm below each edge and above the one before.

    A longer row counts in the last bin. One record is in one bin.
    """

    edges: tuple[float, ...]
    norm: SensitivityNorm = "l2"

    def radius(self) -> float:
        return 1.0

    def diameter(self) -> float:
        return math.sqrt(2) if self.norm == "l2" else 2.0

    def total(self, rows: RawRows, at: np.ndarray) -> np.ndarray:
        norms = rows.features(feature_norms)
        last = len(self.edges) - 1
        bins = np.minimum(np.searchsorted(np.array(self.edges), norms), last)
        return np.bincount(bins, weights=rows.active(), minlength=last + 1).astype(float)

    def count(self, rows: RawRows, at: np.ndarray, step: float) -> np.ndarray:
        return whole_steps(self.total(rows, at), step)


@dataclass(frozen=True, slots=True)
class Moments:
    """Sums of features and of their squares, each in units of its own bound.

    One record contributes (x / first, x * x / second), each part clipped to l2 norm 1: together at
    most sqrt(2). Two squares point into the same orthant, so replacing a record moves the first
    part by 2 and the second by sqrt(2).
    """

    first: float
    second: float
    norm: SensitivityNorm = "l2"

    def radius(self) -> float:
        return math.sqrt(2)

    def diameter(self) -> float:
        return math.sqrt(6)

    def total(self, rows: RawRows, at: np.ndarray) -> np.ndarray:
        return rows.features(self._sums)  # an empty record's features are zeros

    def count(self, rows: RawRows, at: np.ndarray, step: float) -> np.ndarray:
        """Cutting off shortens both parts and keeps squares in their orthant: the bounds hold."""
        return rows.features(lambda X: self._counts(X, step))

    def _sums(self, X: Any) -> np.ndarray:
        return np.concatenate([_clipped_sum(X, 1, self.first), _clipped_sum(X, 2, self.second)])

    def _counts(self, X: Any, step: float) -> np.ndarray:
        if sp.issparse(X) and not X.has_canonical_format:  # an entry stored twice is cut off once
            X = X.copy()
            X.sum_duplicates()
        parts = [_counted_sum(X, 1, self.first, step), _counted_sum(X, 2, self.second, step)]
        return np.concatenate(parts)


@dataclass(frozen=True, slots=True)
class LeastSquaresMoments:
    """Sums of x x' and of y x in one vector, (svec(x x') / L^2, y x / (Y L)), for least squares.

    L bounds the effective rows, Y is where labels are clipped, and svec keeps the Frobenius norm.
    With ||x|| <= L and |y| <= Y each part of a record has norm at most 1: together sqrt(2). Two
    records with unit rows at an angle of cosine c and labels of opposite sign differ by
    2 - 2 c^2 + 2 + 2 c in square, shorter rows and smaller labels by less: at most 9/2, at c = 1/2.
    Replacing a record therefore moves the sum 1.5 times as far as emptying it, not twice.
    """

    bounds: RowBounds
    label_bound: float
    norm: SensitivityNorm = "l2"

    def __post_init__(self) -> None:
        if not 0 < self.bounds.size < math.inf or not 0 < self.label_bound < math.inf:
            raise ValueError("moments for least squares need finite bounds of rows and labels.")

    def radius(self) -> float:
        return math.sqrt(2)

    def diameter(self) -> float:
        return 1.5 * math.sqrt(2)

    def total(self, rows: Rows, at: np.ndarray) -> np.ndarray:
        if rows.bounds != self.bounds:
            raise Refused("the rows' bounds are not those of the question.")
        origin, size = np.zeros(rows.dimension), self.bounds.size
        gram = rows.weighted_gram(origin, lambda z, y, _: z * 0.0 + 1.0)
        cross = rows.weighted_sum(
            origin, lambda z, y, _: y.clip(-self.label_bound, self.label_bound)
        )
        return np.concatenate([svec(gram) / size**2, cross / (self.label_bound * size)])

    def count(self, rows: Rows, at: np.ndarray, step: float) -> np.ndarray:
        """Exact sums of products of integers, a row's and its label's in steps of their own, which
        are brought onto the grid at the end.

        A row of at most ``FINE`` steps and a label of at most as many make a vector within both
        bounds. Each coordinate of the sum then becomes an integer within 1 of it, so two sums
        differ by 2 more: every vector is shortened by twice as many steps as it has coordinates,
        in l2.
        """
        if rows.bounds != self.bounds:
            raise Refused("the rows' bounds are not those of the question.")
        p = rows.dimension
        size = p * (p + 3) // 2
        short = 1 - margin(size) - 2 * math.sqrt(size) * step
        if not short > 0:
            raise Refused("there are too many moments for integers on this grid.")
        # To the nearest integers, which lengthens a row by half a step in each coordinate.
        longest = (FINE - math.sqrt(p) / 2) * (1 - margin(p)) / self.bounds.size

        def counted(E: Any, y: Any, sizes: Any) -> tuple[np.ndarray, np.ndarray]:
            E = E.toarray() if sp.issparse(E) else E
            lengths = np.sqrt(np.einsum("ij,ij->i", E, E))
            E *= (shorten(lengths, self.bounds.size, p) * longest)[:, None]
            np.rint(E, out=E)
            E[~np.isfinite(lengths)] = 0.0
            labels = np.clip(y, -self.label_bound, self.label_bound) / self.label_bound
            return (E.T @ E).astype(np.int64), (np.rint(labels * FINE) @ E).astype(np.int64)

        parts = rows.precise().effective(counted, HEIGHT)
        gram, cross = exact_sums(parts, (p, p), (p,))
        factor = short / (FINE**2 * step)
        weights = np.concatenate([factor * svec(np.ones((p, p))), np.full(p, factor)])
        return onto(np.concatenate([gram[np.triu_indices(p)], cross]), weights)


FINE = 2.0**21
"""Steps of a row's own grid, and of a label's, that make up its bound."""
HEIGHT = int(2 * EXACT / FINE**2)
"""So many products of such integers add up exactly in a block."""
MOST = 2.0**62
"""Larger sums are kept as Python's integers, which do not wrap."""


def exact_sums(parts: list[Any], *shapes: tuple[int, ...]) -> list[np.ndarray]:
    """Sums of the integer arrays of blocks of ``HEIGHT`` rows, one for each of these shapes."""
    kind = np.int64 if len(parts) * HEIGHT * FINE**2 <= MOST else object
    totals = [np.zeros(shape, dtype=kind) for shape in shapes]
    for part in parts:
        for total, one in zip(totals, part, strict=True):
            total += one
    return totals


def onto(sums: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Integers within 1 of integer sums times factors: in floating point as long as its two
    roundings are worth less than a quarter, else exactly."""
    found = sums.astype(np.float64) * factors
    if np.abs(found).max(initial=0.0) < 2.0**50:
        return np.rint(found).astype(np.int64)
    exact = []
    for one, factor in zip(sums.tolist(), factors.tolist(), strict=True):
        above, below = factor.as_integer_ratio()
        exact.append((2 * one * above + below) // (2 * below))
    return np.array(exact, dtype=np.int64)


def feature_norms(X: Any) -> np.ndarray:
    """l2 norm of each row of a NumPy or SciPy matrix."""
    return _power_norms(X, 1)


def at_least(norms: np.ndarray, columns: int) -> np.ndarray:
    """Norms rounded up: what is divided by them is never longer than 1."""
    return norms * (1 + margin(columns))


def clip_factors(X: Any, bound: float) -> np.ndarray:
    """What each row must be multiplied by so that its norm is at most the bound."""
    return bound / np.maximum(feature_norms(X), bound)


def shortened(rows: RawRows, norm: float) -> tuple[np.ndarray, np.ndarray]:
    """Factors 1 / max(||x||, norm) for raw rows, and the sizes of the effective rows they make."""
    norms = rows.features(lambda X: at_least(feature_norms(X), X.shape[1]))
    factors = 1 / np.maximum(norms, norm)
    return factors, np.hypot(norms * factors, rows.bounds.intercept) * rows.active()


def tamed(X: Any) -> Any:
    """X, with rows whose norm overflows scaled down to a large one: their direction survives."""
    with np.errstate(over="ignore"):
        wild = ~np.isfinite(feature_norms(X))
    if not wild.any():
        return X
    largest = abs(X).max(axis=1)
    largest = largest.toarray().ravel() if sp.issparse(largest) else np.asarray(largest)
    factors = np.where(wild, 2.0**30 / np.where(wild, largest, 1.0), 1.0)
    return sp.csr_array(X.multiply(factors[:, None])) if sp.issparse(X) else X * factors[:, None]


def _power_norms(X: Any, power: int) -> np.ndarray:
    """l2 norm of each row of X ** power."""
    if sp.issparse(X):
        return np.sqrt(np.asarray(X.astype(float).power(2 * power).sum(axis=1)).ravel())
    norms = np.empty(X.shape[0])
    for rows in _blocks(X):
        block = np.asarray(X[rows], dtype=float) ** power
        norms[rows] = np.sqrt(np.einsum("ij,ij->i", block, block))
    return norms


def _clipped_sum(X: Any, power: int, bound: float) -> np.ndarray:
    """Sum of the rows of X ** power, each clipped to the bound, over the bound."""
    weights = 1 / np.maximum(at_least(_power_norms(X, power), X.shape[1]), bound)
    if sp.issparse(X):
        return np.asarray(weights @ X.astype(float).power(power)).ravel()
    total = np.zeros(X.shape[1])
    for rows in _blocks(X):
        total += weights[rows] @ np.asarray(X[rows], dtype=float) ** power
    return total


def _counted_sum(X: Any, power: int, bound: float, step: float) -> np.ndarray:
    """``_clipped_sum`` in exact integers: each row over the bound, cut off to whole steps."""
    factors = shorten(_power_norms(X, power), bound, X.shape[1]) / (bound * step)
    if sp.issparse(X):
        parts = X.data.astype(float) ** power * np.repeat(factors, np.diff(X.indptr))
        entries = np.trunc(parts).astype(np.int64)
        counts = sp.csr_array((entries, X.indices, X.indptr), shape=X.shape).sum(axis=0)
        return np.asarray(counts).ravel()
    total = np.zeros(X.shape[1], dtype=np.int64)
    for rows in _blocks(X):
        block = np.asarray(X[rows], dtype=float) ** power * factors[rows, None]
        total += np.trunc(block, out=block).astype(np.int64).sum(axis=0)
    return total


def _blocks(X: Any) -> list[slice]:
    height = max(64, (1 << 17) // max(1, X.shape[1]))
    return [slice(i, i + height) for i in range(0, X.shape[0], height)]
