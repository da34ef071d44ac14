"""What an attacker computes from a release: a log-likelihood ratio under the declared law.

The attacker knows both data sets and everything public, so both sealed values that a release can
have come from. Any number computed from that and from the released values alone gives a valid
audit; the likelihood ratio gives the strongest one.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
from scipy.special import log_softmax

from privopt.audit.replay import Release, in_units
from privopt.mechanisms import (
    ExponentialMechanism,
    ObjectivePerturbation,
    OutputPerturbation,
    PermuteAndFlip,
)
from privopt.mechanisms.density.draws import CELLS
from privopt.mechanisms.rank_quantile import RankQuantile
from privopt.mechanisms.selection import flip_probabilities
from privopt.oracle.objective import Objective
from privopt.oracle.sensitivity import Sensitivity
from privopt.oracle.vector_gradient import VectorObjective
from privopt.privacy.kinds import GaussianKind, Kind, Pure

LIMIT = 700.0


def before_noise(release: Release, payload: Any) -> Any:
    """What the noise of a release is added to, where that is more than the sealed value itself."""
    if isinstance(release.mechanism, OutputPerturbation):
        return release.mechanism.algorithm.value(payload)
    return in_units(payload, release.sensitivity)


def transcript_score(releases: list[Release], one: list[Any], other: list[Any]) -> float:
    """Log-likelihood ratio of a whole run: releases add up, the steps of a stream as one."""
    score, streams = 0.0, {}
    for release, a, b in zip(releases, one, other, strict=True):
        if release.event.position is None:
            score += release_score(release, a, b)
        else:
            streams.setdefault(id(release.event.position.path), []).append((release, a, b))
    return score + sum(_stream_score(*zip(*steps, strict=True)) for steps in streams.values())


def _stream_score(releases: Any, one: Any, other: Any) -> float:
    """Correlated noise: C g + z is what a stream shows, independent over its rows.

    Of sampled batches, each step of the changed record moves rows of its own (see
    ``release_score`` for who else is in a batch).
    """
    row, kind, sensitivity = (
        releases[0].event.position,
        releases[0].event.kinds[0],
        releases[0].sensitivity,
    )
    encode = row.path.factorization.encode
    result, one, other = (
        np.array([np.ravel(value) for value in values], dtype=float)
        * (kind.mu / sensitivity.radius)
        for values in ([release.result for release in releases], one, other)
    )
    if sensitivity.sampling.full:
        near, far = encode(result - one), encode(result - other)
        return _clipped((np.sum(far**2) - np.sum(near**2)) / 2)
    seen, score = encode(result), 0.0
    for step in range(len(result)):
        ratios = []
        for values in (one, other):
            alone = np.zeros_like(values)
            alone[step] = values[step]
            moved = encode(alone)
            ratios.append(_clipped(float(np.sum(seen * moved) - np.sum(moved**2) / 2)))
        score += _mixed(sensitivity.sampling.rate, ratios[0]) - _mixed(
            sensitivity.sampling.rate, ratios[1]
        )
    return score


def coordinate_scores(releases: list[Release], one: list[Any], other: list[Any]) -> np.ndarray:
    """The score of each coordinate by itself, for noise that is independent over coordinates: as
    many one-dimensional runs as there are coordinates."""
    row = releases[0].event.position
    if row is not None:
        unit = cast(GaussianKind, releases[0].event.kinds[0]).mu / releases[0].sensitivity.radius
        result = np.array([release.result for release in releases])
        near, far = (
            np.sum(row.path.factorization.encode(unit * (result - np.array(side))) ** 2, axis=0)
            for side in (one, other)
        )
        return np.clip((far - near) / 2, -LIMIT, LIMIT)
    score = np.zeros(np.shape(releases[0].result))
    for release, a, b in zip(releases, one, other, strict=True):
        sampling = release.sensitivity.sampling
        if sampling.full:
            score += _coordinates(release, a, b)
        else:
            nothing = np.zeros_like(a)
            with_first, with_second = (_coordinates(release, v, nothing) for v in (a, b))
            score += _mixed(sampling.rate, with_first) - _mixed(sampling.rate, with_second)
    return score


def _coordinates(release: Release, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    kind, radius = release.event.kinds[0], release.sensitivity.radius
    near, far = (np.abs(release.result - value) / radius for value in (one, other))
    if isinstance(kind, Pure):
        ratio = kind.epsilon * (far - near)
    else:
        ratio = kind.strength() ** 2 / 2 * (far**2 - near**2)
    return np.clip(ratio, -LIMIT, LIMIT)


def release_score(release: Release, one: Any, other: Any) -> float:
    """Log-likelihood ratio of one value (see ``before_noise``) over another, given the release.

    On a sampled batch the record is present with the view's rate: the values are those with the
    record in the batch, and a batch without it holds nothing (true if all others are empty).
    """
    sampling = release.sensitivity.sampling
    if sampling.full:
        return _clipped(_full(release, one, other))
    nothing = np.zeros_like(np.asarray(one, dtype=float))
    present, changed = (_clipped(_full(release, value, nothing)) for value in (one, other))
    return float(_mixed(sampling.rate, present) - _mixed(sampling.rate, changed))


def _mixed(rate: float, ratio: Any) -> Any:
    return np.logaddexp(math.log1p(-rate), math.log(rate) + ratio)


def _clipped(ratio: float) -> float:
    return float(np.clip(np.nan_to_num(ratio, nan=0.0), -LIMIT, LIMIT))


def _full(release: Release, one: Any, other: Any) -> float:
    mechanism, sensitivity, result = release.mechanism, release.sensitivity, release.result
    kind = release.event.kinds[0]
    if isinstance(mechanism, OutputPerturbation):
        return _additive(kind, result, one, other, mechanism.output_sensitivity(sensitivity), "l2")
    if isinstance(mechanism, ObjectivePerturbation):
        return _perturbed(mechanism, sensitivity, result, one) - _perturbed(
            mechanism, sensitivity, result, other
        )
    if isinstance(mechanism, RankQuantile):
        cell = (np.ravel(result) - mechanism.low) / (mechanism.high - mechanism.low) * CELLS
        likelier, less = (mechanism.log_weights(v, sensitivity, cell)[0] for v in (one, other))
        return float(likelier - less)
    if isinstance(one, Objective | VectorObjective):
        # A density falls with the loss: the difference of losses orders its likelihood ratios.
        start = np.zeros_like(result)
        gained, lost = (v.value(result) - v.value(start) for v in (other, one))
        return kind.strength() / float(sensitivity.radius) * (gained - lost)
    if sensitivity.norm == "range":
        likelier, less = (
            _log_chance(release, kind.strength() / float(sensitivity.radius) * np.ravel(scores))
            for scores in (one, other)
        )
        return likelier - less
    return _additive(kind, result, one, other, sensitivity.radius, sensitivity.norm)


def _log_chance(release: Release, scaled: np.ndarray) -> float:
    """Log-probability of a choice by scores in units of the noise; of an unknown law, its score."""
    chosen = int(release.result)
    if isinstance(release.mechanism, ExponentialMechanism):
        return float(log_softmax(scaled)[chosen])
    if isinstance(release.mechanism, PermuteAndFlip):
        return float(np.log(np.maximum(flip_probabilities(scaled)[chosen], 1e-300)))
    return float(scaled[chosen] - scaled.max())


def _additive(kind: Kind, result: Any, one: Any, other: Any, radius: Any, norm: str) -> float:
    """Noise on an array; of an unknown law, a projection on the line between both values."""
    result, one, other = (np.atleast_1d(np.asarray(v, dtype=float)) for v in (result, one, other))
    near, far = (result - one) / radius, (result - other) / radius
    if isinstance(kind, Pure):
        order = 1 if norm == "l1" else 2
        return kind.epsilon * float(np.linalg.norm(far, order) - np.linalg.norm(near, order))
    strength = kind.mu if isinstance(kind, GaussianKind) else kind.strength()
    return strength**2 / 2 * float(far @ far - near @ near)


def _perturbed(
    mechanism: ObjectivePerturbation,
    sensitivity: Sensitivity,
    theta: np.ndarray,
    objective: Objective,
) -> float:
    """Log-density at theta of the exact minimiser; the small output noise is left out."""
    facts = sensitivity.facts
    assert facts is not None
    centre = 0.0 if mechanism.centre is None else np.array(mechanism.centre)
    b = objective.gradient(theta) + mechanism.pull * (theta - centre)
    hessian = objective.hessian(theta)
    hessian[np.diag_indices_from(hessian)] += mechanism.pull
    volume = float(np.linalg.slogdet(hessian)[1])
    if mechanism.noise == "pure":
        return volume - float(np.linalg.norm(b)) / (
            mechanism.multiplier * float(sensitivity.radius)
        )
    return volume - float(b @ b) / (2 * (mechanism.multiplier * facts.lipschitz) ** 2)
