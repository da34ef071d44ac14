"""Sensitivity: who can move a sealed value, how far, in which norm, through which view. All
public."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from privopt.privacy.events import FULL, ROOT, Cell, RunningSumPosition, Sampling

SensitivityNorm = str
"""``l1``, ``l2``, ``l3.5``, ``linf``: the norm with that exponent. ``coordinates``: a bound for
each of them. ``range``: the largest minus the smallest change of any coordinate, what matters for a
choice among scores, which a change of all of them alike does not move. ``function``: see
``FunctionFacts``."""


def norm_named(order: float) -> SensitivityNorm:
    """The name of the l_r norm; every digit of r counts, since equal names mean equal norms."""
    return f"l{int(order) if float(order).is_integer() else float(order)!r}"


def order_of(norm: SensitivityNorm) -> float:
    """The exponent r of a norm named l<r>."""
    if norm[:1] != "l":
        raise ValueError(f"{norm} is not a norm with an exponent.")
    return math.inf if norm == "linf" else float(norm[1:])


@dataclass(frozen=True, slots=True)
class FunctionFacts:
    """What privacy may use about a record's loss as a function of theta.

    ``lipschitz`` and ``smoothness`` are enforced (rows are clipped), not assumed.
    ``rank``: rank of one record's Hessian; ``subspace``: dimension of the fixed subspace that holds
    its gradients; ``one_signed``: its scalar slope never changes sign. ``in_place``: every other
    record keeps its place in the order when one record changes (not so under add_remove).
    """

    lipschitz: float
    smoothness: float
    rank: int
    subspace: int
    convex: bool
    one_signed: bool
    dimension: int
    in_place: bool = False


@dataclass(frozen=True, slots=True)
class Grid:
    """The value counts steps of this size, in exact integers."""

    step: float
    coordinates: int


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """How far one record can move a sealed value.

    ``radius`` is the movement under the oracle's neighbouring relation; ``single`` the size of one
    record's own contribution (equal, except under replace_one). For ``coordinates`` both are
    vectors, one entry per coordinate. With a ``grid`` the payload holds integers, and both are
    bounds on its movement times the grid's step.
    """

    norm: SensitivityNorm
    radius: Any
    single: Any
    cells: tuple[Cell, ...] = (ROOT,)
    view: int = 0
    sampling: Sampling = FULL
    running_sum: RunningSumPosition | None = None
    facts: FunctionFacts | None = None
    grid: Grid | None = None
