"""A bounded public domain in coordinates of its own dimension."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.spatial import ConvexHull

from privopt.geometry import Box, Domain, L1Ball, L2Ball, Near, Polytope, Simplex
from privopt.privacy.budget import Refused

HULL_DIMENSION = 4
"""Up to here a polytope is turned into half-spaces."""


@dataclass(frozen=True, eq=False)
class Body:
    """The set {origin + axes t : inside(t)}; a flat domain has fewer axes than parameters.

    It lies in the box [low, high] and in the ball about ``centre``, and is that ball if ``round``;
    ``supports(a)`` is the largest <a, t> on it for each row a; ``meets(low, high)`` is false only
    for boxes that miss it, one a row. All of these speak of t.
    """

    origin: np.ndarray
    axes: np.ndarray
    low: np.ndarray
    high: np.ndarray
    centre: np.ndarray
    radius: float
    round: bool
    inside: Callable[[np.ndarray], np.ndarray]
    supports: Callable[[np.ndarray], np.ndarray]
    meets: Callable[[np.ndarray, np.ndarray], np.ndarray]
    domain: Domain | None = None

    @property
    def dimension(self) -> int:
        return self.axes.shape[1]

    def thetas(self, points: np.ndarray) -> np.ndarray:
        """Parameters of points, one a row."""
        return self.origin + points @ self.axes.T

    def project(self, point: np.ndarray) -> np.ndarray:
        """A point of the body near this one."""
        assert self.domain is not None
        theta = self.domain.project(self.thetas(point[None])[0])
        return self.coordinates(theta)

    def coordinates(self, theta: np.ndarray) -> np.ndarray:
        """The point of a parameter vector of the domain."""
        return self._inverse @ (theta - self.origin)

    @cached_property
    def _inverse(self) -> np.ndarray:
        return np.linalg.pinv(self.axes)

    def landmarks(self) -> np.ndarray:
        """The centre, and points near the border in forty fixed directions."""
        # Multiples of irrational numbers are spread evenly: no random bits are needed.
        turns = np.outer(np.arange(1, 41), np.sqrt([2, 3, 5, 7, 11, 13, 17, 19, 23, 29]))
        ways = np.cos(2 * np.pi * np.resize(turns, (40, self.dimension)))
        far = [self.project(self.centre + 9 * self.radius * way) for way in ways]
        return np.array([*far, self.centre])

    def turned(self, frame: np.ndarray) -> Body:
        """A round body about the origin, in coordinates along an orthogonal frame's columns."""
        ball = _l2_ball(np.zeros(self.dimension), self.radius)
        origin = self.thetas(self.centre[None])[0]
        return replace(ball, origin=origin, axes=self.axes @ frame, domain=self.domain)


def body_of(domain: Domain, p: int) -> Body:
    """The body of a bounded domain in R^p; refuses a domain it has no coordinates for."""
    domain.check_dimension(p)
    return replace(_shape(domain, p), domain=domain)


def _shape(domain: Domain, p: int) -> Body:
    if isinstance(domain, L2Ball):
        return _l2_ball(domain.centre(p), domain.size)
    if isinstance(domain, L1Ball):
        return _l1_ball(domain.size, p)
    if isinstance(domain, Box):
        low = np.broadcast_to(np.asarray(domain.lower, dtype=float), (p,))
        high = np.broadcast_to(np.asarray(domain.upper, dtype=float), (p,))
        return _box(low, high)
    if isinstance(domain, Simplex):
        corners = domain.scale * np.eye(p)
        return _hull(corners) if p <= HULL_DIMENSION + 1 else _simplex(domain.scale, p)
    if isinstance(domain, Polytope):
        return _hull(np.asarray(domain.vertices))
    if isinstance(domain, Near):
        return _near(domain, p)
    raise Refused(f"no exact sampler is known for {type(domain).__name__}: use L2Ball or Box.")


