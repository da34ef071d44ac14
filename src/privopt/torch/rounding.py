"""What rounding may do to a clipped gradient, and the room that is left for it.

The norm of an example's gradient and its part in the weighted sum go through different roundings.
With u the relative rounding of one factor of a product, S = sum_t |a_t| |g_t| and n the computed
norm, the part in the sum is off by at most 2 u S c, c the clip factor. Norms from factors are
rounded up to n^2 + slack S^2, so that c <= bound / (sqrt(slack) S), and the part is off by at most
2 u bound / sqrt(slack), however much its terms cancel:

* double and single precision: u is of the order 1e-16 and 1e-7; slack 1e-13 and 1e-5;
* products that round to TF32 (torch's "high" precision): u = 2^-11; slack 2.5e-3, so 2 % at most.

The margin is taken off the clip norm, which stays the declared sensitivity.
"""

from __future__ import annotations

import torch

from privopt.privacy.budget import Refused

SLACK = {torch.float64: 1e-13, torch.float32: 1e-5}
COARSE_SLACK = 2.5e-3
MARGIN = {torch.float64: 1e-9, torch.float32: 1e-3}
HALF_MARGIN = 1e-2
COARSE_MARGIN = 2e-2
HALF = (torch.float16, torch.bfloat16)


def slack(dtype: torch.dtype) -> float:
    """How far a squared norm from factors is rounded up, as a share of S^2."""
    return COARSE_SLACK if dtype == torch.float32 and coarse() else SLACK[dtype]


def margin(dtype: torch.dtype, half: bool) -> float:
    """Share of the clip norm that is left to rounding. ``half``: a model in half precision."""
    if dtype == torch.float32 and coarse():
        return COARSE_MARGIN
    return HALF_MARGIN if half else MARGIN[dtype]


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
