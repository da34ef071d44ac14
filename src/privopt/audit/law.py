"""Whether the noise that was drawn follows the law that the log declares.

Replay does not see the noise. Here each recorded release is compared with its own event: a release
that declares mu must show noise of standard deviation radius/mu, whoever wrote the mechanism.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import softmax

from privopt.audit.replay import Release, Tape, in_units
from privopt.audit.shape import as_normal, shape_p_values
from privopt.mechanisms import (
    CorrelatedGaussian,
    ExponentialDensity,
    ExponentialMechanism,
    ObjectivePerturbation,
    OutputPerturbation,
    PermuteAndFlip,
)
from privopt.mechanisms.selection import flip_probabilities
from privopt.noise import SeededSource
from privopt.oracle.objective import Objective
from privopt.oracle.sensitivity import order_of
from privopt.privacy.kinds import (
    BoundedRange,
    Concentrated,
    GaussianKind,
    Kind,
    ObjectiveGaussian,
    Pure,
)

UNSHAPED = (ExponentialMechanism, PermuteAndFlip, ExponentialDensity)
"""Mechanisms that draw a choice or a point and add nothing: their law is tested as a whole."""


def noise_p_value(tapes: list[Tape]) -> float:
    """Two-sided p-value of the declared noise scale, over all releases of all tapes together.

    Releases that declare the same loss are tested together, apart from those that declare another:
    in one sum, many releases with the right noise would hide one with none. A release with additive
    noise gives one statistic that is Gamma distributed under its own event: half the squared
    standardised noise (shape p/2) for Gaussian noise, the scaled norm (shape p) for pure noise,
    minus the logarithm of a uniform variable (shape 1) for a density. Their sum over releases is
    Gamma with the summed shape. A choice among scores gives its score in units of the noise, less
    its mean under the declared probabilities; the sum over releases is close to normal with the
    summed variance. It is what a likelihood ratio test of the scale looks at. A stream's correlated
    noise is first turned back into the independent Gaussians its factorization declares. The
    smallest p-value is taken, times the number of tests. Energy alone does not see how noise is
    spread: ``shape`` tests coordinates and releases for independence, on the same tapes.
    """
    groups: dict[Any, list[Release]] = {}
    for tape in tapes:
        for release in tape.releases:
            key = (type(release.mechanism).__name__, release.event.kinds)
            groups.setdefault(key, []).append(release)
    found = [_p_value(releases) for releases in groups.values()]
    for key, releases in groups.items():
        if not isinstance(releases[0].mechanism, UNSHAPED):
            found += _shapes(key, tapes)
    return min(1.0, len(found) * min(found))


def _shapes(key: Any, tapes: list[Tape]) -> list[float]:
    """p-values of the shape of the noise of one group of releases, by the number of coordinates."""
    runs: dict[int, list[list[np.ndarray]]] = {}
    for tape in tapes:
        own = [r for r in tape.releases if (type(r.mechanism).__name__, r.event.kinds) == key]
        sizes: dict[int, list[np.ndarray]] = {}
        for z in _normal(own):
            sizes.setdefault(z.size, []).append(z)
        for size, noise in sizes.items():
            runs.setdefault(size, []).append(noise)
    return [p for noise in runs.values() for p in shape_p_values(noise)]


def _normal(releases: list[Release]) -> list[np.ndarray]:
    """The noise of one run's releases, each as independent standard normal numbers."""
    if releases and isinstance(releases[0].mechanism, CorrelatedGaussian):
        return [z for stream in _streams(releases) for z in _fresh(stream)]
    found = []
    for release in releases:
        kind, unit, order = _unit(release)
        z = as_normal(kind, unit, order)
        if z is None:
            raise NotImplementedError(
                f"{type(release.mechanism).__name__} adds noise that nobody describes: say in "
                "audit.law how it becomes independent numbers of a known law."
            )
        found.append(z)
    return found


