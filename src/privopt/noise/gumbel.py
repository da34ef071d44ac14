"""Gumbel noise."""

from __future__ import annotations

import numpy as np

from privopt.noise.source import Source, volume


def gumbel(source: Source, scale: float, shape: tuple[int, ...] | int) -> np.ndarray:
    """Independent standard Gumbel variables times ``scale``: -log of an exponential."""
    draw = np.maximum(source.noise.standard_exponential(shape), np.finfo(float).tiny)
    return (-scale * volume(source)) * np.log(draw)
