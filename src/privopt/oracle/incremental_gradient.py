"""A gradient that follows theta from vertex to vertex, at the cost of the records it passes.

A step theta <- (1 - step) theta + step * value * e_k shrinks all margins by the same public factor,
which is kept aside, and changes more only for the records with an entry in column k. A coordinate
of the gradient is then read off its own column when it is asked for; the whole gradient never is.

Two gradients can be followed.

*Exact*: the gradient at theta.

*Stale*: a record's slope is computed again only when a step's column has an entry in that record,
and for all records whenever the public factor has fallen to a quarter. In between it belongs to
margins that have shrunk since. It is a sum over records like the exact one: record i contributes
its row times a slope within the clip, and *when* its slope was last computed depends on its own
row, on the public steps and on a public schedule. So one record moves it by as much as the exact
gradient. The condition is essential: were all slopes renewed when some record's margin is found to
have drifted far, then that one record would move the contributions of all others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from privopt.oracle.queries import CoordinateClippedGradient
from privopt.oracle.sealed import KEY, Sealed
from privopt.oracle.sensitivity import Sensitivity
from privopt.oracle.vertex_draw import VertexDraw
from privopt.privacy.budget import Refused

RENEW = 0.25
"""Stale slopes are all renewed when margins have shrunk to this part: a public schedule."""


class IncrementalGradient:
    """Margins and slopes of records, columns of their rows. A sealed payload."""

    __slots__ = (
        "_jumps",
        "_kept",
        "_labels",
        "_margins",
        "_marked",
        "_renewed",
        "_seen",
        "_shrunk",
        "_sizes",
        "columns",
        "query",
    )

    def __init__(
        self,
        columns: Any,
        labels: np.ndarray,
        sizes: np.ndarray,
        query: CoordinateClippedGradient,
        start: np.ndarray,
        stale: bool,
    ) -> None:
        self.columns, self.query = columns, query
        self._labels, self._sizes = labels, sizes
        self._margins = columns @ start if start.any() else np.zeros(len(labels))
        self._shrunk = self._renewed = 1.0
        self._seen = self._margins.copy() if stale else None  # margins that slopes belong to
        self._marked, self._kept, self._jumps = None, 1.0, 0.0

    @property
    def count(self) -> int:
        return len(self._labels)

    # ------------------------------------------------------------ the gradient
    def slopes(self, records: Any = slice(None)) -> np.ndarray:
        labels, sizes = self._labels[records], self._sizes[records]
        with np.errstate(all="ignore"):  # a warning would tell of a record
            return self.query.weigh(self._current(records), labels, sizes)

    def gradient(self) -> np.ndarray:
        return self.columns.T @ self.slopes()

    def coordinate(self, k: int) -> float:
        """One coordinate of the gradient, from its own column."""
        records, entries = self._column(k)
        return float(self.slopes(records).dot(entries)) if len(records) else 0.0

    def over_vertices(self, size: float, signed: bool) -> VertexDraw:
        """Scores of the vertices size * e_k, and of the opposite ones if ``signed``, for a path
        whose steps go to these vertices."""
        return VertexDraw(self, size, signed)

    # ------------------------------------------------------------ steps
    def move(self, k: int, value: float, step: float) -> None:
        """theta <- (1 - step) theta + step * value * e_k."""
        renew = step == 1  # forgets where it was: no factor says how margins changed
        if renew or self._shrunk < 1e-100:
            self._margins *= 0.0 if renew else self._shrunk
            self._renewed /= self._shrunk
            self._shrunk = 1.0
        if not renew:
            self._shrunk *= 1 - step
        records, entries = self._column(k)
        moved = self._margins[records] + entries * (step * value / self._shrunk)
        self._margins[records] = moved
        if self._seen is None:
            self._kept *= 1 - step
            self._jumps += step * abs(value) * self.query.bounds.largest * len(records)
            return
        if renew or self._shrunk < RENEW * self._renewed:
            records, moved, self._renewed = slice(None), self._margins, self._shrunk
        seen = moved * self._shrunk
        if self._marked is not None:
            self._jumps += float(np.abs(seen - self._seen[records]).sum())
        self._seen[records] = seen

    def mark(self) -> None:
        """Count drift from here on."""
        self._kept, self._jumps = 1.0, 0.0
        self._marked = float(np.abs(self._current()).sum())

    def drift(self) -> float:
        """Bound on the sum over records of how far their margins are from where they were marked.

        Exact: margins shrink together, by a factor that leaves ``kept`` of them; a step moves those
        of the records in its column, by no more than what it adds, since that shrinks later too.
        Stale: what the margins behind the slopes jumped by.
        """
        assert self._marked is not None
        return (1 - self._kept) * self._marked + self._jumps

    def _current(self, records: Any = slice(None)) -> np.ndarray:
        return self._margins[records] * self._shrunk if self._seen is None else self._seen[records]

    def _column(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        columns = self.columns
        part = slice(int(columns.indptr[k]), int(columns.indptr[k + 1]))
        return columns.indices[part], columns.data[part]

    def furthest_margin(self) -> float:
        return float(np.abs(self._current()).max(initial=0.0))


class VertexPath:
    """The public side of a followed gradient: steps go in, sealed gradients come out."""

    __slots__ = ("_followed", "_point", "_sensitivity", "_shrunk")

    def __init__(
        self, incremental_gradient: IncrementalGradient, start: np.ndarray, sensitivity: Sensitivity
    ) -> None:
        self._followed, self._sensitivity = incremental_gradient, sensitivity
        self._point, self._shrunk = np.array(start), 1.0

    def gradient(self) -> Sealed:
        """The gradient where the path stands, and wherever it will stand: the value follows."""
        return Sealed(KEY, self._followed, self._sensitivity)

    def move(self, coordinate: int, value: float, step: float) -> None:
        """theta <- (1 - step) theta + step * value * e_coordinate; all of it public."""
        if not 0 < step <= 1:
            raise ValueError(f"a step lies in (0, 1], got {step!r}.")
        self._followed.move(coordinate, value, step)
        if step == 1 or self._shrunk < 1e-100:
            self._point = np.zeros_like(self._point) if step == 1 else self._point * self._shrunk
            self._shrunk = 1.0
        if step != 1:
            self._shrunk *= 1 - step
        self._point[coordinate] += step * value / self._shrunk

    def theta(self) -> np.ndarray:
        return self._shrunk * self._point

    def __repr__(self) -> str:
        return f"VertexPath(dimension={self._point.size}, view={self._sensitivity.view})"

    def __reduce__(self) -> Any:
        raise Refused("a path holds private data and is not pickled.")
