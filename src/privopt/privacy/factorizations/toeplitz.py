"""Toeplitz encoders: C has one coefficient for each distance between two steps.

With c(x) the generating function of the coefficients, B = A C^-1 has that of 1/((1-x) c(x)), and
the variance of b_t is the sum of its first t squared coefficients.

Sensitivity. A record in the steps pi moves row i by at most sum over pi of c_(i-p). For c >= 0 that
is exact, and moving all of pi earlier only adds rows: the earliest pattern is the worst of a fixed
order. If c also does not increase, then moving steps closer together adds to every row as well, so
{0, b, 2b, ...} is the worst of all patterns with gaps of at least b (Kalinin and Lampert, 2024).
Otherwise c is replaced by the smallest non-increasing sequence above |c|, an upper bound.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.fft import next_fast_len
from scipy.linalg import get_blas_funcs

from privopt.privacy.factorizations.factorization import (
    UNIT,
    Draw,
    Factorization,
    NoiseStream,
    Rounding,
    WholeDraw,
    less_past,
)
from privopt.privacy.participation import Participation, Pattern


@dataclass(frozen=True)
class Toeplitz(Factorization):
    """A lower triangular Toeplitz encoder, given by its first column."""

    @abstractmethod
    def column(self) -> np.ndarray:
        """First column of C, of length ``steps``."""

    def encode(self, values: np.ndarray) -> np.ndarray:
        return convolve(self.column()[: len(values)], values)

    def losses_squared(
        self, patterns: Sequence[Pattern], released: int | None = None
    ) -> np.ndarray:
        released = self._released(released)
        # |c| bounds the Gram entrywise, and is c itself in all but contrived cases.
        size = np.abs(self.column()[:released])
        alike: dict[Pattern, list[tuple[int, int]]] = {}
        for index, pattern in enumerate(patterns):
            steps = [step for step in pattern if step < released]
            if steps:
                shape = tuple(step - steps[0] for step in steps)
                alike.setdefault(shape, []).append((index, steps[0]))
        losses = np.zeros(len(patterns))
        for shape, places in alike.items():
            # A pattern that begins later moves the same rows, fewer of them before the end.
            energy = np.cumsum(shifts(size, shape) ** 2)
            for index, first in places:
                losses[index] = energy[released - first - 1]
        return losses

    def sensitivity_squared(
        self, participation: Participation, released: int | None = None
    ) -> float:
        released = self._released(released)
        if not released:
            return 0.0
        rule = participation.fitted(released)
        column = np.abs(self.column()[:released])
        if rule.times > 1 and not rule.fixed_order:
            column = np.maximum.accumulate(column[::-1])[::-1]
        first = range(0, rule.times * rule.min_separation_steps, rule.min_separation_steps)
        return sum_of_shifts_squared(column, [step for step in first if step < released])

    def row_norms(self) -> np.ndarray:
        return np.sqrt(np.cumsum(np.cumsum(inverse_series(self.column())) ** 2))

    def rounding(self, largest: float) -> Rounding:
        column = self.column()
        first, bands = float(column[0]), self.bands() or self.steps
        rest = np.abs(column[1:bands]).sum() / first
        size = float(np.abs(inverse_series(column / first)).sum()) * largest * (1 + 1e-6)
        error = (bands + 2) * UNIT * float(rest) * size
        return Rounding(1 / first, 1 / first, error, min(bands - 1, self.steps - 1))


class Ring(NoiseStream):
    """x_t = (z_t - sum over 1 <= j < bands of c_j x_(t-j)) / c_0: the last bands - 1 are kept."""

    def __init__(self, coefficients: np.ndarray) -> None:
        self._first, self._rest = float(coefficients[0]), np.array(coefficients[1:])
        self._kept = np.zeros((0, 0))
        self._shape: tuple[int, ...] = ()

    def next(self, draw: Draw) -> np.ndarray:
        noise = np.ascontiguousarray(draw(), dtype=float)
        room = len(self._rest)
        if self.step == 0:
            self._start(noise.shape)
        if room:
            flat = noise.reshape(-1)
            filled = min(self.step, room)
            # Row r of the ring holds the value of the latest step that is r modulo the room.
            age = (self.step - 1 - np.arange(filled)) % room
            for here, kept in chunks(flat, self._kept[:filled]):
                subtract_product(here, self._rest[age], kept)
        if self._first != 1.0:
            noise /= self._first
        if room:
            self._kept[self.step % room] = noise.reshape(-1)
        self.step += 1
        return noise

    def next_whole(self, draw: WholeDraw) -> np.ndarray:
        fresh, room = draw(1 / self._first), len(self._rest)
        if self.step == 0:
            self._start(fresh.shape)
        if room:
            past = np.zeros(fresh.size)
            filled = min(self.step, room)
            age = (self.step - 1 - np.arange(filled)) % room
            weights = self._rest[age] / -self._first
            for here, kept in chunks(past, self._kept[:filled]):
                subtract_product(here, weights, kept)
            fresh = less_past(fresh, past.reshape(fresh.shape))
            self._kept[self.step % room] = fresh.reshape(-1)
        self.step += 1
        return fresh

    def _start(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        # Memory of rows that are never written is never taken.
        self._kept = np.empty((len(self._rest), int(np.prod(shape))))

    def vectors(self) -> list[np.ndarray]:
        filled = min(self.step, len(self._rest))
        return [row.reshape(self._shape) for row in self._kept[:filled]]

    def load_vectors(self, step: int, vectors: list[np.ndarray]) -> None:
        if len(vectors) != min(step, len(self._rest)):
            raise ValueError("this is not the state of banded noise at that step.")
        if vectors:
            self._start(vectors[0].shape)
            for row, vector in zip(self._kept, vectors, strict=False):
                row[:] = vector.reshape(-1)


CHUNK = 1 << 15
"""Coordinates handled at a time: what is kept of them fits into a processor's cache."""


