"""Layers, optimizers and parameters that private training refuses by name, before any data."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer, SparseAdam

from privopt.privacy.budget import Refused
from privopt.torch.engine import Engine

SHARDED = ("FullyShardedDataParallel", "FSDPModule")


def objections(model: nn.Module) -> list[str]:
    """One sentence for each layer that breaks the guarantee, with what to use instead."""
    found: list[str] = []
    for name, module in model.named_modules():
        layer = f"layer {name!r} ({type(module).__name__})"
        if isinstance(module, torch.jit.ScriptModule):
            found.append(f"{layer} is scripted or traced: give the module before torch.jit.")
        elif any(type(p).__name__ == "DTensor" for p in module.parameters(recurse=False)):
            found.append(f"{layer} is spread over devices (DTensor): give each process all of it.")
        elif any(is_lazy(p) for p in module.parameters(recurse=False)):
            found.append(f"{layer} has no shape yet: run the model once on made-up inputs before.")
        elif any(p.is_complex() and p.requires_grad for p in module.parameters(recurse=False)):
            found.append(f"{layer} trains complex numbers: use two real parameters.")
        elif isinstance(module, _BatchNorm) and not _fixed(module):
            found.append(
                f"{layer} mixes the examples of a batch: use nn.GroupNorm({_groups(module)}, "
                f"{module.num_features}), or privopt.torch.repaired(model), or call its eval() to "
                "keep the statistics it has."
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
            if module.sparse:
                found.append(f"{layer} has sparse gradients, and noise is everywhere: drop sparse.")
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


def _fixed(layer: nn.Module) -> bool:
    """Whether a batch normalisation uses statistics that do not change; a step tries the model
    again if it is put back into training."""
    return not layer.training and layer.running_mean is not None


def check_model(model: nn.Module) -> None:
    found = objections(model)
    if found:
        raise Refused(" ".join(found))


def check_optimizers(engine: Engine, optimizers: Sequence[object]) -> None:
    """Optimizers that take one gradient in a step, each of parameters of its own, of all that are
    trained."""
    known = {id(p) for p in engine.parameters}
    held: list[int] = []
    for optimizer in optimizers:
        held += _held(optimizer)
    if set(held) - known:
        raise ValueError("the optimizer holds a parameter that is not the model's.")
    if len(set(held)) < len(held):
        raise ValueError("two optimizers hold the same parameter: give each parameter to one.")
    if known - set(held):
        raise ValueError(
            "the model has parameters that the optimizer does not train, and their gradients would "
            "be clipped along: freeze them with requires_grad_(False)."
        )


def _held(optimizer: object) -> list[int]:
    if not isinstance(optimizer, Optimizer):
        raise ValueError(f"optimizer must be a torch Optimizer, got {type(optimizer).__name__}.")
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ValueError(
            f"{type(optimizer).__name__} asks for the loss again and again: use an optimizer that "
            "takes one gradient per step."
        )
    if isinstance(optimizer, SparseAdam):
        raise ValueError("noise is everywhere, so gradients are not sparse: use Adam.")
    return [id(p) for group in optimizer.param_groups for p in group["params"] if p.requires_grad]


def repaired(model: nn.Module) -> nn.Module:
    """A copy in which group normalisation stands for batch normalisation, and instance
    normalisation keeps no statistics, but for layers in evaluation mode, whose statistics do not
    change. Make the optimizer for the copy."""
    model = copy.deepcopy(model)
    if isinstance(model, (_BatchNorm, _InstanceNorm)) and not _fixed(model):
        return _substitute(model)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, (_BatchNorm, _InstanceNorm)) and not _fixed(child):
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
