"""What rounding may do to a clipped gradient, and the room that is left for it.

The norm of an example's gradient and its part in the weighted sum go through different roundings.
With u the relative rounding of a factor, S = sum_t |a_t| |g_t| and n the norm, the part is at most
c (n + 2 u S), c the clip factor. Terms may cancel, so S can be much larger than n. Norms from
factors are therefore rounded up, c = bound / sqrt(n^2 + slack S^2), and the part is at most

    bound max_n (n + 2 u S) / sqrt(n^2 + slack S^2) = bound sqrt(1 + (2 u)^2 / slack),

within the margin for every record: u is of the order 1e-16 and 1e-7 in double and single precision
(slack 1e-13 and 1e-5), and 2^-11 for products that round to TF32, torch's precision "high" (slack
1e-4, 1.005 bound). Convolutions of an accelerator round to TF32 by a setting of their own, which is
on unless somebody turns it off. Without factors the two differ by a few u.

Squares below the smallest normal number are lost, 2^-126 in single precision: a factor of width w
is longer than its computed norm by up to sqrt(w) 2^-63, and a part of the gradient of up to
sum_t dust (|a_t| + |g_t|), dust > sqrt(w) 2^-63, may be unseen. Its square is added as well:
nothing for ordinary numbers, and all for inputs of 1e-20 that meet gradients of 1e19.

A sum of B parts is rounded in its own last digits, u B times the clip norm, and one record more or
less may move each of them: one percent at 300,000 examples in single precision. 2 u B is left to
that.

The margin is taken off the clip norm, which stays the declared sensitivity.
"""

from __future__ import annotations

import torch
from torch import Tensor

from privopt.privacy.budget import Refused

SLACK = {torch.float64: 1e-13, torch.float32: 1e-5}
COARSE_SLACK = 1e-4
DUST = {torch.float64: 1e-150, torch.float32: 1e-15}
MARGIN = {torch.float64: 1e-9, torch.float32: 1e-3}
WIDE_MARGIN = 1e-2
HALF = (torch.float16, torch.bfloat16)


def slack(dtype: torch.dtype, convolved: bool = False) -> float:
    """How far a squared norm from factors is rounded up, as a share of S^2."""
    short = coarse() or (convolved and coarse_convolutions())
    return COARSE_SLACK if dtype == torch.float32 and short else SLACK[dtype]


def rounded_up(found: Tensor, inputs: Tensor, outputs: Tensor, convolved: bool = False) -> Tensor:
    """Squared norms of examples from factors, whose squared norms are given for each place."""
    a, g = inputs.clamp_min(0).sqrt(), outputs.clamp_min(0).sqrt()
    most = (a * g).flatten(1).sum(1).square()
    dust = ((a + g).flatten(1).sum(1) * DUST[found.dtype]).square()
    return found.clamp_min(0).add(most, alpha=slack(found.dtype, convolved)) + dust


def margin(dtype: torch.dtype, half: bool, device: str = "cpu", crowd: int = 0) -> float:
    """Share of the clip norm that is left to rounding. ``half``: a model in half precision;
    ``crowd``: a public size that batches rarely exceed."""
    short = coarse() or (device != "cpu" and coarse_convolutions())
    wide = half or (dtype == torch.float32 and short)
    return (WIDE_MARGIN if wide else MARGIN[dtype]) + crowd * torch.finfo(dtype).eps


def coarse_convolutions() -> bool:
    """Whether convolutions of single precision may round their factors to TF32."""
    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:
        return True  # settings of two kinds are mixed


def coarse() -> bool:
    """Whether products of single precision may round their factors to TF32."""
    try:
        precision = torch.get_float32_matmul_precision()
        if precision == "medium":
            raise Refused(
                "products in bfloat16 are too coarse for a clip: use "
                'torch.set_float32_matmul_precision("high") or "highest".'
            )
        return precision != "highest" or bool(torch.backends.cuda.matmul.allow_tf32)
    except RuntimeError as problem:
        if isinstance(problem, Refused):
            raise
        return True  # torch does not say: settings of two kinds are mixed
