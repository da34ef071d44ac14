"""Rows in chunks that live elsewhere: in files, or in the memory of workers.

Every question is a sum over records, so it is asked of each chunk, and the answers are added along
a fixed tree (``privopt.engines``). Integers add up alike in any order; sums in floating point have
the same bits whoever computed what, and how often. What a record adds to integers depends on it
alone, so these do not depend on the chunks either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self, cast

import numpy as np

from privopt.engines import Engine
from privopt.noise.keyed import chosen
from privopt.numerics.convex import UNIT
from privopt.oracle.dense import DenseRows
from privopt.oracle.enclosure import Enclosed
from privopt.oracle.mapped import MappedRows
from privopt.oracle.row_map import RowMap
from privopt.oracle.rows import RowBounds
from privopt.privacy.budget import Refused
from privopt.sources import Dataset

NO_ORDER = 'data in chunks is asked whole or by Poisson batches: use solver="noisy_sgd".'


@dataclass(frozen=True)
class Method:
    """A method of a chunk's rows with its arguments, as a task that can be sent."""

    name: str
    arguments: tuple[Any, ...] = ()

    def __call__(self, rows: Any) -> Any:
        return getattr(rows, self.name)(*self.arguments)


@dataclass(frozen=True)
class Question:
    """A whole question, in integers if there is a step."""

    query: Any
    at: np.ndarray
    step: float | None

    def __call__(self, rows: Any) -> Any:
        if self.step is None:
            return self.query.total(rows, self.at)
        return self.query.count(rows, self.at, self.step)


@dataclass(frozen=True)
class Map:
    """Rows after a public map."""

    row_map: RowMap

    def __call__(self, rows: Any) -> MappedRows:
        return MappedRows.build(rows, self.row_map)


@dataclass(frozen=True)
class Labels:
    """The same rows with labels that a public rule makes of theirs."""

    rule: Callable[[np.ndarray], np.ndarray]
    classification: bool

    def __call__(self, rows: Any) -> Any:
        return rows.labelled(self.rule(rows.labels()), self.classification)


@dataclass(frozen=True)
class Batch:
    """A question to the records of a chunk whose own coins are below a rate: the same records at
    every try, on every worker, and however records are cut into chunks."""

    key: bytes
    view: int
    rate: float
    question: Question

    def __call__(self, rows: Any, first: int) -> Any:
        return self.question(rows.take(chosen(self.key, self.view, self.rate, first, rows.count)))


@dataclass(frozen=True)
class Read:
    """The rows of a chunk, clipped to public bounds, in the order in which they are stored."""

    bounds: RowBounds
    classification: bool

    def __call__(self, chunk: Any) -> DenseRows:
        X, y = chunk.read()
        return DenseRows.build(X, y, self.bounds, self.classification)


def _picked(rows: Any, indices: np.ndarray) -> Any:
    return rows.take(indices)