def _unit(release: Release) -> tuple[Kind, np.ndarray, float]:
    """The noise of a release in units of its scale, and the order of its norm."""
    kind, mechanism, sensitivity = release.event.kinds[0], release.mechanism, release.sensitivity
    if isinstance(mechanism, ObjectivePerturbation):
        noise, scale = _perturbation(release)
        return kind, noise / scale, 2.0
    if isinstance(mechanism, OutputPerturbation):
        noise = release.result - mechanism.algorithm.value(release.payload)
        return kind, noise / _scale(kind, mechanism.output_sensitivity(sensitivity), 2.0), 2.0
    noise = np.ravel(release.result - in_units(release.payload, sensitivity))
    order = order_of(sensitivity.norm)
    return kind, noise / _scale(kind, sensitivity.radius, order), order


def _scale(kind: Kind, radius: float, order: float) -> float:
    if isinstance(kind, GaussianKind):
        return radius / kind.mu
    if isinstance(kind, Pure):
        return radius / kind.epsilon
    if isinstance(kind, Concentrated):
        return radius * math.sqrt((order - 1) / (2 * kind.rho))
    raise NotImplementedError(f"no law test for {kind.name} releases.")


def _p_value(releases: list[Release]) -> float:
    if isinstance(releases[0].mechanism, (ExponentialMechanism, PermuteAndFlip)):
        excess, variance = np.sum([_choice(release) for release in releases], axis=0)
        if variance == 0:
            return 1.0
        return float(2 * stats.norm.sf(abs(excess) / np.sqrt(variance)))
    if isinstance(releases[0].mechanism, CorrelatedGaussian):
        statistics = [_stream_statistic(stream) for stream in _streams(releases)]
    else:
        statistics = [_statistic(release) for release in releases]
    total, shape = np.sum(statistics, axis=0)
    law = stats.gamma(shape)
    return float(2 * min(law.cdf(total), law.sf(total)))


def _statistic(release: Release) -> tuple[float, float]:
    mechanism = release.mechanism
    if isinstance(mechanism, OutputPerturbation):
        noise = release.result - mechanism.algorithm.value(release.payload)
        radius = mechanism.output_sensitivity(release.sensitivity)
        return _of_kind(release.event.kinds[0], noise, radius, "l2")
    if isinstance(mechanism, ExponentialDensity):
        return _density_statistic(release, mechanism)
    if isinstance(release.payload, Objective):
        return _objective_statistic(release)
    noise = np.ravel(release.result - in_units(release.payload, release.sensitivity))
    return _of_kind(
        release.event.kinds[0], noise, release.sensitivity.radius, release.sensitivity.norm
    )


def _streams(releases: list[Release]) -> list[list[Release]]:
    """The steps of each stream, in their order."""
    streams: dict[int, list[Release]] = {}
    for release in releases:
        assert release.event.position is not None
        streams.setdefault(id(release.event.position.path), []).append(release)
    return list(streams.values())


def _stream_statistic(releases: list[Release]) -> tuple[float, float]:
    """Half the squared norm of the Gaussians behind a stream, by the encoder that it declares."""
    fresh = _fresh(releases)
    return float(np.sum(fresh**2)) / 2, fresh.size / 2


def _fresh(releases: list[Release]) -> np.ndarray:
    """The independent Gaussians behind a stream, one row a step."""
    kind, row, sensitivity = (
        releases[0].event.kinds[0],
        releases[0].event.position,
        releases[0].sensitivity,
    )
    assert isinstance(kind, GaussianKind)
    assert row is not None
    noise = [np.ravel(one.result - in_units(one.payload, one.sensitivity)) for one in releases]
    return row.path.factorization.encode(np.array(noise) * (kind.mu / sensitivity.radius))


