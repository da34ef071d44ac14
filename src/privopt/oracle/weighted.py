"""Records that count less than one: each has a weight between 0 and 1.

What a question adds up of a record is multiplied by its weight after it was clipped. A part of a
vector is no longer than the vector, so every bound on one record's contribution holds as it is, for
the difference of two records too: the weight belongs to the record and moves with it. What the
weights are in units of, the largest weight, is public.

Histograms, moments of columns and of labels count every record alike: they say where rows lie, not
what is minimised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from privopt.oracle.outer_counts import class_counts, outer_counts
from privopt.oracle.rows import RawRows, Residuals, Weigh

LEAST = 1e-9
"""A smaller weight is none: its root would be divided by."""


class WeightedRows:
    """Rows with a weight for each record."""

    __slots__ = ("_noted", "bounds", "count", "dimension", "rows", "shares")

    def __init__(self, rows: RawRows, shares: np.ndarray) -> None:
        self.rows, self.shares = rows, shares
        sizes = rows.weights(np.zeros(rows.dimension), lambda z, y, size: size)
        sizes = sizes.detach().cpu() if hasattr(sizes, "detach") else sizes
        self._noted = rows.noted(np.column_stack([np.asarray(sizes, dtype=float), shares]))
        self.bounds, self.count, self.dimension = rows.bounds, rows.count, rows.dimension

    @classmethod
    def build(cls, rows: RawRows, weights: Any) -> WeightedRows:
        """Weights outside [0, 1] are moved there; what is no number counts nothing."""
        shares = np.array(weights, dtype=float)
        if shares.shape != (rows.count,):
            raise ValueError("there must be one weight for each record.")
        shares = np.where(shares >= LEAST, np.minimum(shares, 1.0), 0.0)
        return cls(rows, shares)

    # ------------------------------------------------------------ sums
    def weighted_sum(self, theta: np.ndarray, weigh: Weigh) -> np.ndarray:
        return self._noted.weighted_sum(theta, _shared(weigh))

    def counted_sum(self, theta: np.ndarray, weigh: Weigh, bound: float, step: float) -> np.ndarray:
        noted: Any = self._noted
        return noted.counted_sum(theta, _shared(weigh), bound, step)

    def total(self, theta: np.ndarray, weigh: Weigh) -> float:
        return self._noted.total(theta, _shared(weigh))

    def totals(self, thetas: np.ndarray, weigh: Weigh) -> np.ndarray:
        return self._noted.totals(thetas, _shared(weigh))

    def weighted_sums(self, thetas: np.ndarray, weigh: Weigh) -> np.ndarray:
        return self._noted.weighted_sums(thetas, _shared(weigh))

    def weighted_gram(self, theta: np.ndarray, weigh: Weigh) -> np.ndarray:
        return self._noted.weighted_gram(theta, _shared(weigh))

    def weights(self, theta: np.ndarray, weigh: Weigh) -> Any:
        return self._noted.weights(theta, _shared(weigh))

    def weighted_product(self, weights: Any, vector: np.ndarray) -> np.ndarray:
        return self._noted.weighted_product(weights, vector)

    def effective(self, measure: Callable[..., Any], most: int) -> list[Any]:
        """A record of weight s^2 comes as s x~ with its share s: its loss is s^2 f(z / s), for the
        margin z of that row."""

        def inner(E: Any, y: Any, notes: Any) -> Any:
            shares = np.sqrt(notes[:, 1])
            E = E.multiply(shares[:, None]).tocsr() if hasattr(E, "tocsr") else E * shares[:, None]
            return measure(E, y, notes[:, 0], np.where(shares > 0, shares, 1.0))

        return self._noted.effective(inner, most)

    def outer_counts(
        self, thetas: np.ndarray, residuals: Residuals, bound: float, step: float
    ) -> np.ndarray:
        return outer_counts(self.rows, None, thetas, residuals, bound, step, self.shares)

    def class_counts(self, classes: int, steps: int = 1) -> np.ndarray:
        return class_counts(self.rows, classes, steps, self.shares)

    # ------------------------------------------------------------ the records themselves
    def precise(self) -> WeightedRows:
        return self._with(self.rows.precise())

    def labelled(self, y: Any, classification: bool) -> WeightedRows:
        return self._with(self.rows.labelled(y, classification))

    def clipped_to(self, norm: float) -> WeightedRows:
        return self._with(self.rows.clipped_to(norm))

    def widened(self, more: Callable[[Any], np.ndarray], width: int) -> WeightedRows:
        return self._with(self.rows.widened(more, width))

    def take(self, indices: np.ndarray) -> WeightedRows:
        return self._with(self.rows.take(indices), self.shares[indices])

    def part(self, start: int, stop: int) -> WeightedRows:
        return self._with(self.rows.part(start, stop), self.shares[start:stop])

    def features(self, measure: Callable[[Any], np.ndarray]) -> np.ndarray:
        return self.rows.features(measure)

    def active(self) -> np.ndarray:
        return self.rows.active()

    def scales(self) -> np.ndarray:
        return self.rows.scales()

    def labels(self) -> np.ndarray:
        return self.rows.labels()

    def _with(self, rows: Any, shares: np.ndarray | None = None) -> WeightedRows:
        return WeightedRows(rows, self.shares if shares is None else shares)


def _shared(weigh: Weigh) -> Weigh:
    """The weight of a record, times its share."""

    def inner(z: Any, y: Any, notes: Any) -> Any:
        return weigh(z, y, notes[..., 0]) * notes[..., 1]

    return inner
