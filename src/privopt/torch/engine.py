"""The clipped sum of per-example gradients, from one forward and one backward pass.

Layers with a rule hand over their inputs and the gradients of their outputs; a norm for each
example follows, then the clip factor, then the weighted sum. A part of the model with parameters of
its own that no rule knows gets a copy of them for each example (``torch.func.vmap``), and the same
backward pass returns their gradients example by example.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter, is_
from typing import Any

import torch
from torch import Tensor, nn

from privopt.noise.source import SecureSource
from privopt.privacy.budget import Refused
from privopt.torch.by_example import Part
from privopt.torch.clip import Clip
from privopt.torch.gradients import slopes
from privopt.torch.losses import (
    BY_ITSELF,
    LossFunction,
    border,
    check_count,
    check_exchanged,
    check_half,
    check_history,
    check_rows,
    uses_by_itself,
)
from privopt.torch.pieces import Dense, Piece, merged, squared_norms
from privopt.torch.reachable import Reachable
from privopt.torch.recording import Recorder, configs_of, without_caches
from privopt.torch.rounding import HALF, WIDE_MARGIN, margin
from privopt.torch.structure import Structure, same_buffers
from privopt.torch.units import Layer, Unit, edges_of, joined, lifted, units_of, without_rules
from privopt.torch.views import Views

DEVICE, DTYPE = attrgetter("device"), attrgetter("dtype")


class Engine:
    """Computes clipped sums for one model, as flat vectors of length ``size``."""

    def __init__(self, model: nn.Module, clip: Clip, views: int = 1) -> None:
        self.given_model, self.views, self.clip = model, views, clip
        self.model = model = model if views == 1 else Views(model, views)
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
        self.units: list[Unit] = units_of(model)
        self.recorder = Recorder(views)
        self.configs = configs_of(model)
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

    def lift(self, names: list[str]) -> None:
        """Run the modules around these units example by example, their layers by rules."""
        self.units = lifted(self.units, self.model, names)

    def copy(self, parameters: set[int]) -> None:
        """Give up the rules of these parameters."""
        self.units = without_rules(self.units, self.model, parameters)

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
        look: bool = True,
    ) -> tuple[list[Tensor], Tensor | None]:
        """Clipped sums of all parameters, flat, and whether they are of no use.

        ``keep`` marks the examples that count; the others fill a batch up to a fixed size. No value
        is looked at then: an example that counts and is not finite spoils the sums, and the second
        answer says so. ``weights`` have one row for each sum that is wanted. ``look``: at a loss
        that is new, but not if it was made for a check.
        """
        device = self.parameters[0].device.type
        room = self.margin(device)
        try:
            # Some functions write to buffers without a new version; no layer with a rule does.
            copied = any(isinstance(unit, Part) for unit in self.units)
            before = self.structure.buffers(copied)
            with torch.enable_grad(), self.recorder.recorded(self.units, count):
                with without_caches(self.configs):
                    output = self.model(*inputs, **keywords)
                losses = loss(output, *targets)
            check_count(losses, count)
            if keep is None and not same_buffers(before, self.structure.buffers(False)):
                raise Refused(
                    "a buffer changes when the model runs: what it learns from examples would "
                    "leave without noise."
                )
            edges: list[Any] = [edge for unit in self.units for edge in edges_of(unit)]
            looking = look and keep is None and count > 1
            fresh = looking and (mark := self.mark(loss)) not in self.known
            if fresh:
                check_history(losses)
                if uses_by_itself(losses, edges, self.parameters):
                    if not any(isinstance(unit, Layer) for unit in self.units):
                        raise Refused(BY_ITSELF)
                    self.run_example_by_example()
                    return self.clipped(loss, inputs, keywords, targets, count, None, weights)
            self.losses = losses.detach()
            with self.recorder.again(self.units, count):
                if fresh:
                    check_rows(losses, border(losses, edges, output), room >= WIDE_MARGIN)
                # One gradient of ones: each example's loss depends on that example alone.
                ones = torch.ones_like(losses)
                found = slopes(losses, edges, ones)
            if fresh:
                check_half(loss, losses, output, targets)
                check_exchanged(loss, output, targets, count, self)
                self.known.add(mark)
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
        look: bool = False,
    ) -> Tensor:
        """Clipped gradients added up with weights, one sum for each row of them: for checks."""
        parts, _ = self.clipped(loss, inputs, keywords, targets, count, None, weights, look)
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
        groups = [group for group in groups if group]
        found = {p: merged(many) for p, many in pieces.items() if many}
        norms = {p: squared_norms(many) for p, many in found.items()}
        zero = torch.zeros(count, dtype=self.dtype, device=self.parameters[0].device)
        together = joined(groups) if self.clip.kind == "per_layer" else [set(self.parameters)]
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
                        rows = gradient.to(self.dtype).reshape(count, -1, trained[name].numel())
                        yield trained[name], Dense(rows.sum(1))
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
            for parameter, piece in unit.pieces(call, x, gradient.to(self.dtype), count):
                if isinstance(parameter, nn.Parameter) and parameter.requires_grad:
                    yield parameter, piece
