"""Planted bugs of draws from a density on a public grid, and the exact checks that kill them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from privopt.geometry import Box
from privopt.losses import Quantile
from privopt.mechanisms import ExponentialDensity, RankQuantile, rank_quantile
from privopt.mechanisms.density import piecewise_linear
from privopt.noise import SeededSource
from privopt.oracle import Oracle, RowBounds
from privopt.oracle.sealed import KEY

from .mutant import Mutant

RELATIONS = ("zero_out", "add_remove", "replace_one")
LEVELS = (0.05, 0.25, 0.5, 0.7, 0.95)


def sealed_column(values: list[float], q: float, relation: Any) -> Any:
    return (
        Oracle.over(
            np.ones((len(values), 1)),
            np.array(values),
            neighbouring=relation,
            bounds=RowBounds(1.0),
            source=SeededSource(0),
            classification=False,
        )
        .everything()
        .function(Quantile(q))
    )


def neighbours(relation: str) -> Iterator[tuple[list[float], list[float]]]:
    """Pairs that differ in one record, around few records and around many."""
    places = (0.0, 0.5, 1.0)
    for rest in ([0.0] * 20, [0.5] * 7, [1.0] * 20):
        for one, other in itertools.permutations(places, 2):
            if relation == "add_remove":
                yield [*rest, one], rest
            else:
                yield [*rest, one], [*rest, math.nan if relation == "zero_out" else other]


def rank_law(values: list[float], q: float, relation: str) -> dict[int, float]:
    """Log chance of the first and last cell of each piece, by the mechanism's own masses."""
    sealed = sealed_column(values, q, relation)
    knots, masses = RankQuantile(1.0, 0.0, 1.0, 0.01).law(sealed.open(KEY), sealed.sensitivity)
    heights = np.log(masses[masses > 0] / masses.sum() / np.diff(knots)[masses > 0])
    starts = knots[:-1][masses > 0]
    at = np.linspace(0, knots[-1] - 1, 203).astype(np.int64)
    return dict(zip(at.tolist(), heights[np.searchsorted(starts, at, "right") - 1], strict=True))


def loss_law(values: list[float], q: float, relation: str) -> dict[int, float]:
    """Log chance of some cells, by the sampler's own masses and slopes."""
    sealed = sealed_column(values, q, relation)
    mechanism = ExponentialDensity("pure", 1.0, Box(0.0, 1.0), "piecewise_linear")
    knots = piecewise_linear.counted(mechanism.target(sealed.open(KEY), sealed.sensitivity, 1.0))
    masses = piecewise_linear.masses(knots)
    widths = np.diff(knots.at)
    at = np.linspace(0, knots.at[-1] - 1, 101).astype(np.int64)
    j = np.searchsorted(knots.at, at, side="right") - 1
    rises = knots.rises[j] + knots.slopes[j].astype(float) * (at - knots.at[j])
    starts = np.where(knots.slopes >= 0, knots.rises[:-1], knots.rises[1:] + np.abs(knots.slopes))
    top = knots.unit * starts[widths > 0].min()
    return dict(zip(at.tolist(), top - knots.unit * rises - math.log(masses.sum()), strict=True))


def enumerated(law: Any) -> str | None:
    """Exact log ratios between all neighbours: at most epsilon = 1."""
    for relation, q in itertools.product(RELATIONS, LEVELS):
        for one, other in neighbours(relation):
            first, second = law(one, q, relation), law(other, q, relation)
            worst = max(abs(first[cell] - second[cell]) for cell in first)
            if not worst <= 1 + 1e-9:
                return f"a loss of {worst:.4g} at q={q}, {relation}"
    return None


def ranks_enumerated() -> str | None:
    return enumerated(rank_law)


def losses_enumerated() -> str | None:
    return enumerated(loss_law)


def densities() -> Iterator[Mutant]:
    for name, change in (
        (
            "2q for 2 max(q, 1-q)",
            lambda q, sensitivity: 2 * q if sensitivity.radius == sensitivity.single else 2.0,
        ),
        ("2(1-q) for 2 max(q, 1-q)", lambda q, sensitivity: min(2.0, 2 * (1 - q))),
        ("a replaced record moves as one more", lambda q, sensitivity: 2 * max(q, 1 - q)),
    ):
        yield Mutant(
            f"rank quantile: {name}",
            ((rank_quantile, "movement", change),),
            ranks_enumerated,
            "exact",
        )
    counted = piecewise_linear.counted

    def steeper(target: Any) -> Any:
        knots = counted(target)
        return piecewise_linear.Knots(knots.at, knots.slopes, knots.rises, 1.5 * knots.unit)

    yield Mutant(
        "loss quantile: 1.5 times the exponent",
        ((piecewise_linear, "counted", steeper),),
        losses_enumerated,
        "exact",
    )
