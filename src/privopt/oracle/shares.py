"""Sums of what records say about a model: each one a short vector of numbers that are not negative.

A record counts in a few places of one long vector, with weights that are at most 1 together in l1,
or in l2. That is enforced here, record by record, whatever made the places and weights: what is
not a number counts as zero, and what is too long is shortened. Weights become integers, steps of a
public grid, cut off downward; so sums are exact and the bound holds exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privopt.oracle.counting import grid_step, shorten
from privopt.oracle.sealed import KEY, Sealed
from privopt.oracle.sensitivity import Grid, Sensitivity, SensitivityNorm
from privopt.privacy.budget import Neighbouring, Refused, records_moved


@dataclass(frozen=True, eq=False)
class Shares:
    """Record i adds ``weights[i, j]`` to coordinate ``places[i, j]``; an empty record adds zeros.

    The places of one record differ from each other.
    """

    places: np.ndarray
    weights: np.ndarray
    width: int

    @classmethod
    def none(cls, width: int) -> Shares:
        """Those of no records."""
        return cls(np.zeros((0, 1), dtype=np.intp), np.zeros((0, 1)), width)


def shares_radius(neighbouring: Neighbouring, norm: SensitivityNorm) -> float:
    """How far a neighbour moves the sum: 1; when one vector is replaced by another, 2 in l1 and
    sqrt(2) in l2, because vectors in one orthant have no negative inner product."""
    moved = records_moved(neighbouring)
    return float(moved) if norm == "l1" else math.sqrt(moved)


def sealed_shares(
    shares: Shares, neighbouring: Neighbouring, norm: SensitivityNorm, resolution: float
) -> Sealed:
    """The exact sum over records, in steps of which ``resolution`` make up the sensitivity."""
    if norm not in ("l1", "l2"):
        raise Refused(f"shares of records are bounded in l1 or in l2, not in {norm}.")
    radius = shares_radius(neighbouring, norm)
    step = grid_step(radius, resolution)
    total = np.zeros(shares.width, dtype=np.int64)
    np.add.at(total, shares.places, _steps(shares, norm, step))
    sensitivity = Sensitivity(norm, radius, 1.0, grid=Grid(step, shares.width))
    return Sealed(KEY, total, sensitivity)


def _steps(shares: Shares, norm: SensitivityNorm, step: float) -> np.ndarray:
    weights = np.where(np.isfinite(shares.weights), np.clip(shares.weights, 0.0, 1.0), 0.0)
    ordered = np.sort(shares.places, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    weights = np.where(twice[:, None], 0.0, weights)  # two weights in one place would be longer
    lengths = weights.sum(axis=1) if norm == "l1" else np.sqrt((weights**2).sum(axis=1))
    factors = shorten(lengths, 1.0, weights.shape[1])
    return np.trunc(weights * (factors / step)[:, None]).astype(np.int64)
