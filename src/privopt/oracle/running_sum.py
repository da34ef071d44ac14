"""Running sums: sealed running sums with public decay, for recursive gradient estimators."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from privopt.oracle.sealed import KEY, Sealed
from privopt.oracle.sensitivity import Sensitivity
from privopt.privacy.budget import Refused
from privopt.privacy.events import Cell, RunningSumPath, RunningSumPosition


class RunningSum:
    """total <- decay * total + weight * new, in constant memory.

    Each step brings in one cell of the public partition; a released total is charged to every cell
    that entered it, with the decay it has suffered since. Releases are stated for a radius of one,
    the spend puts each cell's own radius in.
    """

    __slots__ = ("_ancestors", "_cells", "_path", "_sensitivity", "_total")

    def __init__(self) -> None:
        self._path = RunningSumPath()
        self._cells: set[Cell] = set()
        self._ancestors: set[Cell] = set()
        self._total: Any = None
        self._sensitivity: Sensitivity | None = None

    def fork(self) -> RunningSum:
        """A running sum that begins with this one's sum and goes on apart.

        A release is charged to every cell of its own running sum's path, so that a cell both
        running sums share pays for the releases of both.
        """
        twin, path = RunningSum(), self._path
        twin._path = RunningSumPath(list(path.log_decay), list(path.cells), list(path.radii))
        twin._cells, twin._ancestors = set(self._cells), set(self._ancestors)
        twin._total, twin._sensitivity = self._total, self._sensitivity
        return twin

    def value(self) -> Sealed:
        """The sum as it is."""
        if self._sensitivity is None:
            raise Refused("a running sum that nothing has entered has no value.")
        position = RunningSumPosition(self._path, len(self._path.cells) - 1)
        sensitivity = replace(
            self._sensitivity, radius=1.0, single=1.0, cells=(), running_sum=position
        )
        return Sealed(KEY, self._total, sensitivity)

    def step(self, decay: float, sealed: Sealed, weight: float = 1.0) -> Sealed:
        sensitivity = sealed.sensitivity
        if (
            not sensitivity.sampling.full
            or sensitivity.running_sum is not None
            or len(sensitivity.cells) != 1
        ):
            raise Refused("a running sum takes unsampled values of a single cell.")
        if sensitivity.grid is not None:
            raise Refused("a running sum takes no sum on a grid: its decay would leave the grid.")
        if not 0 < decay <= 1 or not 0 < weight < math.inf:
            raise ValueError("a running sum needs a decay in (0, 1] and a positive weight.")
        if self._sensitivity is not None and self._sensitivity.norm != sensitivity.norm:
            raise Refused("all values of a running sum must be bounded in the same norm.")
        cell = sensitivity.cells[0]
        inside = cell in self._ancestors or any(
            cell[:d] in self._cells for d in range(len(cell) + 1)
        )
        if inside:
            # A record that enters twice moves the sum twice; the spend counts it once per cell.
            raise Refused(
                "each record enters a running sum once: this cell, or a part of it, is in it."
            )
        if sensitivity.norm not in ("l1", "l2", "linf"):
            raise Refused(f"a running sum cannot carry values bounded in {sensitivity.norm}.")
        path, new = self._path, weight * sealed.open(KEY)
        self._total = new if self._total is None else decay * self._total + new
        path.log_decay.append(path.log_decay[-1] + math.log(decay) if path.log_decay else 0.0)
        path.cells.append(cell)
        self._cells.add(cell)
        self._ancestors.update(cell[:depth] for depth in range(len(cell)))
        path.radii.append(weight * float(sensitivity.radius))
        self._sensitivity = sensitivity
        return self.value()
