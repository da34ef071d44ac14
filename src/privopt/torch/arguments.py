"""What a step is called with, as a list of leaves: quickly where all of them are plain tensors."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

Arguments = tuple[tuple[Any, ...], dict[str, Any], tuple[Any, ...]]
"""Inputs, keywords and targets."""


def leaves_of(arguments: Arguments) -> tuple[list[Any], Any]:
    """Leaves, and how they belong together."""
    inputs, keywords, targets = arguments
    leaves = [*inputs, *targets]
    if not keywords and all(isinstance(leaf, Tensor) for leaf in leaves):
        return leaves, len(inputs)
    return tree_flatten(arguments)


def arguments_of(leaves: list[Any], shape: Any) -> Arguments:
    """The way back."""
    if isinstance(shape, int):
        return tuple(leaves[:shape]), {}, tuple(leaves[shape:])
    return tree_unflatten(leaves, shape)
