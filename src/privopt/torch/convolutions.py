"""Per-example gradients of convolutions, in three ways.

The gradient of one example is sum_t g_t a_t', a_t the patch under the kernel at place t, so its
norm needs the products <a_t, a_s> = sum_k <x_(t+k), x_(s+k)>, k over the places of the kernel. All
of them are sums of entries of one matrix, K = <x_u, x_v> over the map: as many products as the map
has pairs of places, instead of as many times the kernel's size, and no patch is ever copied. The
clipped sum is the ordinary weight gradient of scaled output gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from privopt.torch.pieces import Dense, Outer, Piece, blank, direct
from privopt.torch.rounding import rounded_up


def convolution(layer: Any, x: Tensor, g: Tensor) -> list[tuple[Tensor | None, Piece]]:
    """A product of the output gradient with the patches under the kernel, for each group; on large
    maps of a processor a convolution with a group for each example, and on small maps of an
    accelerator products of places: neither copies patches."""
    x = padded(layer, x)
    bias = (layer.bias, Dense(g.flatten(2).sum(2)))
    if cheaper(layer, x, g):
        return [(layer.weight, Convolved(layer, x, g)), bias]
    places, channels = g[0, 0].numel(), layer.in_channels // layer.groups
    if x.device.type == "cpu" and places >= LARGE_MAP and channels >= MANY_CHANNELS:
        return [(layer.weight, Dense(weight_gradients(layer, x, g))), bias]
    g = g.reshape(len(g), layer.groups, layer.out_channels // layer.groups, -1)
    if direct(places, g.shape[2], layer.weight[0].numel()):
        return [(layer.weight, Dense(products(layer, x, g))), bias]
    return [(layer.weight, Outer(g.mT, patches(layer, x).mT)), bias]


def cheaper(layer: Any, x: Tensor, g: Tensor) -> bool:
    """Whether products of places are fewer numbers than patches and per-example gradients."""
    if x.device.type == "cpu" or layer.groups > 1 or len(layer.stride) != 2:
        return False
    spread, places = x[0, 0].numel(), g[0, 0].numel()
    width = layer.weight[0].numel()
    return spread**2 + places**2 < GAIN * (width * places + layer.weight.numel())


GAIN = 0.3
"""Measured on an accelerator: how many numbers of products cost as much as one of a patch."""


def products(layer: Any, x: Tensor, g: Tensor) -> Tensor:
    """Gradients of all examples from their patches, which are large: on a processor a few examples
    at a time, so that memory is used again while it is in the cache."""
    if x.device.type != "cpu" or len(x) <= A_FEW:
        return (g @ patches(layer, x).mT).flatten(1)
    pairs = zip(x.split(A_FEW), g.split(A_FEW), strict=True)
    return torch.cat([(gs @ patches(layer, xs).mT).flatten(1) for xs, gs in pairs])


A_FEW = 32

LARGE_MAP, MANY_CHANNELS = 128, 8
"""Where the two ways cross on a processor; accelerators have no fast kernel for many groups."""


@dataclass
class Convolved:
    """Padded inputs and output gradients of a convolution with one group."""

    layer: Any
    inputs: Tensor  # examples x channels x map
    outputs: Tensor

    def factors(self) -> Outer:
        """The same piece with its patches."""
        rows = self.outputs.reshape(len(self.outputs), 1, self.layer.out_channels, -1)
        return Outer(rows.mT, patches(self.layer, self.inputs).mT)

    def dense(self) -> Tensor:
        return self.factors().dense()

    def squared_norms(self) -> Tensor:
        count, sizes = len(self.inputs), self.inputs.shape[2:]
        x, g = self.inputs.flatten(2), self.outputs.flatten(2)
        pairs = (x.mT @ x).reshape(count, *sizes, *sizes)
        places = self.outputs.shape[2:]
        patches = sum(pairs[window] for window in self._windows(places))
        patches = patches.reshape(count, places.numel(), -1)  # type: ignore[union-attr]
        outputs = g.mT @ g
        a, g = (gram.diagonal(dim1=1, dim2=2) for gram in (patches, outputs))
        return rounded_up((patches * outputs).sum((1, 2)), a, g, convolved=True)

    def _windows(self, places: torch.Size) -> Iterator[tuple[slice, ...]]:
        """For each place of the kernel, where all places of the output see the map."""
        layer = self.layer
        for offset in product(*map(range, layer.kernel_size)):
            cut = tuple(
                slice(k * dilation, k * dilation + (size - 1) * stride + 1, stride)
                for k, dilation, size, stride in zip(
                    offset, layer.dilation, places, layer.stride, strict=True
                )
            )
            yield (slice(None), *cut, *cut)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        scaled = self.outputs * weights.view(-1, *[1] * (self.outputs.dim() - 1))
        return weight_gradient(self.layer, self.inputs, scaled).flatten()

    def without(self, dropped: Tensor) -> Convolved:
        return Convolved(self.layer, blank(self.inputs, dropped), blank(self.outputs, dropped))

    def folded(self, views: int) -> Outer:
        return self.factors().folded(views)


def weight_gradient(layer: Any, x: Tensor, g: Tensor) -> Tensor:
    """Gradient of a convolution's weight, summed over examples, for padded inputs."""
    none = [0] * len(layer.stride)
    return torch.ops.aten.convolution_backward(
        g,
        x,
        layer.weight.detach(),
        None,
        layer.stride,
        none,
        layer.dilation,
        False,
        none,
        layer.groups,
        [False, True, False],
    )[1]


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
    one = torch.func.vmap(lambda x, g: weight_gradient(layer, x[None], g[None]))
    return one(x, g).flatten(1)


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
