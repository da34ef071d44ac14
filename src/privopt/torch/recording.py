"""What layers leave behind for the backward pass, while a batch is recorded.

Hooks note the input of a layer and the place of its output in the graph. Where a part of a model
runs example by example (``by_example``), tensors carry the dimension of examples apart from their
own: it is taken from there, so nothing has to be guessed, and what is computed once for all, such
as a table of relative positions, is given a row for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._C._functorch import (
    _add_batch_dim,
    get_unwrapped,
    is_batchedtensor,
    maybe_current_level,
    maybe_get_bdim,
    maybe_get_level,
)
from torch.autograd.graph import get_gradient_edge
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from privopt.privacy.budget import Refused
from privopt.torch import experts
from privopt.torch.by_example import Part, by_example
from privopt.torch.units import Call, Layer, Unit

FUNCTIONS = {F.embedding: 1, F.linear: 1}
"""Functions with a rule, and the place of the weight among their arguments."""


def configs_of(model: nn.Module) -> list[Any]:
    """Settings of a model that say whether it keeps keys and values for the next token."""
    found = [vars(module).get("config") for module in model.modules()]
    kept = {id(c): c for c in found if isinstance(getattr(c, "use_cache", None), bool)}
    return list(kept.values())


@contextmanager
def without_caches(configs: list[Any]) -> Iterator[None]:
    """Training predicts no next token: what is kept for it takes memory, and cannot be mapped."""
    before = [config.use_cache for config in configs]
    try:
        for config in configs:
            config.use_cache = False
        yield
    finally:
        for config, value in zip(configs, before, strict=True):
            config.use_cache = value


class Recorder:
    """Notes the calls of units during one forward pass."""

    def __init__(self, views: int = 1) -> None:
        self.count: int | None = None  # of rows, while a batch is recorded
        self.views = views  # rows of an example
        self._level: int | None = None  # of the examples, where they run apart
        self._units: list[Unit] = []
        self.second = False  # whether this is a second run, in which nothing is noted

    def marks(self) -> list[tuple[Layer, int]]:
        """How many calls each layer has left so far."""
        return [(unit, len(unit.calls)) for unit in self._units if isinstance(unit, Layer)]

    def back_to(self, marks: list[tuple[Layer, int]]) -> None:
        """Forget the calls of a part that could not be mapped over examples."""
        for layer, length in marks:
            del layer.calls[length:]

    @contextmanager
    def recorded(self, units: list[Unit], count: int) -> Iterator[None]:
        """Hooks are there for as long as a batch is recorded: the model stays as it was."""
        with self._hooked(units, count):
            yield

    @contextmanager
    def again(self, units: list[Unit], count: int) -> Iterator[None]:
        """On the way back, where what is checkpointed runs once more: in the same way, and nothing
        new is noted. Layers with a hook that only takes notes need none."""
        if not any(isinstance(unit, Part) for unit in units):
            units = [u for u in units if u.shared or u.inside or u.experts]  # type: ignore
        with self._hooked(units, count, True):
            yield

    @contextmanager
    def _hooked(self, units: list[Unit], count: int, again: bool = False) -> Iterator[None]:
        self.count, self._units, self.second = count * self.views, units, again
        hooks: list[Any] = []
        replaced: list[tuple[nn.Module, Any]] = []  # a wrapper's forward, as a rule none
        for unit in units:
            module = unit.module
            made: Callable[..., Any] | None = None
            if isinstance(unit, Part):
                rows = self.count if unit.name else count  # the whole model is given examples
                made = by_example(unit, module.forward, rows, self)
            elif unit.experts:
                made = partial(self._experts, unit, module.forward)
            elif unit.inside:
                made = partial(self._watched, unit, module.forward)
            else:
                repeat, record = self._hooks(unit)
                hooks.append(module.register_forward_pre_hook(repeat, with_kwargs=True))
                hooks.append(module.register_forward_hook(record, with_kwargs=True))
            if made is not None:
                replaced.append((module, vars(module).get("forward")))
                module.forward = made
        try:
            yield
        finally:
            self.count, self.second = None, False
            for hook in hooks:
                hook.remove()
            for module, own in replaced:
                del module.forward
                if own is not None:
                    module.forward = own

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Where layers belong to copies of their parameters."""
        before, self.count = self.count, None
        try:
            yield
        finally:
            self.count = before

    @contextmanager
    def apart(self, count: int) -> Iterator[None]:
        """Inside the map over so many examples, or views of them."""
        before, self._level, self.count = (self._level, self.count), maybe_current_level(), count
        try:
            yield
        finally:
            self._level, self.count = before

    # ------------------------------------------------------------ calls
    def _hooks(self, layer: Layer) -> tuple[Callable[..., Any], Callable[..., Any]]:
        def repeat(module: nn.Module, args: Any, kwargs: Any) -> Any:
            if self.count is None or not (layer.shared or self._level is not None):
                return None
            return tree_map(partial(self._rows, layer), (args, kwargs))

        def record(module: nn.Module, args: Any, kwargs: Any, output: Tensor) -> Tensor | None:
            if self.count is None:
                return None
            x = args[0] if args else kwargs["input"]
            return self.note(layer, x, output)

        return repeat, record

    def _rows(self, layer: Layer, x: Any) -> Any:
        """A tensor with a row for each example."""
        if not isinstance(x, Tensor) or self.count is None:
            return x
        if self._level is not None:
            if maybe_current_level() != self._level:
                raise NotImplementedError("a map within the map over examples")
            if is_batchedtensor(x) and maybe_get_level(x) == self._level:
                return x
            return _add_batch_dim(x.expand(self.count, *x.shape), 0, self._level)
        return x.expand(self.count, *x.shape[1:]) if layer.shared else x

    def note(self, layer: Layer, x: Tensor, output: Tensor, rule: Any = None) -> Tensor:
        """One call; gives what stands for its output from here on."""
        apart = self._level is not None
        inner = self._examples_first(output) if apart else output
        if not inner.requires_grad:
            return output
        if apart:
            x = self._examples_first(x)
        if len(x) != self.count or len(inner) != self.count:
            raise Refused(
                f"layer {layer.name!r} is not given one row for each example: keep the examples "
                "in the first dimension."
            )
        if inner._is_view():
            # An operation in place would replace the history of a view, and our place in it.
            inner = torch.ops.aten._unsafe_view(inner, inner.shape)
        if not self.second:
            layer.calls.append(Call(x, x._version, get_gradient_edge(inner), apart, rule))
        return self._back(inner) if apart else inner

    def _examples_first(self, x: Tensor) -> Tensor:
        """The tensor of all examples behind one that shows a single one."""
        if not (is_batchedtensor(x) and maybe_get_level(x) == self._level):
            raise NotImplementedError("a layer that is not given its example")
        return get_unwrapped(x).movedim(maybe_get_bdim(x), 0)

    def _back(self, x: Tensor) -> Tensor:
        assert self._level is not None
        return _add_batch_dim(x, 0, self._level)

    # ------------------------------------------------------------ layers of several functions
    def _watched(self, layer: Layer, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.count is None:
            return forward(*args, **kwargs)
        with _Watched(self, layer):
            return forward(*args, **kwargs)

    def _experts(self, layer: Layer, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.count is None or not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        given = tree_map(partial(self._rows, layer), (*args, *kwargs.values()))
        if self._level is not None:
            given = tuple([self._examples_first(x) for x in given])
        hidden, index, weights = given
        if len(hidden) != self.count or hidden.dim() != 3:
            raise NotImplementedError("experts that are not given one row for each example")
        output, products = experts.run(layer.module, hidden, index, weights)
        for name, x, where, groups in products if not self.second else ():
            rule = partial(_of_experts, layer.module, name, groups)
            layer.calls.append(
                Call(x, x._version, get_gradient_edge(where), self._level is not None, rule)
            )
        return output if self._level is None else self._back(output)


def _of_experts(module: nn.Module, name: str, groups: Tensor, x: Tensor, g: Tensor) -> list[Any]:
    return [experts.piece(module, name, x, g, groups)]


class _Watched(TorchFunctionMode):
    """Notes where a layer hands its weight to a function that has the rule."""

    def __init__(self, recorder: Recorder, layer: Layer) -> None:
        super().__init__()
        self._recorder, self._layer = recorder, layer

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        layer = self._layer
        if not uses_weight(layer, func, args):
            return func(*args, **(kwargs or {}))
        x = self._recorder._rows(layer, args[0])
        return self._recorder.note(layer, x, func(x, *args[1:], **(kwargs or {})))


def uses_weight(layer: Layer, func: Any, args: tuple[Any, ...]) -> bool:
    """Whether a function that has the rule is given the layer's weight."""
    place = FUNCTIONS.get(func)
    fits = (
        place is not None
        and len(args) > place
        and isinstance(layer.module, nn.Embedding) == (func is F.embedding)
    )
    return fits and args[place] is layer.module.weight  # type: ignore[index, return-value]
