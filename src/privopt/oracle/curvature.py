"""How the sum of losses bends at a released point, and how the records' gradients spread there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from privopt.losses import Loss, met
from privopt.numerics.trust_region import svec
from privopt.oracle.counting import margin, row_products, shorten
from privopt.oracle.moments import FINE, HEIGHT, exact_sums, onto
from privopt.oracle.rows import Rows
from privopt.oracle.sensitivity import SensitivityNorm
from privopt.privacy.budget import Refused


@dataclass(frozen=True, slots=True)
class Curvature:
    """Sums of h x x' and of g^2 x x' in one vector, (svec(.) / H, svec(.) / (2 L^2)).

    x is a record's row of norm at most 1, its weight included; h in [0, H] the curvature of its
    loss, or what the loss's model expects of it; g its slope, |g| <= L. Both are clipped here. With
    ||svec(x x')|| = ||x||^2 a record's vector has norm at most sqrt(1 + 1/4). Both matrices are
    positive semidefinite, so the inner product of two records' vectors is not negative, and
    replacing one moves the sum by at most sqrt(2) times that (docs/proofs/inference.md).
    """

    loss: Loss
    norm: SensitivityNorm = "l2"

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", met(self.loss))
        if not math.isfinite(self.loss.most_expected) or not math.isfinite(self.loss.lipschitz):
            raise ValueError("second moments need a loss of bounded slope and curvature.")

    def radius(self) -> float:
        return math.sqrt(1.25)

    def diameter(self) -> float:
        return math.sqrt(2.5)

    def total(self, rows: Rows, at: np.ndarray) -> np.ndarray:
        def products(E: np.ndarray, bend: np.ndarray, slope: np.ndarray) -> Any:
            bent, steep = E * np.sqrt(bend)[:, None], E * slope[:, None]
            return bent.T @ bent, steep.T @ steep

        q = rows.dimension
        hessian, scores = np.zeros((q, q)), np.zeros((q, q))
        for one, other in self._over(rows, at, products):
            hessian += one
            scores += other
        return np.concatenate([svec(hessian), svec(scores) / 2])

    def count(self, rows: Rows, at: np.ndarray, step: float) -> np.ndarray:
        """Exact sums of outer products of integer vectors, each no longer than a row may be: still
        positive semidefinite, so both bounds hold. The sums are then put on the grid, which moves
        the difference of two of them by at most two steps in each coordinate."""
        q = rows.dimension
        size = q * (q + 1)
        short = 1 - margin(size) - 2 * math.sqrt(size) * step
        if not short > 0:
            raise Refused("there are too many moments for integers on this grid.")
        # To the nearest integers, which lengthens a row by half a step in each coordinate.
        longest = (FINE - math.sqrt(q) / 2) * (1 - margin(q))

        def products(E: np.ndarray, bend: np.ndarray, slope: np.ndarray) -> Any:
            bent = np.rint(E * (longest * np.sqrt(bend))[:, None])
            steep = np.rint(E * (longest * slope)[:, None])
            return (bent.T @ bent).astype(np.int64), (steep.T @ steep).astype(np.int64)

        parts = self._over(rows, at, products)
        hessian, scores = exact_sums(parts, (q, q), (q, q))
        factors = short / (FINE**2 * step) * svec(np.ones((q, q)))
        upper = np.triu_indices(q)
        sums = np.concatenate([hessian[upper], scores[upper]])
        return onto(sums, np.concatenate([factors, factors / 2]))

    def _over(self, rows: Rows, at: np.ndarray, products: Any) -> list[Any]:
        """``products`` of blocks of rows of norm at most 1, curvatures over H, slopes over L."""
        q, loss = rows.dimension, self.loss
        if not rows.bounds.size <= 1:
            raise Refused("the rows are longer than the question says.")

        def measure(E: np.ndarray, y: Any, sizes: Any, shares: Any = None) -> Any:
            lengths = np.sqrt(np.einsum("ij,ij->i", E, E))
            E = E * shorten(lengths, 1.0, q)[:, None]
            E[~np.isfinite(lengths)] = 0.0
            shares = np.ones(len(E)) if shares is None else shares
            z = row_products(E, at) / shares
            bend = np.clip(loss.expected_curvature(z, y) / loss.most_expected, 0.0, 1.0)
            slope = np.clip(loss.slope(z, y) / loss.lipschitz, -1.0, 1.0) * shares
            bend, slope = (np.where(np.isfinite(part), part, 0.0) for part in (bend, slope))
            return products(E, bend, slope)

        with np.errstate(all="ignore"):
            return rows.precise().effective(measure, HEIGHT)
