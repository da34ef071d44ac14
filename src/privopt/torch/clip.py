"""Clipping: how much of each example's gradient enters the sum. The bound is the sensitivity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

Clipping = Literal["flat", "per_layer", "automatic"]

SOFTENING = 0.01
SMALLEST = 1e-12
"""Below 1e-19 squared norms would underflow in single precision, and nothing would be clipped."""


@dataclass(frozen=True)
class Clip:
    """One example's gradient, over all parameters, leaves with a norm of at most ``norm``.

    ``flat``: the factor min(1, b/|g|) for the whole gradient, b = norm / (1 + margin), with
    the margin for rounding inside (``rounding``).
    ``per_layer``: each of K layers by itself to b/sqrt(K); the squares add up to b^2.
    ``automatic``: the factor b/(|g| + 0.01), always below b/|g| (Bu et al., 2023).

    A gradient that is not finite, or whose squared norm overflows, counts as zero. The sum over
    examples therefore moves by at most ``norm`` when one example is zeroed, added or removed, and
    by twice that when it is replaced.
    """

    norm: float
    kind: Clipping = "flat"

    def __post_init__(self) -> None:
        if not SMALLEST <= self.norm < math.inf:
            raise ValueError(
                f"clip_norm must be finite and at least {SMALLEST}, got {self.norm!r}: scale the "
                "loss instead."
            )
        if self.kind not in get_args(Clipping):
            raise ValueError(
                f"clipping must be one of {', '.join(get_args(Clipping))}; got {self.kind!r}."
            )

    def factors(self, squared: Tensor, layers: int, margin: float) -> Tensor:
        """Factor of each example, from the squared norms of what is clipped together."""
        bound = self.norm / (1 + margin)
        norms = squared.sqrt()
        if self.kind == "per_layer":
            bound /= math.sqrt(layers)
        if self.kind == "automatic":
            factors = bound / (norms + SOFTENING)
        else:
            factors = bound / norms.clamp_min(bound)
        return torch.where(torch.isfinite(norms), factors, 0.0)
