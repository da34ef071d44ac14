"""A specimen: a small case of a solver, for tests, replays and audits that go through all of them.

Whoever tries every solver of the catalogue finds here what this one needs to be tried quickly and
where it is weakest. A solver without a specimen of its own is tried as well, with its own settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from privopt.geometry import Box, L1Ball, L2Ball, LpBall, Simplex, WholeSpace
from privopt.losses import (
    Absolute,
    EuclideanDistance,
    Huber,
    Linear,
    Logistic,
    PhaseRetrieval,
    Squared,
    SquaredDistance,
    TukeyBiweight,
    Welsch,
)
from privopt.privacy import Budget
from privopt.problem import Problem

PairName = Literal["lone", "crowd", "opposed", "peak", "class", "class crowd"]
"""Pairs of neighbours that push a solver to its guarantee: ``audit.table`` builds them."""

# A label far away keeps the slope at its bound for every theta, with either sign.
SATURATED = (Problem(Huber(0.5), L2Ball(50.0)), Problem(Absolute(), L2Ball(3.0)))
COLUMNS = Problem(Logistic(), WholeSpace(), intercept=0.5, column_bounds=1.0)
TARGETS = Problem(Huber(0.2), WholeSpace(), intercept=0.5, column_bounds=1.0)
VERTICES = Problem(Huber(0.5), L1Ball(5.0))
# On so small a set gradients hardly change, and records of the first estimate pay the most.
TINY = Problem(Huber(0.5), L1Ball(0.01))
FREE = Problem(Huber(0.5), WholeSpace())
SQUARES = Problem(Squared(), L2Ball(1.0))
MANY = Problem(Logistic(), WholeSpace(), intercept=0.5)
PEAKED = Problem(TukeyBiweight(5**0.5), L2Ball(0.05))

VERTEX_PROBLEMS = {
    "l1 ball": Problem(Squared(residual_clip=1.0), L1Ball(2.0), column_bounds=1.0),
    "simplex, ridge": Problem(Logistic(), Simplex(3.0), intercept=0.5, l2=0.1),
}
BALL_PROBLEMS = {
    "l1 ball": VERTEX_PROBLEMS["l1 ball"],
    "l1.5 ball": Problem(Logistic(), LpBall(1.5, 2.0), intercept=0.5),
}
VECTOR_PROBLEMS = {
    "median": Problem(EuclideanDistance(), L2Ball(1.0)),
    "mean": Problem(SquaredDistance(), L2Ball(1.0)),
    "direction": Problem(Linear(), L2Ball(1.0)),
}
BOX_PROBLEMS = {
    "box, ridge": Problem(Huber(0.5), Box(-1.0, 2.0), column_bounds=1.0, l2=0.05),
}
NONCONVEX_PROBLEMS = {
    "welsch, l1 ball": Problem(Welsch(0.7), L1Ball(1.0), column_bounds=1.0),
    "tukey, l2 ball, ridge": Problem(TukeyBiweight(2.0), L2Ball(1.0), intercept=0.5, l2=0.1),
    "phase retrieval, l1.5 ball": Problem(PhaseRetrieval(0.5), LpBall(1.5, 1.0)),
}


def no_choices(budget: Budget) -> dict[str, Any]:
    """The solver's own settings."""
    return {}


def noise_of_delta(budget: Budget) -> dict[str, Any]:
    """The noise that delta is for; in so few dimensions solvers would not take it themselves."""
    return {"noise": "pure" if budget.pure else "gaussian"}


def stiff(budget: Budget) -> dict[str, Any]:
    """A regulariser beside which the curvature of one record costs next to nothing."""
    return {**noise_of_delta(budget), "regularisation": 300.0}


@dataclass(frozen=True)
class Attack:
    """How a solver is pushed to its guarantee: problems to try, records, settings, pair."""

    problems: tuple[Problem, ...] = (*SATURATED, VERTICES, FREE, COLUMNS, TARGETS)
    n: int = 4
    p: int = 1
    choices: Callable[[Budget], dict[str, Any]] = no_choices
    pair: Callable[[Budget], PairName] = lambda budget: "lone"
    share: float = 1.0
    """Share of the runs, for what takes long."""
    classes: int = 1
    """Of a solver that fits them all together: labels are then 0, ..., classes - 1."""


@dataclass(frozen=True)
class Specimen:
    """What trying a solver takes, in short.

    ``problems``: problems of its own, by name, beside those that all solvers are tried on.
    ``short``: settings of a run of few steps. ``enough``: those to change where it has to come near
    the optimum. ``left``: share of the excess at the start that it leaves without noise, on 400
    records. ``records``: as many show its noise; a choice needs scores that differ by about as much
    as its noise.
    """

    problems: Mapping[str, Problem] = field(default_factory=dict)
    short: Mapping[str, Any] = field(default_factory=dict)
    enough: Mapping[str, Any] = field(default_factory=dict)
    left: float = 0.02
    records: int = 40
    attack: Attack = Attack()
