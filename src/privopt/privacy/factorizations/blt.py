r"""BLT: Toeplitz noise from a few decaying buffers (Dvijotham et al., 2024; McMahan et al., 2024).

c_0 = 1 and c_j = sum_i omega_i theta_i^(j-1). With omega > 0 and sum omega <= 1 the coefficients
are positive and do not increase. The stream is x_t = z_t - sum_i omega_i S_i,
S_i <- theta_i S_i + x_t: as much memory as there are buffers, for any number of steps.

Parameters. c(x) = prod (1 - th'_i x)/(1 - th_i x) with 1 > th_1 > th'_1 > th_2 > ... > 0 has
positive omega, and 1/((1-x) c(x)) is a product of the same kind, so one filter of first order for
each parameter gives values and exact derivatives of log(sens^2) + log(mean ||B_t||^2). The order of
the parameters is kept by nested sigmoids of 1 - th, which are spread over several magnitudes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from scipy.optimize import minimize
from scipy.signal import lfilter
from scipy.special import expit, logit

from privopt.privacy.factorizations.factorization import (
    UNIT,
    Draw,
    NoiseStream,
    Rounding,
    WholeDraw,
    less_past,
)
from privopt.privacy.factorizations.toeplitz import (
    Toeplitz,
    chunks,
    inverse_series,
    shifts,
    subtract_product,
)
from privopt.privacy.participation import Participation

NEGLIGIBLE = 1e-3
"""Buffers with a smaller weight are dropped."""


@dataclass(frozen=True)
class BLT(Toeplitz):
    """Buffered linear Toeplitz noise with given decays and weights."""

    name: ClassVar[str] = "blt"
    decays: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.decays) != len(self.weights):
            raise ValueError("each buffer has a decay and a weight.")
        if not all(0 < decay < 1 for decay in self.decays):
            raise ValueError("decays lie between 0 and 1.")
        if not all(0 < weight < math.inf for weight in self.weights):
            raise ValueError("weights are positive and finite.")

    @classmethod
    def optimised(cls, steps: int, participation: Participation, buffers: int = 4) -> BLT:
        """Least mean error under a participation rule."""
        if not 1 <= buffers <= 8:
            raise ValueError(f"between 1 and 8 buffers are optimised, got {buffers}.")
        rule = participation.fitted(steps)
        separation = rule.min_separation_steps if rule.times > 1 else steps
        return cls(steps, *best_buffers(steps, rule.times, separation, buffers))

    def column(self) -> np.ndarray:
        column = np.zeros(self.steps)
        column[0] = 1.0
        powers = np.arange(self.steps - 1)
        for decay, weight in zip(self.decays, self.weights, strict=True):
            column[1:] += weight * decay**powers
        return column

    def vectors_kept(self) -> int:
        return len(self.decays)

    def stream(self) -> NoiseStream:
        return _Buffers(np.array(self.decays), np.array(self.weights))

    def rounding(self, largest: float) -> Rounding:
        """A buffer is a filtered sum of fresh integers; each step rounds it twice, and what that
        adds decays like the buffer itself."""
        inverse, error = inverse_series(self.column()), 0.0
        for decay, weight in zip(self.decays, self.weights, strict=True):
            filtered = lfilter([0.0, 1.0], [1.0, -decay], inverse)
            size = float(np.abs(filtered).sum()) * largest * (1 + 1e-6)
            lasts = min(self.steps, 1 / (1 - decay))
            error += weight * size * UNIT * (2 * lasts + len(self.decays) + 2)
        return Rounding(1.0, 1.0, error, self.steps - 1)


class _Buffers(NoiseStream):
    def __init__(self, decays: np.ndarray, weights: np.ndarray) -> None:
        self._decays, self._weights = decays, weights
        self._kept = np.zeros((len(decays), 0))
        self._shape: tuple[int, ...] = ()

    def next(self, draw: Draw) -> np.ndarray:
        noise = np.ascontiguousarray(draw(), dtype=float)
        if self.step == 0:
            self._start(noise.shape)
        for here, kept in chunks(noise.reshape(-1), self._kept):
            subtract_product(here, self._weights, kept)
            kept *= self._decays[:, None]
            kept += here
        self.step += 1
        return noise

    def next_whole(self, draw: WholeDraw) -> np.ndarray:
        fresh = draw(1.0)
        if self.step == 0:
            self._start(fresh.shape)
        past = np.zeros(fresh.size)
        for here, kept in chunks(past, self._kept):
            subtract_product(here, -self._weights, kept)
        fresh = less_past(fresh, past.reshape(fresh.shape))
        for here, kept in chunks(fresh.reshape(-1), self._kept):
            kept *= self._decays[:, None]
            kept += here
        self.step += 1
        return fresh

    def _start(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self._kept = np.zeros((len(self._decays), int(np.prod(shape))))

    def vectors(self) -> list[np.ndarray]:
        return [row.reshape(self._shape) for row in self._kept] if self.step else []

    def load_vectors(self, step: int, vectors: list[np.ndarray]) -> None:
        if len(vectors) != (len(self._decays) if step else 0):
            raise ValueError("this is not the state of buffered noise at that step.")
        if vectors:
            self._start(vectors[0].shape)
            self._kept[:] = np.array([vector.reshape(-1) for vector in vectors])


# ---------------------------------------------------------------- parameters
@lru_cache(maxsize=256)
def best_buffers(
    steps: int, times: int, separation: int, buffers: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Decays and weights of least mean error, for records that come ``times`` times, ``separation``
    steps apart."""
    if steps == 1:
        return (), ()
    pattern = [p * separation for p in range(times) if p * separation < steps]
    mean = np.arange(steps, 0, -1.0) / steps

    def objective(p: np.ndarray) -> tuple[float, np.ndarray]:
        gates = expit(p)
        gaps = np.cumprod(gates[::-1])[::-1]  # 1 - th_1 < 1 - th'_1 < 1 - th_2 < ...
        values = 1 - gaps
        both = _sequences(steps, values)
        if not np.isfinite(both).all():
            return 1e9, np.zeros_like(p)  # the line search steps back
        column, sums = both
        moved = shifts(column, pattern)
        sens, error = float(moved @ moved), float(mean @ sums**2)
        back = shifts(moved[::-1], pattern)[::-1]  # gradient of sens/2 with respect to c
        slopes = np.empty(len(p))
        for index, value in enumerate(values):
            later = lfilter([0.0, 1.0], [1.0, -value], both)
            sign = 1 if index % 2 == 0 else -1
            slopes[index] = 2 * sign * (back @ later[0] / sens - (mean * sums) @ later[1] / error)
        pulled = (1 - gates) * np.cumsum(-slopes * gaps)
        return math.log(sens) + math.log(error), pulled

    # No decay so close to 1 or to another that rounding could not tell them apart.
    limits = float(logit(1e-10 ** (0.5 / buffers))), float(logit(1 - 1e-4))
    best: tuple[float, np.ndarray] | None = None
    sensitivity = min(steps, 3 * separation) if times > 1 else steps
    for slowest in (1.5 / steps, 1.5 / sensitivity) if times > 1 else (1.5 / steps,):
        gaps = np.geomspace(min(slowest, 0.3), 0.75, 2 * buffers)
        ratios = np.append(gaps[:-1] / gaps[1:], gaps[-1])
        found = minimize(
            objective,
            np.clip(logit(ratios), *limits),
            jac=True,
            method="L-BFGS-B",
            bounds=[limits] * len(ratios),
            options={"maxiter": 300},
        )
        if best is None or found.fun < best[0]:
            best = float(found.fun), found.x
    assert best is not None
    values = 1 - np.cumprod(expit(best[1])[::-1])[::-1]
    return _buffers(values[::2], values[1::2])


def _sequences(steps: int, values: np.ndarray) -> np.ndarray:
    """Coefficients of c(x) and of 1/((1-x) c(x))."""
    column, sums = np.zeros(steps), np.ones(steps)
    column[0] = 1.0
    for theta, other in zip(values[::2], values[1::2], strict=True):
        column = lfilter([1.0, -other], [1.0, -theta], column)
        sums = lfilter([1.0, -theta], [1.0, -other], sums)
    return np.array([column, sums])


def _buffers(theta: np.ndarray, other: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Partial fractions: omega_i = prod_j (th_i - th'_j) / prod_(j != i) (th_i - th_j)."""
    decays, weights = [], []
    for i, value in enumerate(theta):
        rest = np.delete(theta, i)
        # Paired factor by factor: near-equal parameters then cancel without loss.
        ratio = np.prod((value - np.delete(other, i)) / (value - rest))
        weight = float((value - other[i]) * ratio)
        if weight > NEGLIGIBLE:
            decays.append(float(value))
            weights.append(weight)
    return tuple(decays), tuple(weights)
