"""Layers of anybody's, recognised by what they compute: on made-up numbers, whatever their name.

A product with a matrix in either order (transformers' ``Conv1D``), and functions f(x; w, b) =
f(x; 0, 0) + w s(x) + b, number by number along the last dimension or along channels: the RMS norms
of language models, with weight w or 1 + w, norms over channels, PReLU. What a rule of these would
get wrong is the direction of a gradient, which is compared with autograd's on made-up inputs of the
model before the first step; never its length in the clip, which is that of the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from privopt.noise.random_numbers import normals_like, same_random_numbers
from privopt.torch.pieces import Dense, Outer, Piece, Rule

CLOSE = 1e-4  # norms may be computed in single precision, whatever the model is in
HALF_CLOSE = 5e-2
ROWS, PLACES = 2, (3, 5)


def recognised(module: nn.Module) -> Rule | None:
    """The rule of a layer that computes what a known one computes."""
    own = dict(module.named_parameters(recurse=False))
    weight = own.get("weight")
    if weight is None or not own.keys() <= {"weight", "bias"} or list(module.children()):
        return None
    if not weight.is_floating_point() or weight.is_meta or not weight.numel():
        return None
    bias = own.get("bias")
    tries: list[tuple[Callable[[nn.Module, Tensor], bool], tuple[int, ...], Rule]] = []
    if weight.dim() == 1 and (bias is None or bias.shape == weight.shape):
        last, first = partial(scale, channels=False), partial(scale, channels=True)
        tries = [
            (partial(_scales, shape=(1, 1, -1)), (ROWS, *PLACES[:1], len(weight)), last),
            (partial(_scales, shape=(1, -1, 1, 1)), (ROWS, len(weight), *PLACES), first),
        ]
    elif weight.dim() == 2:
        rows, columns = weight.shape
        if bias is None or len(bias) == columns:
            tries.append((partial(_multiplies, turned=False), (ROWS, PLACES[0], rows), product))
        if bias is None or len(bias) == rows:
            tries.append((partial(_multiplies, turned=True), (ROWS, PLACES[0], columns), linear))
    for test, shape, rule in tries:
        try:
            with torch.no_grad(), same_random_numbers(weight.device):
                made = normals_like(weight, shape)
                if test(module, made):
                    return rule
        except Exception:
            continue
    return None


def linear(layer: Any, x: Tensor, g: Tensor) -> list[tuple[Tensor | None, Piece]]:
    """y = x W' + b."""
    g = g.reshape(len(g), 1, -1, g.shape[-1])
    weight = Outer(g, x.reshape(len(x), 1, -1, x.shape[-1]))
    return [(layer.weight, weight), (getattr(layer, "bias", None), Dense(g.sum((1, 2))))]


def product(layer: Any, x: Tensor, g: Tensor) -> list[tuple[Tensor | None, Piece]]:
    """y = x W + b."""
    g = g.reshape(len(g), 1, -1, g.shape[-1])
    weight = Outer(x.reshape(len(x), 1, -1, x.shape[-1]), g)
    return [(layer.weight, weight), (getattr(layer, "bias", None), Dense(g.sum((1, 2))))]


def scale(layer: Any, x: Tensor, g: Tensor, channels: bool) -> list[tuple[Tensor | None, Piece]]:
    """y = f(x; 0) + w s(x) + b, s(x) = f(x; 1) - f(x; 0)."""
    ones = x.new_ones(len(layer.weight))
    slope = _with(layer, x, ones) - _with(layer, x, ones - 1)
    found: list[tuple[Tensor | None, Piece]] = [(layer.weight, _summed(g * slope, ones, channels))]
    return [*found, (getattr(layer, "bias", None), _summed(g, ones, channels))]


def _summed(values: Tensor, like: Tensor, channels: bool) -> Dense:
    if channels:
        return Dense(values.reshape(len(values), len(like), -1).sum(2))
    return Dense(values.reshape(len(values), -1, len(like)).sum(1))


def _with(module: nn.Module, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """A layer's output at other weights; without a bias if none is given."""
    own = {"weight": weight}
    if getattr(module, "bias", None) is not None:
        own["bias"] = torch.zeros_like(weight) if bias is None else bias
    return torch.func.functional_call(module, own, (x,))


def _scales(module: nn.Module, x: Tensor, shape: tuple[int, ...]) -> bool:
    weight = module.weight  # type: ignore[union-attr]
    ones = torch.ones_like(weight)  # type: ignore[arg-type]
    w, b = (normals_like(ones, tuple(ones.shape)) for _ in range(2))
    none = _with(module, x, ones - 1)
    expected = none + w.view(shape) * (_with(module, x, ones) - none)
    if getattr(module, "bias", None) is not None:
        expected = expected + b.view(shape)
    return none.shape == x.shape and _close(_with(module, x, w, b), expected)


def _multiplies(module: nn.Module, x: Tensor, turned: bool) -> bool:
    weight, bias = module.weight, getattr(module, "bias", None)
    expected = x @ (weight.T if turned else weight)  # type: ignore[union-attr, operator]
    return _close(module(x), expected if bias is None else expected + bias)


def _close(one: Tensor, other: Tensor) -> bool:
    room = HALF_CLOSE if one.element_size() < 4 else CLOSE
    return one.shape == other.shape and torch.allclose(one, other, room, room)
