"""Noise on the integers: a discrete Gaussian and a discrete Laplace variable of one fixed scale.

A release that is an exact integer underneath has no low-order bits that depend on anything but the
noisy integer itself. There is one scale: who needs another one chooses the grid that the integers
count (``mechanisms.on_grid``).

Both variables are written in base 256, with digits drawn from tables:

* Gaussian: X = y_0 + 256 y_1 + 256^2 y_2 + 256^3 y_3, each y_i discrete Gaussian with standard
  deviation 512. The sum of such digits is a discrete Gaussian up to a factor 1 +- 2^-111, because
  512 = 2 * 256 is wide enough to smooth the steps of 256 out.
* Laplace: the difference of two geometric variables, whose digits are independent.

A table holds its probabilities as integers over 2^128 and is read by Walker's alias method: one
column and one comparison of 128 random bits for each digit, whatever comes out. The second half of
the bits is drawn where the first half ties, which has a chance of 2^-50: but for that, the number
of random words and of operations depends on how many variables are asked for, and on nothing else.

``docs/proofs/discrete-gaussian.md`` derives the errors that the constants below state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np

from privopt.noise.source import Source, volume

BITS = 128
BASE = 256
DIGIT_STD = 512
TAIL = 13
"""Standard deviations beyond which a Gaussian digit is cut off."""
GAUSSIAN_DIGITS = 4
TOP = BASE ** (GAUSSIAN_DIGITS - 1)
"""Weight of the highest digit."""
FINE_DIGITS = 5
LAPLACE_DIGITS = 5

GAUSSIAN_STD = DIGIT_STD * math.sqrt(sum(BASE ** (2 * i) for i in range(GAUSSIAN_DIGITS)))
"""Standard deviation of ``discrete_gaussian``: a little more than 2^33."""
FINE_STD = DIGIT_STD * math.sqrt(sum(BASE ** (2 * i) for i in range(FINE_DIGITS)))
"""Standard deviation of ``fine_gaussian``: a little more than 2^41."""
LAPLACE_SCALE = 2.0**33
"""Scale of ``discrete_laplace``: chances fall by a factor e every so many integers."""

BLOCK = 1 << 13  # variables drawn at a time: the words and the tables stay in cache


# ---------------------------------------------------------------- errors (see the proofs page)
def smoothing_error(digit_std: float, base: int) -> float:
    """Bound on |log(P(X = x) / ideal)| that one more digit adds to a convolution."""
    width = digit_std**2 / (base**2 + 1)  # the narrowest sum over the upper part
    ripple = 2 * math.exp(-2 * math.pi**2 * width) * 1.001
    return 2 * ripple / (1 - ripple)


def tail_mass(deviations: float) -> float:
    """Bound on the mass of a wide discrete Gaussian variable beyond so many deviations."""
    return 2 * math.exp(-(deviations**2) / 2) / (deviations * math.sqrt(2 * math.pi)) * 1.001


def rounding_mass(entries: int, bits: int = BITS) -> float:
    """Bound on the distance in variation by which integer weights miss the real ones: half a unit
    for each entry, and as much again for the entry that makes up for their sum."""
    return entries * 2.0**-bits / 2


def gaussian_log_ratio(std: float) -> float:
    """Bound on |log(discrete Gaussian / rounded Gaussian)| within ``TAIL`` deviations."""
    return TAIL**2 / (24 * std**2) * 1.001


def gaussian_distance(digits: int) -> float:
    """Distance in variation of so many digits from the discrete Gaussian law."""
    each = tail_mass(TAIL) + rounding_mass(2 * TAIL * DIGIT_STD + 1)
    return digits * each + (digits - 1) * smoothing_error(DIGIT_STD, BASE)


GAUSSIAN_DISTANCE = gaussian_distance(GAUSSIAN_DIGITS)
"""Distance in variation between ``discrete_gaussian`` and the discrete Gaussian law, for each
variable: below 2^-110."""
FINE_DISTANCE = gaussian_distance(FINE_DIGITS)
"""The same for ``fine_gaussian``."""
LAPLACE_DISTANCE = 2 * (LAPLACE_DIGITS * rounding_mass(BASE) + math.exp(-BASE / 2) * 1.001)
"""The same for ``discrete_laplace``: below 2^-117."""
GAUSSIAN_LOG_RATIO = gaussian_log_ratio(GAUSSIAN_STD)
"""Bound on |log(discrete Gaussian / rounded Gaussian)| within ``TAIL`` deviations, for each
variable: below 2^-63. Accounting for a Gaussian mechanism then holds up to twice that."""
FINE_LOG_RATIO = gaussian_log_ratio(FINE_STD)
"""The same for ``fine_gaussian``: below 2^-79."""
OUTSIDE = tail_mass(TAIL - 1e-6)
"""Mass of the rounded Gaussian beyond the sensitivity of that bound."""


# ---------------------------------------------------------------- tables
def gaussian_weights(std: int, tail: int, bits: int = BITS) -> list[int]:
    """Chances of -tail*std .. tail*std under a discrete Gaussian, as integers that add to 2^bits.

    Powers are computed to 60 digits with correctly rounded decimals: the same on every machine.
    """
    with localcontext() as context:
        context.prec = 60
        ratio = (Decimal(-1) / (2 * std * std)).exp()  # density at 1 over density at 0
        step, density, half = ratio, Decimal(1), [Decimal(1)]
        for _ in range(tail * std):
            density *= step
            step *= ratio * ratio
            half.append(density)
        return _integers([*half[:0:-1], *half], bits)


def geometric_weights(rate: Decimal, count: int, bits: int = BITS) -> list[int]:
    """Chances of 0 .. count-1 proportional to exp(-rate k), as integers that add to 2^bits."""
    with localcontext() as context:
        context.prec = 60
        return _integers([(-rate * k).exp() for k in range(count)], bits)


def _integers(chances: Sequence[Decimal], bits: int) -> list[int]:
    scale = Decimal(1 << bits) / sum(chances)
    weights = [int((chance * scale).to_integral_value()) for chance in chances]
    weights[weights.index(max(weights))] += (1 << bits) - sum(weights)
    return weights


class Tables:
    """Alias tables side by side, each with ``columns`` entries: a power of two."""

    __slots__ = ("columns", "high", "low", "outcomes", "shift")

    def __init__(self, laws: Sequence[Sequence[int]], first: int) -> None:
        self.columns = 1 << (max(map(len, laws)) - 1).bit_length()
        place = self.columns.bit_length() - 1
        self.shift = np.uint64(64 - place)
        kept, other = zip(*(alias(law, self.columns) for law in laws), strict=True)
        # The column stands in front of its limit, as it does in front of the bits to compare.
        limits = [(j << (BITS - place)) + limit for table in kept for j, limit in enumerate(table)]
        self.high = np.array([limit >> 64 for limit in limits], dtype=np.uint64)
        self.low = np.array([limit & (2**64 - 1) for limit in limits], dtype=np.uint64)
        aliases = np.array(other, dtype=np.int64)
        own = np.broadcast_to(np.arange(self.columns), aliases.shape)
        # Two outcomes a column: that of its alias, its own.
        outcomes = np.stack([aliases, own], axis=-1).ravel() + first
        self.outcomes = outcomes.astype(np.int16)  # a small table stays in cache
        assert np.array_equal(self.outcomes, outcomes)

    def digits(
        self, words: np.ndarray, more: Callable[[int], np.ndarray], table: np.ndarray | int = 0
    ) -> np.ndarray:
        """One digit for each random word: its upper bits choose a column, and the word is compared
        with the column's limit. Where they are equal, one word more decides."""
        column = (words >> self.shift).view(np.int64)
        column += table
        high = self.high.take(column, mode="clip")
        own = words < high
        tied = words == high
        if tied.any():
            own[tied] = more(int(np.count_nonzero(tied))) < self.low.take(column[tied], mode="clip")
        column <<= 1
        column += own
        return self.outcomes.take(column, mode="clip")