class ChunkedRows:
    """Rows over an engine's chunks: what ``Oracle`` and ``View`` need of rows, and no row."""

    __slots__ = ("_counts", "_engine", "_handles", "bounds", "count", "dimension")

    def __init__(
        self,
        engine: Engine,
        handles: Sequence[Any],
        counts: Sequence[int],
        dimension: int,
        bounds: RowBounds,
    ) -> None:
        self._engine, self._handles, self._counts = engine, list(handles), list(counts)
        self.count, self.dimension, self.bounds = int(sum(counts)), dimension, bounds

    @classmethod
    def read(
        cls, engine: Engine, data: Dataset, bounds: RowBounds, classification: bool
    ) -> ChunkedRows:
        """The rows of a data set, kept where the engine keeps them."""
        handles = engine.keep(Read(bounds, classification), data.chunks)
        dimension = data.shape[1] + (bounds.intercept != 0)
        return cls(engine, handles, [chunk.rows for chunk in data.chunks], dimension, bounds)

    # ------------------------------------------------------------ sums
    def asked(self, query: Any, at: np.ndarray, step: float | None) -> Any:
        """The answer to a question: what each chunk says of it, added up."""
        return self._engine.add(Question(query, at, step), self._handles)

    def objective(self, loss: Any, make: Any) -> ChunkedObjective:
        """The sum of all records' losses, for mechanisms that perturb it; ``make`` makes that of
        one chunk."""
        return ChunkedObjective(self, loss, make)

    # ------------------------------------------------------------ other rows
    def precise(self) -> ChunkedRows:
        return self  # chunks are kept in double precision

    def mapped(self, row_map: RowMap) -> ChunkedRows:
        return self._each(Map(row_map), row_map.dimension, RowBounds(1.0))

    def widened(self, more: Any, width: int) -> ChunkedRows:
        return self._each(Method("widened", (more, width)), self.dimension + width, self.bounds)

    def clipped_to(self, norm: float) -> ChunkedRows:
        bounds = RowBounds(1.0, self.bounds.intercept)
        return self._each(Method("clipped_to", (norm,)), self.dimension, bounds)

    def labelled(self, y: Any, classification: bool) -> ChunkedRows:
        rule: Any = y
        if not callable(rule):
            raise Refused("labels of data in chunks are made chunk by chunk: give the rule.")
        return self._each(Labels(cast(Any, rule), classification), self.dimension, self.bounds)

    def sampled(self, key: bytes, view: int, rate: float) -> SampledRows:
        """A secret batch: each record by its own coin."""
        return SampledRows(self, key, view, rate)

    def take(self, indices: np.ndarray) -> ChunkedRows:
        """Some records as a set: a batch has no order."""
        indices = np.sort(indices)
        edges = [*self._firsts(), self.count]
        cuts = [
            indices[slice(*np.searchsorted(indices, (start, stop)))] - start
            for start, stop in pairwise(edges)
        ]
        handles = self._engine.keep(_picked, self._handles, cuts)
        return self._like(handles, [len(cut) for cut in cuts], self.dimension, self.bounds)

    def part(self, start: int, stop: int) -> ChunkedRows:
        raise Refused(NO_ORDER)

    # ------------------------------------------------------------ the engine's verbs
    def add(self, task: Any, *beside: Sequence[Any]) -> Any:
        """A sum over chunks, of rows and of what is kept beside them."""
        return self._engine.add(task, self._handles, *beside)

    def keep(self, task: Any, *beside: Sequence[Any]) -> list[Any]:
        """One result for each chunk, which stays where the chunk is."""
        return self._engine.keep(task, self._handles, *beside)

    def _firsts(self) -> list[int]:
        return np.concatenate([[0], np.cumsum(self._counts)[:-1]]).astype(int).tolist()

    def _each(self, task: Any, dimension: int, bounds: RowBounds) -> ChunkedRows:
        return self._like(self._engine.keep(task, self._handles), self._counts, dimension, bounds)

    def _like(
        self, handles: Sequence[Any], counts: Sequence[int], dimension: int, bounds: RowBounds
    ) -> ChunkedRows:
        return ChunkedRows(self._engine, handles, counts, dimension, bounds)

    def __reduce__(self) -> Any:
        raise Refused("rows hold private data and are not pickled.")


class SampledRows(ChunkedRows):
    """A batch of records, drawn where they lie. Nobody here knows how many it holds."""

    __slots__ = ("_coins",)

    def __init__(self, rows: ChunkedRows, key: bytes, view: int, rate: float) -> None:
        super().__init__(rows._engine, rows._handles, rows._counts, rows.dimension, rows.bounds)
        self._coins = key, view, rate

    def asked(self, query: Any, at: np.ndarray, step: float | None) -> Any:
        task = Batch(*self._coins, Question(query, at, step))
        return self._engine.add(task, self._handles, self._firsts())

    def objective(self, loss: Any, make: Any) -> ChunkedObjective:
        raise Refused(NO_ORDER)


# ---------------------------------------------------------------- the whole function
@dataclass(frozen=True)
class Derivative:
    """A method of the objective of one chunk."""

    make: Any
    loss: Any
    name: str
    arguments: tuple[Any, ...]

    def __call__(self, rows: Any) -> Any:
        return getattr(self.make(rows.precise(), self.loss), self.name)(*self.arguments)