def _l2_ball(centre: np.ndarray, radius: float) -> Body:
    def inside(t: np.ndarray) -> np.ndarray:
        return np.einsum("ij,ij->i", t - centre, t - centre) <= radius**2

    def supports(a: np.ndarray) -> np.ndarray:
        return a @ centre + radius * np.linalg.norm(a, axis=1)

    def meets(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        nearest = np.clip(centre, low, high)
        return np.linalg.norm(nearest - centre, axis=1) <= radius * (1 + 1e-9)

    p = centre.size
    low, high = centre - radius, centre + radius
    return Body(np.zeros(p), np.eye(p), low, high, centre, radius, True, inside, supports, meets)


def _near(near: Near, p: int) -> Body:
    """A ball if the domain is all of space, else the domain's own coordinates in a smaller box."""
    if not near.domain.bounded:
        return _l2_ball(near.point, near.distance)
    whole = _shape(near.domain, p)
    inverse = np.linalg.pinv(whole.axes)
    middle = inverse @ (near.point - whole.origin)
    spread = near.distance * np.linalg.norm(inverse, axis=1)

    def inside(t: np.ndarray) -> np.ndarray:
        away = whole.thetas(t) - near.point
        return whole.inside(t) & (np.einsum("ij,ij->i", away, away) <= near.distance**2)

    def supports(a: np.ndarray) -> np.ndarray:
        ball = a @ middle + near.distance * np.linalg.norm(a @ inverse, axis=1)
        return np.minimum(whole.supports(a), ball)

    return replace(
        whole,
        low=np.maximum(whole.low, middle - spread),
        high=np.minimum(whole.high, middle + spread),
        centre=middle,
        radius=near.distance * float(np.linalg.norm(inverse, 2)),
        round=False,
        inside=inside,
        supports=supports,
    )


def _l1_ball(radius: float, p: int) -> Body:
    edge = np.full(p, radius)
    return Body(
        np.zeros(p),
        np.eye(p),
        -edge,
        edge,
        np.zeros(p),
        radius,
        p == 1,
        lambda t: np.abs(t).sum(axis=1) <= radius,
        lambda a: radius * np.abs(a).max(axis=1),
        lambda low, high: np.abs(np.clip(0.0, low, high)).sum(axis=1) <= radius * (1 + 1e-9),
    )


def _box(low: np.ndarray, high: np.ndarray) -> Body:
    wide = high > low
    origin, axes = np.where(wide, 0.0, low), np.eye(low.size)[:, wide]
    low, high = low[wide], high[wide]
    return Body(
        origin,
        axes,
        low,
        high,
        low / 2 + high / 2,
        float(np.linalg.norm(high / 2 - low / 2)),
        low.size == 1,
        lambda t: np.all((t >= low) & (t <= high), axis=1),
        lambda a: np.maximum(a * low, a * high).sum(axis=1),
        lambda below, above: np.ones(len(below), dtype=bool),
    )


def _simplex(scale: float, p: int) -> Body:
    """Coordinates: all parameters but the last, which is the rest of the sum."""
    origin, axes = np.zeros(p), np.vstack([np.eye(p - 1), -np.ones(p - 1)])
    origin[-1] = scale
    centre = np.full(p - 1, scale / p)
    radius = float(np.linalg.norm(np.eye(p - 1)[0] * scale - centre))
    return Body(
        origin,
        axes,
        np.zeros(p - 1),
        np.full(p - 1, scale),
        centre,
        max(radius, float(np.linalg.norm(centre))),
        False,
        lambda t: (t.min(axis=1) >= 0) & (t.sum(axis=1) <= scale),
        lambda a: scale * np.maximum(0.0, a.max(axis=1)),
        lambda low, high: low.sum(axis=1) <= scale * (1 + 1e-9),
    )


def _hull(vertices: np.ndarray) -> Body:
    """Coordinates along the principal axes of the vertices."""
    origin = vertices.mean(axis=0)
    _, sizes, directions = np.linalg.svd(vertices - origin, full_matrices=False)
    axes = directions[sizes > 1e-9 * sizes.max(initial=0.0)].T
    corners = (vertices - origin) @ axes
    k = axes.shape[1]
    if k > HULL_DIMENSION:
        raise Refused(
            f"an exact sample from a polytope is drawn up to dimension {HULL_DIMENSION}: "
            "use L2Ball or Box."
        )
    low, high = corners.min(axis=0), corners.max(axis=0)
    if k <= 1:
        faces = np.column_stack([np.vstack([np.eye(k), -np.eye(k)]), np.append(-high, low)])
    else:
        faces = ConvexHull(corners).equations
    up, down = np.maximum(faces[:, :-1], 0.0), np.minimum(faces[:, :-1], 0.0)
    slack = 1e-9 * float(np.abs(corners).max(initial=0.0))

    def meets(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        # The least value of each face's function on the box.
        return np.all(low @ up.T + high @ down.T + faces[:, -1] <= slack, axis=1)

    return Body(
        origin,
        axes,
        low,
        high,
        np.zeros(k),
        math.sqrt(float(np.max(np.sum(corners**2, axis=1), initial=0.0))),
        k == 1 and low[0] == -high[0],
        lambda t: np.all(t @ faces[:, :-1].T + faces[:, -1] <= 0, axis=1),
        lambda a: (a @ corners.T).max(axis=1),
        meets,
    )