def alias(weights: Sequence[int], columns: int) -> tuple[list[int], list[int]]:
    """Walker's alias table in exact integers: how much of each column is its own, and whose the
    rest is."""
    total = sum(weights)
    full = total // columns
    if full * columns != total:
        raise ValueError("the weights must add to a multiple of the number of columns.")
    left = [*weights, *[0] * (columns - len(weights))]
    kept, other = [full] * columns, list(range(columns))
    small = [j for j in range(columns) if left[j] < full]
    large = [j for j in range(columns) if left[j] > full]
    while small:
        j, donor = small.pop(), large[-1]
        kept[j], other[j] = left[j], donor
        left[donor] -= full - left[j]
        if left[donor] <= full:
            large.pop()
            if left[donor] < full:
                small.append(donor)
    # A full column's limit is one more than its words can say; its alias is itself.
    return [min(limit, full - 1) for limit in kept], other


@lru_cache(maxsize=1)
def _gaussian_tables() -> Tables:
    return Tables([gaussian_weights(DIGIT_STD, TAIL)], -TAIL * DIGIT_STD)


@lru_cache(maxsize=1)
def _laplace_tables() -> Tables:
    rates = [Decimal(BASE**i) / Decimal(LAPLACE_SCALE) for i in range(LAPLACE_DIGITS)]
    return Tables([geometric_weights(rate, BASE) for rate in rates], 0)


