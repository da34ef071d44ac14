"""An audit from a single run: many canaries, each put in by a fair coin, guessed afterwards.

Of m canaries the surest r are guessed, and K guesses are right. Let the trade-off of "in" and "out"
of one canary be at least f, whatever the other coins say, and F(x) = 1 - f(x) the most that an
event of probability x may rise to. For each canary i and any event A of the result and the other
coins, with the guess cut in two by what it says and F concave,

    P(guess i is right, A) <= F(P(guess i is wrong, A)).

Take A = "at least k - 1 others are right" and the mean over all canaries, F concave again: with
p_j = P(K = j),

    sum over j >= k of j p_j / m  <=  F(sum over j >= k - 1 of (r - j) p_j / m)    for k = 1 ... r.

**The p-value** of v right guesses is the largest P(K >= v) under these. Mass above v may be moved
to v, and mass that a lower place could hold may be moved down: both only help. So with P(K >= v) =
tau the least total mass has tau at v and, going down, what each inequality asks for and no more;
tau is possible if the total is at most 1. This is the recursion of Mahloujifar, Melis and Chaudhuri
(2025), from first principles; for pure epsilon it is within some percent of the binomial tail of
Steinke, Nasr and Jagielski (2023). It needs no second run and no knowledge of the function.

How much it sees: with one event of probability tau a function may give everything away at once and
still have the trade-off f, so no test at the level tau finds all of a curve; fewer and surer
guesses among more canaries find more of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from privopt.audit.bounds import Claim
from privopt.noise import SeededSource, Source
from privopt.privacy import Budget, Certificate
from privopt.privacy.profiles import gaussian_epsilon

Canaries = Callable[[np.ndarray, Source], np.ndarray]
"""From which canaries are in, and a source of noise, to a score for each, larger if it seems in."""

SHARES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
"""Shares of the canaries that are guessed, the surest first; the best one counts, and the error
probability is divided by the number of those that are between ``FEWEST`` and ``MOST`` guesses."""
FEWEST, MOST = 10, 4000
SCALES = 24
"""Claims tried at once in a search for the largest that is contradicted."""


@dataclass(frozen=True)
class Alarm:
    """What one run gave away."""

    lower_bound: float
    certified: float
    delta: float
    canaries: int
    guesses: int
    correct: int
    confidence: float

    @property
    def refuted(self) -> bool:
        return self.lower_bound > self.certified

    def __str__(self) -> str:
        verdict = "REFUTED" if self.refuted else "not refuted"
        return (
            f"epsilon >= {self.lower_bound:.4g} with {100 * self.confidence:g} % confidence, "
            f"certified {self.certified:.4g} at delta={self.delta:g} ({self.correct} of "
            f"{self.guesses} guesses right, {self.canaries} canaries, one run): {verdict}"
        )


def one_run(
    run: Canaries,
    canaries: int,
    claimed: Certificate | Budget | Claim,
    *,
    confidence: float = 0.95,
    seed: int = 0,
) -> Alarm:
    """A lower bound on the epsilon of ``run`` from a single call.

    Parameters
    ----------
    run : callable
        ``run(included, source)`` puts in the canaries whose entry is True, leaves out the others
        (or, under replace_one, puts their stand-ins in their places), draws its noise from the
        source, and returns one number for each canary that is larger if the canary seems to be in.
        Nothing but what the audited function makes public may enter these numbers.
    canaries : int
        How many there are. More of them say more, as long as they do not drown each other.
    claimed : Certificate, Budget or audit.Claim
        What is claimed. A certificate, or ``Claim.gaussian(mu, delta)``, claims a whole curve, and
        is tested against it; a budget claims one (epsilon, delta) and less is seen.
    confidence : float
    seed : int
        Of the coins and of the noise.
    """
    if canaries < 10:
        raise ValueError(f"a one-run audit needs at least 10 canaries, got {canaries}.")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence!r}.")
    claim = Claim.of(claimed)
    source = SeededSource(seed)
    included = source.coins.random(canaries) < 0.5
    scores = np.asarray(run(included.copy(), source), dtype=float)
    if scores.shape != (canaries,):
        raise ValueError(f"run must return {canaries} scores, one for each canary.")
    order = np.argsort(np.nan_to_num(scores), kind="stable")
    sides = {round(share * canaries / 2) for share in SHARES}
    chosen = sorted(each for each in sides if FEWEST <= 2 * each <= MOST) or [canaries // 2]
    level = (1 - confidence) / len(chosen)
    found = []
    for each in chosen:
        out, within = order[:each], order[canaries - each :]
        correct = int(np.sum(~included[out]) + np.sum(included[within]))
        found.append((epsilon_above(canaries, 2 * each, correct, claim, level), 2 * each, correct))
    bound, guesses, correct = max(found)
    return Alarm(bound, claim.epsilon, claim.delta, canaries, guesses, correct, confidence)


def possible(
    canaries: int, guesses: int, correct: int, claim: Claim, scales: np.ndarray, level: float
) -> np.ndarray:
    """Whether so many right guesses may have probability ``level``, under the claim with its
    epsilons, or its mu, multiplied by each of ``scales``."""
    least = _least(claim, scales)
    tail = np.full(len(scales), level)
    right, wrong, total = tail * correct, tail * (guesses - correct), tail.copy()
    for j in range(correct - 1, -1, -1):
        asked = canaries * least(right / canaries)
        more = np.clip((asked - wrong) / (guesses - j), 0.0, 2.0)  # above 1 it is decided
        total += more
        wrong += more * (guesses - j)
        right += more * j
        if (total > 1).all():
            break
    return total <= 1


def p_value(canaries: int, guesses: int, correct: int, claim: Claim) -> float:
    """Largest probability of so many right guesses under the claim."""
    low, high = 0.0, 1.0
    one = np.ones(1)
    if correct == 0 or possible(canaries, guesses, correct, claim, one, 1.0)[0]:
        return 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if possible(canaries, guesses, correct, claim, one, middle)[0]:
            low = middle
        else:
            high = middle
    return high


def epsilon_above(canaries: int, guesses: int, correct: int, claim: Claim, level: float) -> float:
    """Largest epsilon at the claim's delta, among scaled copies of the claim, that so many right
    guesses contradict at the level; 0 if none."""
    low, high = 0.0, 100.0 / max(claim.epsilon, 1e-9)
    if 2 * correct <= guesses:
        return 0.0
    for _ in range(4):
        scales = np.linspace(low, high, SCALES)
        allowed = possible(canaries, guesses, correct, claim, scales, level)
        first = int(np.argmax(allowed)) if allowed.any() else SCALES - 1
        if first == 0:
            return 0.0
        low, high = float(scales[first - 1]), float(scales[first])
    if low == 0:
        return 0.0
    if claim.mu is not None:
        return gaussian_epsilon(low * claim.mu, claim.delta)
    return low * claim.epsilon


def _least(claim: Claim, scales: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The inverse of F for each of the scaled claims: the least that may stand behind x."""
    if claim.mu is not None:
        shifts = scales * claim.mu

        def gaussian(x: np.ndarray) -> np.ndarray:
            return ndtr(ndtri(np.minimum(x, 1.0)) - shifts)

        return gaussian
    epsilon, delta = np.array(claim.points).T[:, :, None]
    epsilons = np.minimum(epsilon * scales, 700.0)

    def points(x: np.ndarray) -> np.ndarray:
        event = np.exp(-epsilons) * (x - delta)
        complement = 1 - delta - np.exp(epsilons) * np.maximum(1 - x, 0.0)
        return np.maximum(np.maximum(event, complement).max(axis=0), 0.0)

    return points
