"""The clipped sum of a batch of fixed size as one compiled graph.

Forward, backward, norms and sums are traced once (the engine's hooks run while tracing) and
compiled. Shorter batches are filled up with copies of their first example that do not count. A
graph looks at no value, so a batch with an example that is not finite is summed once more without.

A device computes while its host looks whether anything has changed: a sum may begin before that, by
the graph of the step before, and is dropped if another one turns out to be right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import is_
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_map

from privopt.privacy.budget import Refused
from privopt.torch.arguments import Arguments, arguments_of, leaves_of
from privopt.torch.engine import Engine
from privopt.torch.losses import LossFunction, identity
from privopt.torch.rounding import slack

FEW = 64
"""Examples with which a new loss is looked at: a graph looks at no value."""

Graph = Callable[..., tuple[Tensor, Tensor]]

KNOWN: WeakKeyDictionary[nn.Module, WeakValueDictionary[Any, Graph]] = WeakKeyDictionary()
"""Graphs of a model, for as long as a run that uses them is alive: a second run of the same model
does not compile it again."""


class CompiledSum:
    """``Engine.clipped_sum`` for at most ``size`` examples, compiled by a backend of torch."""

    def __init__(self, engine: Engine, size: int, backend: str) -> None:
        self._engine, self.size, self._backend = engine, size, backend
        self._graphs: dict[Any, Graph] = {}
        self._last: tuple[int, torch.device, Tensor] | None = None
        self._latest: tuple[Any, Any, Any, Graph] | None = None  # how the last sum was found
        self._begun: tuple[list[Any], Any, Any] | None = None

    def begin(self, arguments: Arguments, count: int) -> None:
        """Begin the sum that ``clipped_sum`` is asked for next, as the last one went."""
        leaves, spec = leaves_of(arguments)
        rows = self._rows(leaves)
        kinds = spec if isinstance(spec, int) else str(spec), _kinds(rows)
        if self._latest is not None and self._latest[:2] == kinds:
            _, _, key, graph = self._latest
            with torch.no_grad():
                results = graph(*rows, self._mask(count, self._engine.parameters[0].device))
            self._begun = leaves, key, results

    def drop(self) -> None:
        """Forget what was begun."""
        self._begun = None

    def clipped_sum(
        self,
        loss: LossFunction,
        inputs: tuple[Any, ...],
        keywords: dict[str, Any],
        targets: tuple[Any, ...],
        count: int,
    ) -> Tensor:
        """As the engine's, with the loss as a plain function of output and targets."""
        found, lost = self.started(loss, inputs, keywords, targets, count)
        if not bool(lost):
            return found
        return self._engine.clipped_sum(loss, inputs, keywords, targets, count)

    def started(
        self,
        loss: LossFunction,
        inputs: tuple[Any, ...],
        keywords: dict[str, Any],
        targets: tuple[Any, ...],
        count: int,
    ) -> tuple[Tensor, Tensor]:
        """The sum, and whether it is of no use; a device may still be at it.

        The result may lie where the next call writes to.
        """
        engine = self._engine
        leaves, spec = leaves_of((inputs, keywords, targets))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        others = [(i, leaf) for i, leaf in enumerate(leaves) if not isinstance(leaf, Tensor)]
        begun, self._begun = self._begun, None
        rows = self._rows(leaves) if begun is None else ()
        device = engine.parameters[0].device
        keep, mark = self._mask(count, device), engine.mark(loss)
        way = spec if isinstance(spec, int) else str(spec)
        kinds = _kinds(rows) if begun is None else begun[1][5][1]
        key = (
            (self._backend, self.size, engine.clip, engine.margin(device.type)),
            (slack(engine.dtype), slack(engine.dtype, convolved=True)),
            engine.shape(),
            identity(loss),
            (mark, engine.manner),
            (way, kinds),
            repr(others) if others else None,
            torch.is_autocast_enabled(device.type),
            tuple([p.data_ptr() for p in engine.parameters]),
            engine.structure,
            engine.structure.modes(),
        )
        if begun is not None and not (begun[1] == key and all(map(is_, begun[0], leaves))):
            return self.started(loss, inputs, keywords, targets, count)  # another one is right
        if key not in self._graphs or mark not in engine.known:
            # A few as they are: checks look at values, which a graph cannot do.
            few = min(count, FEW)
            cut = tree_map(lambda x: x[:few] if isinstance(x, Tensor) else x, leaves)
            engine.clipped(loss, *arguments_of(cut, spec), few)
        if key not in self._graphs:
            known = KNOWN.setdefault(engine.model, WeakValueDictionary())
            graph = known.get(key)
            if graph is None:
                graph = self._traced(loss, spec, places, others, rows, keep)
            known[key] = self._graphs[key] = graph
        self._latest = way, kinds, key, self._graphs[key]
        with torch.no_grad():
            return self._graphs[key](*rows, keep) if begun is None else begun[2]

    def _rows(self, leaves: list[Any]) -> list[Tensor]:
        return [_filled(leaf, self.size) for leaf in leaves if isinstance(leaf, Tensor)]

    def _mask(self, count: int, device: torch.device) -> Tensor:
        """Which places of a filled batch count; most batches of a schedule are of one size."""
        if self._last is None or self._last[:2] != (count, device):
            self._last = count, device, torch.arange(self.size, device=device) < count
        return self._last[2]

    def _traced(
        self,
        loss: LossFunction,
        spec: Any,
        places: list[int],
        others: list[tuple[int, Any]],
        rows: Sequence[Tensor],
        keep: Tensor,
    ) -> Callable[..., tuple[Tensor, Tensor]]:
        engine = self._engine

        def run(*arguments: Tensor) -> tuple[Tensor, Tensor | None]:
            leaves: list[Any] = [None] * (len(places) + len(others))
            for i, leaf in others:
                leaves[i] = leaf
            for i, row in zip(places, arguments, strict=False):
                leaves[i] = row
            keep = arguments[-1]
            parts, lost = engine.clipped(loss, *arguments_of(leaves, spec), self.size, keep)
            return torch.cat(parts), lost

        try:
            with _compiling():
                graph = make_fx(run)(*rows, keep)
        except RuntimeError as problem:
            if "tracing tensor" not in str(problem):
                raise
            raise Refused(
                "the model takes decisions by values of tensors, such as which expert sees which "
                "token, and a compiled step looks at no value: drop compile."
            ) from problem
        for node in graph.graph.nodes:
            if node.target is torch.ops.aten.view.default:  # strides may be others when compiled
                node.target = torch.ops.aten.reshape.default
        graph.recompile()
        self._check_constants(graph)
        compiled = torch.compile(graph, backend=self._backend, dynamic=False)
        return Replayed(compiled, (*rows, keep)) if keep.is_cuda else compiled

    def _check_constants(self, graph: Any) -> None:
        """A graph repeats what it has seen: no batch but the given one may have got into it."""
        model = self._engine.model
        known = {id(x) for x in (*model.parameters(), *model.buffers())}
        for node in graph.graph.nodes:
            if node.op != "get_attr":
                continue
            value: Any = graph
            for name in str(node.target).split("."):
                value = getattr(value, name)
            if isinstance(value, Tensor) and value.dim() and id(value) not in known:
                raise Refused(
                    "a compiled step sees only what it is given: hand tensors to step, as inputs "
                    "or targets=..., instead of using them from outside."
                )


