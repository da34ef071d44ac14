"""Replay of everything: each solver and each estimator, under each relation it takes, on every
hostile pair of neighbours; and each public entry point with parameters drawn over their range, on
the pairs at which mechanisms reach their guarantee."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from privopt.audit.entries import ENTRIES, calls
from privopt.audit.fits import estimators, harmless, readable, settled, takes
from privopt.audit.neighbours import Pair, hostile_pairs
from privopt.audit.replay import Run, replay
from privopt.audit.table import Row, case, rows
from privopt.facts import Facts
from privopt.geometry import L1Ball, L2Ball, WholeSpace
from privopt.losses import Huber, Logistic, Squared
from privopt.noise import SeededSource
from privopt.planner import solve
from privopt.privacy import Budget, Neighbouring
from privopt.privacy.budget import NEIGHBOURING
from privopt.problem import Problem
from privopt.solvers import catalogue

N, P, PUBLIC = 63, 4, 60
DELTAS = (0.0, 1e-5)
EPSILON = 1.0
PROBLEMS = (
    Problem(Logistic(), L2Ball(3.0), intercept=0.5),
    Problem(Huber(0.5), L2Ball(3.0)),
    Problem(Logistic(), L1Ball(2.0)),
    Problem(Logistic(), WholeSpace(), intercept=0.5, column_bounds=1.0),
    Problem(Huber(0.2), WholeSpace(), intercept=0.5, column_bounds=1.0),
    Problem(Squared(), L2Ball(1.5), intercept=0.5, l2=0.01),
)


@dataclass(frozen=True)
class Place:
    """A solver or estimator under one relation, by plain values: it travels to other processes."""

    name: str
    neighbouring: Neighbouring
    delta: float
    problem: int | None = None
    """Which of the problems; None for an estimator, and for a solver that refuses them all."""
    draw: int | None = None
    """The seed of a public entry point's parameters, budget included."""


def places(name: str | None = None, seed: int = 0) -> list[Place]:
    """Everything that is replayed: what is refused is left out. ``seed`` draws the parameters of
    public entry points."""
    known = [*sorted(catalogue()), *sorted(estimators())]
    every = sorted({*known, *ENTRIES})
    if name is not None and name not in every:
        raise ValueError(f"unknown solver or estimator {name!r}; choose from {', '.join(every)}.")
    found = []
    for one in known if name is None else [name] if name in known else []:
        for relation in cast(tuple[Neighbouring, ...], NEIGHBOURING):
            for delta in DELTAS:
                budget = Budget(EPSILON, delta, relation)
                if one in catalogue():
                    index = _problem(one, budget)
                    if index is not None or rows(relation, one, (EPSILON,), (delta,)):
                        found.append(Place(one, relation, delta, index))
                elif takes(estimators()[one], budget, hostile_pairs(relation, n=N, p=P)):
                    found.append(Place(one, relation, delta))
    return found + [
        Place(one, relation, 0.0, draw=seed)
        for one in ENTRIES
        if name in (None, one)
        for relation in cast(tuple[Neighbouring, ...], NEIGHBOURING)
    ]


def _problem(name: str, budget: Budget) -> int | None:
    for index, problem in enumerate(PROBLEMS):
        facts = Facts(problem, PUBLIC, problem.dimension(P), budget.neighbouring)
        if catalogue()[name].refuse(facts, budget) is None:
            return index
    return None


def replay_place(place: Place) -> tuple[int, list[str]]:
    """How many pairs were replayed, and what was found on which."""
    findings, count = [], 0
    runs = _runs(place) if place.draw is None else _drawn(place, place.draw)
    for run, pair in runs:
        count += 1
        with np.errstate(all="ignore"):
            findings += [f"{pair.name}: {text}" for text in replay(run, pair)]
    return count, findings


def _runs(place: Place) -> Iterator[tuple[Run, Pair]]:
    budget = Budget(EPSILON, place.delta, place.neighbouring)
    if place.name in estimators():
        estimator, run = estimators()[place.name], _fit(place.name, budget)
        for pair in hostile_pairs(place.neighbouring, n=N, p=P):
            if readable(estimator, pair):
                yield run, pair
    elif place.problem is None:  # it takes the problem of its attack: a tiny one, or of classes
        trial, pair, _ = case(Row(place.name, EPSILON, place.delta, place.neighbouring))
        yield lambda X, y: trial(X, y, SeededSource(0)), pair
    else:
        problem = PROBLEMS[place.problem]
        run, classification = _solve(place.name, problem, budget), problem.loss.classification
        for pair in hostile_pairs(place.neighbouring, n=N, p=P, classification=classification):
            yield run, pair


def _drawn(place: Place, seed: int) -> Iterator[tuple[Run, Pair]]:
    for call in calls(place.name, place.neighbouring, seed):
        for pair in call.pairs:
            yield _seeded(call.run), replace(pair, name=f"{call.said}: {pair.name}")


def _seeded(run: Any) -> Run:
    return lambda X, y: run(X, y, SeededSource(0))


def _solve(name: str, problem: Problem, budget: Budget) -> Run:
    def run(X: np.ndarray, y: np.ndarray) -> Any:
        result = solve(
            problem,
            X,
            y,
            budget=budget,
            solver=name,
            n_public=PUBLIC,
            random_state=0,
            **catalogue()[name].specimen.short,
        )
        return result.theta, result.certificate.to_json(), result.plan.settings

    return run


def _fit(name: str, budget: Budget) -> Run:
    fit, _ = settled(estimators()[name], budget, harmless(P, PUBLIC))
    return lambda X, y: fit(X, y, 0)
