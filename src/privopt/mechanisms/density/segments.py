"""Exact draws from a density whose logarithm is linear on each of some segments."""

from __future__ import annotations

import numpy as np

from privopt.noise import Source, gumbel


def log_mean_exp(change: np.ndarray) -> np.ndarray:
    """log of the mean of exp over a segment on which the exponent goes from 0 to ``change``."""
    size = np.abs(change)
    small = size < 1e-5
    safe = np.where(small, 1.0, size)
    curved = np.log(-np.expm1(-safe) / safe)
    return np.maximum(change, 0.0) + np.where(small, -size / 2 + size**2 / 24, curved)


def position(uniform: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Position in [0, 1] with density proportional to exp(change * position), by inversion."""
    size = np.abs(change)
    small = size < 1e-12
    safe = np.where(small, 1.0, size)
    # Decreasing densities are inverted as they are, increasing ones in the mirror.
    fall = np.where(small, uniform, -np.log1p(uniform * np.expm1(-safe)) / safe)
    return np.clip(np.where(change > 0, 1.0 - fall, fall), 0.0, 1.0)


def log_masses(knots: np.ndarray, heights: np.ndarray) -> np.ndarray:
    """log of each segment's mass; ``heights`` is the log density at the knots."""
    widths = np.diff(knots)
    empty = widths <= 0
    masses = heights[:-1] + log_mean_exp(np.diff(heights)) + np.log(np.where(empty, 1.0, widths))
    return np.where(empty, -np.inf, masses)


def choose(source: Source, log_weights: np.ndarray) -> int:
    """An index with probability proportional to exp(log_weights), by the Gumbel-max rule."""
    return int(np.argmax(log_weights + gumbel(source, 1.0, log_weights.shape)))


def draw(source: Source, knots: np.ndarray, heights: np.ndarray) -> float:
    """One draw from the density exp(piecewise linear) with these log heights at these knots."""
    j = choose(source, log_masses(knots, heights))
    t = position(np.asarray(source.noise.random()), np.asarray(heights[j + 1] - heights[j]))
    return float(knots[j] + t * (knots[j + 1] - knots[j]))
