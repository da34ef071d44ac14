"""A foreign constraint set, tried on made-up points before anything is planned with it.

A closed convex set has one projection, and it is known by an inequality: <x - Px, c - Px> <= 0 for
every point c of the set. Whatever maps points with this property does not stretch distances. Noise
rests on that, and on the radius and the diameter that the set states.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from privopt.geometry.domain import Domain, Vector
from privopt.geometry.norms import Norm

LENGTHS = (0.3, 0.9, 1.1, 1.4, 2.0, 3.0, 5.0, 20.0, 1000.0)
"""Distances of made-up points from the centre, in radii."""
TOLERANCE = 1e-7
NORMS: tuple[Norm, ...] = ("l1", "l2", "linf")


def check_domain(domain: Domain, p: int) -> None:
    """Refuse a set whose projection, vertices or sizes contradict each other in dimension p."""
    name = type(domain).__name__
    centre = _point(domain.centre(p), p, f"{name}.centre")
    size = _size(domain, p) if domain.bounded else 1.0
    points = [centre + size * step for step in _steps(p)]
    shadows = [_projected(domain, x, name) for x in points]
    if not np.array_equal(shadows[0], _projected(domain, points[0], name)):
        _refuse(name, "project gives another point when it is called again")
    for x, shadow in zip(points, shadows, strict=True):
        slack = TOLERANCE * (size + float(np.linalg.norm(x - centre)))
        if np.linalg.norm(_projected(domain, shadow, name) - shadow) > slack:
            _refuse(name, "a projected point is projected to another one")
        for other in (*shadows, centre):
            gap, away = x - shadow, other - shadow
            if gap @ away > slack * (np.linalg.norm(gap) + np.linalg.norm(away)):
                _refuse(name, "project does not give the nearest point of a convex set")
    if domain.bounded:
        _check_sizes(domain, p, name, centre, shadows)
        _check_vertices(domain, points, shadows, name, size)


def _check_sizes(domain: Domain, p: int, name: str, centre: Vector, shadows: list[Vector]) -> None:
    for norm in NORMS:
        order = {"l1": 1, "l2": 2, "linf": np.inf}[str(norm)]
        radius, diameter = float(domain.radius(norm, p)), float(domain.diameter(norm, p))
        if not (0 <= radius < math.inf and 0 <= diameter < math.inf):
            _refuse(name, f"radius and diameter in {norm} must be finite numbers")
        for one in shadows:
            if np.linalg.norm(one - centre, order) > radius * (1 + TOLERANCE) + 1e-12:
                _refuse(name, f"a projected point lies outside its radius in {norm}")
            for other in shadows:
                if np.linalg.norm(one - other, order) > diameter * (1 + TOLERANCE) + 1e-12:
                    _refuse(
                        name, f"two projected points lie further apart than its {norm} diameter"
                    )


def _check_vertices(
    domain: Domain, points: list[Vector], shadows: list[Vector], name: str, size: float
) -> None:
    for g in points:
        vertex = _point(domain.linear_minimiser(g.copy()), len(g), f"{name}.linear_minimiser")
        slack = TOLERANCE * size * (1 + float(np.linalg.norm(g)))
        if np.linalg.norm(_projected(domain, vertex, name) - vertex) > TOLERANCE * (1 + size):
            _refuse(name, "linear_minimiser gives a point outside the set")
        if any(g @ vertex > g @ other + slack for other in shadows):
            _refuse(name, "linear_minimiser does not give a smallest point")


def _size(domain: Domain, p: int) -> float:
    radius = float(domain.radius("l2", p))
    return radius if 0 < radius < math.inf else 1.0


def _steps(p: int) -> list[Vector]:
    """Public directions of several lengths, the same in every process."""
    places = np.arange(1, p + 1)
    directions = (np.sin((j + 1) * 1.7 * places + j) for j in range(len(LENGTHS)))
    return [far * _unit(one) for far, one in zip(LENGTHS, directions, strict=True)]


def _unit(vector: Vector) -> Vector:
    return vector / max(float(np.linalg.norm(vector)), 1e-12)


def _projected(domain: Domain, x: Vector, name: str) -> Vector:
    given = x.copy()
    found = _point(domain.project(given), len(x), f"{name}.project")
    if not np.array_equal(given, x):
        _refuse(name, "project changes the point that it is given")
    return found


def _point(found: Any, p: int, what: str) -> Vector:
    point = np.asarray(found)
    if point.shape != (p,) or point.dtype.kind not in "iuf" or not np.isfinite(point).all():
        raise ValueError(f"{what} must give a vector of {p} finite real numbers.")
    return point.astype(float)


def _refuse(name: str, what: str) -> None:
    raise ValueError(
        f"the domain {name} is not the convex set it states, on made-up points: {what}. A "
        "guarantee rests on it: correct it, or use a set of privopt.geometry."
    )
