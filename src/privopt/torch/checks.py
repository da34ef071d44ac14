"""What a model must not do: mix examples, keep statistics of them, or hide a parameter.

``objections`` reads the list of layers. ``probe`` runs the model on made-up inputs of the right
shapes: no answer depends on data.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from privopt.privacy.budget import Refused
from privopt.torch.clip import Clip
from privopt.torch.engine import Engine, Layer, Part
from privopt.torch.rounding import WIDE_MARGIN

SIZES = (3, 5)
"""Two batch sizes: what grows from one to the other is a batch dimension, whatever its length."""


SHARDED = ("FullyShardedDataParallel", "FSDPModule")


def objections(model: nn.Module) -> list[str]:
    """One sentence for each layer that breaks the guarantee, with what to use instead."""
    found: list[str] = []
    for name, module in model.named_modules():
        layer = f"layer {name!r} ({type(module).__name__})"
        if any(is_lazy(p) for p in module.parameters(recurse=False)):
            found.append(f"{layer} has no shape yet: run the model once on made-up inputs before.")
        elif isinstance(module, _BatchNorm):
            found.append(
                f"{layer} mixes the examples of a batch: use nn.GroupNorm({_groups(module)}, "
                f"{module.num_features}), or privopt.torch.repaired(model)."
            )
        elif isinstance(module, _InstanceNorm) and module.track_running_stats:
            found.append(
                f"{layer} keeps statistics of the examples without noise: use "
                "track_running_stats=False, or privopt.torch.repaired(model)."
            )
        elif isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
            if module.max_norm is not None:
                found.append(f"{layer} rescales the rows that examples use: drop max_norm.")
            if module.scale_grad_by_freq:
                found.append(f"{layer} mixes examples in its gradient: drop scale_grad_by_freq.")
        elif isinstance(module, nn.DataParallel):
            found.append(f"{layer} spreads a batch over devices: give the module inside it.")
        elif isinstance(module, nn.parallel.DistributedDataParallel):
            found.append(
                f"{layer} averages gradients that are not clipped: give the module inside it, and "
                "private steps add up over all processes by themselves."
            )
        elif any(base.__name__ in SHARDED for base in type(module).__mro__):
            found.append(f"{layer} is cut into pieces: give each process the whole model.")
        elif hasattr(module, "_orig_mod"):
            found.append(f"{layer} is compiled: give the model before torch.compile.")
    return found


def check_model(model: nn.Module) -> None:
    found = objections(model)
    if found:
        raise Refused(" ".join(found))


def check_optimizer(engine: Engine, optimizer: object) -> None:
    if not isinstance(optimizer, Optimizer):
        raise ValueError(f"optimizer must be a torch Optimizer, got {type(optimizer).__name__}.")
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ValueError(
            f"{type(optimizer).__name__} asks for the loss again and again: use an optimizer that "
            "takes one gradient per step."
        )
    known = {id(p) for p in engine.parameters}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad and id(parameter) not in known:
                raise ValueError("the optimizer holds a parameter that is not the model's.")


def repaired(model: nn.Module) -> nn.Module:
    """A copy in which group normalisation stands for batch normalisation, and instance
    normalisation keeps no statistics. Make the optimizer for the copy."""
    model = copy.deepcopy(model)
    if isinstance(model, (_BatchNorm, _InstanceNorm)):
        return _substitute(model)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, (_BatchNorm, _InstanceNorm)):
                setattr(module, name, _substitute(child))
    return model


def _substitute(layer: Any) -> nn.Module:
    if isinstance(layer, _InstanceNorm):
        layer.track_running_stats = False
        layer.running_mean = layer.running_var = layer.num_batches_tracked = None
        return layer
    new = nn.GroupNorm(_groups(layer), layer.num_features, layer.eps, affine=layer.affine)
    return new.to(layer.weight) if layer.affine else new


def _groups(layer: Any) -> int:
    """At most 32 groups, of at least four channels where that is possible."""
    channels = int(layer.num_features)
    return math.gcd(channels, 32) if channels >= 64 else math.gcd(channels, max(channels // 4, 1))


# ---------------------------------------------------------------- on made-up inputs
def probe(engine: Engine, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    """Settle how the engine treats each part of the model; refuse a model that mixes examples.

    What cannot be settled is run example by example, where nothing can be mixed.
    """
    shapes = tree_map(_skeleton, (inputs, keywords))
    model = engine.model
    with _kept(model), torch.no_grad():
        try:
            seen = [_run(engine, _made_up(shapes, size)) for size in SIZES]
            settled = _settle(engine, seen[0], seen[1])
        except Refused:
            raise
        except Exception:
            settled = False  # made-up inputs do not suit this model
        finally:
            engine.forget()
    if not settled or not _rehearsed(engine, shapes):
        engine.run_example_by_example()
        return
    with _kept(model), torch.no_grad():
        model.eval()  # no dropout: two runs must agree
        first = _made_up(shapes, SIZES[0])
        second = tree_map(_other_first_row, first)
        try:
            seen = [_run(engine, first), _run(engine, second)]
        except Refused:
            raise
        except Exception:
            engine.run_example_by_example()
            return
        finally:
            engine.forget()
    for name, one, other in zip(seen[0].names, seen[0].values, seen[1].values, strict=False):
        for a, b in zip(one, other, strict=True):
            if _depends(a, b):
                raise Refused(
                    f"{name} sees other examples than its own: a layer before it mixes the "
                    "examples of a batch, and clipping cannot bound what one of them moves."
                )


def _rehearsed(engine: Engine, shapes: Any) -> bool:
    """Whether the engine finds the gradient that autograd finds, on made-up inputs."""
    size, model = SIZES[0], engine.model
    args, kwargs = _made_up(shapes, size)

    def loss(output: Any) -> Tensor:
        leaves = [x for x in tree_leaves(output) if isinstance(x, Tensor) and x.requires_grad]
        flat = torch.cat([x.reshape(size, -1).to(engine.dtype) for x in leaves], 1)
        waves = torch.arange(flat.numel(), device=flat.device).mul(0.7).cos()
        return (flat * waves.view_as(flat)).sum(1)

    clip, engine.clip = engine.clip, Clip(1e12)
    with _kept(model):
        model.eval()  # no dropout: two runs must agree
        try:
            found = engine.clipped_sum(loss, args, kwargs, (), size)
            with torch.enable_grad():
                total = loss(model(*args, **kwargs)).sum()
            whole = torch.autograd.grad(total, engine.parameters, allow_unused=True)
        except Exception:
            return False
        finally:
            engine.clip, engine.apart = clip, False  # the user's loss is still to be seen
    parts = [
        (torch.zeros_like(p) if g is None else g).flatten().to(found)
        for p, g in zip(engine.parameters, whole, strict=True)
    ]
    expected = torch.cat(parts)
    # Rounding is small, and a call that was missed is not.
    tolerance = 5e-2 if engine.margin(found.device.type) >= WIDE_MARGIN else 1e-2
    return bool((found - expected).norm() <= tolerance * expected.norm())


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
            self.names.append(f"layer {unit.name!r}" if unit.name else "the model")
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
    before = [buffer._version for buffer in engine.model.buffers()]
    seen = _Seen(engine)
    hooks = [hook for unit in engine.units for hook in seen.note(unit)]
    try:
        with seen:
            output = _call(engine.model, made)
    finally:
        for hook in hooks:
            hook.remove()
    seen.names.append("the output")
    seen.values.append([leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)])
    for (name, buffer), version in zip(engine.model.named_buffers(), before, strict=True):
        if buffer._version != version:
            raise Refused(
                f"buffer {name!r} changes when the model runs: what it learns from examples would "
                "leave without noise. Freeze it, or use a layer without statistics."
            )
    return seen


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


def _other_first_row(x: Any) -> Any:
    if not isinstance(x, Tensor):
        return x
    x = x.clone()
    x[0] = ~x[0] if x.dtype == torch.bool else 1 - x[0]
    return x


def _depends(a: Tensor, b: Tensor) -> bool:
    """Whether rows after the first differ."""
    if _length(a) != SIZES[0] or a.shape != b.shape:
        return False
    return not torch.allclose(a[1:].double(), b[1:].double(), 1e-4, 1e-6, equal_nan=True)


@contextmanager
def _kept(model: nn.Module) -> Iterator[None]:
    """Modes and buffers of a model, put back afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
        for buffer, value in buffers:
            buffer.copy_(value)
