"""What a step is called with, as a list of leaves: quickly where all of them are plain tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

Arguments = tuple[tuple[Any, ...], dict[str, Any], tuple[Any, ...]]
"""Inputs, keywords and targets."""


class Asked(NamedTuple):
    """What a step is asked: a loss, and a batch with a row for each of its examples."""

    loss: Callable[..., Tensor]
    inputs: tuple[Any, ...]
    keywords: dict[str, Any]
    targets: tuple[Any, ...]
    count: int

    def part(self, start: int, stop: int) -> Asked:
        """The same for some of the examples."""
        stop = min(stop, self.count)
        if (start, stop) == (0, self.count):
            return self
        own = self.inputs, self.keywords, self.targets
        inputs, keywords, targets = tree_map(
            lambda x: x[start:stop] if isinstance(x, Tensor) else x, own
        )
        return Asked(self.loss, inputs, keywords, targets, stop - start)


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
