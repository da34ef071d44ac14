"""What a Hessian says that is known up to Gaussian noise, direction by direction.

Known is B = M + N, with N symmetric noise of standard deviation tau on the diagonal and tau/sqrt(2)
elsewhere. In the basis of B's eigenvectors, with l its eigenvalues,

    kappa = tau^2/2 (sum of l^-2 + the largest l^-2)

bounds E||B^-1 N||^2 to first order. Directions that would bring kappa above ``MOST`` are raised to
the height f at which it is ``MOST``: with A the inverse of the raised matrix and E = I - A B,

    u = A B u + E u   for every u,

exactly, and E lives on the raised directions alone. So whoever solves B u = b loses E u and no
more, and a coefficient on which E is small is known although others are not.

**That a direction is strong is decided by the same noise.** One whose noise was large and positive
is taken for stronger than it is, and the fewer fits call it strong, the more so. Given that a noisy
height l is at least f, its true height is, but in one of forty such cases, above l - a tau - x tau,
where x = (l - f) / tau and Q(a + x) = Q(a)/40, Q the normal tail (a one-sided limit of a truncated
normal). Without the condition it is l - 1.96 tau. So heights are read twice, as they are and
lowered by the difference of the two, and intervals are those that hold both answers. The difference
is below .3 tau from x = 2.2 on, and taken as ``LOWEST`` at most: the condition is then paid for
where one fit in a hundred or more is identified. Coverage given so is in docs/proofs/inference.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import cast

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtri

MOST = 0.06
"""Relative variance of the noise up to which directions count as known."""
LOWEST = 1.2
"""How far heights are lowered at most, in standard deviations."""
TAIL = 0.025


@dataclass(frozen=True, eq=False)
class NoisyHessian:
    """A symmetric matrix that is known up to noise, with weak directions raised.

    Parameters
    ----------
    basis : array
        Eigenvectors, one a column.
    read : array
        Eigenvalues as they were released, in rising order.
    heights : array
        What stands in their place.
    noise : float
        tau.
    """

    basis: np.ndarray
    read: np.ndarray
    heights: np.ndarray
    noise: float

    @classmethod
    def of(cls, matrix: np.ndarray, noise: float) -> NoisyHessian:
        read, basis = np.linalg.eigh((matrix + matrix.T) / 2)
        # Without noise every direction is known that is not flat in double precision.
        least = 1e-12 * max(float(read[-1]), 1e-300)
        return cls(basis, read, np.maximum(read, max(_floor(read, noise), least)), noise)

    @cached_property
    def kappa(self) -> float:
        return _kappa(self.heights, self.noise)

    @cached_property
    def inverse(self) -> np.ndarray:
        """A."""
        return (self.basis / self.heights) @ self.basis.T

    @property
    def raised(self) -> np.ndarray:
        """The raised directions, one a column."""
        return self.basis[:, self.heights > self.read]

    @cached_property
    def lost(self) -> np.ndarray:
        """E = I - A B; exactly 0 where nothing was raised."""
        share = np.where(self.heights > self.read, 1 - self.read / self.heights, 0.0)
        return (self.basis * share) @ self.basis.T

    @cached_property
    def lowered(self) -> NoisyHessian:
        """With heights below which the true ones lie in one of forty cases that came so far."""
        if not self.noise:
            return self
        above = (self.read - _floor(self.read, self.noise)) / self.noise
        extra = np.array([further(float(x)) for x in above])
        return replace(self, heights=self.heights - self.noise * extra)


def further(x: float) -> float:
    """How much further below a noisy height its true one may be because the noisy one had to be x
    below itself at least to count; in standard deviations, ``LOWEST`` at most."""
    return LOWEST if x <= 0 else _further(round(min(x, 8.0), 3))


@lru_cache(maxsize=10_000)
def _further(x: float) -> float:
    def excess(a: float) -> float:
        return float(log_ndtr(-(a + x)) - log_ndtr(-a)) - math.log(TAIL)

    # a is largest at LOWEST; the condition is void where a is far below 0.
    most = LOWEST - float(ndtri(TAIL)) - x
    if excess(most) > 0:
        return LOWEST
    return max(cast(float, brentq(excess, -12.0, most)) + x + float(ndtri(TAIL)), 0.0)


def _kappa(heights: np.ndarray, noise: float) -> float:
    inverse = heights**-2.0
    return noise**2 / 2 * float(inverse.sum() + inverse.max())


def _floor(read: np.ndarray, noise: float) -> float:
    """The height below which the least eigenvalue makes kappa larger than ``MOST``, if all that
    are below it are raised to it."""
    if not noise:
        return 0.0

    def above(f: float) -> float:
        return _kappa(np.append(np.maximum(read[1:], f), f), noise) - MOST

    low, high = noise * MOST**-0.5 * 0.99, noise * (len(read) / MOST) ** 0.5 * 1.01
    return cast(float, brentq(above, low, high))
