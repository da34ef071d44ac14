"""From counts of an event under two neighbours to statements about epsilon, each with confidence.

An attacker sees the released values and guesses which of two neighbouring data sets they came
from: a true positive rate T on one and a false positive rate F on the other. Every claim
(epsilon, delta) says T <= e^epsilon F + delta, and the same for the complement. Rates are bounded
by Clopper and Pearson, so no assumption about the released values is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import betaincinv, ndtr, ndtri

from privopt.privacy import Budget, Certificate
from privopt.privacy.profiles import gaussian_epsilon

Family = Literal["pure", "gaussian", "curve", "point"]
DELTAS = tuple(float(d) for d in np.geomspace(1e-4, 0.7, 25))
"""Where a claimed curve that is not Gaussian is read."""


def rate_above(count: np.ndarray, runs: int, level: float) -> np.ndarray:
    """Lower Clopper-Pearson bound on a rate, wrong with probability at most ``level``."""
    count = np.asarray(count, dtype=float)
    bound = betaincinv(np.maximum(count, 1.0), runs - count + 1, level)
    return np.where(count > 0, bound, 0.0)


def rate_below(count: np.ndarray, runs: int, level: float) -> np.ndarray:
    """Upper Clopper-Pearson bound on a rate, wrong with probability at most ``level``."""
    count = np.asarray(count, dtype=float)
    bound = betaincinv(count + 1, np.maximum(runs - count, 1.0), 1 - level)
    return np.where(count < runs, bound, 1.0)


def epsilon_bound(true: np.ndarray, false: np.ndarray, delta: float) -> np.ndarray:
    """Smallest epsilon for which rates of at least ``true`` and at most ``false`` are allowed."""
    with np.errstate(divide="ignore", invalid="ignore"):
        event = np.log(np.maximum(true - delta, 0.0) / false)
        complement = np.log(np.maximum(1 - false - delta, 0.0) / (1 - true))
    return np.maximum(np.fmax(event, complement), 0.0)


def gaussian_bound(true: np.ndarray, false: np.ndarray) -> np.ndarray:
    """Smallest mu for which a mu-GDP release allows these rates."""
    with np.errstate(invalid="ignore"):
        return np.maximum(np.nan_to_num(ndtri(true) - ndtri(false), nan=0.0, neginf=0.0), 0.0)


@dataclass(frozen=True)
class Claim:
    """A claimed guarantee: points (epsilon, delta) of its curve, or a GDP parameter.

    ``epsilon`` at ``delta`` is what the certificate prints; the other points follow from the same
    events, and a wrong one is as much a broken promise.
    """

    epsilon: float
    delta: float
    family: Family
    points: tuple[tuple[float, float], ...]
    mu: float | None = None

    @classmethod
    def gaussian(cls, mu: float, delta: float) -> Claim:
        """The claim of being mu-GDP, printed as epsilon at a delta."""
        epsilon = gaussian_epsilon(mu, delta)
        return cls(epsilon, delta, "gaussian", ((epsilon, delta),), mu)

    @classmethod
    def of(cls, claimed: Certificate | Budget | Claim) -> Claim:
        """Read a certificate with its whole curve, or a bare (epsilon, delta)."""
        if isinstance(claimed, Claim):
            return claimed
        here = (claimed.epsilon, claimed.delta)
        if isinstance(claimed, Budget):
            return cls(*here, "pure" if claimed.pure else "point", (here,))
        mu = claimed.exact_mu
        if mu is not None:
            return cls(*here, "gaussian", (here,), mu)
        points = [(claimed.epsilon_at(delta), delta) for delta in DELTAS]
        family: Family = "pure" if claimed.delta == 0 else "curve"
        return cls(*here, family, (here, *points))

    def most(self, false: np.ndarray) -> np.ndarray:
        """Largest true positive rate that the claim allows beside a false positive rate."""
        false = np.atleast_1d(np.asarray(false, dtype=float))
        if self.mu is not None:
            return ndtr(self.mu + ndtri(false))
        epsilon, delta = np.array(self.points).T[:, :, None]
        grown = np.exp(np.minimum(epsilon, 700.0))
        event = grown * false + delta
        complement = 1 - np.maximum(1 - false - delta, 0.0) / grown
        return np.clip(np.minimum(event, complement).min(axis=0), 0.0, 1.0)

    def refuted(self, true: np.ndarray, false: np.ndarray) -> np.ndarray:
        """Whether rates at least and at most these contradict the claim."""
        return np.atleast_1d(true) > self.most(false) * (1 + 1e-12)

    def strength(self, true: np.ndarray, false: np.ndarray) -> np.ndarray:
        """A number that grows with how much rates say about the claim, to choose events by."""
        if self.family in ("pure", "point"):
            return epsilon_bound(true, false, self.delta)
        found = gaussian_bound(true, false)
        if self.family == "gaussian":
            return found
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.nan_to_num(found / (ndtri(self.most(false)) - ndtri(false)), nan=0.0)

    def epsilon_equivalent(self, true: np.ndarray, false: np.ndarray) -> np.ndarray:
        """A bound on epsilon at the claim's delta, in the claim's own family.

        Pure and bare claims: from the definition alone. Gaussian: the epsilon of the smallest mu.
        Any other curve: the claimed epsilon, scaled as the Gaussian curve through these rates
        compares with the Gaussian curve through what the claim allows at the same false positive
        rate. It exceeds the claimed epsilon exactly if the claimed curve is refuted.
        """
        true, false = np.atleast_1d(true), np.atleast_1d(false)
        if self.family in ("pure", "point"):
            return epsilon_bound(true, false, self.delta)
        found = gaussian_bound(true, false)
        if self.family == "gaussian":
            return _epsilons(found, self.delta)
        with np.errstate(divide="ignore", invalid="ignore"):
            allowed = ndtri(self.most(false)) - ndtri(false)
            share = _epsilons(found, self.delta) / _epsilons(allowed, self.delta)
        return self.epsilon * np.nan_to_num(share, nan=0.0)


def _epsilons(mus: np.ndarray, delta: float) -> np.ndarray:
    finite = np.minimum(np.nan_to_num(mus, nan=0.0, posinf=1e3), 1e3)
    return np.array([gaussian_epsilon(float(mu), delta) for mu in finite])
