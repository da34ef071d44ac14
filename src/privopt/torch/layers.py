"""Layers whose per-example gradients follow from their inputs and output gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from privopt.torch.pieces import Dense, Outer, Piece, Rows

Rule = Callable[[Any, Tensor, Tensor], list[tuple[Tensor | None, Piece]]]
"""From a layer, its input and its output gradient to a piece for each of its parameters."""


def linear(layer: nn.Linear, x: Tensor, g: Tensor) -> list[tuple[Tensor | None, Piece]]:
    g = g.reshape(len(g), 1, -1, g.shape[-1])
    weight = Outer(g, x.reshape(len(x), 1, -1, x.shape[-1]))
    return [(layer.weight, weight), (layer.bias, Dense(g.sum((1, 2))))]


def convolution(layer: Any, x: Tensor, g: Tensor) -> list[tuple[Tensor | None, Piece]]:
    """A product of the output gradient with the patches under the kernel, for each group; on large
    maps of a processor a convolution with a group for each example, which copies no patches."""
    x = padded(layer, x)
    bias = (layer.bias, Dense(g.flatten(2).sum(2)))
    places, channels = g[0, 0].numel(), layer.in_channels // layer.groups
    if x.device.type == "cpu" and places >= LARGE_MAP and channels >= MANY_CHANNELS:
        return [(layer.weight, Dense(weight_gradients(layer, x, g))), bias]
    g = g.reshape(len(g), layer.groups, layer.out_channels // layer.groups, -1)
    return [(layer.weight, Outer(g.mT, patches(layer, x).mT)), bias]


LARGE_MAP, MANY_CHANNELS = 128, 8
"""Where the two ways cross on a processor; accelerators have no fast kernel for many groups."""


def padded(layer: Any, x: Tensor) -> Tensor:
    """The input with its border, as the layer sees it."""
    border = layer._reversed_padding_repeated_twice
    if not any(border):
        return x
    return F.pad(
        x, border, mode="constant" if layer.padding_mode == "zeros" else layer.padding_mode
    )


def weight_gradients(layer: Any, x: Tensor, g: Tensor) -> Tensor:
    """Gradients of all examples from one convolution (Rochette et al., 2019)."""
    none = [0] * len(layer.stride)

    def one(x: Tensor, g: Tensor) -> Tensor:
        return torch.ops.aten.convolution_backward(
            g[None],
            x[None],
            layer.weight,
            None,
            layer.stride,
            none,
            layer.dilation,
            False,
            none,
            layer.groups,
            [False, True, False],
        )[1]

    return torch.func.vmap(one)(x, g).flatten(1)


def patches(layer: Any, x: Tensor) -> Tensor:
    """Examples x groups x (channels of the group times kernel) x places, of a padded input."""
    spatial = len(layer.kernel_size)
    for axis in range(spatial):
        size, stride, dilation = layer.kernel_size[axis], layer.stride[axis], layer.dilation[axis]
        x = x.unfold(2 + axis, (size - 1) * dilation + 1, stride)
        x = x[..., ::dilation]
    # Now examples x channels x places x kernel.
    order = [0, 1, *range(2 + spatial, 2 + 2 * spatial), *range(2, 2 + spatial)]
    x = x.permute(order)
    width = layer.in_channels // layer.groups
    for size in layer.kernel_size:
        width *= size
    return x.reshape(len(x), layer.groups, width, -1)


def embedding(layer: nn.Embedding, x: Tensor, g: Tensor) -> list[tuple[Tensor | None, Piece]]:
    places = x.reshape(len(x), -1)
    if layer.padding_idx is not None:
        places = places.masked_fill(places == layer.padding_idx, -1)
    g = g.reshape(len(g), -1, g.shape[-1])
    return [(layer.weight, Rows(places, g, layer.num_embeddings))]


def layer_norm(layer: nn.LayerNorm, x: Tensor, g: Tensor) -> list[tuple[Tensor | None, Piece]]:
    scaled = F.layer_norm(x, layer.normalized_shape, None, None, layer.eps)
    return [
        (layer.weight, _over_places(g * scaled, layer.normalized_shape)),
        (layer.bias, _over_places(g, layer.normalized_shape)),
    ]


def rms_norm(layer: nn.RMSNorm, x: Tensor, g: Tensor) -> list[tuple[Tensor | None, Piece]]:
    scaled = F.rms_norm(x, list(layer.normalized_shape), None, layer.eps)
    return [(layer.weight, _over_places(g * scaled, layer.normalized_shape))]


def group_norm(layer: nn.GroupNorm, x: Tensor, g: Tensor) -> list[tuple[Tensor | None, Piece]]:
    scaled = F.group_norm(x, layer.num_groups, None, None, layer.eps)
    shape = (len(g), layer.num_channels, -1)
    return [
        (layer.weight, Dense((g * scaled).reshape(shape).sum(2))),
        (layer.bias, Dense(g.reshape(shape).sum(2))),
    ]


def _over_places(values: Tensor, shape: tuple[int, ...]) -> Dense:
    width = int(torch.Size(shape).numel())
    return Dense(values.reshape(len(values), -1, width).sum(1))


RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: linear,
    nn.Conv1d: convolution,
    nn.Conv2d: convolution,
    nn.Conv3d: convolution,
    nn.Embedding: embedding,
    nn.LayerNorm: layer_norm,
    nn.RMSNorm: rms_norm,
    nn.GroupNorm: group_norm,
}


def rule_for(module: nn.Module) -> Rule | None:
    """The rule of a layer's type; of a subclass only if it computes what its parent computes."""
    for kind, rule in RULES.items():
        if isinstance(module, kind):
            own = {name for name, _ in module.named_parameters(recurse=False)}
            plain = own <= {"weight", "bias"} and not list(module.children())
            return rule if plain and type(module).forward is kind.forward else None
    return None
