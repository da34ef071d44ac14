"""Smooth generalised linear models, up to about ten dimensions: rejection under a certified bound.

Two envelopes; the one with the smaller mass is used. Both are exact for every anchor: a bad one
costs time only.

Interior. On a body inside the ball B(c, rho), for every eta >= 0 and every a,

    U(t) = potential(t) + <a, t> - support(a) + eta/2 (||t - c||^2 - rho^2)  <=  potential(t).

U is convex; with its Hessian M at the anchor, the curvature of U along a ray from the anchor is at
least alpha_j until the ray leaves the j-th ellipsoid ||t - anchor||_M <= r_j, because there no
record's margin has moved by more than r_j ||x||_{M^-1}. So U grows at least like a function of
||t - anchor||_M whose second derivative is the falling step function alpha. eta gives curvature to
directions in which the data has none, and acts as the multiplier of a ball that is met at its edge;
a does that for a box.

Edge. With the anchor b on the sphere, normal nu, inward slope g > 0 and tangential slope v, a point
b - t nu + w lies at depth tau = t - (rho - sqrt(rho^2 - ||w||^2)) below the surface, and

    potential >= potential(b) + g tau + <v, w> + (g/rho ||w||^2 + w' S w) / 2,

S the Schur complement of a lower bound of the Hessian on the whole ball: an exponential depth times
a Gaussian.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigvalsh, null_space, solve_triangular
from scipy.special import gammaln

from privopt.mechanisms.density.mode import mode
from privopt.mechanisms.density.segments import log_masses, position
from privopt.mechanisms.density.tangents import hull
from privopt.mechanisms.density.target import Target, checked
from privopt.noise import Source
from privopt.numerics.newton import minimise
from privopt.privacy.budget import Refused

MOST_AT_ONCE = 256
MOST_DIMENSION = 10
SHELLS = (0.35, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0)
"""Radii of the ellipsoids, in units of the square root of the dimension."""


class Envelope(Protocol):
    """A function above the log density, with the mass of its exponential, and draws from it."""

    log_mass: float
    anchor: np.ndarray

    def draw(self, source: Source, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Points, and the envelope at them."""
        ...


def sample(target: Target, source: Source) -> np.ndarray:
    """One draw; needs a convex, twice differentiable potential."""
    return under(best_envelope(target), target, source)


def under(envelope: Envelope, target: Target, source: Source) -> np.ndarray:
    """One draw by rejection under an envelope."""
    count = 4
    while True:
        points, tops = envelope.draw(source, count)
        coins = np.log1p(-source.noise.random(count))
        heights = np.full(count, -np.inf)
        inside = target.body.inside(points)
        if inside.any():
            heights[inside] = -target.potentials(points[inside])
        accepted = np.flatnonzero(coins <= checked(heights - tops, target.rounding))
        if len(accepted):
            return points[accepted[0]]
        count = min(2 * count, MOST_AT_ONCE)


def best_envelope(target: Target) -> Envelope:
    """The smallest envelope found; any is right."""
    body = target.body
    push = np.zeros(target.dimension) if body.round else -target.gradient(mode(target, 1e-6))
    eta, anchor = _inside(target, push)
    edge = Edge.at(target, anchor)
    found: list[Any] = [] if edge is None else [edge]
    least = math.inf
    for _ in range(40):
        interior = Interior(target, push, eta, anchor)
        found.append(interior)
        if interior.log_mass > least + 0.4:
            break
        least, anchor, eta = min(least, interior.log_mass), interior.anchor, 3 * eta
    return min(found, key=lambda envelope: envelope.log_mass)


def _inside(target: Target, push: np.ndarray) -> tuple[float, np.ndarray]:
    """A small multiplier that keeps the minimiser of U in the ball, and that minimiser.

    It starts where eta costs next to nothing, and at an edge ends close to the edge's multiplier.
    """
    body = target.body
    low = high = 0.02 * target.dimension / body.radius**2
    anchor = _minimiser(target, push, low, body.centre)
    for _ in range(100):
        if float(np.linalg.norm(anchor - body.centre)) <= body.radius:
            break
        low, high = high, 8 * high
        anchor = _minimiser(target, push, high, anchor)
    for _ in range(10 if high > low else 0):
        middle = math.sqrt(low * high)
        there = _minimiser(target, push, middle, anchor)
        if float(np.linalg.norm(there - body.centre)) > body.radius:
            low = middle
        else:
            high, anchor = middle, there
    return high, anchor


