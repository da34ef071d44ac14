"""The oracle: the only holder of data. A solver asks views and gets sealed values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import scipy.sparse as sp

from privopt.noise import Source
from privopt.oracle.chunked import NO_ORDER, ChunkedRows
from privopt.oracle.column_shapes import ShapeTables
from privopt.oracle.dense import DenseRows
from privopt.oracle.labels import numbers
from privopt.oracle.mapped import MappedRows, RowMap
from privopt.oracle.rows import EmptyRows, RawRows, RowBounds, Rows
from privopt.oracle.sampling import COUPLING, GeometricSkips, Sampler
from privopt.oracle.view import View
from privopt.oracle.weighted import WeightedRows
from privopt.privacy.budget import NEIGHBOURING, Neighbouring, Refused, replaces
from privopt.privacy.events import FULL, ROOT, Cell, Sampling


class Oracle:
    """Private records under a neighbouring relation.

    ``dimension`` and ``bounds`` are public. The number of records is not part of the interface:
    a solver that needs it takes the declared one from its plan.
    """

    __slots__ = (
        "_borders",
        "_cell",
        "_cuts",
        "_largest",
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
        borders: np.ndarray | None = None,
        largest: int = 1,
    ) -> None:
        if neighbouring not in NEIGHBOURING:
            raise ValueError(f"neighbouring must be one of {', '.join(NEIGHBOURING)}.")
        self._rows, self._sampler, self._cell = rows, sampler, cell
        self._numbers = itertools.count(1) if numbers is None else numbers
        self._cuts = {} if cuts is None else cuts
        self._shuffled, self._borders, self._largest = shuffled, borders, largest
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
        owned: np.ndarray | None = None,
    ) -> Oracle:
        """Hold a NumPy array, a torch tensor or a SciPy sparse matrix, without copying it.

        ``weights``, between 0 and 1, say how much each record counts. ``owned`` says how many rows
        each user has, one user's behind another's: parts then hold whole users.
        """
        rows: Any = make_rows(X, y, bounds, classification)
        if weights is not None:
            rows = WeightedRows.build(rows, weights)
        borders = None if owned is None else np.concatenate([[0], np.cumsum(owned)])
        if borders is not None and borders[-1] != rows.count:
            raise Refused("every row belongs to one user.")
        sampler = sampler or COUPLING.get() or GeometricSkips(source)
        return cls(rows, neighbouring, sampler, borders=borders)

    @classmethod
    def over_chunks(
        cls,
        rows: ChunkedRows,
        *,
        neighbouring: Neighbouring,
        source: Source,
        sampler: Sampler | None = None,
    ) -> Oracle:
        """Hold rows that lie in chunks, wherever these are."""
        held = cast(Rows, rows)  # of rows, they have what is asked of them here
        return cls(held, neighbouring, sampler or COUPLING.get() or GeometricSkips(source))

    @classmethod
    def empty(
        cls,
        dimension: int,
        *,
        neighbouring: Neighbouring,
        bounds: RowBounds,
        source: Source,
        largest: int = 1,
    ) -> Oracle:
        """An oracle over no records, for declaring what a run will release; ``largest`` is how many
        rows a user may have."""
        rows = EmptyRows(dimension, bounds)
        return cls(rows, neighbouring, GeometricSkips(source), largest=largest)

    def relabelled(self, rows: ChunkedRows) -> Oracle:
        """The same records in chunks, with labels that were made where they lie."""
        if not isinstance(self._rows, ChunkedRows) or rows.count != self._rows.count:
            raise Refused("these are not the same records.")
        return self._like(cast(Rows, rows), self._cell)

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
        if isinstance(self._rows, ChunkedRows):
            raise Refused(NO_ORDER)
        if self._borders is None:
            rows = self._rows.take(self._sampler.order(self._rows.count))
            return self._like(rows, self._cell, shuffled=True)
        return self._of_users(self._sampler.order(len(self._borders) - 1), self._cell, True)

    def _of_users(self, users: np.ndarray, cell: Cell, shuffled: bool) -> Oracle:
        """All rows of some users, one user's behind another's."""
        starts, ends = self._borders[users], self._borders[users + 1]  # type: ignore[index]
        borders = np.concatenate([[0], np.cumsum(ends - starts)])
        places = np.arange(borders[-1]) + np.repeat(starts - borders[:-1], ends - starts)
        return self._like(self._rows.take(places), cell, shuffled, borders)

    def mapped(self, row_map: RowMap) -> Oracle:
        """The same records after a public linear map and its clip."""
        if isinstance(self._rows, ChunkedRows):
            return self._like(cast(Rows, self._rows.mapped(row_map)), self._cell, self._shuffled)
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
        if isinstance(self._rows, ChunkedRows) and isinstance(self._sampler, GeometricSkips):
            rows = cast(Rows, self._rows.sampled(self._sampler.key, number, rate))
            return View(rows, (self._cell,), Sampling(rate), number, self.neighbouring)
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
        edges = [self._rows.count * i // k for i in range(k + 1)]
        if self._borders is not None:  # at the last user that lies before an edge
            edges = [int(self._borders[self._borders <= edge][-1]) for edge in edges]
        return self._cut("blocks", k, edges)

    def parts(self, sizes: Sequence[int]) -> list[Oracle]:
        """Cut the records, in their given order, into disjoint parts of public sizes.

        Records beyond the last part are left out; where there are fewer, the last parts are short.
        So is a part in which the next user has no place.
        """
        if not sizes or min(sizes) < 1:
            raise ValueError("every part needs at least one record.")
        if max(sizes) < self._largest:
            raise Refused(
                f"parts of at most {max(sizes)} rows have no place for the {self._largest} rows of "
                "a user: take larger parts, or a solver that asks all records at once."
            )
        if self._borders is None:
            edges = np.concatenate([[0], np.cumsum(sizes)]).clip(max=self._rows.count).tolist()
            return self._cut("parts", tuple(sizes), edges)
        edges = [0]
        for size in sizes:  # as many whole users as have a place
            edges.append(int(self._borders[self._borders <= edges[-1] + size][-1]))
        return self._cut("parts", tuple(sizes), edges)

    def _cut(self, how: str, what: Any, edges: list[int]) -> list[Oracle]:
        if self.neighbouring == "add_remove":
            raise Refused(
                "blocks by position shift when a record is added or removed: "
                'use neighbouring="zero_out" or "replace_one".'
            )
        self._check_cut(how, what)
        found = []
        for index, (start, stop) in enumerate(itertools.pairwise(edges)):
            borders = self._borders
            if borders is not None:
                borders = borders[(borders >= start) & (borders <= stop)] - start
            rows = self._rows.part(start, stop)
            found.append(self._like(rows, (*self._cell, index), self._shuffled, borders))
        return found

    def cyclic(self, groups: int) -> list[Oracle]:
        """Deal the records into groups, each by its own fair coin, for batches that take turns.

        A record's group does not depend on its place nor on who else is there, so this holds under
        every relation. Group sizes are private.
        """
        if groups < 1:
            raise ValueError(f"the number of groups must be positive, got {groups}.")
        self._check_cut("groups", groups)
        if self._borders is not None:
            dealt = self._sampler.groups(len(self._borders) - 1, groups)
            each = (np.flatnonzero(dealt == group) for group in range(groups))
            return [
                self._of_users(users, (*self._cell, group), self._shuffled)
                for group, users in enumerate(each)
            ]
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

    def _like(
        self,
        rows: Rows,
        cell: Cell,
        shuffled: bool = False,
        borders: np.ndarray | None = None,
    ) -> Oracle:
        return Oracle(
            rows,
            self.neighbouring,
            self._sampler,
            cell=cell,
            numbers=self._numbers,
            cuts=self._cuts,
            shuffled=shuffled,
            borders=self._borders if borders is None else borders,
            largest=self._largest,
        )

    @property
    def knows_users(self) -> bool:
        """Whether parts of these records hold whole users."""
        return self._borders is not None

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
