"""How the sum of losses bends at a released point, and how the records' gradients spread there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from privopt.losses import Loss, met
from privopt.numerics.trust_region import svec
from privopt.oracle.counting import EXACT, margin, row_products, shorten
from privopt.oracle.moments import added_products
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
        def both(E: np.ndarray, bend: np.ndarray, slope: np.ndarray) -> np.ndarray:
            bent, steep = E * np.sqrt(bend)[:, None], E * (slope / math.sqrt(2))[:, None]
            return np.concatenate([svec(bent.T @ bent), svec(steep.T @ steep)])

        return self._over(rows, at, both, 1 << 30, float)

    def count(self, rows: Rows, at: np.ndarray, step: float) -> np.ndarray:
        """Each record's vector is shortened by as many steps as it has coordinates, in l2: two of
        them that are cut off differ by no more besides, so both bounds hold."""
        q = rows.dimension
        size = q * (q + 1)
        short = 1 - margin(size) - math.sqrt(size) * step
        if not short > 0:
            raise Refused("there are too many moments for integers on this grid.")

        def both(E: np.ndarray, bend: np.ndarray, slope: np.ndarray) -> np.ndarray:
            E = E * math.sqrt(short / step)
            total = np.empty(size, dtype=np.int64)
            total[: size // 2] = added_products(E * np.sqrt(bend)[:, None])
            total[size // 2 :] = added_products(E * (slope / math.sqrt(2))[:, None])
            return total

        return self._over(rows, at, both, int(EXACT * step / math.sqrt(1.25)), np.int64)

    def _over(self, rows: Rows, at: np.ndarray, both: Any, most: int, kind: Any) -> np.ndarray:
        """``both`` of blocks of rows of norm at most 1, curvatures over H and slopes over L."""
        q, loss = rows.dimension, self.loss
        if not rows.bounds.size <= 1:
            raise Refused("the rows are longer than the question says.")

        def measure(E: np.ndarray, y: Any, sizes: Any, shares: Any = None) -> np.ndarray:
            lengths = np.sqrt(np.einsum("ij,ij->i", E, E))
            E = E * shorten(lengths, 1.0, q)[:, None]
            shares = np.ones(len(E)) if shares is None else shares
            z = row_products(E, at) / shares
            bend = np.clip(loss.expected_curvature(z, y) / loss.most_expected, 0.0, 1.0)
            slope = np.clip(loss.slope(z, y) / loss.lipschitz, -1.0, 1.0) * shares
            bend, slope = (np.where(np.isfinite(part), part, 0.0) for part in (bend, slope))
            return both(E, bend, slope)

        with np.errstate(all="ignore"):
            found = rows.precise().effective(measure, max(1, min((1 << 17) // q, most)))
        return sum(found, np.zeros(q * (q + 1), dtype=kind))
