"""A run on made-up inputs: what the layers, the parts and the output of a model see of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from privopt.noise.random_numbers import luck, same_random_numbers
from privopt.privacy.budget import Refused
from privopt.torch.by_example import Part
from privopt.torch.engine import Engine
from privopt.torch.made_up import called
from privopt.torch.recording import uses_weight
from privopt.torch.rounding import HALF
from privopt.torch.structure import same_values
from privopt.torch.units import Layer, Unit

HALF_SHARE = 3e-2


def title(name: str) -> str:
    return f"layer {name!r}" if name else "the model"


class Seen(TorchFunctionMode):
    """Calls of the engine's layers and parts, and parameters that are used outside of them."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.names: list[str] = []
        self.values: list[list[Tensor]] = []
        self.units: list[Layer | Part] = []
        self.lucky, self._views = False, engine.views
        self.stray: set[int] = set()  # parameters that something else than their unit uses
        self._inside: list[Unit] = []
        self._owners: dict[int, list[Unit]] = {}
        for unit in engine.units:
            for parameter in unit.parameters():
                self._owners.setdefault(id(parameter), []).append(unit)

    def note(self, unit: Layer | Part) -> list[Any]:
        def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            if not (isinstance(unit, Layer) and unit.inside):
                self._saw(unit, (args, kwargs))
            self._inside.append(unit)

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            self._inside.remove(unit)

        module = unit.module
        return [
            module.register_forward_pre_hook(enter, with_kwargs=True),
            module.register_forward_hook(leave),
        ]

    def _saw(self, unit: Unit, given: Any) -> None:
        """What a unit is given; inside of parts examples are told apart in another way."""
        if any(isinstance(around, Part) for around in self._inside):
            return
        self.units.append(unit)
        self.names.append(title(unit.name))
        found = [leaf for leaf in tree_leaves(given) if isinstance(leaf, Tensor)]
        self.values.append([self._folded(x) for x in found] if unit.name else found)

    def _folded(self, x: Tensor) -> Tensor:
        """With a row for each example again, where rows are views."""
        if self._views == 1 or not x.dim() or len(x) % self._views:
            return x
        return x.unflatten(0, (-1, self._views))

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if any(isinstance(x, Tensor) for x in tree_leaves(result)):
            for leaf in tree_leaves((args, kwargs)):
                owners = self._owners.get(id(leaf)) if isinstance(leaf, nn.Parameter) else None
                if owners and not any(self._uses(owner, func, args) for owner in owners):
                    self.stray.add(id(leaf))
        return result

    def _uses(self, owner: Unit, func: Any, args: tuple[Any, ...]) -> bool:
        if not any(owner is unit for unit in self._inside):
            return False
        if not (isinstance(owner, Layer) and owner.inside):
            return True
        fits = uses_weight(owner, func, args)
        if fits:
            self._saw(owner, args[0])
        return fits


def run(engine: Engine, made: Any, seed: int = 0) -> Seen:
    """What the layers and the output see, without gradients."""
    model, seen, device = engine.model, Seen(engine), engine.parameters[0].device
    hooks = [hook for unit in engine.units for hook in seen.note(unit)]
    with kept_modes(model) as before, same_random_numbers(device, seed), torch.no_grad():
        try:
            start = luck(device)
            with seen:
                output = called(model, made)
            seen.lucky = luck(device) != start
        finally:
            for hook in hooks:
                hook.remove()
            engine.forget()
        for name, buffer in model.named_buffers():
            if not _same_buffer(buffer, *before.get(name, (None, None, 0))):
                raise Refused(
                    f"buffer {name!r} changes when the model runs: what it learns from examples "
                    "would leave without noise. Freeze it, or use a layer without statistics."
                )
    seen.names.append("the output")
    seen.values.append([leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)])
    return seen


def _same_buffer(now: Tensor, then: Tensor | None, value: Tensor | None, version: int) -> bool:
    """Neither written to, nor replaced by another one with other values. Batch normalisation
    writes to its statistics without a new version."""
    if now is then and now._version != version:
        return False
    return value is not None and same_values(now, value)


def differ(one: Seen, other: Seen, unlike: Callable[[Tensor, Tensor], bool]) -> str | None:
    """The first place at which two runs are unlike each other."""
    if one.names != other.names:
        return "the model"
    for name, these, those in zip(one.names, one.values, other.values, strict=True):
        if len(these) != len(those) or any(map(unlike, these, those)):
            return name
    return None


def unlike(a: Tensor, b: Tensor, wider: float = 1.0) -> bool:
    """Up to rounding, which depends on the largest numbers around; devices add up in any order."""
    if a.shape != b.shape:
        return True
    a, b = a.detach(), b.detach()
    wide = torch.complex128 if a.is_complex() else torch.float64
    share = wider * (1e-5 if a.device.type == "cpu" else 1e-3)
    if a.dtype in HALF or b.dtype in HALF or torch.is_autocast_enabled(a.device.type):
        share = HALF_SHARE
    finite = a[a.isfinite()].abs()
    room = 1e-6 + (share * float(finite.max()) if finite.numel() else 0.0)
    return not torch.allclose(a.to(wide), b.to(wide), 1e-4, room, equal_nan=True)


def length(x: Tensor) -> int:
    return len(x) if x.dim() else -1


@contextmanager
def kept_modes(model: nn.Module) -> Iterator[dict[str, tuple[Tensor, Tensor, int]]]:
    """Modes and buffers of a model, put back afterwards; gives each buffer with its value."""
    modes = [(module, module.training) for module in model.modules()]
    owners = [(module, dict(module._buffers)) for module in model.modules()]
    before = {name: (b, b.clone(), b._version) for name, b in model.named_buffers()}
    try:
        yield before
    finally:
        for module, training in modes:
            module.training = training
        for module, own in owners:
            module._buffers.clear()
            module._buffers.update(own)
        with torch.no_grad():
            for buffer, value, _ in before.values():
                if not same_values(buffer, value):
                    buffer.copy_(value)