@dataclass(frozen=True)
class Prefix:
    """The Hessian of the first records of a chunk, and how many they are."""

    make: Any
    loss: Any
    theta: np.ndarray
    share: float

    def __call__(self, rows: Any) -> tuple[np.ndarray, int]:
        most = min(rows.count, max(1, int(rows.count * self.share)))
        return self.make(rows.precise().part(0, most), self.loss).hessian(self.theta), most


@dataclass(frozen=True)
class Product:
    """The product of a chunk's Hessian with a vector, by the curvatures kept beside it."""

    make: Any
    loss: Any
    vector: np.ndarray

    def __call__(self, rows: Any, curvatures: Any) -> np.ndarray:
        return self.make(rows.precise(), self.loss).hessian_product(curvatures, self.vector)


@dataclass(frozen=True)
class Gradient:
    """A chunk's gradient with a bound on its error, to be added up with others."""

    make: Any
    loss: Any
    head: np.ndarray
    tail: np.ndarray
    quick: bool

    def __call__(self, rows: Any) -> Piece:
        function = self.make(rows.precise(), self.loss)
        found = function.enclosed(self.head, self.tail, self.quick)
        return Piece(found.value, np.zeros_like(found.value), found.error)


@dataclass(frozen=True)
class Piece:
    """high + low, and a bound on its distance in l2 from the exact sum."""

    high: np.ndarray
    low: np.ndarray
    error: float

    def __add__(self, other: Self) -> Piece:
        high = self.high + other.high
        moved = high - self.high  # TwoSum: exact
        rest = (self.high - (high - moved)) + (other.high - moved)
        low = (self.low + other.low) + rest
        sizes = sum(float(np.linalg.norm(part)) for part in (self.low, other.low, rest))
        error = self.error + other.error + 4 * UNIT * sizes
        return Piece(high, low, error * (1 + 1e-12))


@dataclass(frozen=True)
class ChunkedObjective:
    """Sum of the records' losses with its derivatives, chunk by chunk. A sealed payload."""

    rows: ChunkedRows
    loss: Any
    make: Any

    @property
    def dimension(self) -> int:
        return self.rows.dimension

    @property
    def count(self) -> int:
        return self.rows.count

    def value(self, theta: np.ndarray) -> float:
        return self._sum("value", theta)

    def values(self, thetas: np.ndarray) -> np.ndarray:
        return self._sum("values", thetas)

    def gradients(self, thetas: np.ndarray) -> np.ndarray:
        return self._sum("gradients", thetas)

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        return self._sum("gradient", theta)

    def hessian(self, theta: np.ndarray) -> np.ndarray:
        return self._sum("hessian", theta)

    def rough_hessian(self, theta: np.ndarray, share: float) -> np.ndarray:
        """The Hessian estimated from the first records of every chunk: one question, not many."""
        found, counted = self.rows.add(Prefix(self.make, self.loss, theta, share))
        return found * (self.count / counted)

    def curvatures(self, theta: np.ndarray) -> list[Any]:
        return self.rows.keep(Derivative(self.make, self.loss, "curvatures", (theta,)))

    def hessian_product(self, curvatures: list[Any], vector: np.ndarray) -> np.ndarray:
        return self.rows.add(Product(self.make, self.loss, vector), curvatures)

    def enclosed(self, head: np.ndarray, tail: np.ndarray, quick: bool = False) -> Enclosed:
        """The gradient at head + tail, with a bound on the error of it that adds up those of the
        chunks and of their sum."""
        found: Piece = self.rows.add(Gradient(self.make, self.loss, head, tail, quick))
        value = found.high + found.low
        error = found.error + 2 * UNIT * float(np.linalg.norm(value))
        return Enclosed(value, error * (1 + 1e-9))

    def _sum(self, name: str, *arguments: Any) -> Any:
        return self.rows.add(Derivative(self.make, self.loss, name, arguments))
