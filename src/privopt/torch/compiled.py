"""The clipped sum of a batch of fixed size as one compiled graph.

Forward, backward, norms and sums are traced once (the engine's hooks run while tracing) and
compiled. Shorter batches are filled up with zeros that do not count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from privopt.privacy.budget import Refused
from privopt.torch.engine import Engine, LossFunction


class CompiledSum:
    """``Engine.clipped_sum`` for at most ``size`` examples, compiled by a backend of torch."""

    def __init__(self, engine: Engine, size: int, backend: str) -> None:
        self._engine, self.size, self._backend = engine, size, backend
        self._graphs: dict[Any, Callable[..., Tensor]] = {}

    def clipped_sum(
        self,
        loss: LossFunction,
        inputs: tuple[Any, ...],
        keywords: dict[str, Any],
        targets: tuple[Any, ...],
        count: int,
        total: Tensor,
    ) -> None:
        """As the engine's, with the loss as a plain function of output and targets."""
        leaves, spec = tree_flatten((inputs, keywords, targets))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        others = [(i, leaf) for i, leaf in enumerate(leaves) if not isinstance(leaf, Tensor)]
        rows = [_filled(leaves[i], self.size) for i in places]
        keep = torch.arange(self.size, device=total.device) < count
        key = (
            _identity(loss),
            str(spec),
            tuple((row.shape, row.dtype) for row in rows),
            repr(others),
            torch.is_autocast_enabled(total.device.type),
            tuple(module.training for module in self._engine.model.modules()),
        )
        if key not in self._graphs:
            # Once as it is: checks look at values, which a graph cannot do.
            self._engine.clipped_sum(loss, inputs, keywords, targets, count, self._engine.like())
            self._graphs[key] = self._traced(loss, spec, places, others, rows, keep)
        with torch.no_grad():
            total += self._graphs[key](*rows, keep)

    def _traced(
        self,
        loss: LossFunction,
        spec: TreeSpec,
        places: list[int],
        others: list[tuple[int, Any]],
        rows: list[Tensor],
        keep: Tensor,
    ) -> Callable[..., Tensor]:
        engine = self._engine

        def run(*arguments: Tensor) -> Tensor:
            leaves: list[Any] = [None] * (len(places) + len(others))
            for i, leaf in others:
                leaves[i] = leaf
            for i, row in zip(places, arguments, strict=False):
                leaves[i] = row
            inputs, keywords, targets = tree_unflatten(leaves, spec)
            keep = arguments[-1]
            total = torch.zeros(engine.size, dtype=engine.dtype, device=keep.device)
            engine.clipped_sum(loss, inputs, keywords, targets, self.size, total, keep)
            return total

        graph = make_fx(run)(*rows, keep)
        self._check_constants(graph)
        # One launch for the whole step, where there is a device that waits for launches.
        mode = "reduce-overhead" if keep.is_cuda and self._backend == "inductor" else None
        return torch.compile(graph, backend=self._backend, dynamic=False, mode=mode)

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


def _identity(loss: LossFunction) -> Any:
    """What a function computes: a lambda is a new object in every step, and still the same."""
    if not hasattr(loss, "__code__"):
        return loss
    cells = [cell.cell_contents for cell in loss.__closure__ or ()]
    values = [x if isinstance(x, (int, float, str)) else id(x) for x in cells]
    return loss.__code__, tuple(values), repr(loss.__defaults__)


def _filled(rows: Tensor, size: int) -> Tensor:
    if len(rows) == size:
        return rows
    filled = rows.new_zeros(size, *rows.shape[1:])
    filled[: len(rows)] = rows
    return filled
