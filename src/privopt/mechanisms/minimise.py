"""Minimise a strongly convex function to a certified gradient norm. Used inside mechanisms only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.sparse.linalg import LinearOperator, cg

from privopt.privacy.budget import Refused

DENSE_DIMENSION = 1500
MOST_ITERATIONS = 200


class Smooth(Protocol):
    """What the minimiser needs of a convex function."""

    @property
    def dimension(self) -> int: ...
    def gradient(self, theta: np.ndarray) -> np.ndarray: ...
    def hessian(self, theta: np.ndarray) -> np.ndarray: ...
    def curvatures(self, theta: np.ndarray) -> object: ...
    def hessian_product(self, curvatures: object, vector: np.ndarray) -> np.ndarray: ...


def minimise(
    function: Smooth,
    *,
    regularisation: float,
    centre: np.ndarray,
    linear: np.ndarray,
    gradient_norm: float,
    start: np.ndarray | None = None,
) -> np.ndarray:
    """argmin of function(theta) + regularisation/2 ||theta - centre||^2 + <linear, theta>.

    Damped Newton steps on the residual ||gradient||, for which the Newton direction is a descent
    direction: strong convexity makes them converge from anywhere, and no function value is needed.
    The linear system is solved directly in moderate dimension and by conjugate gradients above it.

    Returns a point whose computed gradient norm is at most ``gradient_norm``. If that is not
    reached, it refuses; the text is constant, but the refusal is itself an output that the
    guarantee does not cover.
    """

    def gradient(theta: np.ndarray) -> np.ndarray:
        return function.gradient(theta) + regularisation * (theta - centre) + linear

    theta = centre.copy() if start is None else start.copy()
    at = gradient(theta)
    best = float(np.linalg.norm(at))
    for _ in range(MOST_ITERATIONS):
        if best <= gradient_norm:
            return theta
        direction = _newton_direction(function, theta, at, regularisation)
        moved = _line_search(gradient, theta, direction, best)
        if moved is None:
            break
        theta, at, best = moved
    raise Refused(
        "the perturbed objective was not minimised to its certified tolerance; the budget is "
        "spent and this message is itself outside the guarantee."
    )


def _newton_direction(
    function: Smooth, theta: np.ndarray, gradient: np.ndarray, regularisation: float
) -> np.ndarray:
    if theta.size <= DENSE_DIMENSION:
        hessian = function.hessian(theta)
        hessian[np.diag_indices_from(hessian)] += regularisation
        try:
            return -cho_solve(cho_factor(hessian, check_finite=False), gradient)
        except LinAlgError:
            return -gradient / regularisation
    curvatures = function.curvatures(theta)

    def product(vector: np.ndarray) -> np.ndarray:
        return function.hessian_product(curvatures, vector) + regularisation * vector

    shape = (theta.size, theta.size)
    operator: Any = cast(Any, LinearOperator)(shape, matvec=product, dtype=float)
    forcing = min(0.1, float(np.linalg.norm(gradient)) ** 0.5)
    direction, _ = cg(operator, -gradient, rtol=max(forcing, 1e-6), maxiter=500)
    return direction


def _line_search(
    gradient: Callable[[np.ndarray], np.ndarray],
    theta: np.ndarray,
    direction: np.ndarray,
    best: float,
) -> tuple[np.ndarray, np.ndarray, float] | None:
    """First step length 1, 1/2, 1/4, ... that shrinks the residual enough."""
    length = 1.0
    for _ in range(60):
        candidate = theta + length * direction
        at = gradient(candidate)
        norm = float(np.linalg.norm(at))
        if norm <= (1 - 1e-3 * length) * best:
            return candidate, at, norm
        length /= 2
    return None
