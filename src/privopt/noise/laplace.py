"""Laplace noise."""

from __future__ import annotations

import numpy as np

from privopt.noise.source import Source, volume


def laplace(source: Source, scale: float, shape: tuple[int, ...] | int) -> np.ndarray:
    """Independent coordinates with density exp(-|b|/scale) / (2 scale).

    Drawn as the difference of two exponentials: no logarithm of a possible zero.
    """
    draw = source.noise.standard_exponential(shape) - source.noise.standard_exponential(shape)
    draw *= scale * volume(source)
    return draw
