"""Minimise a smooth strongly convex function over a domain by gradients alone, to a certificate."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from privopt.numerics.convex import ConvexSet, NotConverged


class Gradients(Protocol):
    """What gradient descent needs of a convex function."""

    def gradient(self, theta: np.ndarray) -> np.ndarray: ...


def descend(
    function: Gradients,
    *,
    domain: ConvexSet,
    smoothness: float,
    regularisation: float,
    centre: np.ndarray,
    linear: np.ndarray,
    start: np.ndarray,
    distance: float,
) -> np.ndarray:
    """argmin over the domain of function + regularisation/2 ||theta - centre||^2 + <linear, theta>.

    Projected gradient descent with constant momentum. ``smoothness`` bounds that of ``function``.

    Returns a point of the domain within ``distance`` of the minimiser. Certificate: for the
    projected step theta+ = project(theta - gradient/M), g = M (theta - theta+) and strong convexity
    Lambda the minimiser is within 2 ||g|| / Lambda of theta (Nesterov, 2004, theorem 2.2.7), and
    theta+ is no further away. The method converges linearly from anywhere, so the certificate is
    reached within a known number of steps unless rounding forbids it; then it refuses with a
    constant text, an output that the guarantee does not cover.
    """

    def gradient(theta: np.ndarray) -> np.ndarray:
        return function.gradient(theta) + regularisation * (theta - centre) + linear

    steep = smoothness + regularisation
    root = math.sqrt(steep / regularisation)
    momentum = (root - 1) / (root + 1)
    theta = ahead = domain.project(start)
    # The start is within 2 ||gradient|| / Lambda of the minimiser; twice the steps theory needs.
    error = 2 * float(np.linalg.norm(gradient(theta))) / regularisation
    ratio = 4 * steep * error / (regularisation * distance)
    for _ in range(100 + math.ceil(4 * root * math.log(max(ratio, math.e)))):
        moved = domain.project(ahead - gradient(ahead) / steep)
        if 2 * steep * float(np.linalg.norm(ahead - moved)) <= regularisation * distance:
            return moved
        ahead = moved + momentum * (moved - theta)
        theta = moved
    raise NotConverged