# ---------------------------------------------------------------- samplers
def discrete_gaussian(source: Source, shape: tuple[int, ...] | int) -> np.ndarray:
    """Independent integers with chances proportional to exp(-k^2 / (2 GAUSSIAN_STD^2))."""
    return _gaussian(source, shape, GAUSSIAN_DIGITS)


def fine_gaussian(source: Source, shape: tuple[int, ...] | int) -> np.ndarray:
    """The same with a standard deviation of FINE_STD, for noise that must be known closely."""
    return _gaussian(source, shape, FINE_DIGITS)


def narrow_gaussian(source: Source, shape: tuple[int, ...] | int, top: int) -> np.ndarray:
    """The same with the standard deviation ``std_of(top)``: the highest digit counts ``top`` in
    place of ``TOP``. Any weight up to that is smoothed by the digits below it."""
    return _gaussian(source, shape, GAUSSIAN_DIGITS, top)


def std_of(top: int) -> float:
    """Standard deviation of ``narrow_gaussian``."""
    return DIGIT_STD * math.sqrt(sum(BASE ** (2 * i) for i in range(GAUSSIAN_DIGITS - 1)) + top**2)


@lru_cache(maxsize=256)
def top_for(share: float) -> int:
    """The least weight of the highest digit that gives this share of ``GAUSSIAN_STD``, or more."""
    square = (share * GAUSSIAN_STD / DIGIT_STD) ** 2 - (std_of(0) / DIGIT_STD) ** 2
    if not 0 < share <= 1 or square <= 0:
        raise ValueError(f"a share of the noise lies between 0 and 1, got {share!r}.")
    return min(math.ceil(math.sqrt(square) * (1 + 2.0**-50)), TOP)


def _gaussian(
    source: Source, shape: tuple[int, ...] | int, digits: int, top: int | None = None
) -> np.ndarray:
    tables = _gaussian_tables()

    def some(count: int) -> np.ndarray:
        found = _digits(source, tables, (digits, count))
        if top is None:
            return _compose(found)
        return _compose(found[:-1]) + found[-1].astype(np.int64) * top

    return _in_blocks(source, some, shape)


def discrete_laplace(source: Source, shape: tuple[int, ...] | int) -> np.ndarray:
    """Independent integers with chances proportional to exp(-|k| / LAPLACE_SCALE)."""
    tables = _laplace_tables()
    table = np.arange(LAPLACE_DIGITS)[:, None] * tables.columns

    def some(count: int) -> np.ndarray:
        geometric = _compose(_digits(source, tables, (LAPLACE_DIGITS, 2 * count), table))
        return geometric[:count] - geometric[count:]

    return _in_blocks(source, some, shape)


def _digits(
    source: Source, tables: Tables, shape: tuple[int, ...], table: np.ndarray | int = 0
) -> np.ndarray:
    # The generator's own words: ``integers`` gives the same ones, more slowly.
    words = source.noise.bit_generator.random_raw
    return tables.digits(words(math.prod(shape)).reshape(shape), words, table)


def _compose(digits: np.ndarray) -> np.ndarray:
    value = digits[-1].astype(np.int64)
    for digit in digits[-2::-1]:
        value *= BASE
        value += digit
    return value


def _in_blocks(
    source: Source, some: Callable[[int], np.ndarray], shape: tuple[int, ...] | int
) -> np.ndarray:
    size = math.prod(shape) if isinstance(shape, tuple) else shape
    if 0 < size <= BLOCK:
        values = some(size).reshape(shape)
    else:
        values = np.empty(shape, dtype=np.int64)
        flat = values.reshape(-1)
        for start in range(0, size, BLOCK):
            flat[start : start + BLOCK] = some(min(BLOCK, size - start))
    loud = volume(source)
    return values if loud == 1 else np.rint(values * loud).astype(np.int64)
