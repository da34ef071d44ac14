"""Sums over records of gradients that are vectors of their own, each clipped; and their sum as a
function.

A record's row is read as it is clipped, whatever it is kept in; an empty record adds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from privopt.losses import Loss, VectorLoss, met_vector
from privopt.numerics.convex import UNIT, Enclosed
from privopt.oracle.counting import EXACT, added, shorten
from privopt.oracle.queries import ClippedGradient, Query
from privopt.oracle.rows import LEAST, RawRows, RowBounds
from privopt.oracle.sanitize import row_norms
from privopt.oracle.sensitivity import FunctionFacts, SensitivityNorm
from privopt.privacy.budget import Refused

HEIGHT = 1 << 10
"""Records of a block; so many numbers are added up in one go."""

Measure = Callable[[np.ndarray, np.ndarray], Any]
"""From rows and labels of a few records that are not empty."""


def gradient_query(loss: Loss | VectorLoss, clip_norm: float) -> Query:
    """The sum of the records' gradients, each clipped in l2, for either kind of loss."""
    if isinstance(loss, VectorLoss):
        return ClippedVectorGradient(loss, clip_norm)
    return ClippedGradient(loss, clip_norm)


def living(rows: RawRows) -> np.ndarray:
    """Which records are not empty."""
    return rows.active() > 0


def over_records(rows: RawRows, measure: Measure, most: int = HEIGHT) -> list[Any]:
    """``measure`` of a few records at a time, in their order."""
    if rows.bounds.intercept:
        raise Refused("a loss of vectors takes rows without a constant column.")
    labels, alive, scales = rows.labels(), living(rows), rows.scales()
    found: list[Any] = []

    def read(X: Any) -> np.ndarray:
        for start in range(0, X.shape[0], max(1, most)):
            cut = slice(start, start + max(1, most))
            some = X[cut].toarray() if sp.issparse(X) else X[cut]
            E = some[alive[cut]].astype(float) * scales[cut][alive[cut]][:, None]
            if len(E):
                found.append(measure(E, labels[cut][alive[cut]]))
        return np.zeros(0)

    with np.errstate(all="ignore"):
        rows.features(read)
    return found


@dataclass(frozen=True, slots=True)
class ClippedVectorGradient:
    """Sum of the records' gradients in the whole of theta, each clipped to an l2 norm.

    A clipped sum of vectors is the gradient of no function in general; privacy rests on the clip
    alone, and where ``clip_norm`` is the loss's own Lipschitz constant nothing is clipped.
    """

    loss: VectorLoss
    clip_norm: float
    norm: SensitivityNorm = "l2"

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", met_vector(self.loss))
        if not LEAST <= self.clip_norm < math.inf:  # squares of what is clipped must not vanish
            raise ValueError(
                f"clip_norm must be finite and at least {LEAST:g}, got {self.clip_norm!r}."
            )

    def radius(self) -> float:
        return self.clip_norm

    def diameter(self) -> float:
        return 2 * self.clip_norm

    def total(self, rows: RawRows, at: np.ndarray) -> np.ndarray:
        def measure(X: np.ndarray, y: np.ndarray) -> np.ndarray:
            lines, lengths = self._gradients(at, X, y)
            return (lines * shorten(lengths, self.clip_norm, at.size)[:, None]).sum(axis=0)

        return sum(over_records(rows, measure), np.zeros(at.size))

    def count(self, rows: RawRows, at: np.ndarray, step: float) -> np.ndarray:
        """In whole steps of a grid, cut off toward zero record by record."""

        def measure(X: np.ndarray, y: np.ndarray) -> np.ndarray:
            lines, lengths = self._gradients(at, X, y)
            factors = shorten(lengths, self.clip_norm, at.size) / step
            return np.asarray(added(lines * factors[:, None])).astype(np.int64)

        most = min(HEIGHT, int(EXACT * step / self.clip_norm))
        return sum(over_records(rows, measure, most), np.zeros(at.size, dtype=np.int64))

    def _gradients(
        self, at: np.ndarray, X: np.ndarray, y: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        lines = np.asarray(self.loss.gradient(at, X, y), dtype=float)
        if lines.shape != X.shape:
            raise Refused("a loss of vectors has one gradient of theta's length for each record.")
        lines = np.where(np.isfinite(lines), lines, 0.0)
        return lines, row_norms(np, lines)


# ---------------------------------------------------------------- the whole function
def vector_facts(
    loss: VectorLoss, bounds: RowBounds, dimension: int, in_place: bool = False
) -> FunctionFacts:
    """Constants of one record's loss. They hold by the loss's own form, for every theta: a vector
    that is clipped is no gradient, so only losses of the library have them."""
    if not hasattr(loss, "hessian"):
        raise Refused(
            "an objective is perturbed with losses whose constants hold by their form: "
            'use solver="noisy_gd".'
        )
    return FunctionFacts(
        lipschitz=loss.lipschitz_on(bounds.size, math.inf),
        smoothness=loss.smoothness,
        rank=dimension,
        subspace=dimension,
        convex=loss.convex,
        one_signed=False,
        dimension=dimension,
        in_place=in_place,
    )


@dataclass(frozen=True, slots=True)
class VectorObjective:
    """Sum of the records' losses with its derivatives. A sealed payload."""

    rows: Any
    loss: Any

    @property
    def dimension(self) -> int:
        return self.rows.dimension

    @property
    def count(self) -> int:
        return self.rows.count

    def part(self, start: int, stop: int) -> VectorObjective:
        return VectorObjective(self.rows.part(start, stop), self.loss)

    def value(self, theta: np.ndarray) -> float:
        parts = over_records(self.rows, lambda X, y: float(self.loss.value(theta, X, y).sum()))
        return math.fsum(parts)

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        return self.enclosed(theta, np.zeros_like(theta)).value

    def hessian(self, theta: np.ndarray) -> np.ndarray:
        parts = over_records(self.rows, lambda X, y: self.loss.hessian(theta, X, y))
        return sum(parts, np.zeros((theta.size, theta.size)))

    def rough_hessian(self, theta: np.ndarray, share: float) -> np.ndarray:
        return self.hessian(theta)

    def curvatures(self, theta: np.ndarray) -> np.ndarray:
        return self.hessian(theta)

    def hessian_product(self, curvatures: np.ndarray, vector: np.ndarray) -> np.ndarray:
        return curvatures @ vector

    def enclosed(self, head: np.ndarray, tail: np.ndarray, quick: bool = False) -> Enclosed:
        """The gradient at head + tail and a bound on its error in l2, of ordinary sums.

        A difference theta - x is off by u of its sizes, which moves a gradient by the smoothness
        times that; a gradient of length L is off by a few u of it for each coordinate. A block of h
        lines adds at most h u of their lengths, and blocks are added up exactly.
        """
        theta, p, size = head + tail, head.size, self.rows.bounds.size

        def measure(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float, int]:
            lines = self.loss.gradient(theta, X, y)
            lengths = float(np.sqrt(np.einsum("ij,ij->i", lines, lines)).sum())
            return lines.sum(axis=0), lengths, len(X)

        parts = over_records(self.rows, measure, 64)
        value = np.array([math.fsum(part[0][j] for part in parts) for j in range(p)])
        mass, count = math.fsum(part[1] for part in parts), sum(part[2] for part in parts)
        far = float(np.linalg.norm(theta)) + float(np.linalg.norm(tail))
        moved = self.loss.smoothness * 4 * UNIT * (far + size)
        error = count * moved + (64 + 2 * p + 16) * 2 * UNIT * mass
        return Enclosed(value, error * (1 + 1e-9))
