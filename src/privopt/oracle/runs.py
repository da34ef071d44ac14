"""Whole runs of private algorithms, and scores of held-out records, as sealed values.

A run is a function of a candidate's number; what it returns has been computed from data by an
algorithm with a stated loss, but only a mechanism that keeps the best of several runs may call it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from privopt.noise import Source
from privopt.oracle.sealed import KEY, Sealed
from privopt.oracle.sensitivity import Sensitivity
from privopt.privacy.budget import Refused
from privopt.privacy.events import ROOT, Cell

Run = Callable[[int, Source], tuple[float, Any]]
"""From a candidate's number to a private score and a private result."""


def sealed_runs(run: Run, cell: Cell = ROOT) -> Sealed:
    """Runs, on the records of a cell, that nobody can call but a gate's mechanism."""
    return Sealed(KEY, run, Sensitivity("runs", 1.0, 1.0, cells=(cell,)))


def sealed_total(scores: np.ndarray, norm: str) -> Sealed:
    """Sum of one score in [0, 1] for each record; what is not a number counts as 0.

    A record that is emptied, or replaced, moves the sum by at most 1.
    """
    if scores.ndim != 1:
        raise Refused("a scorer gives one number for each record.")
    total = np.sum(np.clip(np.nan_to_num(scores, nan=0.0), 0.0, 1.0))
    return Sealed(KEY, np.array([total]), Sensitivity(norm, 1.0, 1.0))
