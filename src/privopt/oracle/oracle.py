"""The oracle: the only holder of data. A solver asks views and gets sealed values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import scipy.sparse as sp

from privopt.losses import Loss, VectorLoss, met, met_vector
from privopt.noise import Source
from privopt.oracle.classes import MatrixQuery
from privopt.oracle.column_shapes import ShapeTables
from privopt.oracle.coordinate_gradient import CoordinateGradient
from privopt.oracle.counting import grid_step
from privopt.oracle.dense import DenseRows
from privopt.oracle.held import check_own, held
from privopt.oracle.incremental_gradient import IncrementalGradient, VertexPath
from privopt.oracle.labels import numbers
from privopt.oracle.mapped import MappedRows, RowMap
from privopt.oracle.objective import Objective, function_facts
from privopt.oracle.queries import CoordinateClippedGradient, CountableQuery, Query, movement
from privopt.oracle.rows import ColumnRows, EmptyRows, RawRows, RowBounds, Rows
from privopt.oracle.sampling import COUPLING, GeometricSkips, Sampler
from privopt.oracle.sealed import KEY, Sealed
from privopt.oracle.sensitivity import FunctionFacts, Grid, Sensitivity
from privopt.oracle.vector_gradient import VectorObjective, vector_facts
from privopt.oracle.weighted import WeightedRows
from privopt.privacy.budget import NEIGHBOURING, Neighbouring, Refused, records_moved, replaces
from privopt.privacy.events import FULL, ROOT, Cell, Sampling


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
        movement, single = self._movement(query)
        step = None if resolution is None else grid_step(movement, resolution)
        payload = None
        try:
            payload = query.total(self._rows, at) if step is None else self._count(query, at, step)
        except Exception:
            payload = None  # outside this block, so that no traceback holds on to the rows
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


class Oracle:
    """Private records under a neighbouring relation.

    ``dimension`` and ``bounds`` are public. The number of records is not part of the interface:
    a solver that needs it takes the declared one from its plan.
    """

    __slots__ = (
        "_cell",
        "_cuts",
        "_numbers",
        "_rows",
        "_sampler",
        "_shuffled",
        "bounds",
        "dimension",
        "neighbouring",
    )

    def __init__(
        self,
        rows: Rows,
        neighbouring: Neighbouring,
        sampler: Sampler,
        *,
        cell: Cell = ROOT,
        numbers: itertools.count[int] | None = None,
        cuts: dict[Cell, tuple[str, Any, bool]] | None = None,
        shuffled: bool = False,
    ) -> None:
        if neighbouring not in NEIGHBOURING:
            raise ValueError(f"neighbouring must be one of {', '.join(NEIGHBOURING)}.")
        self._rows, self._sampler, self._cell = rows, sampler, cell
        self._numbers = itertools.count(1) if numbers is None else numbers
        self._cuts = {} if cuts is None else cuts
        self._shuffled = shuffled
        self.neighbouring: Neighbouring = neighbouring
        self.dimension = rows.dimension
        self.bounds = rows.bounds

    @classmethod
    def over(
        cls,
        X: Any,
        y: Any,
        *,
        neighbouring: Neighbouring,
        bounds: RowBounds,
        source: Source,
        classification: bool = True,
        sampler: Sampler | None = None,
        weights: Any = None,
    ) -> Oracle:
        """Hold a NumPy array, a torch tensor or a SciPy sparse matrix, without copying it.

        ``weights``, between 0 and 1, say how much each record counts.
        """
        rows: Any = make_rows(X, y, bounds, classification)
        if weights is not None:
            rows = WeightedRows.build(rows, weights)
        return cls(rows, neighbouring, sampler or COUPLING.get() or GeometricSkips(source))

    @classmethod
    def empty(
        cls, dimension: int, *, neighbouring: Neighbouring, bounds: RowBounds, source: Source
    ) -> Oracle:
        """An oracle over no records, for declaring what a run will release."""
        return cls(EmptyRows(dimension, bounds), neighbouring, GeometricSkips(source))

    def labelled(self, y: Any, *, classification: bool = True) -> Oracle:
        """The same records with other labels, sharing the rows."""
        if self._shuffled:
            raise Refused("labels belong to the given order: label the oracle, then shuffle it.")
        return self._like(self._rows.labelled(y, classification), self._cell)

    def shuffled(self) -> Oracle:
        """The same records in a secret uniform order, drawn once for all models of one oracle."""
        if self.neighbouring == "add_remove":
            raise Refused(
                "an order of the records shifts when one is added or removed: "
                'use neighbouring="zero_out" or "replace_one".'
            )
        if self._shuffled:
            return self
        rows = self._rows.take(self._sampler.order(self._rows.count))
        return self._like(rows, self._cell, shuffled=True)

    def mapped(self, row_map: RowMap) -> Oracle:
        """The same records after a public linear map and its clip."""
        rows = MappedRows.build(self._rows, row_map)  # type: ignore[arg-type]
        return self._like(rows, self._cell, self._shuffled)

    def shaped(self, tables: ShapeTables) -> Oracle:
        """The same records with the features that public tables give them, to be mapped next:
        nothing has clipped what was added."""
        if self.bounds.data_norm != math.inf:
            raise Refused("features are added to rows that are not clipped: these are.")
        rows = cast(RawRows, self._rows).widened(tables.features, tables.width)
        return self._like(rows, self._cell, self._shuffled)

    def within(self, cell: Cell) -> Oracle:
        """The same records as one part of more, of which no other part holds any of them: whoever
        says so answers for it (``solvers.Blocks``)."""
        return self._like(self._rows, (*self._cell, *cell), self._shuffled)

    def clipped_to(self, norm: float) -> Oracle:
        """The same records with features in units of a public norm, and clipped to it."""
        if not 0 < norm < math.inf:
            raise ValueError(f"a row bound must be positive and finite, got {norm!r}.")
        if self.bounds.data_norm != math.inf:
            raise Refused("rows are clipped once: these already are.")
        rows = cast(RawRows, self._rows).clipped_to(norm)
        return self._like(rows, self._cell, self._shuffled)

    def everything(self) -> View:
        return self._view(self._rows, FULL)

    def poisson(self, rate: float) -> View:
        """A fresh batch that holds each record independently with probability ``rate``."""
        number = next(self._numbers)
        chosen = self._sampler.choose(self._rows.count, rate, number)
        rows = self._rows if rate >= 1 else self._rows.take(chosen)
        return View(rows, (self._cell,), Sampling(rate), number, self.neighbouring)

    def fixed(self, size: int, of: int) -> View:
        """A fresh batch of ``size`` of the ``of`` records, uniformly without replacement.

        ``of`` is the public number of records. Only replace_one: under add_remove the number is
        private, and under zero_out Poisson batches need half the noise.
        """
        if not replaces(self.neighbouring):
            raise Refused(
                "batches of fixed size need a public number of records and "
                f'neighbouring="replace_one"; under {self.neighbouring} use Poisson batches.'
            )
        if not 1 <= size <= of:
            raise ValueError(f"a batch holds between 1 and {of} records, got {size}.")
        number, rows = next(self._numbers), self._rows
        if not isinstance(rows, EmptyRows):
            if rows.count != of:
                raise Refused(
                    f"batches of fixed size were planned for {of} records; give the true number, "
                    "which is public under replace_one."
                )
            rows = rows if size == of else rows.take(self._sampler.draw(of, size, number))
        sampling = FULL if size == of else Sampling(size / of, fixed_size=True)
        return View(rows, (self._cell,), sampling, number, self.neighbouring)

    def blocks(self, k: int) -> list[Oracle]:
        """Cut the records, in their given order, into k disjoint parts: parallel composition.

        Under add_remove every later record would change its place, so positions mean nothing there.
        """
        if k < 1:
            raise ValueError(f"the number of blocks must be positive, got {k}.")
        return self._cut("blocks", k, [self._rows.count * i // k for i in range(k + 1)])

    def parts(self, sizes: Sequence[int]) -> list[Oracle]:
        """Cut the records, in their given order, into disjoint parts of public sizes.

        Records beyond the last part are left out; where there are fewer, the last parts are short.
        """
        if not sizes or min(sizes) < 1:
            raise ValueError("every part needs at least one record.")
        edges = np.concatenate([[0], np.cumsum(sizes)]).clip(max=self._rows.count).tolist()
        return self._cut("parts", tuple(sizes), edges)

    def _cut(self, how: str, what: Any, edges: list[int]) -> list[Oracle]:
        if self.neighbouring == "add_remove":
            raise Refused(
                "blocks by position shift when a record is added or removed: "
                'use neighbouring="zero_out" or "replace_one".'
            )
        self._check_cut(how, what)
        return [
            self._like(self._rows.part(start, stop), (*self._cell, index), self._shuffled)
            for index, (start, stop) in enumerate(itertools.pairwise(edges))
        ]

    def cyclic(self, groups: int) -> list[Oracle]:
        """Deal the records into groups, each by its own fair coin, for batches that take turns.

        A record's group does not depend on its place nor on who else is there, so this holds under
        every relation. Group sizes are private.
        """
        if groups < 1:
            raise ValueError(f"the number of groups must be positive, got {groups}.")
        self._check_cut("groups", groups)
        dealt = self._sampler.groups(self._rows.count, groups)
        return [
            self._like(
                self._rows.take(np.flatnonzero(dealt == group)),
                (*self._cell, group),
                self._shuffled,
            )
            for group in range(groups)
        ]

    def _check_cut(self, how: str, parts: Any) -> None:
        """Spend is the maximum over cells: it is right for one partition only."""
        cut = how, parts, self._shuffled
        if self._cuts.setdefault(self._cell, cut) != cut:
            raise Refused("these records were already cut into other blocks: use the same cut.")

    def _like(self, rows: Rows, cell: Cell, shuffled: bool = False) -> Oracle:
        return Oracle(
            rows,
            self.neighbouring,
            self._sampler,
            cell=cell,
            numbers=self._numbers,
            cuts=self._cuts,
            shuffled=shuffled,
        )

    def _view(self, rows: Rows, sampling: Sampling) -> View:
        return View(rows, (self._cell,), sampling, next(self._numbers), self.neighbouring)

    def __repr__(self) -> str:
        return f"Oracle(dimension={self.dimension}, neighbouring={self.neighbouring!r})"

    def __reduce__(self) -> Any:
        raise Refused("an oracle holds private data and is not pickled: pickle the data yourself.")


@np.errstate(all="ignore")  # a warning that one record causes would tell of it
def make_rows(X: Any, y: Any, bounds: RowBounds, classification: bool) -> Rows:
    """Private rows over whatever array the caller has; a masked cell is a missing one."""
    X, y = numbers(X, "X"), numbers(y, "y")
    if sp.issparse(X):
        from privopt.oracle.sparse import SparseRows

        return SparseRows.build(X, y, bounds, classification)
    return DenseRows.build(X, y, bounds, classification)
