"""Wolfe's algorithm for the point of a convex hull that is nearest to a given point."""

from __future__ import annotations

import numpy as np

_EPS = float(np.finfo(np.float64).eps)


def nearest_weights(points: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, float]:
    """Return convex weights w that minimise ||points' w - x||_2, and a certificate.

    The certificate is the gap max_v <x - q, v - q> over the rows v, with q = points' w: it bounds
    ||q - q*||^2 for the true projection q*. The active rows stay affinely independent and the
    distance falls at every step, so no active set returns and the algorithm is finite (Wolfe,
    1976). The rows are assumed to be of size about 1.
    """
    rows = [int(np.argmin(0.5 * np.einsum("ij,ij->i", points, points) - points @ x))]
    active = np.ones(1)
    q = points[rows[0]].copy()
    rounding = 4.0 * _EPS * (1.0 + float(np.linalg.norm(x)))
    gap = np.inf
    for _ in range(50 * (points.shape[0] + points.shape[1])):
        towards = x - q
        scores = points @ towards
        best = int(np.argmax(scores))
        gap = max(0.0, float(scores[best] - q @ towards))
        distance = float(np.linalg.norm(towards))
        # The gap is compared with the distance because a thin hull makes both small.
        if distance <= rounding or gap <= 4.0 * _EPS * distance or best in rows:
            break
        new_rows, new_active = _minimise_on_hull(points, x, [*rows, best], np.append(active, 0.0))
        new_q = new_active @ points[new_rows]
        step = new_q - q
        # In floating point the distance may cease to fall: then this is the answer.
        if float((x - q - 0.5 * step) @ step) <= 0.0:
            break
        rows, active, q = new_rows, new_active, new_q
    weights = np.zeros(points.shape[0])
    weights[rows] = active
    return weights, gap


def _minimise_on_hull(
    points: np.ndarray, x: np.ndarray, rows: list[int], weights: np.ndarray
) -> tuple[list[int], np.ndarray]:
    """Walk from the weights to affine minimisers, dropping rows, until one is a convex weight."""
    while len(rows) > 1:
        target = _affine_minimiser(points[rows], x)
        blocked = target <= _EPS
        if not blocked.any():
            return rows, target / target.sum()
        room = weights[blocked] / np.maximum(weights[blocked] - target[blocked], _EPS)
        share = min(1.0, float(room.min()))
        weights = np.maximum((1.0 - share) * weights + share * target, 0.0)
        keep = weights > _EPS
        # At least one blocked row goes in every round.
        keep[np.flatnonzero(blocked)[int(np.argmin(room))]] = False
        rows = [row for row, kept in zip(rows, keep, strict=True) if kept]
        weights = weights[keep] / weights[keep].sum()
    return rows, np.ones(1)


def _affine_minimiser(corners: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return weights a with sum 1 that minimise ||corners' a - x||_2, of any sign."""
    edges = (corners[1:] - corners[0]).T
    rest = np.linalg.lstsq(edges, x - corners[0], rcond=None)[0]
    return np.concatenate(([1.0 - rest.sum()], rest))
