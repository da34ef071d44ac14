"""Minimise a sum of losses until its *exact* gradient is within a tolerance.

What a mask pays for is the gradient of real numbers, so nothing is returned before an enclosure of
it (``oracle.enclosure``), evaluated at the very point, lies within the tolerance. A point is kept
as head + tail, two doubles a coordinate, because a stiff sum moves by more than the tolerance
between neighbouring doubles.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from privopt.numerics.convex import UNIT, ConvexSet, Enclosed, NotConverged

MOST_STEPS = 60
MOST_ON_A_RAY = 40
MOST_GRADIENTS = 20_000
PROJECTION = 4.0
"""Error of a computed projection, in units of 2^-53 for each coordinate, relative to its sizes."""


class Perturbed:
    """function + regularisation/2 ||theta - centre||^2 + <linear, theta>, enclosed."""

    def __init__(
        self, function: Any, regularisation: float, centre: np.ndarray, linear: np.ndarray
    ) -> None:
        self.function, self.strong = function, regularisation
        self._centre, self._linear = centre, linear

    def enclosed(self, head: np.ndarray, tail: np.ndarray) -> Enclosed:
        inner = self.function.enclosed(head, tail)
        pull = self.strong * ((head - self._centre) + tail)
        value = (inner.value + pull) + self._linear
        sizes = [float(np.linalg.norm(v)) for v in (inner.value, pull, self._linear)]
        # (head - centre) may round before the tail corrects it: once more relative to head.
        apart = self.strong * UNIT * float(np.linalg.norm(np.abs(tail)))
        return Enclosed(value, (inner.error + 6 * UNIT * sum(sizes) + apart) * (1 + 1e-9))

    def hessian(self, head: np.ndarray) -> np.ndarray:
        hessian = self.function.hessian(head)
        hessian[np.diag_indices_from(hessian)] += self.strong
        return hessian


def moved(head: np.ndarray, tail: np.ndarray, step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """head + tail + step, again as the nearest doubles and what they leave."""
    low = tail + step
    total = head + low
    back = total - head
    return total, (head - (total - back)) + (low - back)


def finish(
    problem: Perturbed, start: np.ndarray, tolerance: float, dense: bool, smoothness: float
) -> tuple[np.ndarray, np.ndarray]:
    """A point near ``start`` whose exact gradient is within the tolerance.

    Newton steps, each to where the derivative along it vanishes: that derivative does not decrease,
    so the search on the ray cannot jam as one by function values or norms does. Then accelerated
    gradients, which need no luck.
    """
    head, tail = start, np.zeros_like(start)
    at = problem.enclosed(head, tail)
    for _ in range(MOST_STEPS):
        if _surely_below(at, tolerance):
            return _rounded(problem, head, tail, tolerance)
        direction = _direction(problem, head, at.value, dense)
        if direction is None:
            break
        head, tail, at = _along(problem, head, tail, at, direction)
    return _accelerated(problem, head, tail, at, tolerance, smoothness)


def _surely_below(at: Enclosed, tolerance: float) -> bool:
    return (float(np.linalg.norm(at.value)) + at.error) * (1 + 1e-9) <= tolerance


def _rounded(
    problem: Perturbed, head: np.ndarray, tail: np.ndarray, tolerance: float
) -> tuple[np.ndarray, np.ndarray]:
    """One double a coordinate where that is enough."""
    nothing = np.zeros_like(tail)
    if tail.any() and _surely_below(problem.enclosed(head, nothing), tolerance):
        return head, nothing
    return head, tail


def _direction(
    problem: Perturbed, head: np.ndarray, gradient: np.ndarray, dense: bool
) -> np.ndarray | None:
    if not dense:
        return None
    try:
        return -cho_solve(cho_factor(problem.hessian(head), check_finite=False), gradient)
    except (LinAlgError, ValueError):
        return None


def _along(
    problem: Perturbed, head: np.ndarray, tail: np.ndarray, at: Enclosed, direction: np.ndarray
) -> tuple[np.ndarray, np.ndarray, Enclosed]:
    """The point of a ray at which the derivative along it has all but vanished."""
    first = float(at.value @ direction)
    low, high, length = 0.0, math.inf, 1.0
    point = (head, tail, at)
    for _ in range(MOST_ON_A_RAY):
        there = moved(head, tail, length * direction)
        found = problem.enclosed(*there)
        slope = float(found.value @ direction)
        point = (*there, found)
        if abs(slope) <= 0.1 * abs(first):
            break
        low, high = (length, high) if slope < 0 else (low, length)
        length = 2 * low if high == math.inf else (low + high) / 2
    return point


def _accelerated(
    problem: Perturbed,
    head: np.ndarray,
    tail: np.ndarray,
    at: Enclosed,
    tolerance: float,
    smoothness: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Gradient descent with constant momentum: linear convergence from anywhere."""
    steep = smoothness + problem.strong
    if not math.isfinite(steep):
        raise NotConverged
    root = math.sqrt(steep / problem.strong)
    momentum = (root - 1) / (root + 1)
    ratio = steep / problem.strong * max(float(np.linalg.norm(at.value)) / tolerance, math.e)
    step = np.zeros_like(head)
    for _ in range(min(MOST_GRADIENTS, 100 + math.ceil(4 * root * math.log(ratio)))):
        if _surely_below(at, tolerance):
            return _rounded(problem, head, tail, tolerance)
        forward = step - at.value / steep  # from where momentum had carried it
        head, tail = moved(head, tail, -at.value / steep + momentum * forward)
        step = momentum * forward
        at = problem.enclosed(head, tail)
    raise NotConverged


def mapped_below(
    problem: Perturbed, domain: ConvexSet, point: np.ndarray, smoothness: float, distance: float
) -> np.ndarray | None:
    """The projected gradient step from a point, if it surely is within ``distance`` of the
    minimiser over the domain: of g = M (point - step) the exact one is longer by at most the
    gradient's error and M times the projection's, and 2 ||g|| / Lambda bounds the distance."""
    steep = smoothness + problem.strong
    at = problem.enclosed(point, np.zeros_like(point))
    target = point - at.value / steep
    step = domain.project(target)
    size = float(np.linalg.norm(target)) + float(np.linalg.norm(step))
    off = PROJECTION * UNIT * point.size * size
    mapping = steep * (float(np.linalg.norm(point - step)) + off) + at.error
    surely = 2 * mapping / problem.strong + off
    return step if surely * (1 + 1e-9) <= distance else None
