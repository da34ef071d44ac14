"""An audit from a single run: many canaries, each put in by a fair coin, guessed afterwards.

Whoever sees the result of one (epsilon, delta)-DP run cannot guess the coins much better than
randomised response would: of r guesses among m canaries, the number that is right exceeds
v with probability at most

    P(B >= v) + 2 m delta max over i of P(v > B >= v - i) / i,   B binomial(r, e^eps/(1 + e^eps))

(Steinke, Nasr and Jagielski, 2023, theorem 5.2). It needs no second run and no knowledge of the
function, so it fits a training that takes a day. It is a smoke alarm and no measurement: even with
canaries that do not disturb each other it sees about half of a Gaussian's epsilon.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit
from scipy.stats import binom

from privopt.noise import SeededSource, Source
from privopt.privacy import Budget, Certificate

Canaries = Callable[[np.ndarray, Source], np.ndarray]
"""From which canaries are in, and a source of noise, to a score for each, larger if it seems in."""

SHARES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Shares of the canaries that are guessed, the surest first; the best one counts, and the error
probability is divided by their number."""


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
    claimed: Certificate | Budget,
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
    claimed : Certificate or Budget
        The epsilon and delta to compare with.
    confidence : float
    seed : int
        Of the coins and of the noise.
    """
    if canaries < 10:
        raise ValueError(f"a one-run audit needs at least 10 canaries, got {canaries}.")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence!r}.")
    source = SeededSource(seed)
    included = source.coins.random(canaries) < 0.5
    scores = np.asarray(run(included.copy(), source), dtype=float)
    if scores.shape != (canaries,):
        raise ValueError(f"run must return {canaries} scores, one for each canary.")
    order = np.argsort(np.nan_to_num(scores), kind="stable")
    level = (1 - confidence) / len(SHARES)
    found = []
    for share in SHARES:
        each = max(1, round(share * canaries / 2))
        out, within = order[:each], order[canaries - each :]
        correct = int(np.sum(~included[out]) + np.sum(included[within]))
        bound = epsilon_above(canaries, 2 * each, correct, claimed.delta, level)
        found.append((bound, 2 * each, correct))
    bound, guesses, correct = max(found)
    return Alarm(bound, claimed.epsilon, claimed.delta, canaries, guesses, correct, confidence)


def p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Largest probability of so many right guesses under any (epsilon, delta)-DP run."""
    law = binom(guesses, expit(epsilon))
    beyond = float(law.sf(correct - 1))
    if delta == 0 or correct == 0:
        return beyond
    i = np.arange(1, correct + 1)
    slope = float(np.max((law.sf(correct - i - 1) - beyond) / i))
    return min(1.0, beyond + 2 * canaries * delta * slope)


def epsilon_above(canaries: int, guesses: int, correct: int, delta: float, level: float) -> float:
    """Largest epsilon that so many right guesses contradict at the level; 0 if none."""
    low, high = 0.0, 1.0
    if p_value(canaries, guesses, correct, 0.0, delta) >= level:
        return 0.0
    while p_value(canaries, guesses, correct, high, delta) < level and high < 100:
        low, high = high, 2 * high
    for _ in range(30):
        middle = (low + high) / 2
        if p_value(canaries, guesses, correct, middle, delta) < level:
            low = middle
        else:
            high = middle
    return low
