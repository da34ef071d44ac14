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

N is in A too. kappa = tau^2/2 (sum of l^-2 + the largest l^-2), l the eigenvalues of M~ + R, bounds
E||A N||^2 in operator norm to first order. Beyond ``MOST`` nothing is said: "not identified".
Below, intervals are those of Fieller (1954): variances are divided by 1 - z^2 kappa, the part of v
by its square, and v_j by 1 - z^2 kappa_j, kappa_j of that coordinate's own direction. In one
dimension this is Fieller's set exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from privopt.inference.coefficients import USUAL, Linear, normal_quantile, through

MOST = 0.1
"""Relative variance of the Hessian's noise up to which coefficients count as identified."""


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
    reported: Linear | None = None
    kind: str = "sandwich"

    def mapped(self, matrix: np.ndarray, shift: np.ndarray) -> Sandwich:
        return replace(self, reported=through(self.reported, self._q).then(matrix, shift))

    @property
    def _q(self) -> int:
        return len(self.theta)

    @cached_property
    def _report(self) -> Linear:
        return through(self.reported, self._q)

    @cached_property
    def _bent(self) -> tuple[np.ndarray, float]:
        """M~ + R and kappa."""
        bent = (self.hessian + self.hessian.T) / 2 + np.diag(self.ridge)
        heights = np.linalg.eigvalsh(bent)
        if not heights[0] > 0:
            return bent, math.inf
        inverse = heights**-2
        return bent, self.hessian_noise**2 / 2 * float(inverse.sum() + inverse.max())

    @property
    def kappa(self) -> float:
        """Relative variance of the Hessian's noise."""
        return self._bent[1]

    @property
    def identified(self) -> bool:
        return self.kappa <= MOST

    @cached_property
    def _inverse(self) -> np.ndarray:
        return np.linalg.inv(self._bent[0])

    @cached_property
    def _move(self) -> np.ndarray:
        """v, and by how much it is longer where the Hessian changes on the way there."""
        v = self._inverse @ self.shift
        return self._growth * v

    @cached_property
    def _growth(self) -> float:
        if self.quadratic:
            return 1.0
        bent = self._bent[0]
        v = self._inverse @ self.shift
        return math.exp(min(math.sqrt(max(v @ bent @ v, 0.0) / np.trace(bent)) / 2, 1.0))

    @cached_property
    def _parts(self) -> dict[str, np.ndarray]:
        """Covariances of theta + v: of sampling alone; of the objective's noise; one standard
        deviation of S~'s own noise in them; of the Hessian's noise with what is random in v, and
        with v itself."""
        A, v, g2 = self._inverse, self._move, self._growth**2
        values, basis = np.linalg.eigh((self.scores + self.scores.T) / 2)
        # A sample's residuals are smaller than the true ones, by the parameters fitted to them.
        whole = self.records / max(self.records - self._q, 1)
        kept = (basis * np.maximum(values, 0.0)) @ basis.T * whole
        sampling = g2 * A @ kept @ A
        noise = g2 * self.objective_noise**2 * A @ A + self.output_noise**2 * np.eye(self._q)
        blur = g2 * self.score_noise * A @ A
        share, long = self.hessian_noise**2 / 2, float(v @ v)
        size = float(np.trace(sampling + noise)) / (1 - self.kappa)
        rest = (size + self.kappa * long) / (1 - self.kappa)
        random = share * (rest * A @ A + A @ (sampling + noise) @ A)
        moved = share * (long * A @ A + np.outer(A @ v, A @ v))
        return {
            "sampling": sampling,
            "noise": noise,
            "blur": blur,
            "random": random,
            "moved": moved,
        }

    def _of(self, name: str) -> np.ndarray:
        """Variances of one part in reported coefficients."""
        L = self._report.matrix
        return np.maximum(np.einsum("ij,jk,ik->i", L, self._parts[name], L), 0.0)

    @property
    def _doubt(self) -> np.ndarray:
        """What is added to a variance that is itself known up to a standard deviation b.

        With relative errors r = b / V the chance that |Z| < z sqrt(1 + r e) is, in the mean over e,
        lower by z phi(z) r^2 (1 + z^2) / 4, and a variance larger by f gives z phi(z) f back:
        f = r^2 (1 + z^2) / 4, or b itself where r is so large that no expansion holds.
        """
        blur = self._of("blur")
        known = self._of("sampling") + self._of("noise")
        share = blur / np.where(known > 0, known, 1.0)
        return blur * np.minimum(1.0, share * (1 + normal_quantile(USUAL) ** 2) / 4)

    def _quantile(self, level: float) -> float:
        """The normal quantile; where noise is norm-Gamma, with Cornish and Fisher's (1937)
        correction for its tails. A coordinate of norm-Gamma noise in d dimensions has the excess
        kurtosis 6 / (d + 1)."""
        z = normal_quantile(level)
        if not self.pure:
            return z
        noise, whole = self._of("noise"), self._of("noise") + self._of("sampling")
        share = float(np.max(noise / np.where(whole > 0, whole, 1.0)))
        return z + max(z**3 - 3 * z, 0.0) / 24 * share**2 * 6 / (self._q + 1)

    @cached_property
    def _own_kappa(self) -> np.ndarray:
        """kappa_j of each reported coefficient's direction u: the share of the noise's variance
        that is in proportion to that coefficient's own move."""
        L, A = self._report.matrix, self._inverse
        rows = L @ A
        along = np.einsum("ij,ij->i", rows, L) / np.maximum(np.einsum("ij,ij->i", L, L), 1e-300)
        square = np.einsum("ij,ij->i", rows, rows) / np.maximum(np.einsum("ij,ij->i", L, L), 1e-300)
        return np.minimum(self.hessian_noise**2 / 2 * (square + along**2), self.kappa)

    @cached_property
    def value(self) -> np.ndarray:
        """Where identified the centre of the usual interval, else the released minimiser."""
        if not self.identified:
            return self._report(self.theta)
        return self._centre(self._quantile(USUAL))

    def _centre(self, z: float) -> np.ndarray:
        moved = self._report.matrix @ self._move
        return self._report(self.theta) + moved / (1 - z**2 * self._own_kappa)

    def _half(self, level: float) -> np.ndarray:
        z = self._quantile(level)
        left = 1 - z**2 * self.kappa
        if left <= 0:
            return np.full(len(self._report.shift), math.inf)
        plain = self._of("sampling") + self._of("noise") + self._of("random") + self._doubt
        return z * np.sqrt(plain / left + self._of("moved") / left**2)

    def interval(self, level: float = USUAL) -> np.ndarray:
        if not self.identified:
            normal_quantile(level)
            return np.tile([-math.inf, math.inf], (len(self._report.shift), 1))
        half = self._half(level)
        centre = self.value if np.isinf(half).any() else self._centre(self._quantile(level))
        return np.column_stack([centre - half, centre + half])

    @cached_property
    def std_err(self) -> np.ndarray:
        """Half of the usual interval over its quantile: all that makes it wide."""
        if not self.identified:
            return np.full(len(self._report.shift), math.inf)
        return self._half(USUAL) / normal_quantile(USUAL)

    @cached_property
    def std_err_sampling(self) -> np.ndarray:
        """Of having only so many records; the rest of ``std_err`` is the price of privacy."""
        if not self.identified:
            return np.full(len(self._report.shift), math.nan)
        return np.minimum(np.sqrt(self._of("sampling")), self.std_err)

    def p_values(self) -> np.ndarray:
        """Two-sided, of the hypothesis that a coefficient is 0."""
        if not self.identified:
            return np.full(len(self._report.shift), math.nan)
        return 2 * ndtr(-np.abs(self.value) / self.std_err)
