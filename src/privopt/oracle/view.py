"""A view: a set of records that questions can be asked of, and that answers in sealed values."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, cast

import numpy as np

from privopt.engines.engine import CHANGED
from privopt.losses import Loss, VectorLoss, met, met_vector
from privopt.oracle.chunked import NO_ORDER, ChunkedRows
from privopt.oracle.classes import MatrixQuery
from privopt.oracle.coordinate_gradient import CoordinateGradient
from privopt.oracle.counting import grid_step
from privopt.oracle.held import check_own, held
from privopt.oracle.incremental_gradient import IncrementalGradient, VertexPath
from privopt.oracle.objective import Objective, function_facts
from privopt.oracle.queries import CoordinateClippedGradient, CountableQuery, Query, movement
from privopt.oracle.rows import ColumnRows, Rows
from privopt.oracle.sealed import KEY, Sealed
from privopt.oracle.sensitivity import FunctionFacts, Grid, Sensitivity
from privopt.oracle.vector_gradient import VectorObjective, vector_facts
from privopt.privacy.budget import Neighbouring, Refused, records_moved
from privopt.privacy.events import Cell, Sampling

LISTENER: ContextVar[Callable[[str, np.ndarray], None] | None] = ContextVar(
    "privopt_listener", default=None
)
"""Told each question of this context and the point that it is asked at, so that an audit can see
whether the point follows from what was released."""


class View:
    """A set of records that questions can be asked of: no length, no rows, only sealed answers."""

    __slots__ = ("_cells", "_neighbouring", "_number", "_rows", "_sampling")

    def __init__(
        self,
        rows: Rows,
        cells: tuple[Cell, ...],
        sampling: Sampling,
        number: int,
        neighbouring: Neighbouring,
    ) -> None:
        self._rows, self._cells, self._sampling = rows, cells, sampling
        self._number = number
        self._neighbouring: Neighbouring = neighbouring

    def ask(
        self, query: Query, at: np.ndarray | None = None, *, resolution: float | None = None
    ) -> Sealed:
        """Ask for a sum over the view's records. Errors carry no text of the data.

        With ``resolution`` the answer is exact: each record's own part is cut off toward zero to
        whole steps of a grid, so many of which make up the sensitivity, and the integers are added
        up.
        """
        at = np.zeros(self._rows.dimension) if at is None else np.asarray(at, dtype=float)
        if at.shape != (self._rows.dimension,):
            raise ValueError(f"a question is asked at a vector of length {self._rows.dimension}.")
        return self._asked(query, at, resolution)

    def ask_all(
        self, query: MatrixQuery, at: np.ndarray, *, resolution: float | None = None
    ) -> Sealed:
        """The same for a question at one vector for each class; the answer is one long vector."""
        at = np.asarray(at, dtype=float)
        shape = query.classes, self._rows.dimension
        if at.shape != shape:
            raise ValueError(f"this question is asked at a matrix of {shape[0]} x {shape[1]}.")
        return self._asked(query, at, resolution)

    def _asked(self, query: Query, at: np.ndarray, resolution: float | None) -> Sealed:
        name, query = type(query).__name__, held(query)
        _heard(name, at)
        movement, single = self._movement(query)
        step = None if resolution is None else grid_step(movement, resolution)
        payload, refused = None, None
        try:
            if isinstance(self._rows, ChunkedRows):
                payload = self._rows.asked(query, at, step)
            elif step is None:
                payload = query.total(self._rows, at)
            else:
                payload = self._count(query, at, step)
        except Exception as error:
            refused = CHANGED if str(error) == CHANGED else None
            payload = None  # outside this block, so that no traceback holds on to the rows
        if refused is not None:
            raise Refused(refused)
        if payload is None:
            raise Refused(f"{name} could not be computed; details are withheld.")
        if step is None:
            return self._seal(payload, query.norm, movement, single)
        grid = Grid(step, payload.size)
        return Sealed(KEY, payload, self._sensitivity(query.norm, movement, single, None, grid))

    def coordinate_gradient(self, query: Query, at: np.ndarray) -> CoordinateGradient:
        """The same question at a point that will move along one coordinate at a time."""
        if np.shape(at) != (self._rows.dimension,):
            raise ValueError(f"a question is asked at a vector of length {self._rows.dimension}.")
        check_own(query)
        _heard(type(query).__name__, at)
        if isinstance(self._rows, ChunkedRows):
            raise Refused(NO_ORDER)
        return CoordinateGradient(self._rows, query, at, *self._movement(query), self._seal)

    def follow(
        self, query: CoordinateClippedGradient, start: np.ndarray, *, stale: bool = False
    ) -> VertexPath:
        """The gradient of sparse records along a path from vertex to vertex.

        ``stale`` follows another sum over records in its place: see ``incremental_gradient``.
        """
        if not hasattr(self._rows, "columns"):
            raise Refused("only a sparse matrix is read by columns: use SciPy's CSR format.")
        check_own(query)
        query.check(self._rows)
        followed = None
        try:
            columns = cast(ColumnRows, self._rows).columns()
            followed = IncrementalGradient(*columns, query, start, stale)
        except Exception:
            followed = None  # outside this block, so that no traceback holds on to the rows
        if followed is None:
            raise Refused("the columns could not be read; details are withheld.")
        sensitivity = self._sensitivity(query.norm, *self._movement(query), None)
        return VertexPath(followed, start, sensitivity)

    def function(self, loss: Loss | VectorLoss) -> Sealed:
        """The total loss as a sealed function, for mechanisms that perturb the objective."""
        bounds, dimension = self._rows.bounds, self._rows.dimension
        in_place = self._neighbouring != "add_remove"
        if isinstance(loss, VectorLoss):
            loss = met_vector(loss)
            facts, payload = vector_facts(loss, bounds, dimension, in_place), VectorObjective
        else:
            loss = met(loss)
            facts, payload = function_facts(loss, bounds, dimension, in_place), Objective
        twice = records_moved(self._neighbouring)
        sensitivity = self._sensitivity("function", twice * facts.lipschitz, facts.lipschitz, facts)
        made: Any = payload  # each takes the loss that it was chosen for
        if isinstance(self._rows, ChunkedRows):
            return Sealed(KEY, self._rows.objective(loss, made), sensitivity)
        return Sealed(KEY, made(self._rows.precise(), loss), sensitivity)

    def _count(self, query: Query, at: np.ndarray, step: float) -> np.ndarray:
        if not hasattr(query, "count"):  # a look at one name: steps of a stream are short
            raise Refused("this question has no answer in integers.")
        return cast(CountableQuery, query).count(self._rows, at, step)

    def _movement(self, query: Query) -> tuple[Any, Any]:
        """How far a neighbour moves the sum, and the size of one record's own part."""
        return movement(query, self._neighbouring), query.radius()

    def _seal(self, payload: Any, norm: Any, movement: Any, single: Any) -> Sealed:
        return Sealed(KEY, payload, self._sensitivity(norm, movement, single, None))

    def _sensitivity(
        self,
        norm: Any,
        radius: Any,
        single: Any,
        facts: FunctionFacts | None,
        grid: Grid | None = None,
    ) -> Sensitivity:
        return Sensitivity(
            norm, radius, single, self._cells, self._number, self._sampling, None, facts, grid
        )

    def __repr__(self) -> str:
        return f"View(number={self._number}, cells={self._cells}, rate={self._sampling.rate:g})"


def _heard(name: str, at: np.ndarray) -> None:
    listener = LISTENER.get()
    if listener is not None:
        listener(name, at)