def _minimiser(target: Target, push: np.ndarray, eta: float, start: np.ndarray) -> np.ndarray:
    try:
        return minimise(
            target,
            regularisation=eta,
            centre=target.body.centre,
            linear=push,
            gradient_norm=1e-3 * math.sqrt(eta),
            start=start,
        )
    except Refused:
        return start  # every anchor is right: a failure must not show


class Interior:
    """The envelope around an anchor inside the ball."""

    def __init__(self, target: Target, push: np.ndarray, eta: float, start: np.ndarray) -> None:
        body, k = target.body, target.dimension
        anchor = _minimiser(target, push, eta, start)
        hessian = target.hessian(anchor) + eta * np.eye(k)
        lower = np.linalg.cholesky(hessian)
        offset = anchor - body.centre
        slope = target.gradient(anchor) + push + eta * offset
        tilt = float(np.linalg.norm(solve_triangular(lower, slope, lower=True)))
        value = float(target.potentials(anchor[None])[0]) + float(push @ anchor)
        value += eta / 2 * (float(offset @ offset) - body.radius**2)
        value -= 0.0 if body.round else float(body.supports(push[None])[0])
        sensitivity = (float(np.linalg.norm(offset)) + body.radius) * math.sqrt(
            float(eigvalsh(hessian)[-1])
        )
        radii = np.minimum(math.sqrt(k) * np.array(SHELLS), sensitivity)
        growth = _Growth(radii, _curvatures(target, anchor, lower, eta, radii), tilt)
        at = np.geomspace(min(math.sqrt(k) / 50, sensitivity / 2), sensitivity, 400)
        heights = (k - 1) * np.log(at) - growth.value(at)
        slopes = (k - 1) / at - growth.slope(at)
        self.anchor = anchor
        self._lower, self._floor, self._k = lower, value, k
        self._knots, self._tops = hull(at, heights, slopes, 0.0, sensitivity)
        masses = log_masses(self._knots, self._tops)
        self._chances = np.cumsum(np.exp(masses - masses.max()))
        sphere = math.log(2) + k / 2 * math.log(math.pi) - float(gammaln(k / 2))
        self.log_mass = (
            float(np.logaddexp.reduce(masses))
            + sphere
            - float(np.log(np.diag(lower)).sum())
            - value
        )

    def draw(self, source: Source, count: int) -> tuple[np.ndarray, np.ndarray]:
        picks = self._chances[-1] * source.noise.random(count)
        j = np.minimum(np.searchsorted(self._chances, picks, side="right"), len(self._chances) - 1)
        change = self._tops[j + 1] - self._tops[j]
        width = self._knots[j + 1] - self._knots[j]
        share = position(source.noise.random(count), change)
        # A length of zero has no logarithm; it is as rare as a uniform number that is zero.
        length = np.maximum(self._knots[j] + share * width, np.finfo(float).tiny)
        direction = source.noise.standard_normal((count, self._k))
        direction *= (length / np.linalg.norm(direction, axis=1))[:, None]
        points = self.anchor + solve_triangular(self._lower.T, direction.T, lower=False).T
        radial = self._tops[j] + share * change
        return points, radial - (self._k - 1) * np.log(length) - self._floor


def _curvatures(
    target: Target, anchor: np.ndarray, lower: np.ndarray, eta: float, radii: np.ndarray
) -> np.ndarray:
    """Certified least curvature of U, in units of its Hessian at the anchor, in each ellipsoid."""
    loss, body = target.objective.loss, target.body
    margins, labels = target.margins(body.thetas(anchor[None])[0]), target.labels()
    spread = _spread(target, solve_triangular(lower, np.eye(len(lower)), lower=True).T)
    found = []
    for radius in radii:
        least = target.gram(loss.least_curvature(margins, labels, float(radius) * spread))
        least = least + eta * np.eye(len(least))
        half = solve_triangular(lower, least, lower=True)
        inner = solve_triangular(lower, half.T, lower=True)
        found.append(float(eigvalsh((inner + inner.T) / 2)[0]) - 1e-9)
    return np.minimum.accumulate(np.clip(found, 0.0, 1.0))


