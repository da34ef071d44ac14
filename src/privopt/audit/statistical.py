"""Statistical audits: how much an attacker who sees every release can tell two neighbours apart.

``audit`` runs a function many times on each of two neighbouring data sets, scores each run by the
released values alone, and turns the scores into a lower bound on epsilon that holds with the stated
confidence. Below the certificate it proves nothing; above it, it proves a bug.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from privopt.audit.bounds import (
    Claim,
    Family,
    epsilon_bound,
    gaussian_bound,
    rate_above,
    rate_below,
)
from privopt.audit.neighbours import Pair
from privopt.audit.trials import Side, Trial
from privopt.noise import SeededSource
from privopt.privacy import Budget, Certificate

PILOT = 0.2
"""Share of the runs that choose the events; the others are counted once."""
HEADLINE = 0.8
"""Share of the error probability that the printed bound has; the rest checks the curve."""
STRICT = (1e-3, 0.05, 0.5)
"""Levels at which the pilot's events compete, against the luck of the winner; the first that tells
them apart is taken."""
POWER = 2.0
"""An audit that would not have seen a loss of twice what is certified, noise of half its size, has
no power, and says so."""
UNSURE = 0.1
"""Level of the bounds on the rates of an attack by which its power is judged."""
MOST = 64.0
"""Larger errors are not told apart."""
LEVELS = (0.01, 0.05, 0.2, 0.5, 0.8, 0.95)
"""False positive rates, in the pilot, of the events that check the curve."""


@dataclass(frozen=True)
class Finding:
    """What an audit found.

    ``lower_bound`` is a bound on epsilon at the certificate's delta in the family of the claimed
    curve (see ``bounds.Claim.epsilon_equivalent``); ``point`` is one from the definition of
    (epsilon, delta)-DP alone, weaker where delta is small. ``refuted``: some point of the claimed
    curve is contradicted. All of them hold together with probability ``confidence``.

    ``smallest_error``: by what factor the loss of what was attacked would have to be larger for
    this very attack, with as many runs, to refute the claim; infinite if it tells the two data sets
    apart nowhere.
    """

    lower_bound: float
    certified: float
    delta: float
    runs: int
    confidence: float
    point: float
    refuted: bool
    family: Family
    mu: float = 0.0
    mu_certified: float | None = None
    smallest_error: float = math.inf

    @property
    def verdict(self) -> str:
        """``REFUTED``, ``stands``, or ``no power`` if it could not have refuted noise of half the
        declared size."""
        if self.refuted:
            return "REFUTED"
        return "stands" if self.smallest_error <= POWER else "no power"

    @property
    def ratio(self) -> float:
        return self.lower_bound / self.certified

    def __str__(self) -> str:
        verdict = "REFUTED" if self.refuted else "not refuted"
        if not self.refuted:
            seen = f"{self.smallest_error:.2g} times what is certified"
            verdict += ", it would have seen " + (
                f"a loss of {seen}" if math.isfinite(self.smallest_error) else "no error at all"
            )
            verdict += ": no power" if self.verdict == "no power" else ""
        return (
            f"epsilon >= {self.lower_bound:.4g} with {100 * self.confidence:g} % confidence, "
            f"certified {self.certified:.4g} at delta={self.delta:g} (ratio {self.ratio:.2f}, "
            f"{self.runs} runs a side): {verdict}"
        )


def audit(
    run: Trial,
    pair: Pair,
    claimed: Certificate | Budget | Claim,
    *,
    runs: int = 10_000,
    confidence: float = 0.95,
    seed: int = 0,
    score: Callable[[Any], float] | None = None,
) -> Finding:
    """A lower bound on the epsilon of ``run`` from ``runs`` runs on each data set of a pair.

    Parameters
    ----------
    run : callable
        ``run(X, y, source)`` draws its noise from the source (estimators take it as
        ``random_state``) and returns what it makes public.
    pair : Pair
        Two neighbours. The bound is about this pair: choose it as hostile as possible, the changed
        record first and, for sampled batches, all other records empty.
    claimed : Certificate, Budget or Claim
        A certificate is checked along its whole curve delta(epsilon), a budget at its one point,
        ``Claim.gaussian(mu, delta)`` along a Gaussian curve.
    runs : int
        On each of the two data sets.
    confidence : float
        With which all statements of the finding hold together. For a table of k audits take
        1 - (1 - confidence) / k.
    seed : int
    score : callable, optional
        From what ``run`` returns to a number that is larger on the first data set. By default the
        releases through privopt's gate are scored by their likelihood ratio; a function that
        releases nothing through a gate is scored by a linear discriminant of the numbers it
        returns, learned in the pilot.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence!r}.")
    first, second = attack(run, pair, runs=runs, seed=seed, score=score)
    return judge(first, second, Claim.of(claimed), confidence=confidence)


