"""A model on made-up inputs of the right shapes: how it treats examples, before any data is seen.

It must not mix examples, neither forward nor backward, nor remember them. No answer depends on
data, and the model is left as it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from privopt.noise.random_numbers import same_random_numbers
from privopt.privacy.budget import Refused
from privopt.torch.belongings import Belongings, attributes_kept
from privopt.torch.clip import Clip
from privopt.torch.engine import Engine, Layer, Part, _edges
from privopt.torch.losses import kind
from privopt.torch.rounding import WIDE_MARGIN
from privopt.torch.structure import same_values

SIZES = (3, 5)
"""Two batch sizes: what grows from one to the other is a batch dimension, whatever its length."""


def probe(engine: Engine, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    """Settle how the engine treats each part of the model; refuse a model that mixes examples.

    What cannot be settled is run example by example, where nothing can be mixed.
    """
    shapes = tree_map(_skeleton, (inputs, keywords))
    first = _made_up(shapes, SIZES[0])
    try:
        with attributes_kept(engine.model):  # what the first run leaves behind, the second sees
            small, again = _run(engine, first), _run(engine, first)
        if _differ(small, again, _unlike):
            raise Refused(
                "the model gives another output for the same made-up inputs: it remembers what it "
                "has seen, or draws random numbers that torch does not know of."
            )
        with attributes_kept(engine.model):
            settled = _settle(engine, small, _run(engine, _made_up(shapes, SIZES[1])))
        if settled and _rehearsed(engine, shapes):
            _check_forward(engine, first, small)
        else:
            engine.run_example_by_example()
        with attributes_kept(engine.model):
            _check_backward(engine, first)
    except Refused:
        raise
    except Exception:
        engine.run_example_by_example()  # made-up inputs do not suit this model


def check_memory(
    belongings: Belongings, model: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    """Refuse a model that adds up what it has seen, anywhere it can be reached."""
    made = _made_up(tree_map(_skeleton, (inputs, keywords)), SIZES[0])

    def run() -> None:
        device = next(model.parameters()).device
        with same_random_numbers(device), torch.no_grad():
            _call(model, made)

    try:
        belongings.check_memory(run)
    except Refused:
        raise
    except Exception:
        return  # made-up inputs do not suit this model


def _check_forward(engine: Engine, made: Any, small: _Seen) -> None:
    """Refuse a model in which a row sees another one."""
    size = SIZES[0]
    for row in range(size):
        others = [i for i in range(size) if i != row]

        def depends(a: Tensor, b: Tensor, others: list[int] = others) -> bool:
            return _length(a) == size and a.shape == b.shape and _unlike(a[others], b[others])

        with attributes_kept(engine.model):
            name = _differ(small, _run(engine, tree_map(_with_other(row), made)), depends)
        if name:
            raise Refused(
                f"{name} sees other examples than its own: a layer before it mixes the "
                "examples of a batch, and clipping cannot bound what one of them moves."
            )


def _check_backward(engine: Engine, made: Any) -> None:
    """Refuse a model in which the gradient of one example moves with the loss of another, by a
    hook or a function with a backward pass of its own."""
    size = SIZES[0]
    with _kept(engine.model), same_random_numbers(engine.parameters[0].device):
        try:
            with torch.enable_grad(), engine._record(size):
                losses = _waves(_call(engine.model, made), size)
            names = [unit.name for unit in engine.units for _ in _edges(unit)]
            edges: list[Any] = [edge for unit in engine.units for edge in _edges(unit)]
            weights = torch.ones_like(losses).expand(size + 1, size).clone()
            weights[1:] += 2 * torch.eye(size).to(weights)  # another loss for each in turn
            plain, *turns = [
                torch.autograd.grad(losses, edges, row, retain_graph=True, allow_unused=True)
                for row in weights
            ]
        finally:
            engine.forget()
    for row, turn in enumerate(turns):
        others = [i for i in range(size) if i != row]
        for name, a, b in zip(names, plain, turn, strict=True):
            if a is not None and b is not None and _unlike(a[others], b[others]):
                raise Refused(
                    f"the gradient at {_title(name)} depends on the losses of other examples: a "
                    "layer after it mixes them on the way back, and clipping cannot bound what "
                    "one of them moves."
                )


def _title(name: str) -> str:
    return f"layer {name!r}" if name else "the model"


def _rehearsed(engine: Engine, shapes: Any) -> bool:
    """Whether the engine finds the gradient that autograd finds, on made-up inputs."""
    size, model = SIZES[0], engine.model
    args, kwargs = made = _made_up(shapes, size)
    device = engine.parameters[0].device
    clip, engine.clip = engine.clip, Clip(1e12)

    def loss(output: Any) -> Tensor:
        return _waves(output, size)

    engine.known.add(kind(loss))
    with _kept(model):
        if any(isinstance(unit, Part) for unit in engine.units):
            model.eval()  # dropout draws in another order there, and two runs must agree
        try:
            with attributes_kept(model), same_random_numbers(device):
                found = engine.clipped_sum(loss, args, kwargs, (), size)
            with attributes_kept(model), same_random_numbers(device), torch.enable_grad():
                total = loss(_call(model, made)).sum()
            whole = torch.autograd.grad(total, engine.parameters, allow_unused=True)
        except Exception:
            return False
        finally:
            engine.clip = clip
    parts = [
        (torch.zeros_like(p) if g is None else g).flatten().to(found)
        for p, g in zip(engine.parameters, whole, strict=True)
    ]
    expected = torch.cat(parts)
    # Rounding is small, and a call that was missed is not.
    tolerance = 5e-2 if engine.margin(device.type) >= WIDE_MARGIN else 1e-2
    return bool((found - expected).norm() <= tolerance * expected.norm())


def _waves(output: Any, size: int) -> Tensor:
    """A loss for each example that no two outputs enter alike."""
    leaves = [x for x in tree_leaves(output) if isinstance(x, Tensor) and x.requires_grad]
    flat = torch.cat([x.reshape(size, -1).double() for x in leaves], 1)
    waves = torch.arange(flat.numel(), device=flat.device).mul(0.7).cos()
    return (flat * waves.view_as(flat)).sum(1)


class _Seen(TorchFunctionMode):
    """Calls of the engine's layers and parts, and parameters that are used outside of them."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.names: list[str] = []
        self.values: list[list[Tensor]] = []
        self.units: list[Layer | Part] = []
        self.stray = False
        self._inside: list[nn.Module] = []
        self._owners: dict[int, list[nn.Module]] = {}
        for unit in engine.units:
            for parameter in unit.parameters():
                self._owners.setdefault(id(parameter), []).append(unit.module)

    def note(self, unit: Layer | Part) -> list[Any]:
        def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            self._inside.append(module)
            tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
            self.units.append(unit)
            self.names.append(_title(unit.name))
            self.values.append(tensors)

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            self._inside.remove(module)

        module = unit.module
        return [
            module.register_forward_pre_hook(enter, with_kwargs=True),
            module.register_forward_hook(leave),
        ]

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self.stray and any(isinstance(x, Tensor) for x in tree_leaves(result)):
            for leaf in tree_leaves((args, kwargs)):
                owners = self._owners.get(id(leaf)) if isinstance(leaf, nn.Parameter) else None
                if owners and not any(owner in self._inside for owner in owners):
                    self.stray = True
        return result