def _spread(target: Target, frame: np.ndarray) -> Any:
    """Largest change of each record's margin over the columns' unit ball."""
    total: Any = 0.0
    for column in (target.body.axes @ frame).T:
        margin = target.margins(column)
        total = total + margin * margin
    return total**0.5


class _Growth:
    """The convex function with slope -tilt at 0 and the given curvature in each shell."""

    def __init__(self, radii: np.ndarray, curvatures: np.ndarray, tilt: float) -> None:
        self._from = np.concatenate([[0.0], radii])
        # Beyond the last ellipsoid convexity alone is left.
        self._bend = np.append(curvatures, 0.0)
        width = np.diff(self._from)
        slopes = np.concatenate([[0.0], np.cumsum(curvatures * width)]) - tilt
        rises = slopes[:-1] * width + curvatures * width**2 / 2
        self._slope, self._value = slopes, np.concatenate([[0.0], np.cumsum(rises)])

    def value(self, s: np.ndarray) -> np.ndarray:
        j, beyond = self._locate(s)
        return self._value[j] + self._slope[j] * beyond + self._bend[j] * beyond**2 / 2

    def slope(self, s: np.ndarray) -> np.ndarray:
        j, beyond = self._locate(s)
        return self._slope[j] + self._bend[j] * beyond

    def _locate(self, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        j = np.searchsorted(self._from, s, side="right") - 1
        return j, s - self._from[j]


class Edge:
    """The envelope around an anchor on the sphere."""

    def __init__(
        self,
        anchor: np.ndarray,
        normal: np.ndarray,
        radius: float,
        value: float,
        slope: np.ndarray,
        least: np.ndarray,
    ) -> None:
        self.anchor, self._normal, self._radius = anchor, normal, radius
        self._basis = null_space(normal[None]) if normal.size > 1 else np.zeros((1, 0))
        self._inward = -float(slope @ normal)
        self._tilt = self._basis.T @ slope
        across, along = self._basis.T @ least @ normal, float(normal @ least @ normal)
        precision = self._basis.T @ least @ self._basis
        if along > 0:
            precision = precision - np.outer(across, across) / along
        # Rounding may leave the complement a trifle too large.
        self._precision = (1 - 1e-9) * precision + self._inward / radius * np.eye(len(across))
        self._factor = np.linalg.cholesky(self._precision) if len(across) else np.zeros((0, 0))
        self._mean = (
            -cho_solve(cho_factor(self._precision), self._tilt) if len(across) else self._tilt
        )
        self._value = value
        self.log_mass = (
            len(across) / 2 * math.log(2 * math.pi)
            - float(np.log(np.diag(self._factor)).sum())
            - math.log(self._inward)
            - float(self._tilt @ self._mean) / 2
            - value
        )

    @classmethod
    def at(cls, target: Target, near: np.ndarray) -> Edge | None:
        """On the sphere behind a point near it; None where the potential does not push outward."""
        body = target.body
        away = near - body.centre
        length = float(np.linalg.norm(away))
        if length < body.radius / 2:
            return None
        normal = away / length
        anchor = body.centre + body.radius * normal
        slope = target.gradient(anchor)
        if float(slope @ normal) >= 0:
            return None
        margins = target.margins(body.thetas(body.centre[None])[0])
        widths = body.radius * _spread(target, np.eye(target.dimension))
        least = target.gram(target.objective.loss.least_curvature(margins, target.labels(), widths))
        value = float(target.potentials(anchor[None])[0])
        return cls(anchor, normal, body.radius, value, slope, least)

    def draw(self, source: Source, count: int) -> tuple[np.ndarray, np.ndarray]:
        noise = source.noise.standard_normal((count, len(self._mean)))
        if len(self._mean):
            noise = solve_triangular(self._factor.T, noise.T, lower=False).T
        across = self._mean + noise
        depth = source.noise.standard_exponential(count) / self._inward
        square = np.sum(across**2, axis=1)
        # Beside the sphere there is no depth; such a point is outside and marked as far away.
        beside = square > self._radius**2
        sag = self._radius - np.sqrt(np.maximum(self._radius**2 - square, 0.0))
        down = np.where(beside, 4 * self._radius, depth + sag)
        points = self.anchor - down[:, None] * self._normal + across @ self._basis.T
        bend = np.einsum("ij,jk,ik->i", across, self._precision, across) / 2
        return points, -self._value - self._inward * depth - across @ self._tilt - bend
