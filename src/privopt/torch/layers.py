"""Layers whose per-example gradients follow from their inputs and output gradients."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from privopt.torch.convolutions import convolution
from privopt.torch.pieces import Dense, Piece, Rows, Rule
from privopt.torch.recognised import linear, recognised


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
    """The rule of a layer's type; of others by what they compute."""
    for kind, rule in RULES.items():
        if isinstance(module, kind):
            own = {name for name, _ in module.named_parameters(recurse=False)}
            plain = own <= {"weight", "bias"} and not list(module.children())
            if plain and type(module).forward is kind.forward:
                return rule
    return recognised(module)
