"""Made-up inputs in the shapes and types of real ones: waves, and zeros for whole numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from privopt.torch.exchange import FAR


class Shape:
    def __init__(self, x: Tensor) -> None:
        self.shape, self.dtype, self.device = x.shape[1:], x.dtype, x.device


def skeleton(x: Any) -> Any:
    return Shape(x) if isinstance(x, Tensor) else x


def made_up(shapes: Any, size: int, scale: float = 1.0, phase: float = 0.0) -> Any:
    def fill(x: Any) -> Any:
        if not isinstance(x, Shape):
            return x
        shape = (size, *x.shape)
        if not x.dtype.is_floating_point:
            return torch.zeros(shape, dtype=x.dtype, device=x.device)
        count = math.prod(shape)
        wave = torch.arange(count, dtype=torch.float32).mul_(1.7).add_(phase).sin_()
        wave = wave.mul_(scale).reshape(shape)
        return wave.to(device=x.device, dtype=x.dtype)

    return tree_map(fill, shapes, is_leaf=lambda x: isinstance(x, Shape))


def with_other(row: int, turn: int = 0) -> Callable[[Any], Any]:
    """Puts other values into one row of a tensor; far ones, every other turn."""

    def change(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        x = x.clone()
        far = turn % 2 and x.is_floating_point()
        x[row] = ~x[row] if x.dtype == torch.bool else (1 - x[row]) * (FAR if far else 1)
        return x

    return change


def called(model: nn.Module, made: Any) -> Any:
    args, kwargs = made
    return model(*args, **kwargs)
