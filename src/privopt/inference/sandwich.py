"""Standard errors from a released minimiser, a noisy Hessian and a noisy covariance of scores.

With f the sum of the records' losses, theta the released minimiser of f + own ridge + perturbation
and theta* the parameter that it estimates, to first order (exactly for squares)

    (M + R) (theta* - theta) = P (theta - centre) + xi,

M the Hessian of f at theta, R the caller's ridge, which belongs to what is estimated, P the ridge
that only privacy asked for, and xi = scores at theta* + noise of the objective: mean 0, covariance
S + sigma^2 I. Released are M~ = M + N and S~, with N symmetric noise of standard deviation tau on
the diagonal and tau / sqrt(2) elsewhere. With A = (M~ + R)^-1 and v = A P (theta - centre)

    theta* - (theta + v) = A (xi + N (theta* - theta)),

so noise of the Hessian is multiplied by the small v and not by theta. Its covariance, for a
symmetric N, is E[N u u' N] = tau^2/2 (|u|^2 I + u u').

N is in A too: kappa bounds E||A N||^2 (``NoisyHessian``). Intervals are those of Fieller (1954):
variances are divided by 1 - z^2 kappa, the part of v by its square, and v_j by 1 - z^2 kappa_j,
kappa_j of that coordinate's own direction. In one dimension this is Fieller's set exactly.

Where a direction is too weak, A is the inverse of the raised matrix and theta* - theta has one part
more, E (theta* - theta), of which only ``reach``, a public bound on |theta* - centre|, says how
long it is. It widens intervals by |E_j| times that. A coefficient is identified, each by itself, if
all that widens its interval by ``SHARE`` times at most and |E_j| is small in itself. All is
computed twice, with the Hessian as read and lowered by what its having been called strong may hide;
an interval holds both answers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtr

from privopt.inference.coefficients import USUAL, Linear, normal_quantile, through
from privopt.inference.noisy_hessian import NoisyHessian

SHARE, LEANS = 2.0, 0.05
"""By how many times its half-width ``reach`` may widen an interval, and how much a coefficient may
lean on directions that are not known."""


@dataclass(frozen=True, eq=False)
class Sandwich:
    """Coefficients with the covariance of sampling, and of noise.

    Parameters
    ----------
    theta : array
        The released minimiser.
    shift : array
        P (theta - centre): what the ridge of the privacy pulls with.
    ridge : array
        R: the caller's own, for each coordinate.
    hessian, scores : array
        M~ and S~.
    hessian_noise, score_noise : float
        tau, and the same of S~.
    objective_noise, output_noise : float
        Standard deviation of a coordinate of the perturbation, and of what was added to theta.
    records : int
        Public number of records.
    quadratic : bool
        Whether the Hessian is the same everywhere.
    pure : bool
        Noise is norm-Gamma: its coordinates have heavier tails than normal ones.
    pull, reach : float
        Strength of that ridge, and how far theta* is taken to lie from its centre at most, where
        data cannot tell.
    """

    theta: np.ndarray
    shift: np.ndarray
    ridge: np.ndarray
    hessian: np.ndarray
    scores: np.ndarray
    hessian_noise: float
    score_noise: float
    objective_noise: float
    output_noise: float
    records: int
    quadratic: bool
    pure: bool
    pull: float = 1.0
    reach: float = math.inf
    reported: Linear | None = None
    kind: str = "sandwich"

    def __getstate__(self) -> dict[str, Any]:
        """What was released: the rest follows from it, wherever it is read."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def mapped(self, matrix: np.ndarray, shift: np.ndarray) -> Sandwich:
        return replace(self, reported=through(self.reported, self._q).then(matrix, shift))

    @property
    def _q(self) -> int:
        return len(self.theta)

    @cached_property
    def _report(self) -> Linear:
        return through(self.reported, self._q)

    @cached_property
    def _readings(self) -> tuple[_Reading, ...]:
        """With the Hessian as read, and lowered where that matters."""
        read = NoisyHessian.of(self.hessian + np.diag(self.ridge), self.hessian_noise)
        low = read.lowered
        return tuple(_Reading(self, known) for known in ((read,) if low is read else (read, low)))

    @property
    def kappa(self) -> float:
        """Relative variance of the Hessian's noise in the directions that count as known."""
        return self._readings[0].known.kappa

    @property
    def identified(self) -> np.ndarray:
        """Which coefficients are, each by itself."""
        return np.all([one.identified for one in self._readings], axis=0)

    @property
    def conditional(self) -> bool:
        """Whether an interval that is given rests on ``reach``."""
        return bool(self.identified.any() and np.any(self._readings[0].known.lost))

    @property
    def value(self) -> np.ndarray:
        """Where identified the middle of the usual interval, else the released minimiser."""
        low, high = self._ends(USUAL)
        with np.errstate(invalid="ignore"):
            middle = (low + high) / 2
        return np.where(self.identified, middle, self._report(self.theta))

    def _ends(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        found = [one.interval(level) for one in self._readings]
        low = np.min([one[0] for one in found], axis=0)
        high = np.max([one[1] for one in found], axis=0)
        return np.where(self.identified, low, -math.inf), np.where(self.identified, high, math.inf)

    def interval(self, level: float = USUAL) -> np.ndarray:
        return np.column_stack(self._ends(level))

    @property
    def std_err(self) -> np.ndarray:
        """Half of the usual interval over its quantile: all that makes it wide."""
        low, high = self._ends(USUAL)
        return (high - low) / (2 * normal_quantile(USUAL))

    @property
    def std_err_sampling(self) -> np.ndarray:
        """Of having only so many records; the rest of ``std_err`` is the price of privacy."""
        found = np.minimum(np.sqrt(self._readings[0].variance("sampling")), self.std_err)
        return np.where(self.identified, found, math.nan)

    def p_values(self) -> np.ndarray:
        """Two-sided, of the hypothesis that a coefficient is 0."""
        with np.errstate(invalid="ignore"):
            found = 2 * ndtr(-np.abs(self.value) / self.std_err)
        return np.where(self.identified, found, math.nan)


class _Reading:
    """What follows from one reading of the Hessian."""

    def __init__(self, released: Sandwich, known: NoisyHessian) -> None:
        self.released, self.known = released, known

    @cached_property
    def _stretch(self) -> float:
        """By how much v is longer where the Hessian changes on the way there."""
        one = self.released
        if one.quadratic:
            return 1.0
        v, heights = self.known.inverse @ one.shift, self.known.heights
        square = float(v @ one.shift)  # v' (M~ + R) v
        return math.exp(min(math.sqrt(max(square, 0.0) / float(heights.sum())) / 2, 1.0))

    @cached_property
    def move(self) -> np.ndarray:
        """v."""
        return self._stretch * (self.known.inverse @ self.released.shift)

    @cached_property
    def _far(self) -> float:
        """A bound on the part of theta* - theta in the raised directions; 0 if there are none."""
        raised = self.known.raised
        if not raised.size or math.isinf(self.released.reach):
            return 0.0  # where nothing bounds it, nothing is identified
        released = self.released
        return released.reach + float(np.linalg.norm(raised.T @ released.shift)) / released.pull

    @cached_property
    def parts(self) -> dict[str, np.ndarray]:
        """Covariances of theta + v: of sampling alone; of the objective's noise; one standard
        deviation of S~'s own noise in them; of the Hessian's noise with what is random in v, with v
        itself, and with what cannot be seen."""
        one, A, v, g2 = self.released, self.known.inverse, self.move, self._stretch**2
        q, kappa = len(one.theta), self.known.kappa
        values, basis = np.linalg.eigh((one.scores + one.scores.T) / 2)
        # A sample's residuals are smaller than the true ones, by the parameters fitted to them.
        whole = one.records / max(one.records - q, 1)
        kept = (basis * np.maximum(values, 0.0)) @ basis.T * whole
        sampling = g2 * A @ kept @ A
        noise = g2 * one.objective_noise**2 * A @ A + one.output_noise**2 * np.eye(q)
        share = one.hessian_noise**2 / 2
        long = float(v @ v)
        size = float(np.trace(sampling + noise)) / (1 - kappa)
        rest = (size + kappa * long) / (1 - kappa)
        raised = self.known.raised
        seen = A @ (v - raised @ (raised.T @ v)) if raised.size else 0 * v
        most = self._far**2 * (A @ A + 2 * A @ raised @ raised.T @ A)
        return {
            "sampling": sampling,
            "noise": noise,
            "blur": g2 * one.score_noise * A @ A,
            "random": share * (rest * A @ A + A @ (sampling + noise) @ A),
            "moved": share * (long * A @ A + np.outer(A @ v, A @ v)),
            # (a'u)^2 <= 2 (a's)^2 + 2 (a'w)^2 for u = s + w, w in the raised directions.
            "hidden": share * (most + 2 * np.outer(seen, seen)),
        }

    def variance(self, name: str) -> np.ndarray:
        """Variances of one part in reported coefficients."""
        L = self.released._report.matrix
        return np.maximum(np.einsum("ij,jk,ik->i", L, self.parts[name], L), 0.0)

    @cached_property
    def _doubt(self) -> np.ndarray:
        """What is added to a variance that is itself known up to a standard deviation b.

        With relative errors r = b / V the chance that |Z| < z sqrt(1 + r e) is, in the mean over e,
        lower by z phi(z) r^2 (1 + z^2) / 4, and a variance larger by f gives z phi(z) f back:
        f = r^2 (1 + z^2) / 4, or b itself where r is so large that no expansion holds.
        """
        blur = self.variance("blur")
        known = self.variance("sampling") + self.variance("noise")
        share = blur / np.where(known > 0, known, 1.0)
        return blur * np.minimum(1.0, share * (1 + normal_quantile(USUAL) ** 2) / 4)

    def quantile(self, level: float) -> float:
        """The normal quantile; where noise is norm-Gamma, with Cornish and Fisher's (1937)
        correction for its tails. A coordinate of norm-Gamma noise in d dimensions has the excess
        kurtosis 6 / (d + 1)."""
        z = normal_quantile(level)
        if not self.released.pure:
            return z
        noise = self.variance("noise")
        whole = noise + self.variance("sampling")
        share = float(np.max(noise / np.where(whole > 0, whole, 1.0)))
        more = max(z**3 - 3 * z, 0.0) / 24 * share**2 * 6
        return z + more / (len(self.released.theta) + 1)

    @cached_property
    def _own_kappa(self) -> np.ndarray:
        """kappa_j of each reported coefficient's direction u: the share of the noise's variance
        that is in proportion to that coefficient's own move."""
        L, A = self.released._report.matrix, self.known.inverse
        rows, long = L @ A, np.maximum(np.einsum("ij,ij->i", L, L), 1e-300)
        along = np.einsum("ij,ij->i", rows, L) / long
        square = np.einsum("ij,ij->i", rows, rows) / long
        most = self.known.kappa
        return np.minimum(self.released.hessian_noise**2 / 2 * (square + along**2), most)

    def _half(self, level: float, moved: tuple[str, ...]) -> np.ndarray:
        z = self.quantile(level)
        left = 1 - z**2 * self.known.kappa
        if left <= 0:
            return np.full(len(self.released._report.shift), math.inf)
        plain = sum(self.variance(name) for name in ("sampling", "noise", "random")) + self._doubt
        return z * np.sqrt(plain / left + sum(self.variance(name) for name in moved) / left**2)

    def half(self, level: float) -> np.ndarray:
        """Of the interval."""
        return self._half(level, ("moved", "hidden")) + self._unseen

    @cached_property
    def _unseen(self) -> np.ndarray:
        """|L_j E| times that bound."""
        return np.linalg.norm(self.released._report.matrix @ self.known.lost, axis=1) * self._far

    @property
    def identified(self) -> np.ndarray:
        L, lost = self.released._report.matrix, self.known.lost
        if lost.any() and math.isinf(self.released.reach):
            return np.zeros(len(L), dtype=bool)
        leans = np.linalg.norm(L @ lost, axis=1) > LEANS * np.linalg.norm(L, axis=1)
        return (self.half(USUAL) <= (1 + SHARE) * self._half(USUAL, ("moved",))) & ~leans

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        z, half = self.quantile(level), self.half(level)
        report = self.released._report
        moved = report.matrix @ self.move
        if np.isfinite(half).all():
            moved = moved / (1 - z**2 * self._own_kappa)
        centre = report(self.released.theta) + moved
        return centre - half, centre + half
