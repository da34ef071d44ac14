"""What a fit makes of y."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from privopt.solvers import Solver


@dataclass(frozen=True)
class Targets:
    """Labels of each model, and what else a fit learns from y or assumes about it.

    ``classes`` are the labels of a model of all classes together: 0, ..., K - 1.
    """

    labels: tuple[np.ndarray, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    classes: np.ndarray | None = None

    def of(self, solver: Solver) -> tuple[tuple[np.ndarray, ...], bool]:
        """Labels of each oracle that the solver takes, and whether they are -1 and +1."""
        if solver.joint and self.classes is not None:
            return (self.classes,), False
        return self.labels, True