def _run(engine: Engine, made: Any) -> _Seen:
    """What the layers and the output see, without gradients."""
    model, seen = engine.model, _Seen(engine)
    hooks = [hook for unit in engine.units for hook in seen.note(unit)]
    with _kept(model) as before, same_random_numbers(engine.parameters[0].device), torch.no_grad():
        try:
            with seen:
                output = _call(model, made)
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


def _differ(one: _Seen, other: _Seen, unlike: Callable[[Tensor, Tensor], bool]) -> str | None:
    """The first place at which two runs are unlike each other."""
    if one.names != other.names:
        return "the model"
    for name, these, those in zip(one.names, one.values, other.values, strict=True):
        if len(these) != len(those) or any(map(unlike, these, those)):
            return name
    return None


def _unlike(a: Tensor, b: Tensor) -> bool:
    """Up to rounding, which depends on the largest numbers around; devices add up in any order."""
    if a.shape != b.shape:
        return True
    wide = torch.complex128 if a.is_complex() else torch.float64
    share = 1e-5 if a.device.type == "cpu" else 1e-3
    finite = a[a.isfinite()].abs()
    room = 1e-6 + (share * float(finite.max()) if finite.numel() else 0.0)
    return not torch.allclose(a.to(wide), b.to(wide), 1e-4, room, equal_nan=True)


def _settle(engine: Engine, small: _Seen, large: _Seen) -> bool:
    """Whether every call can be told apart into examples."""
    if small.stray or len(small.units) != len(large.units):
        return False
    patterns: dict[int, set[tuple[bool, ...]]] = {}
    for unit, one, other in zip(small.units, small.values, large.values, strict=False):
        sizes = [(_length(a), _length(b)) for a, b in zip(one, other, strict=True)]
        if isinstance(unit, Layer):
            if sizes == [(1, 1)]:
                unit.shared = True
            if sizes != [(1, 1) if unit.shared else SIZES]:
                return False
            continue
        if any(size != SIZES and size[0] != size[1] for size in sizes):
            return False
        pattern = tuple(size == SIZES for size in sizes)
        patterns.setdefault(id(unit), set()).add(pattern)
        unit.batched = pattern
    return all(len(found) == 1 and any(*found) for found in patterns.values())


def _call(model: nn.Module, made: Any) -> Any:
    args, kwargs = made
    return model(*args, **kwargs)


def _length(x: Tensor) -> int:
    return len(x) if x.dim() else -1


class _Shape:
    def __init__(self, x: Tensor) -> None:
        self.shape, self.dtype, self.device = x.shape[1:], x.dtype, x.device


def _skeleton(x: Any) -> Any:
    return _Shape(x) if isinstance(x, Tensor) else x


def _made_up(shapes: Any, size: int) -> Any:
    def fill(x: Any) -> Any:
        if not isinstance(x, _Shape):
            return x
        shape = (size, *x.shape)
        if not x.dtype.is_floating_point:
            return torch.zeros(shape, dtype=x.dtype, device=x.device)
        count = math.prod(shape)
        wave = torch.arange(count, dtype=torch.float32).mul_(1.7).sin_().reshape(shape)
        return wave.to(device=x.device, dtype=x.dtype)

    return tree_map(fill, shapes, is_leaf=lambda x: isinstance(x, _Shape))


def _with_other(row: int) -> Callable[[Any], Any]:
    """Puts other values into one row of a tensor."""

    def change(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        x = x.clone()
        x[row] = ~x[row] if x.dtype == torch.bool else 1 - x[row]
        return x

    return change


@contextmanager
def _kept(model: nn.Module) -> Iterator[dict[str, tuple[Tensor, Tensor, int]]]:
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
