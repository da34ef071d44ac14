"""Selection: choose one of many candidates by their scores, in units of the scores' range.

All three mechanisms add independent noise of one common scale to the scores and name the largest.
Adding the same number to every score changes no choice, so what counts is the *range*: by how much
more one record can raise one score than another. Scores that each move by at most Delta have range
2 Delta; scores that all move in the same direction (monotone, for example counts under zero_out)
have range Delta; scores of the vertices of a polytope have the range that its l1 diameter gives.
``maps`` restates other bounds as a range.

One common scale. Noise in proportion to each candidate's own sensitivity is *not* private with the
constant one would expect: let candidate 0 have sensitivity 0 and no noise, and K others sensitivity
1 and Gumbel noise of scale 1/e. Candidate 0 wins only if every other noisy score is below its own,
and one record can lower all of them by 1: with equal scores the loss of that event is
K (1 - exp(-e)), about K e and not e. So a multiplier per candidate is refused. Divide the
scores by their sensitivities first (``maps.Rescale``), or use the largest sensitivity for all.

Floating point. Noise comes from 53-bit uniforms: a Gumbel or exponential variable is never further
than about 37 (and 44) scales from its centre, so a candidate whose score lies further behind is
never chosen. "Pure" therefore holds up to a probability of about K 2^-53 in one choice.

References: McSherry and Talwar (2007); McKenna and Sheldon (2020); Ding, Kifer, Sayed, Steinke,
Wang, Xiao and Zhang (2021); Dong, Durfee and Rogers (2020); Cesar and Rogers (2021).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import softmax

from privopt.mechanisms.standard import Coins, of_choice
from privopt.noise import Source, exponential, gumbel, laplace
from privopt.oracle.sensitivity import Sensitivity, SensitivityNorm
from privopt.oracle.vertex_draw import VertexDraw
from privopt.privacy.kinds import BoundedRange, Kind, Pure


@dataclass(frozen=True, slots=True)
class ExponentialMechanism:
    """Choose k with probability proportional to exp(score_k / (multiplier * range)).

    Drawn by adding Gumbel noise of scale multiplier * range and taking the largest, or by the
    payload's own sampler of the same law (``oracle.vertex_draw``). On average the chosen score is
    at most multiplier * range * log K below the best of K.

    Formal guarantee: with eta = 1/multiplier, eta-bounded-range, so eta-DP and eta^2/8-zCDP.
    The choice for repeated use: its zCDP is a quarter of what eta-DP alone gives.
    """

    multiplier: float
    accepts: SensitivityNorm = "range"

    def __post_init__(self) -> None:
        _check(self.multiplier)

    def kinds(self, sensitivity: Sensitivity) -> tuple[Kind, ...]:
        return (BoundedRange(1 / self.multiplier),)

    def run(self, payload: Any, sensitivity: Sensitivity, source: Source) -> int:
        if isinstance(payload, VertexDraw):
            return payload.choose(_scale(self, sensitivity), source)
        scores = _scores(payload)
        return int(np.argmax(scores + gumbel(source, _scale(self, sensitivity), scores.size)))

    def standard_noise(
        self, payload: Any, result: Any, sensitivity: Sensitivity, kind: Kind, coins: Coins
    ) -> np.ndarray:
        scaled, chances = self.chances(payload, sensitivity, kind)
        return of_choice(chances, scaled, result, coins)

    def chances(
        self, payload: Any, sensitivity: Sensitivity, kind: Kind
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scores in units of the noise that ``kind`` declares, and the chances of each."""
        assert isinstance(kind, BoundedRange)
        scaled = _plain(payload) * (kind.eta / float(sensitivity.radius))
        return scaled, softmax(scaled)


