"""Exponential noise."""

from __future__ import annotations

import numpy as np

from privopt.noise.source import Source, volume


def exponential(source: Source, scale: float, shape: tuple[int, ...] | int) -> np.ndarray:
    """Independent coordinates with density exp(-b/scale) / scale on b >= 0."""
    draw = source.noise.standard_exponential(shape)
    draw *= scale * volume(source)
    return draw