(AXPY,) = get_blas_funcs(("axpy",), dtype=np.float64)
"""y <- a x + y in place."""


def chunks(flat: np.ndarray, kept: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Views of a vector and of the rows kept beside it, a few coordinates at a time."""
    for start in range(0, len(flat), CHUNK):
        yield flat[start : start + CHUNK], kept[:, start : start + CHUNK]


def subtract_product(here: np.ndarray, weights: np.ndarray, kept: np.ndarray) -> None:
    """here -= weights @ kept, in place."""
    for weight, row in zip(weights, kept, strict=True):
        AXPY(row, here, a=-weight)


# ---------------------------------------------------------------- series
def convolve(column: np.ndarray, values: np.ndarray) -> np.ndarray:
    """First rows of the convolution of a column with each column of a matrix."""
    length = len(values)
    size = next_fast_len(2 * length, real=True)
    spectrum = np.fft.rfft(column, size)
    flat = values.reshape(length, -1)
    out = np.fft.irfft(np.fft.rfft(flat, size, axis=0) * spectrum[:, None], size, axis=0)[:length]
    return out.reshape(values.shape)


def inverse_series(column: np.ndarray) -> np.ndarray:
    """Coefficients of 1/c(x), as many as given, by Newton's iteration with Fourier transforms."""
    length = len(column)
    inverse = np.array([1 / column[0]])
    while len(inverse) < length:
        known = len(inverse)
        wanted = min(2 * known, length)
        size = next_fast_len(2 * wanted, real=True)
        spectrum = np.fft.rfft(inverse, size)
        error = np.fft.irfft(np.fft.rfft(column[:wanted], size) * spectrum, size)[:wanted]
        error[0] -= 1.0
        error[:known] = 0.0  # what is known is exact: keeps rounding from feeding on itself
        change = np.fft.irfft(np.fft.rfft(error, size) * spectrum, size)[:wanted]
        inverse = np.concatenate([inverse, -change[known:]])
    return inverse


def shifts(column: np.ndarray, steps: Sequence[int]) -> np.ndarray:
    """Sum of the column moved down by each of these steps, cut at its length."""
    total = np.zeros(len(column))
    for step in steps:
        total[step:] += column[: len(column) - step]
    return total


def sum_of_shifts_squared(column: np.ndarray, steps: Sequence[int]) -> float:
    total = shifts(column, steps)
    return float(total @ total)