def attack(
    run: Trial,
    pair: Pair,
    *,
    runs: int,
    seed: int = 0,
    score: Callable[[Any], float] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Scores of ``runs`` runs on each data set of a pair, larger where the first is likelier."""
    if runs < 20:
        raise ValueError(f"an audit needs at least 20 runs, got {runs}.")
    streams = [SeededSource(2 * seed + side) for side in (0, 1)]
    sides = [Side(run, pair, side, streams[side], score) for side in (0, 1)]
    seen = [[side.once() for _ in range(runs)] for side in sides]
    if np.ndim(seen[0][0]) > 0:
        seen = _discriminate(seen, round(PILOT * runs))
    # Equal likelihood ratios may differ by rounding; an event takes all of them or none.
    first, second = (np.round(np.asarray(side, dtype=float), 9) for side in seen)
    return first, second


def judge(first: np.ndarray, second: np.ndarray, claim: Claim, *, confidence: float) -> Finding:
    """The finding from scores of both sides. A pilot of the runs chooses the events."""
    pilot = round(PILOT * len(first))
    events = _choose_events(first[:pilot], second[:pilot], claim)
    counted = (first[pilot:], second[pilot:])
    runs = len(counted[0])
    error = 1 - confidence
    # One event carries the printed bound, the others share the rest; two rates each.
    shares = np.full(len(events), (1 - HEADLINE) * error / max(len(events) - 1, 1))
    shares[0] = HEADLINE * error if len(events) > 1 else error
    hits = [_hits(side, events) for side in counted]
    true = np.array([rate_above(k, runs, s / 2) for k, s in zip(hits[0], shares, strict=True)])
    false = np.array([rate_below(k, runs, s / 2) for k, s in zip(hits[1], shares, strict=True)])
    return Finding(
        lower_bound=float(claim.epsilon_equivalent(true[:1], false[:1])[0]),
        certified=claim.epsilon,
        delta=claim.delta,
        runs=len(first),
        confidence=confidence,
        point=float(epsilon_bound(true, false, claim.delta).max()),
        refuted=bool(claim.refuted(true, false).any()),
        family=claim.family,
        mu=float(gaussian_bound(true[:1], false[:1])[0]),
        mu_certified=claim.mu,
        smallest_error=_smallest_error(hits, runs, shares, claim),
    )


def _smallest_error(hits: list[np.ndarray], runs: int, shares: np.ndarray, claim: Claim) -> float:
    """How often the counted rates would have to be as far apart for a refutation.

    A loss that is f times as large moves the two normal scores of an event f times as far apart, as
    with Gaussian noise of 1/f of its size. How far apart they are now is bounded from below, so
    that luck is not taken for power."""
    true, false = rate_above(hits[0], runs, UNSURE), rate_below(hits[1], runs, UNSURE)
    base, apart = ndtri(false), np.maximum(ndtri(np.maximum(true, 1e-300)) - ndtri(false), 0.0)
    bounded = [rate_below(k, runs, s / 2) for k, s in zip(hits[1], shares, strict=True)]

    def seen(factor: float) -> bool:
        expected = runs * ndtr(base + factor * apart)
        true = [rate_above(np.floor(k), runs, s / 2) for k, s in zip(expected, shares, strict=True)]
        return bool(claim.refuted(np.array(true), np.array(bounded)).any())

    if not seen(MOST):
        return math.inf
    low, high = 0.0, MOST
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if seen(middle) else (middle, high)
    return high


def _hits(scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """How many scores reach each threshold."""
    return len(scores) - np.searchsorted(np.sort(scores), thresholds, side="left")


def _choose_events(first: np.ndarray, second: np.ndarray, claim: Claim) -> np.ndarray:
    """Thresholds: the best for the printed bound first, then one for the point bound and several
    along the curve."""
    runs = len(first)
    pooled = np.unique(np.concatenate([first, second]))
    inner = np.unique(pooled[np.linspace(0, len(pooled) - 1, 300).astype(int)])
    hits = [_hits(side, inner) for side in (first, second)]

    def best_by(bound: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> float:
        for level in STRICT:
            found = bound(rate_above(hits[0], runs, level), rate_below(hits[1], runs, level))
            if found.max() > 0:
                break
        else:
            found = hits[0] - hits[1]
        return float(inner[int(np.argmax(found))])

    best = best_by(claim.strength)
    point = best_by(lambda true, false: epsilon_bound(true, false, claim.delta))
    along = [inner[int(np.argmin(np.abs(hits[1] / runs - level)))] for level in LEVELS]
    return np.array(list(dict.fromkeys([best, point, *along])))


def _discriminate(seen: list[list[Any]], pilot: int) -> list[np.ndarray]:
    """Project vectors on the direction that separates the pilots best."""
    sides = [np.array(side, dtype=float) for side in seen]
    train = [side[:pilot] for side in sides]
    spread = np.add(*(np.atleast_2d(np.cov(side.T)) for side in train))
    # Numbers without any noise have no spread; then every direction is as good as their difference.
    spread += (1e-9 * np.trace(spread) / len(spread) or 1.0) * np.eye(len(spread))
    direction = np.linalg.lstsq(spread, train[0].mean(0) - train[1].mean(0), rcond=None)[0]
    return [side @ direction for side in sides]
