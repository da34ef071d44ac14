"""Minimise a strongly convex function to a certified gradient norm."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol, cast

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.sparse.linalg import LinearOperator, cg

from privopt.numerics.constrained_newton import minimise_over
from privopt.numerics.convex import ConvexSet, NotConverged
from privopt.numerics.enclosed_newton import Perturbed, finish, mapped_below

DENSE_DIMENSION = 1500
MATRIX_FREE = 200
"""Parameters from which on products with a Hessian are tried before the matrix itself, of which
one costs about as much as ``HESSIAN`` times as many products as there are parameters."""
HESSIAN = 1 / 8
MOST_ITERATIONS = 200
MANY_RECORDS = 50_000
ROUGH_SHARE = 0.1


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
    domain: ConvexSet | None = None,
    smoothness: float = math.inf,
    start: np.ndarray | None = None,
) -> np.ndarray:
    """argmin of function(theta) + regularisation/2 ||theta - centre||^2 + <linear, theta>.

    Returns a point within gradient_norm / regularisation of it. Over a domain, the minimiser of the
    whole space is taken if it lies inside, and ``minimise_over`` goes on from it otherwise;
    ``smoothness`` must then bound that of ``function``.

    Damped Newton steps on the residual ||gradient||, for which the Newton direction is a descent
    direction: strong convexity makes them converge from anywhere, and no function value is needed.
    The linear system is solved directly in moderate dimension and by conjugate gradients above it.

    The certificate is a computed gradient norm of at most ``gradient_norm``; mechanisms whose
    guarantee rests on it use ``minimise_surely``. If it is not reached, it refuses.
    """

    def gradient(theta: np.ndarray) -> np.ndarray:
        return function.gradient(theta) + regularisation * (theta - centre) + linear

    theta = centre.copy() if start is None else start.copy()
    theta, best = _newton(gradient, _Newton(function, regularisation), theta, gradient_norm)
    if best > gradient_norm:
        raise NotConverged
    if domain is None or domain.contains(theta, 0.0):
        return theta
    return minimise_over(
        function,
        domain=domain,
        smoothness=smoothness,
        regularisation=regularisation,
        centre=centre,
        linear=linear,
        start=theta,
        distance=gradient_norm / regularisation,
    )


def minimise_surely(
    function: Any,
    *,
    regularisation: Any,
    centre: np.ndarray,
    linear: np.ndarray,
    gradient_norm: float,
    domain: ConvexSet | None = None,
    smoothness: float = math.inf,
) -> tuple[np.ndarray, np.ndarray]:
    """The same point as a sum of two vectors, with ``gradient_norm`` for the *exact* gradient.
    The regularisation may differ between coordinates, except over a domain.

    Plain Newton steps go as far as half of the tolerance, or as rounding lets them; ``finish``
    evaluates the exact gradient with its error and goes on where it must. Over a domain the exact
    point is within gradient_norm / regularisation by the enclosed gradient mapping.
    """

    def gradient(theta: np.ndarray) -> np.ndarray:
        return function.gradient(theta) + regularisation * (theta - centre) + linear

    newton = _Newton(function, regularisation)
    theta, _ = _newton(gradient, newton, centre.copy(), gradient_norm / 2)
    problem = Perturbed(function, regularisation, centre, linear)
    dense = centre.size <= DENSE_DIMENSION
    head, tail = finish(problem, theta, gradient_norm, dense, smoothness)
    if domain is None or domain.contains(head + tail, 0.0):
        return head, tail
    distance = gradient_norm / regularisation
    start = head
    for share in (2, 8, 32):
        start = minimise_over(
            function,
            domain=domain,
            smoothness=smoothness,
            regularisation=regularisation,
            centre=centre,
            linear=linear,
            start=start,
            distance=distance / share,
        )
        surely = mapped_below(problem, domain, start, smoothness, distance)
        if surely is not None:
            return surely, np.zeros_like(surely)
    raise NotConverged


def _newton(
    gradient: Callable[[np.ndarray], np.ndarray],
    newton: _Newton,
    theta: np.ndarray,
    gradient_norm: float,
) -> tuple[np.ndarray, float]:
    """Newton steps until the computed gradient is short enough, or until they stop."""
    at = gradient(theta)
    best = float(np.linalg.norm(at))
    for _ in range(MOST_ITERATIONS):
        if best <= gradient_norm:
            break
        moved = _line_search(gradient, theta, newton.direction(theta, at), best)
        while moved is None and newton.sharpen():
            moved = _line_search(gradient, theta, newton.direction(theta, at), best)
        if moved is None:
            break
        newton.judge(moved[2] / best)
        theta, at, best = moved
    return theta, best


class _Newton:
    """Newton directions that build no more of a Hessian than the progress demands.

    With many records a share of them gives a Hessian good enough to shrink the residual many times
    per step; a factor is kept while it does so. Only the path depends on this, not the certificate.
    """

    def __init__(self, function: Smooth, regularisation: Any) -> None:
        self._function, self._regularisation = function, regularisation
        self._rough = getattr(function, "count", 0) >= MANY_RECORDS
        self._factor: Any = None
        self._fresh = False
        self._products, self._wide = True, False

    def direction(self, theta: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        if theta.size > DENSE_DIMENSION:
            return self._by_conjugate_gradients(theta, gradient, 500)[0]
        if theta.size > MATRIX_FREE and self._products:
            self._wide, most = True, int(theta.size * HESSIAN)
            found, self._products = self._by_conjugate_gradients(theta, gradient, most)
            if self._products:
                return found
        self._fresh = self._factor is None
        if self._factor is None:
            hessian = (
                cast(Any, self._function).rough_hessian(theta, ROUGH_SHARE)
                if self._rough
                else self._function.hessian(theta)
            )
            hessian[np.diag_indices_from(hessian)] += self._regularisation
            try:
                # Symmetric: its transpose is the same matrix in the order that needs no copy.
                self._factor = cho_factor(hessian.T, overwrite_a=True, check_finite=False)
            except LinAlgError:
                return -gradient / self._regularisation
        return -cho_solve(self._factor, gradient)

    def sharpen(self) -> bool:
        """After a step that failed: a new factor, then all records; False if both were in use."""
        if self._factor is None and self._products and self._wide:
            self._products = False
            return True
        if self._factor is None or (self._fresh and not self._rough):
            return False
        self._rough = self._rough and not self._fresh
        self._factor = None
        return True

    def judge(self, shrunk: float) -> None:
        """Keep a factor that shrinks the residual at least tenfold, renew it otherwise."""
        if shrunk > 0.1:
            # A new rough factor that is slow, close to the end, is not going to be better again.
            self._rough = self._rough and not (self._fresh and shrunk > 0.5)
            self._factor = None

    def _by_conjugate_gradients(
        self, theta: np.ndarray, gradient: np.ndarray, most: int
    ) -> tuple[np.ndarray, bool]:
        """A direction, and whether so many products sufficed."""
        curvatures = self._function.curvatures(theta)

        def product(vector: np.ndarray) -> np.ndarray:
            return (
                self._function.hessian_product(curvatures, vector) + self._regularisation * vector
            )

        shape = (theta.size, theta.size)
        operator: Any = cast(Any, LinearOperator)(shape, matvec=product, dtype=float)
        forcing = min(0.1, float(np.linalg.norm(gradient)) ** 0.5)
        direction, left = cg(operator, -gradient, rtol=max(forcing, 1e-6), maxiter=most)
        return direction, left == 0


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
