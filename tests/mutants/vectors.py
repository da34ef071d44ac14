"""Planted bugs of losses of the whole vector, and the checks that kill them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from privopt import Problem
from privopt.facts import Facts
from privopt.geometry import L2Ball
from privopt.losses import EuclideanDistance, GuardedVector, RoundedDistance, SquaredDistance
from privopt.noise import SeededSource
from privopt.oracle import ClippedVectorGradient, Oracle, RowBounds, vector_gradient
from privopt.oracle.sealed import KEY
from privopt.privacy import Accountant, Budget, spend
from privopt.solvers import catalogue, declare
from privopt.solvers.families import objective
from privopt.solvers.solver import Plan

from .mutant import Mutant

AT = np.array([3.0, -2.0])


def moved() -> str | None:
    """A record that is emptied moves a sum, and its integers, by no more than the clip."""
    for loss in (SquaredDistance(), EuclideanDistance()):
        for resolution in (None, 2.0**20):
            answers = []
            for lost in (False, True):
                X = np.array([[0.5, 0.0], [0.0, -0.7], [0.1, 0.1]])
                if lost:
                    X[1] = np.nan
                oracle = Oracle.over(
                    X,
                    np.zeros(3),
                    neighbouring="zero_out",
                    bounds=RowBounds(1.0),
                    source=SeededSource(0),
                    classification=False,
                )
                query = ClippedVectorGradient(loss, 0.5)
                sealed = oracle.everything().ask(query, AT, resolution=resolution)
                unit = 1.0 if resolution is None else sealed.sensitivity.grid.step
                answers.append(sealed.open(KEY) * unit)
            apart = float(np.linalg.norm(answers[0] - answers[1]))
            if not 0.25 < apart <= 0.5 * (1 + 1e-9):
                return f"a record moved a sum by {apart:.3f} where .5 was stated"
    return None


def all_directions() -> str | None:
    """The declared loss of an objective of vectors is p log(1 + beta / lambda) and the noise's."""
    solver, budget = catalogue()["objective_perturbation"], Budget(1.0)
    facts = Facts(Problem(RoundedDistance(0.5), L2Ball(1.0)), 1000, 4, "zero_out")
    settings = solver.settings(facts, budget)
    price = 4 * math.log1p(2.0 / settings.regularisation) + 1 / settings.noise_multiplier
    own = Accountant("zero_out").epsilon(spend(declare(Plan(solver, facts, budget, settings))), 0.0)
    want = price + 1 / settings.output_multiplier
    if want > 1.0 + 1e-9:
        return f"a loss of {want:.4f} where 1 was paid for"
    return None if abs(own - want) < 1e-9 else f"{own:.4f} declared of {want:.4f}"


def one_at_a_time() -> str | None:
    """Code of somebody else's sees one record."""
    seen: list[int] = []

    class Other(SquaredDistance):
        def gradient(self, theta: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
            seen.append(len(X))
            return super().gradient(theta, X, y)

    loss = ClippedVectorGradient(Other(), 1.0).loss
    loss.gradient(AT, np.zeros((5, 2)), np.zeros(5))
    return None if set(seen) == {1} else "several records at once"


def _together(self: Any, function: Any, theta: Any, X: Any, y: Any, shape: Any) -> Any:
    return np.asarray(function(theta, X, y), dtype=float)


def vectors() -> Iterator[Mutant]:
    reach = "movement of a sum"
    yield Mutant(
        "gradients of vectors are not clipped",
        ((vector_gradient, "shorten", lambda lengths, bound, p: np.ones_like(lengths)),),
        moved,
        reach,
    )
    yield Mutant(
        "an empty record adds the gradient at a row of zeros",
        ((vector_gradient, "living", lambda rows: np.ones(rows.count, dtype=bool)),),
        moved,
        reach,
    )
    yield Mutant(
        "an objective of vectors bends in one direction",
        ((objective, "_log_determinant", lambda f, lam: math.log1p(f.smoothness() / lam)),),
        all_directions,
        "closed form",
    )
    yield Mutant(
        "a loss of vectors of somebody else's sees all records at once",
        ((GuardedVector, "_called", _together),),
        one_at_a_time,
        "what it sees",
    )
