"""Where an optimizer finds noisy gradients: one flat vector, and a view of it for each parameter.

Making the views anew in every step would take as long as a small model's step.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Gradients:
    """The ``grad`` of all trained parameters. Its memory is nobody else's."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self._parameters = parameters
        self._flat: Tensor | None = None
        self._views: list[Tensor] = []

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
