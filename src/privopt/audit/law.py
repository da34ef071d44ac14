"""Whether the noise that was drawn follows the law that the log declares.

Replay does not see the noise. Here each recorded release is compared with its own event: a release
that declares mu must show noise of standard deviation radius/mu, whoever wrote the mechanism.
"""

from __future__ import annotations

import numpy as np
from scipy import stats
from scipy.special import softmax

from privopt.audit.replay import Release, Tape
from privopt.mechanisms import (
    ExponentialMechanism,
    ObjectivePerturbation,
    OutputPerturbation,
    PermuteAndFlip,
)
from privopt.mechanisms.selection import flip_probabilities
from privopt.noise import SeededSource
from privopt.oracle.objective import Objective
from privopt.privacy.kinds import BoundedRange, Gaussian, Kind, ObjectiveGaussian, Pure


def noise_p_value(tapes: list[Tape]) -> float:
    """Two-sided p-value of the declared noise scale, over all releases of all tapes together.

    Every release gives one statistic that is Gamma distributed under its own event: half the
    squared standardised noise (shape p/2) for Gaussian noise, the scaled norm (shape p) for pure
    noise. Their sum over releases is Gamma with the summed shape. A choice among scores gives minus
    the logarithm of its own upper tail, better scores first, which is Gamma with shape 1 under the
    declared probabilities; ties are broken by coins of a fixed seed.
    """
    coins = SeededSource(0).coins
    total, shape = 0.0, 0.0
    for tape in tapes:
        for release in tape.releases:
            statistic, weight = _statistic(release, float(coins.random()))
            total, shape = total + statistic, shape + weight
    law = stats.gamma(shape)
    return float(2 * min(law.cdf(total), law.sf(total)))


def _statistic(release: Release, coin: float) -> tuple[float, float]:
    mechanism = release.mechanism
    if isinstance(mechanism, (ExponentialMechanism, PermuteAndFlip)):
        return _choice_statistic(release, coin)
    if isinstance(mechanism, OutputPerturbation):
        noise = release.result - mechanism.algorithm.value(release.payload)
        radius = mechanism.sensitivity(release.reach)
        return _of_kind(release.event.kinds[0], noise, radius, "l2")
    if isinstance(release.payload, Objective):
        return _objective_statistic(release)
    noise = np.atleast_1d(release.result - release.payload)
    return _of_kind(release.event.kinds[0], noise, release.reach.radius, release.reach.norm)


def _choice_statistic(release: Release, coin: float) -> tuple[float, float]:
    """Probabilities follow from the event's own kind, not from the mechanism's noise."""
    kind, scores = release.event.kinds[0], np.asarray(release.payload)
    assert isinstance(kind, (BoundedRange, Pure))
    strength = kind.eta if isinstance(kind, BoundedRange) else kind.epsilon
    law = softmax if isinstance(kind, BoundedRange) else flip_probabilities
    chances = law(scores * (strength / release.reach.radius))
    better = float(np.sum(chances[scores > scores[release.result]]))
    equal = float(np.sum(chances[scores == scores[release.result]]))
    return -float(np.log(max(better + coin * equal, 1e-300))), 1.0


def _of_kind(kind: Kind, noise: np.ndarray, radius: float, norm: str) -> tuple[float, float]:
    if isinstance(kind, Gaussian):
        return float(np.sum((noise * kind.mu / radius) ** 2)) / 2, noise.size / 2
    if isinstance(kind, Pure):
        order = 1 if norm == "l1" else 2
        return float(np.linalg.norm(noise, order)) * kind.epsilon / radius, float(noise.size)
    raise NotImplementedError(f"no law test for {kind.name} releases.")


def _objective_statistic(release: Release) -> tuple[float, float]:
    """The perturbation is the negative gradient of the rest of the objective at the release."""
    mechanism, facts = release.mechanism, release.reach.facts
    assert isinstance(mechanism, ObjectivePerturbation)
    assert facts is not None
    theta = release.result
    centre = 0.0 if mechanism.centre is None else np.array(mechanism.centre)
    b = -(release.payload.gradient(theta) + mechanism.regularisation * (theta - centre))
    kind = release.event.kinds[0]
    if isinstance(kind, ObjectiveGaussian):
        return float(np.sum((b * kind.mu / facts.lipschitz) ** 2)) / 2, b.size / 2
    assert isinstance(kind, Pure)
    determinant = facts.rank * np.log1p(facts.smoothness / mechanism.regularisation)
    scale = release.reach.radius / (kind.epsilon - determinant)
    return float(np.linalg.norm(b)) / scale, float(b.size)
