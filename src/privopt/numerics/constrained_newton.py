"""Minimise a smooth strongly convex function over a domain by Newton steps, to a certificate."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from privopt.numerics.accelerated import descend
from privopt.numerics.convex import ConvexSet

MOST_STEPS = 40
DENSE_DIMENSION = 1500


def minimise_over(
    function: Any,
    *,
    domain: ConvexSet,
    smoothness: float,
    regularisation: float,
    centre: np.ndarray,
    linear: np.ndarray,
    start: np.ndarray,
    distance: float,
) -> np.ndarray:
    """A point of the domain within ``distance`` of the minimiser over it.

    Each step minimises the quadratic model over the domain, which needs no data, and keeps the
    longest of a few steps that shrinks the gradient mapping. Where none does, ``descend`` goes on
    from the best point; its certificate is the one used here.
    """
    steep = smoothness + regularisation
    enough = regularisation * distance / 2
    theta = domain.project(start)

    def gradient(point: np.ndarray) -> np.ndarray:
        return function.gradient(point) + regularisation * (point - centre) + linear

    def mapping(point: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, float]:
        moved = domain.project(point - at / steep)
        return moved, steep * float(np.linalg.norm(point - moved))

    at = gradient(theta)
    moved, best = mapping(theta, at)
    for _ in range(MOST_STEPS if theta.size <= DENSE_DIMENSION else 0):
        if best <= enough:
            return moved
        hessian = function.hessian(theta)
        hessian[np.diag_indices_from(hessian)] += regularisation
        target = _quadratic_minimiser(domain, theta, at, hessian, regularisation)
        for length in (1.0, 0.5, 0.25, 0.1, 0.02):
            candidate = theta + length * (target - theta)
            slope = gradient(candidate)
            onward, size = mapping(candidate, slope)
            if size <= (1 - 0.1 * length) * best:
                theta, at, moved, best = candidate, slope, onward, size
                break
        else:
            break
    if best <= enough:
        return moved
    return descend(
        function,
        domain=domain,
        smoothness=smoothness,
        regularisation=regularisation,
        centre=centre,
        linear=linear,
        start=moved,
        distance=distance,
    )


def _quadratic_minimiser(
    domain: ConvexSet, at: np.ndarray, gradient: np.ndarray, hessian: np.ndarray, strong: float
) -> np.ndarray:
    """argmin over the domain of <gradient, x - at> + (x - at)^T hessian (x - at) / 2, closely."""
    steep = float(np.linalg.eigvalsh(hessian)[-1])
    root = math.sqrt(steep / strong)
    momentum = (root - 1) / (root + 1)
    point = ahead = at
    for _ in range(min(5000, 50 + math.ceil(20 * root))):
        moved = domain.project(ahead - (gradient + hessian @ (ahead - at)) / steep)
        if np.linalg.norm(moved - ahead) <= 1e-14 * (1 + np.linalg.norm(moved)):
            return moved
        point, ahead = moved, moved + momentum * (moved - point)
    return point
