"""Norm-Gamma noise: density proportional to exp(-||b||_2 / scale), the pure noise of l2."""

from __future__ import annotations

import numpy as np

from privopt.noise.source import Source, volume


def norm_gamma(source: Source, scale: float, p: int) -> np.ndarray:
    """A uniform direction times a Gamma(shape=p, scale) length; not p independent Laplaces."""
    if p == 0:
        return np.zeros(0)
    direction = source.noise.standard_normal(p)
    length = source.noise.standard_gamma(p) * scale * volume(source)
    return direction * (length / np.linalg.norm(direction))
