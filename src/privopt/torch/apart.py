"""Every example by itself: model and loss see one record at a time, so that no code can mix them.

The sum of clipped gradients is the engine's; only the gradients are found in another way: by
``torch.func.vmap`` over a function of one record, its target and the parameters, or in a loop.
Random numbers are drawn for each example. The loss sees nothing but its own row: tensors from
outside are refused, but for parameters and buffers of modules, and so is whatever keeps something
of an example for the next.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_unflatten

from privopt.privacy.budget import Refused
from privopt.torch.by_example import Part, _check_given, own_weights
from privopt.torch.engine import Engine
from privopt.torch.losses import LossFunction, check_count
from privopt.torch.reachable import COUNTED, Reachable
from privopt.torch.structure import same_buffers

OUTSIDE = (
    'examples="apart" computes each loss from one example, and this loss holds a tensor from '
    "outside: hand what belongs to examples to step as targets=..., and keep public constants in "
    'buffers of a module, as nn.CrossEntropyLoss(weight, reduction="none") does.'
)
KEEPS = (
    "the model or the loss keeps something of an example, which the next one would see: return it, "
    "or drop it."
)
NUMBERS = 2**26
"""Coordinates of all gradients that are there at a time, for memory."""


class Apart:
    """``Engine.clipped_sum``, by construction of one example at a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._part = engine, Part("", engine.model)
        self._trained = self._part.trained()
        self._one_by_one = False
        engine.units = [self._part]

    def clipped_sum(
        self,
        loss: LossFunction,
        inputs: tuple[Any, ...],
        keywords: dict[str, Any],
        targets: tuple[Any, ...],
        count: int,
    ) -> Tensor:
        """The sum of the clipped gradients of ``count`` examples, flat."""
        engine = self._engine
        _check_given((*inputs, *targets), keywords)
        check_sight(Reachable(loss, engine.model))
        leaves, spec = tree_flatten((inputs, keywords, targets))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        parameters = {name: p.detach() for name, p in self._trained.items()}

        def one(parameters: dict[str, Tensor], rows: list[Tensor]) -> Tensor:
            own = list(leaves)
            for i, row in zip(places, rows, strict=False):
                own[i] = self._shown(row)
            args, kwargs, goals = tree_unflatten(own, spec)
            output = torch.func.functional_call(engine.model, parameters, args, kwargs)
            return self._value(loss(output, *goals), rows)

        room = engine.margin(engine.parameters[0].device.type)
        total, size = engine.like(), max(1, NUMBERS // engine.size)
        columns, count = self._cut([leaves[i] for i in places], count)
        for start in range(0, count, size):
            rows = [column[start : start + size] for column in columns]
            found = self._gradients(loss, one, parameters, rows)
            self._part.copies.append(parameters)
            try:
                with torch.no_grad():
                    gradients = iter([found[name] for name in self._trained])
                    sums, _ = engine._sums(gradients, min(size, count - start), room, None)
            finally:
                engine.forget()
            total += torch.cat(sums)
        return total

    def _cut(self, tensors: list[Tensor], count: int) -> tuple[list[Tensor], int]:
        """What is shown one by one, and how many there are."""
        return tensors, count

    def _shown(self, row: Tensor) -> Tensor:
        """A batch of its own."""
        return row.unsqueeze(0)

    def _value(self, losses: Tensor, rows: list[Tensor]) -> Tensor:
        """What is differentiated, of the losses of that batch."""
        check_count(losses, 1, gradient=False)
        return losses[0]

    def _gradients(
        self, loss: LossFunction, one: Any, parameters: dict[str, Tensor], rows: list[Tensor]
    ) -> dict[str, Tensor]:
        """Per-example gradients, after which nothing must be left of the examples."""
        model = self._engine.model
        before = Reachable((loss, model))
        buffers = self._engine.structure.buffers(True)
        attributes = [(module, dict(vars(module))) for module in model.modules()]
        with own_weights(model):
            found = self._mapped(one, parameters, rows)
        same = before.untouched() or (not self._one_by_one and before.only(COUNTED))
        if not same or not same_buffers(buffers, self._engine.structure.buffers(False)):
            for module, held in attributes:
                vars(module).clear()
                vars(module).update(held)
            with torch.no_grad():
                for buffer, _, value in buffers:
                    buffer.copy_(value)  # type: ignore[arg-type]
            raise Refused(KEEPS)
        return found

    def _mapped(
        self, one: Any, parameters: dict[str, Tensor], rows: list[Tensor]
    ) -> dict[str, Tensor]:
        if not self._one_by_one and not _own_rules(torch.autograd.Function):
            try:
                # Of the kernels of attention, only this one can be vectorised everywhere.
                with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
                    warnings.filterwarnings("ignore", "There is a performance drop")
                    slope = torch.func.grad(one)
                    return torch.func.vmap(slope, (None, 0), randomness="different")(
                        parameters, rows
                    )
            except (RuntimeError, NotImplementedError, ValueError):
                pass
        self._one_by_one = True
        names = list(parameters)
        columns: list[list[Tensor]] = []
        for i in range(len(rows[0])):
            own = {name: p.detach().requires_grad_() for name, p in parameters.items()}
            with torch.enable_grad():
                value = one(own, [row[i] for row in rows])
            if not value.requires_grad:
                raise Refused("the loss has no gradient: it does not depend on the parameters.")
            slopes = torch.autograd.grad(value, [own[name] for name in names], allow_unused=True)
            pairs = zip(slopes, names, strict=True)
            columns.append([torch.zeros_like(own[n]) if g is None else g for g, n in pairs])
        stacked = [torch.stack(column) for column in zip(*columns, strict=True)]
        return dict(zip(names, stacked, strict=True))


def check_sight(reached: Reachable) -> None:
    """Refuse a loss that gets at tensors which are no parameters or buffers of a module."""
    things = reached.met()
    modules = [thing for thing in things if isinstance(thing, nn.Module)]
    own = {id(t) for m in modules for t in (*m._parameters.values(), *m._buffers.values())}
    for thing in things:
        if isinstance(thing, (Tensor, np.ndarray)) and thing.ndim and id(thing) not in own:
            raise Refused(OUTSIDE)


def _own_rules(kind: type) -> bool:
    """Whether somebody has written a rule for ``vmap``, which sees all examples at once."""
    base = torch.autograd.Function
    for below in kind.__subclasses__():
        of_torch = below.__module__.partition(".")[0] == "torch"
        if (not of_torch and below.vmap is not base.vmap) or _own_rules(below):
            return True
    return False
