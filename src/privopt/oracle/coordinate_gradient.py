"""Walks: a question asked again and again at a point that moves along one coordinate at a time.

Everything a walk remembers is private and is recomputed exactly from the records: asking along a
walk gives what ``View.ask`` gives at the same point, up to rounding, with the same sensitivity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from privopt.oracle.counting import added_steps, grid_step
from privopt.oracle.queries import CoordinateClippedGradient, GramGradient, Query
from privopt.oracle.rows import EmptyRows, Rows, WalkableRows
from privopt.oracle.sealed import Sealed
from privopt.oracle.sensitivity import Grid, SensitivityNorm
from privopt.oracle.sparse import SparseRows
from privopt.privacy.budget import Refused

Seal = Callable[[Any, Any, Any, Any], Sealed]
"""From payload, norm, movement and a record's own size to a sealed value."""


class Memory(Protocol):
    """The sum of a question's answers at the present point, kept up to date."""

    def move(self, at: np.ndarray, index: int, by: float) -> None:
        """The point has moved to ``at``, along one coordinate."""
        ...

    def total(self, at: np.ndarray) -> np.ndarray: ...
    def along(self, at: np.ndarray, index: int) -> float: ...
    def count_along(self, at: np.ndarray, index: int, step: float) -> int:
        """One coordinate of the sum in exact integers: each record's part over the step, cut off
        toward zero. What a record adds depends on it alone."""
        ...


class CoordinateGradient:
    """A public point, and a question about the records at it."""

    __slots__ = ("_at", "_memory", "_movement", "_query", "_seal", "_single")

    def __init__(
        self, rows: Rows, query: Query, at: np.ndarray, movement: Any, single: Any, seal: Seal
    ) -> None:
        self._query, self._at = query, np.array(at, dtype=float)
        self._movement, self._single, self._seal = movement, single, seal
        self._memory = self._safely(lambda: remember(rows, query, self._at))

    def move(self, index: int, value: float) -> None:
        """Give one coordinate of the point a new public value."""
        self._check(index)
        by = float(value) - float(self._at[index])
        if by:
            self._at[index] = value
            self._safely(lambda: self._memory.move(self._at, index, by))

    def ask(self) -> Sealed:
        """The whole sum at the present point."""
        total = self._safely(lambda: self._memory.total(self._at))
        return self._seal(total, self._query.norm, self._movement, self._single)

    def ask_along(
        self, index: int, norm: SensitivityNorm = "l2", *, resolution: float | None = None
    ) -> Sealed:
        """One coordinate of the sum, a vector of length one, bounded alike in every norm; with
        ``resolution`` in exact integers, as ``View.ask`` has them."""
        self._check(index)
        movement, single = (
            float(np.broadcast_to(size, self._at.shape)[index])
            for size in (self._movement, self._single)
        )
        if resolution is None:
            value = self._safely(lambda: np.array([self._memory.along(self._at, index)]))
            return self._seal(value, norm, movement, single)
        step = grid_step(movement, resolution)
        count = self._safely(lambda: self._memory.count_along(self._at, index, step))
        sealed = self._seal(np.array([count], dtype=np.int64), norm, movement, single)
        sealed.sensitivity = replace(sealed.sensitivity, grid=Grid(step, 1))
        return sealed

    def _check(self, index: int) -> None:
        if not 0 <= index < self._at.size:
            raise ValueError(f"a coordinate lies between 0 and {self._at.size - 1}, got {index}.")

    def _safely(self, compute: Callable[[], Any]) -> Any:
        found, failed = None, False
        try:
            with np.errstate(all="ignore"):
                found = compute()
        except Refused:
            raise
        except Exception:
            failed = True  # outside this block, so that no traceback holds on to the rows
        if failed:
            name = type(self._query).__name__
            raise Refused(f"{name} could not be computed; details are withheld.")
        return found

    def __repr__(self) -> str:
        return f"CoordinateGradient({type(self._query).__name__})"

    def __reduce__(self) -> Any:
        raise Refused("a walk holds private data and is not pickled.")


def remember(rows: Rows, query: Query, at: np.ndarray) -> Memory:
    """The cheapest memory that rows and question allow."""
    if isinstance(query, GramGradient):
        return GramMemory(rows, query, at)
    if isinstance(query, CoordinateClippedGradient) and isinstance(rows, WalkableRows):
        query.check(rows)
        return ColumnMemory(rows, query, at)
    return Anew(rows, query)


class Anew:
    """Nothing is remembered: every sum is computed from the rows."""

    def __init__(self, rows: Rows, query: Query) -> None:
        self._rows, self._query = rows, query

    def move(self, at: np.ndarray, index: int, by: float) -> None:
        pass

    def total(self, at: np.ndarray) -> np.ndarray:
        return self._query.total(self._rows, at)

    def along(self, at: np.ndarray, index: int) -> float:
        return float(self.total(at)[index])

    def count_along(self, at: np.ndarray, index: int, step: float) -> int:
        if isinstance(self._rows, EmptyRows):
            return 0
        raise Refused("this question has no answer in integers.")


class ColumnMemory:
    """Margins and slopes of all records; the sum too, once it was asked for.

    A step reads one column. Where that column has few entries, only the slopes of their rows
    change, and the sum is corrected by those rows alone.
    """

    def __init__(
        self, rows: WalkableRows, query: CoordinateClippedGradient, at: np.ndarray
    ) -> None:
        self._rows, self._weigh = rows, query.weigh
        self._margins = rows.margins(at)
        self._slopes = rows.weigh_margins(self._margins, slice(None), self._weigh)
        self._sum: np.ndarray | None = None

    def move(self, at: np.ndarray, index: int, by: float) -> None:
        where, entries = self._rows.column(index)
        self._margins[where] += by * entries
        slopes = self._rows.weigh_margins(self._margins[where], where, self._weigh)
        if self._sum is not None and isinstance(self._rows, SparseRows):
            self._sum = self._rows.corrected(self._sum, where, slopes - self._slopes[where])
        else:
            self._sum = None  # every row changed: computed again when it is asked for
        self._slopes[where] = slopes

    def total(self, at: np.ndarray) -> np.ndarray:
        if self._sum is None:
            self._sum = self._rows.pull(self._slopes)
        return self._sum.copy()

    def along(self, at: np.ndarray, index: int) -> float:
        where, entries = self._rows.column(index)
        return float(entries @ self._slopes[where])

    def count_along(self, at: np.ndarray, index: int, step: float) -> int:
        where, entries = self._rows.column(index)
        return added_steps(entries * self._slopes[where], step)


class GramMemory:
    """Least squares: the Gram matrix once, then a step costs one of its columns."""

    def __init__(self, rows: Rows, query: GramGradient, at: np.ndarray) -> None:
        self._query = query
        query.check(rows, at)
        self._gram, moment = query.moments(rows)
        self._sum = self._gram @ at - moment

    def move(self, at: np.ndarray, index: int, by: float) -> None:
        self._query.check_point(at)
        self._sum += by * self._gram[:, index]

    def total(self, at: np.ndarray) -> np.ndarray:
        return self._sum.copy()

    def along(self, at: np.ndarray, index: int) -> float:
        return float(self._sum[index])

    def count_along(self, at: np.ndarray, index: int, step: float) -> int:
        raise Refused("a Gram matrix has no answer in integers.")
