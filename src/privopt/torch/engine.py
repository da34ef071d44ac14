"""The clipped sum of per-example gradients, from one forward and one backward pass.

Layers with a rule hand over their inputs and the gradients of their outputs; a norm for each
example follows, then the clip factor, then the weighted sum. A part of the model with parameters of
its own that no rule knows gets a copy of them for each example (``torch.func.vmap``), and the same
backward pass returns their gradients example by example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter, is_
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.utils._pytree import tree_map

from privopt.noise.source import SecureSource
from privopt.privacy.budget import Refused
from privopt.torch.by_example import Part, by_example
from privopt.torch.clip import Clip
from privopt.torch.layers import rule_for
from privopt.torch.losses import (
    LossFunction,
    border,
    check_count,
    check_exchanged,
    check_half,
    check_history,
    check_rows,
    uses_by_itself,
)
from privopt.torch.pieces import Dense, Piece, Rule, merged, squared_norms
from privopt.torch.reachable import Reachable
from privopt.torch.rounding import HALF, WIDE_MARGIN, margin
from privopt.torch.structure import Structure, same_buffers


@dataclass
class Call:
    """What one call of a layer leaves behind for the backward pass."""

    input: Tensor
    version: int
    output: GradientEdge


@dataclass
class Layer:
    """A layer with a rule."""

    name: str
    module: nn.Module
    rule: Rule
    shared: bool = False  # its input is one row for all examples, such as positions
    calls: list[Call] = field(default_factory=list)

    def parameters(self) -> list[nn.Parameter]:
        return [p for p in self.module.parameters(recurse=False) if p.requires_grad]

    def manner(self) -> tuple[Any, ...]:
        return self.rule, self.shared


Unit = Layer | Part
DEVICE, DTYPE = attrgetter("device"), attrgetter("dtype")


class Engine:
    """Computes clipped sums for one model, as flat vectors of length ``size``."""

    def __init__(self, model: nn.Module, clip: Clip) -> None:
        self.model, self.clip = model, clip
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        if not self.parameters:
            raise ValueError("the model has no parameter that requires a gradient.")
        if len({p.device for p in self.parameters}) > 1:
            raise ValueError("all trained parameters must be on one device.")
        double = any(p.dtype == torch.float64 for p in self.parameters)
        self.dtype = torch.float64 if double else torch.float32
        self.size = sum(p.numel() for p in self.parameters)
        self.crowd = 0  # a public size that batches rarely exceed
        self.structure = Structure(model)
        self.units: list[Unit] = list(_units("", model, set()))
        self._recording = False
        self.losses: Tensor | None = None  # of the last examples, for whoever releases their sum
        self.known: set[int] = set()  # losses that were seen to take their examples one by one
        self.coins = SecureSource().apart()  # of checks: neither the noise's nor the batches'
        self.manner = 0  # what the model can get at, as it was tried last
        self.given: tuple[Tensor, ...] = ()  # the tensors of the loader's batch

    def like(self) -> Tensor:
        """Zeros in the shape, type and place of a sum."""
        return torch.zeros(self.size, dtype=self.dtype, device=self.parameters[0].device)

    def unchanged(self, device: torch.device) -> bool:
        """Whether the model still trains the same parameters in the same place."""
        if not self.structure.same():
            self.structure = Structure(self.model)
        now = self.structure.trained()
        same = len(now) == len(self.parameters) and all(map(is_, now, self.parameters))
        return same and {*map(DEVICE, now)} == {device}

    # ------------------------------------------------------------ structure
    def shape(self) -> tuple[Any, ...]:
        """Which layers follow a rule, and how the other parts are called."""
        return tuple([(unit.name, *unit.manner()) for unit in self.units])

    def run_example_by_example(self) -> None:
        """Give up all rules: the whole model runs on copies of its parameters."""
        self.units = [Part("", self.model)]

    def margin(self, device: str) -> float:
        half = not {*map(DTYPE, self.parameters)}.isdisjoint(HALF)
        return margin(self.dtype, half or torch.is_autocast_enabled(device), device, self.crowd)

    def mark(self, loss: LossFunction) -> int:
        """What a loss computes: a lambda is a new object in every step, and still the same."""
        return Reachable(loss, self.model).mark

    # ------------------------------------------------------------ one batch
    def clipped_sum(
        self,
        loss: LossFunction,
        inputs: tuple[Any, ...],
        keywords: dict[str, Any],
        targets: tuple[Any, ...],
        count: int,
    ) -> Tensor:
        """The sum of the clipped gradients of ``count`` examples, flat."""
        parts, _ = self.clipped(loss, inputs, keywords, targets, count)
        return torch.cat(parts)

    def clipped(
        self,
        loss: LossFunction,
        inputs: tuple[Any, ...],
        keywords: dict[str, Any],
        targets: tuple[Any, ...],
        count: int,
        keep: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> tuple[list[Tensor], Tensor | None]:
        """Clipped sums of all parameters, flat, and whether they are of no use.

        ``keep`` marks the examples that count; the others fill a batch up to a fixed size. No value
        is looked at then: an example that counts and is not finite spoils the sums, and the second
        answer says so. ``weights``, one row for each sum that is wanted, are for checks.
        """
        device = self.parameters[0].device.type
        room = self.margin(device)
        try:
            # Some functions write to buffers without a new version; no layer with a rule does.
            copied = any(isinstance(unit, Part) for unit in self.units)
            before = self.structure.buffers(copied)
            with torch.enable_grad(), self._record(count):
                output = self.model(*inputs, **keywords)
                losses = loss(output, *targets)
            check_count(losses, count)
            if keep is None and not same_buffers(before, self.structure.buffers(False)):
                raise Refused(
                    "a buffer changes when the model runs: what it learns from examples would "
                    "leave without noise."
                )
            edges: list[Any] = [edge for unit in self.units for edge in _edges(unit)]
            looking = keep is None and weights is None and count > 1
            if looking and (mark := self.mark(loss)) not in self.known:
                check_history(losses)
                if uses_by_itself(losses, edges, self.parameters):
                    if not any(isinstance(unit, Layer) for unit in self.units):
                        raise Refused(
                            "the loss uses a parameter of the model by itself, which no clip "
                            "covers: a penalty on weights is free as the optimizer's weight_decay."
                        )
                    self.run_example_by_example()
                    return self.clipped(loss, inputs, keywords, targets, count)
                check_rows(losses, border(losses, edges, output), room >= WIDE_MARGIN)
                check_half(loss, losses, output, targets)
                check_exchanged(loss, output, targets, count, self)
                self.known.add(mark)
            self.losses = losses.detach()
            # One gradient of ones: each example's loss depends on that example alone.
            found = torch.autograd.grad(losses, edges, torch.ones_like(losses), allow_unused=True)
            with torch.no_grad(), torch.autocast(device, enabled=False):
                return self._sums(iter(found), count, room, keep, weights)
        finally:
            self.forget()

    def weighed(
        self,
        loss: LossFunction,
        inputs: tuple[Any, ...],
        keywords: dict[str, Any],
        targets: tuple[Any, ...],
        count: int,
        weights: Tensor,
    ) -> Tensor:
        """Clipped gradients added up with weights, one sum for each row of them: for checks."""
        parts, _ = self.clipped(loss, inputs, keywords, targets, count, None, weights)
        return torch.stack(parts)

    def forget(self) -> None:
        """Drop what the last batch left behind."""
        for unit in self.units:
            (unit.calls if isinstance(unit, Layer) else unit.copies).clear()

    def _sums(
        self,
        gradients: Iterator[Tensor | None],
        count: int,
        margin: float,
        keep: Tensor | None,
        weights: Tensor | None = None,
    ) -> tuple[list[Tensor], Tensor | None]:
        pieces: dict[nn.Parameter, list[Piece]] = {p: [] for p in self.parameters}
        groups: list[set[nn.Parameter]] = []
        for unit in self.units:
            for parameter, piece in self._pieces(unit, gradients, count):
                pieces[parameter].append(piece)
            groups.append(set(unit.parameters()))
        found = {p: merged(many) for p, many in pieces.items() if many}
        norms = {p: squared_norms(many) for p, many in found.items()}
        zero = torch.zeros(count, dtype=self.dtype, device=self.parameters[0].device)
        together = _joined(groups) if self.clip.kind == "per_layer" else [set(self.parameters)]
        factors: dict[nn.Parameter, Tensor] = {}
        for group in together:
            squared = sum((norms[p] for p in group if p in norms), zero)
            factor = self.clip.factors(squared, len(together), margin)
            factors.update(dict.fromkeys(group, factor))
        dropped = ~torch.isfinite(sum(norms.values(), zero))
        lost: Tensor | None = None
        if keep is not None:
            lost = (dropped & keep).any()
            factors = {p: factor.masked_fill(~keep, 0) for p, factor in factors.items()}
        elif bool(dropped.any()):
            # Zero times NaN is NaN: what is not finite has to be taken out of the sums.
            found = {p: [piece.without(dropped) for piece in many] for p, many in found.items()}
            factors = {p: factor.masked_fill(dropped, 0) for p, factor in factors.items()}

        def added(weights: Tensor | None) -> list[Tensor]:
            sums: list[Tensor] = []
            for parameter in self.parameters:
                factor = factors[parameter] if weights is None else factors[parameter] * weights
                parts = [p.weighted_sum(factor) for p in found.get(parameter, ())]
                empty = zero.new_zeros(parameter.numel())
                sums.append(sum(parts[1:], parts[0]) if parts else empty)
            return sums

        if weights is not None:
            return [torch.cat(added(row)) for row in weights], None
        return added(None), lost

    def _pieces(
        self, unit: Unit, gradients: Iterator[Tensor | None], count: int
    ) -> Iterator[tuple[nn.Parameter, Piece]]:
        if isinstance(unit, Part):
            trained = unit.trained()
            for copies in unit.copies:
                for name in copies:
                    gradient = next(gradients)
                    if gradient is not None:
                        rows = gradient.to(self.dtype).reshape(count, -1)
                        yield trained[name], Dense(rows)
            return
        for call in unit.calls:
            gradient = next(gradients)
            if gradient is None:
                continue
            if call.input._version != call.version:
                raise Refused(
                    f"the input of layer {unit.name!r} is changed in place after the layer has "
                    "used it: its gradient cannot be computed. Use a copy there."
                )
            x = call.input.detach()
            x = x.to(self.dtype) if x.is_floating_point() else x
            for parameter, piece in unit.rule(unit.module, x, gradient.to(self.dtype)):
                if isinstance(parameter, nn.Parameter) and parameter.requires_grad:
                    yield parameter, piece

    # ------------------------------------------------------------ recording
    @contextmanager
    def _record(self, count: int) -> Iterator[None]:
        """Hooks are there for as long as a batch is recorded: the model stays as it was."""
        self._recording, self._count = True, count
        hooks: list[Any] = []
        parts = [unit.module for unit in self.units if isinstance(unit, Part)]
        before = [vars(module).get("forward") for module in parts]  # a wrapper's, as a rule none
        for unit in self.units:
            if isinstance(unit, Part):
                forward = unit.module.forward
                unit.module.forward = by_example(unit, forward, count, self._unrecorded)
            else:
                module, repeat, record = unit.module, *_recorder(self, unit)
                hooks.append(module.register_forward_pre_hook(repeat, with_kwargs=True))
                hooks.append(module.register_forward_hook(record, with_kwargs=True))
        try:
            yield
        finally:
            self._recording = False
            for hook in hooks:
                hook.remove()
            for module, own in zip(parts, before, strict=True):
                del module.forward
                if own is not None:
                    module.forward = own

    @contextmanager
    def _unrecorded(self) -> Iterator[None]:
        self._recording = False
        try:
            yield
        finally:
            self._recording = True

    @property
    def recording(self) -> int | None:
        """Number of examples, while a batch is being recorded."""
        return self._count if self._recording else None


def _units(name: str, module: nn.Module, known: set[nn.Module]) -> Iterator[Unit]:
    """Layers with a rule; and the highest modules with other parameters of their own."""
    if module in known:
        return  # used in two places: one unit with several calls
    known.add(module)
    own = [p for p in module.parameters(recurse=False) if p.requires_grad]
    rule = rule_for(module)
    if own and rule is not None:
        yield Layer(name, module, rule)
    elif own:
        yield Part(name, module)
    else:
        for child_name, child in module.named_children():
            yield from _units(f"{name}.{child_name}" if name else child_name, child, known)


def _recorder(engine: Engine, layer: Layer) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def repeat(module: nn.Module, args: Any, kwargs: Any) -> Any:
        count = engine.recording
        if count is None or not layer.shared:
            return None
        return tree_map(lambda x: x.expand(count, *x.shape[1:]), (args, kwargs))

    def record(module: nn.Module, args: Any, kwargs: Any, output: Tensor) -> Tensor | None:
        count = engine.recording
        if count is None or not output.requires_grad:
            return None
        x = args[0] if args else kwargs["input"]
        if len(x) != count:
            raise Refused(
                f"layer {layer.name!r} is not given one row for each example: keep the examples "
                "in the first dimension."
            )
        if output._is_view():
            # An operation in place would replace the history of a view, and our place in it.
            output = torch.ops.aten._unsafe_view(output, output.shape)
        layer.calls.append(Call(x, x._version, get_gradient_edge(output)))
        return output

    return repeat, record


def _edges(unit: Unit) -> Iterator[Any]:
    if isinstance(unit, Layer):
        for call in unit.calls:
            yield call.output
    else:
        for copies in unit.copies:
            yield from copies.values()


def _joined(groups: list[set[nn.Parameter]]) -> list[set[nn.Parameter]]:
    """Layers as clipping groups; layers that share a parameter are one group."""
    found: list[set[nn.Parameter]] = []
    for group in groups:
        touching = [other for other in found if other & group]
        found = [other for other in found if not other & group]
        found.append(group.union(*touching))
    return found
