"""Quadratic minimisation over a ball: the trust-region problem, solved by its secular equation."""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import eigh


def minimise_quadratic(
    matrix: np.ndarray, linear: np.ndarray, ridge: float, radius: float = math.inf
) -> np.ndarray:
    """Return argmin of theta' M theta / 2 - <linear, theta> + ridge ||theta||^2 / 2 over
    ||theta|| <= radius.

    M is symmetrised and its negative eigenvalues are set to 0, so the problem is convex and, with
    ridge > 0, has one solution. In the eigenbasis it is theta_i = u_i / (m_i + ridge + nu); nu >= 0
    is 0 if that lies in the ball, else the root of ||theta(nu)|| = radius, where 1/||theta(nu)|| is
    nearly linear and increasing: Newton's method on it converges from the left (More and Sorensen,
    1983). This is not the projection of the unconstrained minimiser.
    """
    if not ridge > 0:
        raise ValueError(f"the ridge must be positive, got {ridge!r}.")
    values, basis = eigh((matrix + matrix.T) / 2)
    heights = np.maximum(values, 0.0) + ridge
    u = basis.T @ linear
    theta = u / heights
    nu = 0.0
    for _ in range(100):
        length = float(np.linalg.norm(theta))
        if length <= radius * (1 + 1e-14):
            break
        slope = float(theta**2 @ (1 / (heights + nu)))
        nu += length**2 / slope * (length / radius - 1)
        theta = u / (heights + nu)
    length = float(np.linalg.norm(theta))
    if length > radius:
        theta *= radius / length  # rounding only
    return basis @ theta


def svec(matrix: np.ndarray) -> np.ndarray:
    """The upper triangle of a symmetric matrix, off-diagonal entries times sqrt(2): an isometry,
    ||svec(M)||_2 = ||M||_F, so that ||svec(x x')|| = ||x||^2."""
    rows, columns = np.triu_indices(len(matrix))
    return matrix[rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2))


def unsvec(vector: np.ndarray) -> np.ndarray:
    """The symmetric matrix of an svec."""
    p = (math.isqrt(8 * len(vector) + 1) - 1) // 2
    rows, columns = np.triu_indices(p)
    matrix = np.zeros((p, p))
    matrix[rows, columns] = vector / np.where(rows == columns, 1.0, math.sqrt(2))
    return matrix + np.triu(matrix, 1).T
