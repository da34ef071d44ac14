"""Where an optimizer finds noisy gradients: one flat vector, and a view of it for each parameter.
And how gradients are asked for.

Making the views anew in every step would take as long as a small model's step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from privopt.privacy.budget import Refused

ACCUMULATED = (
    "gradients of the last private step have not been used: noise is added once per step, so they "
    "are not accumulated. Call optimizer.step() or zero_grad() first; for a larger batch, set the "
    "loader's batch_size, and microbatch for memory."
)


class Gradients:
    """The ``grad`` of all trained parameters. Its memory is nobody else's."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self._parameters = parameters
        self._flat: Tensor | None = None
        self._views: list[Tensor] = []

    def check_used(self) -> None:
        """Refuse to write over gradients that no optimizer has seen."""
        grads = [p.grad for p in self._parameters if p.grad is not None]
        if any(bool(grad.any()) for grad in grads):
            raise Refused(ACCUMULATED)

    def fill(self, noisy: Tensor, divisor: float) -> None:
        """Set all gradients to a released vector over the public divisor."""
        if self._flat is None or self._flat.device != noisy.device:
            self._flat = torch.empty_like(noisy)
            parts = self._flat.split([parameter.numel() for parameter in self._parameters])
            pairs = zip(parts, self._parameters, strict=True)
            self._views = [part.view_as(parameter) for part, parameter in pairs]
        torch.div(noisy, divisor, out=self._flat)
        for parameter, view in zip(self._parameters, self._views, strict=True):
            if parameter.dtype != view.dtype:
                parameter.grad = view.to(parameter.dtype)
            elif parameter.grad is not view:
                parameter.grad = view


def slopes(values: Tensor, ends: Sequence[Any], weights: Any = None, keep: bool = False) -> Any:
    """Gradients, None where there are none. Not under autocast, which is for the way forward: on
    the way back each operation has the types that it left."""
    with torch.autocast(values.device.type, enabled=False):
        return torch.autograd.grad(values, ends, weights, retain_graph=keep, allow_unused=True)
