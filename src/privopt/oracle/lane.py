"""Lanes: sealed running sums with public decay, for recursive gradient estimators."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from privopt.oracle.reach import Reach
from privopt.oracle.sealed import KEY, Sealed
from privopt.privacy.budget import Refused
from privopt.privacy.events import Cell, LanePath, LanePosition


class Lane:
    """total <- decay * total + weight * new, in constant memory.

    Each step brings in one cell of the public partition; a released total is charged to every cell
    that entered it, with the decay it has suffered since. Releases are stated for a radius of one,
    the spend puts each cell's own radius in.
    """

    __slots__ = ("_cells", "_path", "_reach", "_total", "_within")

    def __init__(self) -> None:
        self._path = LanePath()
        self._cells: set[Cell] = set()
        self._within: set[Cell] = set()
        self._total: Any = None
        self._reach: Reach | None = None

    def fork(self) -> Lane:
        """A lane that begins with this one's sum and goes on apart.

        A release is charged to every cell of its own lane's path, so that a cell both lanes share
        pays for the releases of both.
        """
        twin, path = Lane(), self._path
        twin._path = LanePath(list(path.log_decay), list(path.cells), list(path.radii))
        twin._cells, twin._within = set(self._cells), set(self._within)
        twin._total, twin._reach = self._total, self._reach
        return twin

    def value(self) -> Sealed:
        """The sum as it is."""
        if self._reach is None:
            raise Refused("a lane that nothing has entered has no value.")
        position = LanePosition(self._path, len(self._path.cells) - 1)
        reach = replace(self._reach, radius=1.0, single=1.0, cells=(), lane=position)
        return Sealed(KEY, self._total, reach)

    def step(self, decay: float, sealed: Sealed, weight: float = 1.0) -> Sealed:
        reach = sealed.reach
        if not reach.sampling.full or reach.lane is not None or len(reach.cells) != 1:
            raise Refused("a lane takes unsampled values of a single cell.")
        if reach.grid is not None:
            raise Refused("a lane takes no sum on a grid: its decay would leave the grid.")
        if not 0 < decay <= 1 or not 0 < weight < math.inf:
            raise ValueError("a lane needs a decay in (0, 1] and a positive weight.")
        if self._reach is not None and self._reach.norm != reach.norm:
            raise Refused("all values of a lane must be bounded in the same norm.")
        cell = reach.cells[0]
        inside = cell in self._within or any(cell[:d] in self._cells for d in range(len(cell) + 1))
        if inside:
            # A record that enters twice moves the sum twice; the spend counts it once per cell.
            raise Refused("each record enters a lane once: this cell, or a part of it, is in it.")
        if reach.norm not in ("l1", "l2", "linf"):
            raise Refused(f"a lane cannot carry values bounded in {reach.norm}.")
        path, new = self._path, weight * sealed.open(KEY)
        self._total = new if self._total is None else decay * self._total + new
        path.log_decay.append(path.log_decay[-1] + math.log(decay) if path.log_decay else 0.0)
        path.cells.append(cell)
        self._cells.add(cell)
        self._within.update(cell[:depth] for depth in range(len(cell)))
        path.radii.append(weight * float(reach.radius))
        self._reach = reach
        return self.value()