def _choice(release: Release) -> tuple[float, float]:
    """Excess of the chosen score over its mean, and its variance, in units of the noise.

    Probabilities follow from the event's own kind, not from the mechanism's noise.
    """
    kind, scores = release.event.kinds[0], np.asarray(release.payload)
    assert isinstance(kind, (BoundedRange, Pure))
    strength = kind.eta if isinstance(kind, BoundedRange) else kind.epsilon
    law = softmax if isinstance(kind, BoundedRange) else flip_probabilities
    scaled = scores * (strength / release.sensitivity.radius)
    chances = law(scaled)
    mean = float(chances @ scaled)
    return float(scaled[release.result]) - mean, float(chances @ (scaled - mean) ** 2)


def _of_kind(kind: Kind, noise: np.ndarray, radius: float, norm: str) -> tuple[float, float]:
    if isinstance(kind, GaussianKind):
        return float(np.sum((noise * kind.mu / radius) ** 2)) / 2, noise.size / 2
    if isinstance(kind, Pure):
        length = float(np.linalg.norm(noise, order_of(norm)))
        return length * kind.epsilon / radius, float(noise.size)
    if isinstance(kind, Concentrated):
        # Generalized Gaussian: rho = (r - 1) radius^2 / (2 scale^2).
        order = order_of(norm)
        square = float(np.linalg.norm(noise, order)) ** 2
        return square * kind.rho / ((order - 1) * radius**2), noise.size / 2
    raise NotImplementedError(f"no law test for {kind.name} releases.")


def _objective_statistic(release: Release) -> tuple[float, float]:
    noise, scale = _perturbation(release)
    if isinstance(release.event.kinds[0], ObjectiveGaussian):
        return float(np.sum((noise / scale) ** 2)) / 2, noise.size / 2
    return float(np.linalg.norm(noise)) / scale, float(noise.size)


def _perturbation(release: Release) -> tuple[np.ndarray, float]:
    """The perturbation is the negative gradient of the rest of the objective at the release; and
    the scale that its event declares."""
    mechanism, facts = release.mechanism, release.sensitivity.facts
    assert isinstance(mechanism, ObjectivePerturbation)
    assert facts is not None
    theta = release.result
    centre = 0.0 if mechanism.centre is None else np.array(mechanism.centre)
    b = -(release.payload.gradient(theta) + mechanism.pull * (theta - centre))
    kind = release.event.kinds[0]
    if isinstance(kind, ObjectiveGaussian):
        return b, facts.lipschitz / kind.mu
    assert isinstance(kind, Pure)
    determinant = facts.rank * np.log1p(facts.smoothness / mechanism.regularisation)
    return b, release.sensitivity.radius / (kind.epsilon - determinant)


def _density_statistic(release: Release, mechanism: ExponentialDensity) -> tuple[float, float]:
    """On a line of fixed direction through the release, its place given the line has a known law.

    Its distribution function u, by quadrature on the chord, is uniform; so is 1 - |2u - 1|, which
    is small too often where the density is wider than declared and too rarely where it is narrower.
    """
    kind = release.event.kinds[0]
    assert isinstance(kind, (BoundedRange, GaussianKind))
    strength = kind.eta if isinstance(kind, BoundedRange) else kind.mu
    target = mechanism.target(release.payload, release.sensitivity, strength)
    body = target.body
    point = body.coordinates(release.result)
    direction = SeededSource(1).noise.standard_normal(body.dimension)
    direction /= np.linalg.norm(direction)
    ends = []
    for sign in (-1.0, 1.0):
        low, high = 0.0, 4 * body.radius
        for _ in range(60):
            middle = (low + high) / 2
            there = body.inside((point + sign * middle * direction)[None])[0]
            low, high = (middle, high) if there else (low, middle)
        ends.append(sign * low)
    at = np.linspace(ends[0], ends[1], 2001)
    heights = -target.potentials(point + at[:, None] * direction)
    mass = np.exp(heights - heights.max())
    steps = np.concatenate([[0.0], np.cumsum((mass[1:] + mass[:-1]) / 2)])
    u = float(np.interp(0.0, at, steps / steps[-1]))
    return -float(np.log(max(1 - abs(2 * u - 1), 1e-300))), 1.0
