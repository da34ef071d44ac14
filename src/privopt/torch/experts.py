"""Experts: products with one matrix of a stack for each place, chosen by a router.

Transformers keeps the weights of all experts of a layer in two stacks, outputs of the router say
which places go to which expert. A place p that goes to expert e gives g_p a_p' to the matrix of e,
so a record's squared norm is the sum of <a_p, a_q> <g_p, g_q> over pairs of its places with the
same expert: no gradient of a matrix is formed for an example.

The layer's own loop gathers places of all records for an expert. Here it is run again by ourselves,
with every place's record known from where it lies, and compared with the layer on made-up inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from privopt.torch.pieces import Dense, Piece, blank
from privopt.torch.rounding import rounded_up

FLAGS = ("has_gate", "has_bias", "is_transposed", "_apply_gate")


def holds_experts(module: nn.Module) -> bool:
    """Whether a module is a stack of experts in transformers' form, without biases."""
    if any(not hasattr(module, name) for name in FLAGS) or getattr(module, "has_bias", True):
        return False
    if any(
        getattr(module, name, False) for name in ("has_post_expert_norm", "_is_expert_parallel")
    ):
        return False
    own = dict(module.named_parameters())
    return own.keys() == set(_names(module)) and all(p.dim() == 3 for p in own.values())


def _names(module: Any) -> tuple[str, str]:
    return ("gate_up_proj" if module.has_gate else "up_proj"), "down_proj"


@dataclass
class Grouped:
    """Factors of each place, and to which matrix of the stack it belongs."""

    outputs: Tensor  # examples x places x width
    inputs: Tensor
    groups: Tensor  # examples x places
    height: int
    turned: bool  # matrices are inputs x outputs

    def dense(self) -> Tensor:
        one, two = self._factors()
        rows = [
            (one * here).mT @ two
            for here in (self.groups == k for k in range(self.height))
            for here in (here[..., None],)
        ]
        return torch.stack(rows, 1).flatten(1)

    def _factors(self) -> tuple[Tensor, Tensor]:
        return (self.inputs, self.outputs) if self.turned else (self.outputs, self.inputs)

    def squared_norms(self) -> Tensor:
        a, g = self.inputs @ self.inputs.mT, self.outputs @ self.outputs.mT
        same = self.groups[:, :, None] == self.groups[:, None, :]
        inputs, outputs = (gram.diagonal(dim1=1, dim2=2) for gram in (a, g))
        return rounded_up((a * g * same).sum((1, 2)), inputs, outputs)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        one, two = self._factors()
        flat, one, two = self.groups.flatten(), one.flatten(0, 1), two.flatten(0, 1)
        each = weights.repeat_interleave(self.groups.shape[1])
        total = one.new_zeros(self.height, one.shape[1], two.shape[1])
        for k in flat.unique():
            here = (flat == k).nonzero()[:, 0]
            total[k] = (one[here] * each[here, None]).mT @ two[here]
        return total.flatten()

    def without(self, dropped: Tensor) -> Grouped:
        outputs, inputs = blank(self.outputs, dropped), blank(self.inputs, dropped)
        return Grouped(outputs, inputs, self.groups, self.height, self.turned)

    def folded(self, views: int) -> Grouped:
        def fold(x: Tensor) -> Tensor:
            return x.unflatten(0, (-1, views)).flatten(1, 2)

        outputs, inputs, groups = fold(self.outputs), fold(self.inputs), fold(self.groups)
        return Grouped(outputs, inputs, groups, self.height, self.turned)


def _product(x: Tensor, weight: Tensor, groups: Tensor, turned: bool) -> Tensor:
    """Row p times the matrix of its group, transposed unless it is kept so. Backward gives no
    gradient to the matrices."""
    order = groups.argsort(stable=True)
    found, counts = groups[order].unique_consecutive(return_counts=True)
    parts = [
        rows @ (weight[k].detach() if turned else weight[k].detach().mT).to(rows.dtype)
        for k, rows in zip(found.tolist(), x[order].split(counts.tolist()), strict=True)
    ]
    return torch.cat(parts)[order.argsort()]


def run(
    module: Any, hidden: Tensor, index: Tensor, weights: Tensor
) -> tuple[Tensor, list[tuple[str, Tensor, Tensor, Tensor]]]:
    """Output of a stack for examples x places x width, and each product with its two factors:
    name of the weight, inputs, where outputs are, and experts, with an example in each row."""
    count, places, width = hidden.shape
    chosen = index.reshape(count, places, -1)
    groups = chosen.reshape(-1)
    x = hidden[:, :, None, :].expand(*chosen.shape, width).reshape(-1, width)
    found = []
    first, second = _names(module)
    h = _product(x, getattr(module, first), groups, module.is_transposed)
    h = h.reshape(count, -1, h.shape[-1])  # type: ignore[union-attr]
    found.append((first, x.reshape(count, -1, width), h, groups.reshape(count, -1)))
    a = module._apply_gate(h) if module.has_gate else module.act_fn(h)
    y = _product(a.reshape(-1, a.shape[-1]), getattr(module, second), groups, module.is_transposed)
    y = y.reshape(count, -1, y.shape[-1])  # type: ignore[union-attr]
    found.append((second, a, y, groups.reshape(count, -1)))
    shares = weights.reshape(count, places, -1, 1).to(y.dtype)
    return (y.reshape(*chosen.shape, -1) * shares).sum(2), found


def piece(module: Any, name: str, x: Tensor, g: Tensor, groups: Tensor) -> tuple[Tensor, Piece]:
    """What one product gives to its stack."""
    weight = getattr(module, name)
    if g.shape[1] == 0:
        return weight, Dense(g.new_zeros(len(g), weight.numel()))
    return weight, Grouped(g, x, groups, len(weight), module.is_transposed)
