"""Planted bugs in regression: constants of losses, what the plan knows, weights and moments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from privopt import Problem
from privopt.losses import Gamma, Huber, Loss, Poisson
from privopt.oracle import moments
from privopt.oracle.mapped import RowMap
from privopt.solvers import standardized_regression

from .checks import logged, replayed
from .mutant import Check, Mutant

DELTA = 1e-5
SOLVER = "standardized_regression"
COUNTS = Problem(Poisson(), intercept=0.5, column_bounds=1.0)
AMOUNTS = Problem(Gamma(), intercept=0.5, column_bounds=1.0)
RESIDUALS = Problem(Huber(0.2), intercept=0.5, column_bounds=1.0)
SHAPED = replace(RESIDUALS, shaped=((0, -1.0, 1.0), (1, -1.0, 1.0)))


@cache
def constants(loss: Loss) -> Check:
    """Slopes, and how fast they rise, against what the loss states, for hostile labels too."""

    def check() -> str | None:
        z = np.linspace(-12.0, 12.0, 48_001)
        for y in (-2.0, 0.0, 0.3, 1.0, 2.9, 7.0, 1e6):
            slope = loss.slope(z, y)
            if np.abs(slope).max() > loss.lipschitz * (1 + 1e-9):
                return f"a slope of {np.abs(slope).max():.3g}, at most {loss.lipschitz:g} stated"
            rise = np.diff(slope) / np.diff(z)
            if rise.min() < -1e-9:
                return "a slope that falls: not convex"
            if rise.max() > loss.smoothness * (1 + 1e-6):
                return f"a curvature of {rise.max():.3g}, at most {loss.smoothness:g} stated"
        return None

    return check


def regressions() -> Iterator[Mutant]:
    steep = Poisson._steep

    def exponential(self: Any, z: Any, y: Any) -> Any:
        return array_namespace(z).exp(z) - y

    yield Mutant(
        "Poisson: the exponential is not capped",
        ((Poisson, "_steep", exponential),),
        constants(Poisson(2.0, 1.5)),
        "constants",
    )
    yield Mutant(
        "Gamma: negative amounts count",
        (
            (Gamma, "_label", lambda self, y: y),
            (Gamma, "_ratio", lambda self, z, y: (y * np.exp(-z)).clip(max=5.0)),
        ),
        constants(Gamma()),
        "constants",
    )
    yield Mutant(
        "Poisson: the slope is not clipped",
        ((Poisson, "slope", lambda self, z, y: steep(self, z, self._labels(z, y))),),
        constants(Poisson(0.5, 3.0)),
        "constants",
    )
    yield Mutant(
        "Gamma: smoothness of the unclipped side alone",
        ((Gamma, "smoothness", property(lambda self: 1.0)),),
        constants(Gamma()),
        "constants",
    )

    standard = Poisson.standard

    def from_labels(self: Any, mean: float, deviation: float, plenty: float) -> Any:
        """The cap of rates, hence the smoothness, follows from the released deviation."""
        found = standard(self, mean, deviation, plenty)
        loss = replace(found.loss, rate_cap=1.0 + deviation)
        return replace(found, loss=loss)

    yield Mutant(
        "standardized_regression: the smoothness follows from released labels",
        ((Poisson, "standard", from_labels),),
        replayed(SOLVER, "zero_out", DELTA, problem=COUNTS),
        "dry run",
    )
    notes = RowMap.notes

    def heavy(self: Any, norms: Any) -> Any:
        found = notes(self, norms)
        found[:, 2] = 1.0
        return found

    for what, problem in (("counts", COUNTS), ("amounts", AMOUNTS), ("Huber", RESIDUALS)):
        yield Mutant(
            f"standardized_regression: long rows count in full ({what})",
            ((RowMap, "notes", heavy),),
            replayed(SOLVER, "zero_out", DELTA, problem=problem),
            "replay",
        )
    yield Mutant(
        "standardized_regression: moments of labels bounded by 1 instead of sqrt(2)",
        ((moments.LabelMoments, "radius", lambda self: 1.0),),
        replayed(SOLVER, "zero_out", DELTA),
        "replay",
    )
    yield Mutant(
        "standardized_regression: replaced moments of labels bounded as one record's",
        ((moments.LabelMoments, "diameter", lambda self: 2**0.5),),
        replayed(SOLVER, "replace_one", DELTA),
        "replay",
    )
    priced = standardized_regression.shape_noise
    shaped: dict[str, Any] = {"problem": SHAPED, "harmonics": 3}
    yield Mutant(
        "standardized_regression: histograms of shapes not paid from the budget",
        ((standardized_regression, "shape_noise", lambda *args: (priced(*args)[0], ())),),
        logged(SOLVER, DELTA, **shaped),
        "dry run",
    )
    yield Mutant(
        "standardized_regression: rows that shapes make longer count in full",
        ((RowMap, "notes", heavy),),
        replayed(SOLVER, "zero_out", DELTA, **shaped),
        "replay",
    )
