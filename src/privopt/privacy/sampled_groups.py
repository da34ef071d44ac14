r"""Privacy-loss distribution of Gaussian noise on a Poisson batch that may hold several rows of one
user, in the manner of ``sampled``.

Each of the user's k rows is in the batch by a coin of its own, so J of them are, with J binomial;
together they move the sum by at most J mu, mu that of one row, in standard deviations of the noise.

The pair that dominates: sum_j b_j N(j mu, 1) against N(0, 1), where b_j = P(J = j), and the
reverse; under replace_one against sum_j b_j N(-j mu, 1). It is that of k equal rows, and of rows
replaced by their opposites, so it cannot be smaller (Ganesh, 2024, for rows that come or go).

Proof. Fix all other rows and coins, by joint convexity of f-divergences. Let the set S of the
user's rows, of probability p_S, move the sum by v_S, and by w_S in the neighbour. Under noise
z ~ N(0, I) around the sum of the others, the two data sets have densities

  A = sum_S p_S exp(<v_S, z> - |v_S|^2/2),    B = sum_S p_S exp(<w_S, z> - |w_S|^2/2),

and H_a = E (A - a B)_+. A - a B is a sum of variables with known laws, whatever their directions:
log-normal ones, and negatives of such. In the convex order a sum is largest when all its terms rise
together, and the sum of terms that rise together grows with the convex order of each. A log-normal
of mean one grows with |v_S|, as does the negative of one. So the largest is that of one line, with
v_S = |S| mu and w_S = -|S| mu, where A rises and B falls. Without replacement B = 1. This is for
all a >= 0, and for the reverse pair, since (1 - a A)_+ is convex too. Distributions that dominate
each step, whatever earlier ones showed, dominate together when they are convolved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import gammaln, logsumexp, xlog1py, xlogy

from privopt.privacy.budget import Neighbouring, records_moved, replaces
from privopt.privacy.kinds import Kind, gaussian_distribution
from privopt.privacy.sampled import REACH, Cells, between, grid, joined

CLOSE = 1e-14
"""Relative precision of points at which a loss takes a value."""
MOST_TURNS = 200


@dataclass(frozen=True, slots=True)
class SampledGroupGaussian(Kind):
    """One Poisson batch with rate q, and ``size`` rows of one user, each by a coin of its own.

    ``mu`` is what all of them together move, in standard deviations (their radius, under every
    relation).
    """

    name: ClassVar[str] = "sampled_group_gaussian"
    rate: float
    mu: float
    size: int

    def distribution(self, step: float, neighbouring: Neighbouring) -> Any | None:
        if self.rate >= 1:
            return gaussian_distribution(records_moved(neighbouring) * self.mu, step)
        one = self.mu / self.size
        return group_distribution(self.rate, one, self.size, step, replaces(neighbouring))

    def strength(self) -> float:
        return self.mu


class Mixture:
    """sum_j b_j N(j mu, 1) for binomial weights b_j."""

    def __init__(self, rate: float, mu: float, size: int) -> None:
        self.mu, self.counts = mu, np.arange(size + 1)
        n, j = size, self.counts
        ways = gammaln(n + 1) - gammaln(j + 1) - gammaln(n - j + 1)
        self.log_weights = ways + xlogy(j, rate) + xlog1py(n - j, -rate)
        self._heights = self.log_weights - (j * mu) ** 2 / 2

    def log_ratio(self, x: np.ndarray) -> np.ndarray:
        """log of the density over that of N(0, 1): convex, and rising from log b_0."""
        terms = self._heights[:, None] + (self.counts * self.mu)[:, None] * np.atleast_1d(x)
        return np.asarray(logsumexp(terms, axis=0))

    def _slope(self, x: np.ndarray) -> np.ndarray:
        terms = self._heights[:, None] + (self.counts * self.mu)[:, None] * x
        chances = np.exp(terms - terms.max(axis=0))
        return self.mu * (self.counts @ chances) / chances.sum(axis=0)

    def where(self, loss: np.ndarray) -> np.ndarray:
        """Where ``log_ratio`` takes these values; -inf for those below all of its own.

        Newton's method from above: a convex function lies over its tangents.
        """
        x = np.full(loss.shape, -np.inf)
        inside = loss > self.log_weights[0]
        wanted = loss[inside]
        rising = self.counts[1:, None] * self.mu
        point = ((wanted - self._heights[1:, None]) / rising).min(axis=0)
        for _ in range(MOST_TURNS):
            step = (self.log_ratio(point) - wanted) / np.maximum(self._slope(point), 1e-300)
            step = np.where(np.isfinite(step), np.maximum(step, 0.0), 0.0)
            point = point - step
            if (step <= CLOSE * (1 + np.abs(point))).all():
                break
        x[inside] = point
        return x

    def where_apart(self, loss: np.ndarray) -> np.ndarray:
        """Where log_ratio(x) - log_ratio(-x), which is odd and rises, takes these values."""
        size = np.abs(loss)
        low, high = np.zeros_like(size), np.maximum(self.where(size), 0.0)
        for _ in range(MOST_TURNS):
            middle = (low + high) / 2
            below = self.log_ratio(middle) - self.log_ratio(-middle) < size
            low, high = np.where(below, middle, low), np.where(below, high, middle)
            if (high - low <= CLOSE * (1 + high)).all():
                break
        return np.sign(loss) * high

    def mass(self, x: np.ndarray) -> np.ndarray:
        """Between successive points."""
        weights = np.exp(self.log_weights)
        return sum(w * between(x - j * self.mu) for j, w in zip(self.counts, weights, strict=True))  # type: ignore


def group_distribution(rate: float, mu: float, size: int, step: float, replaced: bool) -> Any:
    """One Poisson batch and ``size`` rows of one user, each of which moves it by ``mu``."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    mixture = Mixture(rate, mu, size)
    if replaced:
        return pld.PrivacyLossDistribution(_replaced(mixture, step))
    there, absent = joined(step, _present(mixture, step)), joined(step, _absent(mixture, step))
    return pld.PrivacyLossDistribution(there, absent)


def _ends(mixture: Mixture) -> tuple[float, float]:
    far = mixture.mu * mixture.counts[-1] + REACH
    low, high = mixture.log_ratio(np.array([-REACH, far]))
    return float(low), float(high)


def _present(mixture: Mixture, step: float) -> Cells:
    place, edges = grid(*_ends(mixture), step)
    x = mixture.where(edges)
    return place, mixture.mass(x), between(x)


def _absent(mixture: Mixture, step: float) -> Cells:
    low = -float(mixture.log_ratio(np.array([REACH]))[0])
    place, edges = grid(low, -float(mixture.log_weights[0]), step)
    x = mixture.where(-edges)[::-1]
    return place, between(x)[::-1], mixture.mass(x)[::-1]


def _replaced(mixture: Mixture, step: float) -> Any:
    far = np.array([mixture.mu * mixture.counts[-1] + REACH])
    top = float((mixture.log_ratio(far) - mixture.log_ratio(-far))[0])
    place, edges = grid(-top, top, step)
    x = mixture.where_apart(edges)
    return joined(step, (place, mixture.mass(x), mixture.mass(-x[::-1])[::-1]))