@dataclass(frozen=True, slots=True)
class PermuteAndFlip:
    """Visit candidates in random order, take k with probability exp((score_k - best) / scale).

    Drawn by adding exponential noise of scale multiplier * range and taking the largest, which has
    the same law. Its expected error is never above that of the exponential mechanism at the same
    epsilon, and up to half of it.

    Formal guarantee: (1/multiplier)-DP. For one choice, or for pure differential privacy: its
    log-odds have up to twice the range of the exponential mechanism's, so under composition with
    delta > 0 it costs more.
    """

    multiplier: float
    accepts: SensitivityNorm = "range"

    def __post_init__(self) -> None:
        _check(self.multiplier)

    def kinds(self, sensitivity: Sensitivity) -> tuple[Kind, ...]:
        return (Pure(1 / self.multiplier),)

    def run(self, payload: Any, sensitivity: Sensitivity, source: Source) -> int:
        scores = _scores(payload)
        return int(np.argmax(scores + exponential(source, _scale(self, sensitivity), scores.size)))

    def standard_noise(
        self, payload: Any, result: Any, sensitivity: Sensitivity, kind: Kind, coins: Coins
    ) -> np.ndarray:
        scaled, chances = self.chances(payload, sensitivity, kind)
        return of_choice(chances, scaled, result, coins)

    def chances(
        self, payload: Any, sensitivity: Sensitivity, kind: Kind
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scores in units of the noise that ``kind`` declares, and the chances of each."""
        assert isinstance(kind, Pure)
        scaled = _plain(payload) * (kind.epsilon / float(sensitivity.radius))
        return scaled, flip_probabilities(scaled)


@dataclass(frozen=True, slots=True)
class ReportNoisyMax:
    """Add Laplace noise of scale multiplier * range to each score and name the largest.

    Kept for comparison: at the same epsilon permute-and-flip errs less.

    Formal guarantee: (1/multiplier)-DP. Scores that each move by Delta have range 2 Delta: noise of
    scale Delta/epsilon, often seen in print, is only 2 epsilon-DP.
    """

    multiplier: float
    accepts: SensitivityNorm = "range"

    def __post_init__(self) -> None:
        _check(self.multiplier)

    def kinds(self, sensitivity: Sensitivity) -> tuple[Kind, ...]:
        return (Pure(1 / self.multiplier),)

    def run(self, payload: Any, sensitivity: Sensitivity, source: Source) -> int:
        scores = _scores(payload)
        return int(np.argmax(scores + laplace(source, _scale(self, sensitivity), scores.size)))

    def standard_noise(
        self, payload: Any, result: Any, sensitivity: Sensitivity, kind: Kind, coins: Coins
    ) -> np.ndarray:
        scaled, chances = self.chances(payload, sensitivity, kind)
        return of_choice(chances, scaled, result, coins)

    def chances(
        self, payload: Any, sensitivity: Sensitivity, kind: Kind
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scores in units of the noise that ``kind`` declares, and the chances of each."""
        assert isinstance(kind, Pure)
        scaled = _plain(payload) * (kind.epsilon / float(sensitivity.radius))
        return scaled, noisy_max_probabilities(scaled)


def flip_probabilities(scaled: np.ndarray) -> np.ndarray:
    """Exact law of permute-and-flip for scores in units of the noise scale.

    P(k) = a_k * integral over s in [0, 1] of prod over j != k of (1 - s a_j), with
    a_k = exp(scaled_k - max): a polynomial of degree K - 1, which Gauss-Legendre nodes integrate
    without error.
    """
    chances = np.exp(scaled - np.max(scaled))
    nodes, weights = np.polynomial.legendre.leggauss(chances.size // 2 + 1)
    s = (nodes + 1) / 2
    factors = 1 - s[:, None] * chances
    found = chances * np.array(
        [weights @ np.prod(np.delete(factors, k, axis=1), axis=1) for k in range(chances.size)]
    )
    return found / 2


def noisy_max_probabilities(scaled: np.ndarray) -> np.ndarray:
    """Law of report-noisy-max for scores in units of the noise scale: the integral over x of the
    density of one noisy score at x times the distribution functions of all others."""
    ends = np.unique(np.clip(scaled, scaled.max() - 45, None))
    edges = np.unique(np.concatenate([np.arange(ends[0] - 45, ends[-1] + 45), ends]))
    nodes, weights = np.polynomial.legendre.leggauss(12)
    half = np.diff(edges) / 2
    x = (edges[:-1, None] + half[:, None] * (nodes + 1)).ravel()
    behind = x[:, None] - scaled
    below = np.where(behind < 0, np.exp(np.minimum(behind, 0)) / 2, 1 - np.exp(-behind) / 2)
    dense = np.exp(-np.abs(behind)) / 2
    at = (half[:, None] * weights).ravel()
    return np.array(
        [
            at @ (dense[:, k] * np.prod(np.delete(below, k, axis=1), axis=1))
            for k in range(scaled.size)
        ]
    )


def _check(multiplier: Any) -> None:
    if np.ndim(multiplier) != 0:
        raise ValueError(
            "one multiplier serves all candidates, a scale for each is not private: divide the "
            "scores by their own sensitivities instead."
        )
    if not 0 < multiplier < math.inf:
        raise ValueError(f"a noise multiplier must be positive and finite, got {multiplier!r}.")


def _scale(mechanism: Any, sensitivity: Sensitivity) -> float:
    return mechanism.multiplier * float(sensitivity.radius)


def _plain(payload: Any) -> np.ndarray:
    """Scores as they were asked for: what a law is described by, whatever a draw makes of them."""
    payload = payload.scores() if isinstance(payload, VertexDraw) else payload
    return np.asarray(payload, dtype=float).ravel()


def _scores(payload: Any) -> np.ndarray:
    """Scores relative to the best, so that noise is added to numbers near zero. What is not a
    number (queries are finite, so that nothing should be) counts as zero: a choice never fails."""
    scores = np.nan_to_num(_plain(payload), nan=0.0)
    with np.errstate(over="ignore"):
        return scores - scores.max()
