"""Planted bugs in the release behind intervals: its sensitivity, its place in the budget."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from privopt import Problem
from privopt.losses import Logistic, Squared
from privopt.oracle import Curvature, Oracle, curvature
from privopt.oracle.mapped import RowMap
from privopt.solvers import with_intervals

from .checks import law, logged, replayed
from .mutant import Mutant

DELTA = 1e-5
SOLVER = "with_intervals"
NORM: dict[str, Any] = {"problem": Problem(Logistic(), intercept=0.5, intervals=True)}
SQUARES: dict[str, Any] = {
    "problem": Problem(Squared(residual_clip=0.5), intercept=0.5, column_bounds=1.0, intervals=True)
}


def intervals() -> Iterator[Mutant]:
    one = "with_intervals: "
    notes, moments = RowMap.notes, with_intervals.WithIntervals._second_moments
    priced = with_intervals.noise_for

    def heavy(self: Any, norms: Any) -> Any:
        found = notes(self, norms)
        found[:, 2] = 1.0
        return found

    def at_the_data(
        self: Any, rows: Oracle, gate: Any, loss: Any, theta: np.ndarray, settings: Any
    ) -> Any:
        """Asked where the records are, not at what was released."""
        return moments(self, rows, gate, loss, rows._rows.weighted_sum(theta, _one), settings)

    def half(*args: Any) -> Any:
        multipliers, kinds = priced(*args)
        return [*multipliers[:-1], multipliers[-1] / 2], kinds

    yield Mutant(
        one + "second moments bounded by one of the two",
        ((Curvature, "radius", lambda self: 1.0),),
        replayed(SOLVER, "zero_out", DELTA, **NORM),
        "replay",
    )
    yield Mutant(
        one + "a replaced record moves second moments as one more",
        ((Curvature, "diameter", lambda self: 1.25**0.5),),
        replayed(SOLVER, "replace_one", DELTA, **NORM),
        "replay",
    )
    yield Mutant(
        one + "rows of second moments are not shortened by their weight",
        ((RowMap, "notes", heavy), (curvature, "shorten", lambda lengths, *more: 1 + 0 * lengths)),
        replayed(SOLVER, "zero_out", DELTA, **SQUARES),
        "replay",
    )
    yield Mutant(
        one + "second moments at a point that was not released",
        ((with_intervals.WithIntervals, "_second_moments", at_the_data),),
        replayed(SOLVER, "zero_out", DELTA, **NORM),
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


def _one(z: Any, y: Any, size: Any) -> Any:
    return z * 0.0 + 1.0