@contextmanager
def _compiling() -> Iterator[None]:
    """Models that ask whether they are compiled take no decision by values then."""
    before = getattr(torch.compiler, "_is_compiling_flag", None)
    if before is None:
        yield
        return
    torch.compiler._is_compiling_flag = True  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before  # type: ignore[attr-defined]


class Replayed:
    """A function of tensors as one launch, for a device that would wait for many small ones."""

    def __init__(self, run: Callable[..., Any], arguments: tuple[Tensor, ...]) -> None:
        self._arguments = [argument.clone() for argument in arguments]
        now, aside = torch.cuda.current_stream(), torch.cuda.Stream()
        aside.wait_stream(now)
        with torch.no_grad(), torch.cuda.stream(aside):
            for _ in range(2):  # what is done once, such as compiling, stays out of the recording
                run(*self._arguments)
        now.wait_stream(aside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(self._graph):
            self._results = run(*self._arguments)

    def __call__(self, *arguments: Tensor) -> Any:
        """The results, in a place that the next call writes to."""
        for mine, argument in zip(self._arguments, arguments, strict=True):
            mine.copy_(argument)
        self._graph.replay()
        return self._results


def _kinds(rows: Sequence[Tensor]) -> tuple[Any, ...]:
    return tuple([(row.shape, row.dtype) for row in rows])


def _filled(rows: Tensor, size: int) -> Tensor:
    if len(rows) == size:
        return rows
    return torch.cat([rows, rows[:1].expand(size - len(rows), *rows.shape[1:])])
