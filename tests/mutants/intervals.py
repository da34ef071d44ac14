"""Planted bugs in the release behind intervals: its sensitivity, its place in the budget."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from privopt import Problem
from privopt.losses import Huber, Logistic, Squared
from privopt.oracle import Curvature, RowBounds, curvature
from privopt.oracle.mapped import MappedRows, RowMap
from privopt.oracle.oracle import make_rows
from privopt.oracle.sealed import KEY
from privopt.solvers import with_intervals
from privopt.solvers.with_intervals import WithIntervals

from .checks import law, logged, replayed
from .mutant import Mutant

DELTA = 1e-5
SOLVER = "with_intervals"
NORM: dict[str, Any] = {"problem": Problem(Logistic(), intercept=0.5, intervals=True)}
SQUARES: dict[str, Any] = {
    "problem": Problem(Squared(residual_clip=0.5), intercept=0.5, column_bounds=1.0, intervals=True)
}


def steepest() -> tuple[Curvature, list[np.ndarray]]:
    """Answers for two rows at a right angle, each with all of the slope and of the curvature."""
    loss, found = Huber(1e-9), []
    row_map = RowMap(np.zeros(2), np.ones(2), 1e-9, 1.0, shortening=0.0)
    query = Curvature(loss)
    for X in np.eye(2):
        rows = make_rows(X[None], np.array([1e-9]), RowBounds(np.inf, 1.0), False)
        found.append(query.total(MappedRows.build(rows, row_map), np.zeros(3)))
    return query, found


def emptied() -> str | None:
    query, (found, _) = steepest()
    moved = float(np.linalg.norm(found))
    return f"moved by {moved:.4g}" if moved > query.radius() * (1 + 1e-9) else None


def replaced() -> str | None:
    query, (one, other) = steepest()
    moved = float(np.linalg.norm(one - other))
    return f"moved by {moved:.4g}" if moved > query.diameter() * (1 + 1e-9) else None


def intervals() -> Iterator[Mutant]:
    one = "with_intervals: "
    notes = RowMap.notes
    priced = with_intervals.noise_for

    def heavy(self: Any, norms: Any) -> Any:
        found = notes(self, norms)
        found[:, 2] = 1.0
        return found

    def half(*args: Any) -> Any:
        multipliers, kinds = priced(*args)
        return [*multipliers[:-1], multipliers[-1] / 2], kinds

    yield Mutant(
        one + "second moments bounded by one of the two",
        ((Curvature, "radius", lambda self: 1.0),),
        emptied,
        "exact case",
    )
    yield Mutant(
        one + "a replaced record moves second moments as one more",
        ((Curvature, "diameter", lambda self: 1.25**0.5),),
        replaced,
        "exact case",
    )
    yield Mutant(
        one + "rows of second moments are not shortened by their weight",
        ((RowMap, "notes", heavy), (curvature, "shorten", lambda lengths, *more: 1 + 0 * lengths)),
        replayed(SOLVER, "zero_out", DELTA, **SQUARES),
        "replay",
    )
    yield Mutant(
        one + "second moments are not paid from the budget",
        ((with_intervals, "noise_for", lambda *a: (priced(*a)[0], priced(*a)[1][:-1])),),
        logged(SOLVER, DELTA, **NORM),
        "dry run",
    )
    yield Mutant(
        one + "half of the noise in second moments that is paid",
        ((with_intervals, "noise_for", half),),
        logged(SOLVER, DELTA, **NORM),
        "dry run",
    )
    asked = WithIntervals._second_moments

    def inside(self: Any, rows: Any, gate: Any, loss: Any, theta: Any, settings: Any) -> Any:
        """At a point that was never released: the records know it, and nobody else may."""
        exact = rows.everything().ask(Curvature(loss), theta).open(KEY)
        return asked(self, rows, gate, loss, theta + 1e-9 * exact[0], settings)

    yield Mutant(
        one + "second moments are asked at a point that was not released",
        ((WithIntervals, "_second_moments", inside),),
        replayed(SOLVER, "zero_out", DELTA, **NORM),
        "replay",
    )
    adding = with_intervals.gaussian_noise

    def quiet(multiplier: float, discrete: bool) -> Any:
        """Draws half of what its event says."""
        made = adding(multiplier, False)

        class Quiet(type(made)):
            def run(self, payload: Any, sensitivity: Any, source: Any) -> Any:
                near = replace(sensitivity, radius=sensitivity.radius / 2)
                return super().run(payload, near, source)

        return Quiet(multiplier)

    yield Mutant(
        one + "half of the noise that the log declares",
        ((with_intervals, "gaussian_noise", quiet),),
        law(SOLVER, DELTA, discrete_noise=False, **NORM),
        "law",
    )
