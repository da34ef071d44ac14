"""Gaussian noise."""

from __future__ import annotations

import numpy as np

from privopt.noise.source import Source, volume


def gaussian(source: Source, std: float, shape: tuple[int, ...] | int) -> np.ndarray:
    """Independent N(0, std^2) coordinates."""
    draw = source.noise.standard_normal(shape)
    draw *= std * volume(source)
    return draw
