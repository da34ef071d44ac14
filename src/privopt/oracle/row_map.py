"""Public maps of rows: centre, scale, clip."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp


@dataclass(frozen=True, eq=False)
class RowMap:
    """x becomes v / (C r^a) with v = (scale * (x - centre), column), r = max(||v|| / C, 1).

    C is ``clip_norm`` and a is ``shortening``, in [0, 1]. At a = 1 mapped rows have norm at most 1,
    and that is all. Below, a long row is shortened less and counts less instead: its loss gets the
    weight r^(2a - 2). Then weight times norm is r^(a - 1) <= 1 and weight times squared norm is 1,
    so a loss of slope L and smoothness b has both, on these records, as on rows of norm 1. At
    a = 0 no row is shortened: the model is one of rows as they are, which weights do not bias,
    because they depend on the row alone. Shortening whole rows changes the size of scores, so it
    inflates coefficients; it never changes the sign of a score.

    With a ``label_centre`` m the label shares the row's clip: y becomes (y - m) c / max(||v||, c),
    c the clip norm. A linear model of (x, y - m) is then one of the mapped records too, so a record
    that is clipped counts less and biases nothing. At a = 0 it keeps its size: (y - m) / u, with u
    the ``label_scale``.
    """

    centre: np.ndarray
    scale: np.ndarray
    column: float
    clip_norm: float
    label_centre: float | None = None
    label_scale: float = 1.0
    shortening: float = 1.0

    @property
    def dimension(self) -> int:
        return len(self.centre) + 1

    def after(self, shift: np.ndarray, scale: np.ndarray) -> RowMap:
        """This map of (x - shift) / scale, as a map of x."""
        return replace(self, centre=shift + scale * self.centre, scale=self.scale / scale)

    def forward(self, total: np.ndarray) -> np.ndarray:
        """A (g, t) = (scale * (g - t centre), column t), for a sum g of rows of total weight t."""
        g, t = total[:-1], total[-1]
        return np.append(self.scale * (g - t * self.centre), self.column * t)

    def backward(self, theta: np.ndarray) -> np.ndarray:
        """A^T theta: coefficients of the row (x, 1) that give the same margin, before the clip."""
        slope = self.scale * theta[:-1]
        return np.append(slope, self.column * theta[-1] - slope @ self.centre)

    def gram(self, inner: np.ndarray) -> np.ndarray:
        """A G A^T, in the place of G, a symmetric matrix."""
        features, total = inner[:-1, :-1], float(inner[-1, -1])
        sums = inner[:-1, -1].copy()
        half = sums - total / 2 * self.centre
        features -= np.outer(self.centre, half)
        features -= np.outer(half, self.centre)
        features *= self.scale[:, None]
        features *= self.scale
        inner[:-1, -1] = inner[-1, :-1] = self.column * self.scale * (sums - total * self.centre)
        inner[-1, -1] = self.column**2 * total
        return inner

    def label(self, y: Any, factors: Any) -> Any:
        """The label of a record whose row is multiplied by this factor."""
        if self.label_centre is None:
            return y
        return (y - self.label_centre) / self.label_scale * (factors * self.clip_norm)

    def factors(self, X: Any) -> np.ndarray:
        """1 / max(||v||, clip_norm) for each row of X."""
        return 1 / np.maximum(np.hypot(scaled_norms(X, self), self.column), self.clip_norm)

    def notes(self, norms: np.ndarray) -> np.ndarray:
        """Factor, size after it, and weight of rows v with these norms."""
        lengths = np.maximum(norms, self.clip_norm)
        if self.shortening == 1:
            factors, weights = 1 / lengths, np.ones(len(norms))
        else:
            beyond = lengths / self.clip_norm
            factors = 1 / (self.clip_norm * beyond**self.shortening)
            # Powers are right to a few units: rounded so that the bounds above stay true.
            weights = np.where(beyond > 1, beyond ** (2 * self.shortening - 2) * (1 - 1e-14), 1.0)
        # A row whose norm overflows is clipped to nothing.
        finite = np.isfinite(norms)
        factors, weights = np.where(finite, factors, 0.0), np.where(finite, weights, 0.0)
        return np.column_stack([factors, factors * np.where(finite, norms, 0.0), weights])


def scaled_norms(X: Any, row_map: RowMap) -> np.ndarray:
    """||scale * (x - centre)|| for each row of a NumPy or SciPy matrix, in double precision."""
    centre, scale = row_map.centre, row_map.scale
    if sp.issparse(X):
        X = X.astype(float)
        square = scale**2
        positive = X.multiply(X) @ square + centre @ (square * centre)
        # A sparse row is not centred entry by entry: the slack covers what cancellation loses.
        return np.sqrt(np.maximum(positive - 2 * (X @ (square * centre)), 0.0) + 1e-12 * positive)
    norms = np.empty(X.shape[0])
    height = max(64, (1 << 17) // max(1, X.shape[1]))
    for start in range(0, X.shape[0], height):
        block = scale * (np.asarray(X[start : start + height], dtype=float) - centre)
        with np.errstate(over="ignore"):
            norms[start : start + height] = np.sqrt(np.einsum("ij,ij->i", block, block))
    return norms
