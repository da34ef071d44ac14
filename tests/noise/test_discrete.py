"""Integer noise: exact tables, exact convolutions on small cases, and the laws of the samplers."""

import itertools
import math
import re
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
from scipy import stats

from privopt.noise import SeededSource, SilentSource, discrete_gaussian, discrete_laplace
from privopt.noise import discrete as module
from privopt.noise.discrete import (
    BASE,
    BITS,
    DIGIT_STD,
    GAUSSIAN_DIGITS,
    GAUSSIAN_DISTANCE,
    GAUSSIAN_LOG_RATIO,
    GAUSSIAN_STD,
    LAPLACE_DISTANCE,
    LAPLACE_SCALE,
    OUTSIDE,
    TAIL,
    Tables,
    alias,
    gaussian_weights,
    geometric_weights,
    rounding_mass,
    smoothing_error,
    tail_mass,
)

ALARM = 1e-6
DRAWS = 400_000
PROOFS = Path(__file__).parents[2] / "docs" / "proofs" / "discrete-gaussian.md"


class Half(SeededSource):
    volume = 0.5


# ---------------------------------------------------------------- tables
@pytest.mark.parametrize(
    "weights",
    [
        gaussian_weights(DIGIT_STD, TAIL),
        gaussian_weights(3, 6),
        geometric_weights(Decimal(1) / 3, 100),
    ],
    ids=["digit", "small", "geometric"],
)
def test_an_alias_table_holds_exactly_the_weights(weights):
    columns = 1 << (len(weights) - 1).bit_length()
    kept, other = alias(weights, columns)
    full = 2**BITS // columns
    held = [0] * columns
    for j in range(columns):
        own = full if other[j] == j else kept[j]  # a full column is its own alias
        held[j] += own
        held[other[j]] += full - own
    assert held[: len(weights)] == weights
    assert not any(held[len(weights) :])


def test_the_weights_are_the_law_to_half_a_unit():
    weights = gaussian_weights(DIGIT_STD, TAIL)
    with mpmath.workdps(60):
        chances = [mpmath.exp(-mpmath.mpf(k * k) / (2 * DIGIT_STD**2)) for k in range(6657)]
        total = chances[0] + 2 * sum(chances[1:])
        misses = [abs(weights[6656 + k] - chances[k] / total * 2**128) for k in range(1, 6657)]
    assert weights == weights[::-1]
    assert sum(weights) == 2**128
    assert len(weights) == 13_313
    assert max(misses) <= 0.5 + 1e-9


def test_a_draw_reads_all_128_bits():
    """Words at the limit of a column: one word more decides, to its last bit."""
    weights = [3, 2**BITS - 3]
    tables = Tables([weights], 10)
    top = np.uint64(2**63)
    words = np.array([0, 0, 0, 1, top - np.uint64(1), top], dtype=np.uint64)
    more = np.array([2, 3, 2**64 - 1], dtype=np.uint64)  # for the three that tie
    asked = []
    digits = tables.digits(words, lambda count: asked.append(count) or more)
    assert digits.tolist() == [10, 11, 11, 11, 11, 11]
    assert asked == [3]


def test_a_tie_is_decided_by_the_limit_of_its_own_table():
    """Two tables side by side: one word more than the limit of the first is too many for it, and
    not for the second."""
    tables = Tables([[3, 2**BITS - 3], [9, 2**BITS - 9]], 0)
    place, words = np.array([[0], [tables.columns]]), np.zeros((2, 4), dtype=np.uint64)
    more = np.array([2, 3, 8, 9, 2, 3, 8, 9], dtype=np.uint64)
    digits = tables.digits(words, lambda count: more[:count], place)
    assert digits.tolist() == [[0, 1, 1, 1], [0, 0, 0, 1]]


# ---------------------------------------------------------------- errors
def convolved(std, base, digits):
    """Exact law of y_0 + base y_1 + ..., digits from a table without tail cut worth mentioning."""
    with localcontext() as context:
        context.prec = 60
        tail = 16 * std
        chances = {k: (-Decimal(k * k) / (2 * std * std)).exp() for k in range(-tail, tail + 1)}
        law = {0: Decimal(1)}
        for i in range(digits):
            grown: Counter = Counter()
            for (value, chance), (k, own) in itertools.product(law.items(), chances.items()):
                grown[value + base**i * k] += chance * own
            law = grown
        return law


@pytest.mark.parametrize(("std", "base"), [(4, 2), (3, 2), (6, 4)])
def test_the_smoothing_bound_holds_and_is_nearly_reached(std, base):
    """Two digits in full, at 60 decimal places, against the discrete Gaussian of their variance."""
    with localcontext() as context:
        context.prec = 60
        law = convolved(std, base, 2)
        variance = Decimal(std * std * (1 + base * base))
        near = [k for k in law if k * k <= 36 * variance]
        ratios = [law[k] / (-Decimal(k * k) / (2 * variance)).exp() for k in near]
        # Up to normalisation: the largest ratio over the smallest.
        spread = float((max(ratios) / min(ratios)).ln())
    bound = smoothing_error(std, base)
    assert spread <= bound
    assert spread >= bound / 3


def test_rounded_and_discrete_gaussian_differ_by_the_stated_factor():
    """At a small scale, where it can be computed: the law of rounding against the discrete law."""
    std = 20
    with mpmath.workdps(50):
        total = mpmath.nsum(lambda k: mpmath.exp(-(k**2) / mpmath.mpf(2 * std**2)), [-500, 500])
        worst = mpmath.mpf(0)
        for k in range(TAIL * std + 1):
            rounded = mpmath.ncdf((k + 0.5) / std) - mpmath.ncdf((k - 0.5) / std)
            if k > 5 * std:  # the upper tail, where the difference of distributions cancels
                rounded = mpmath.erfc((k - 0.5) / std / mpmath.sqrt(2)) / 2
                rounded -= mpmath.erfc((k + 0.5) / std / mpmath.sqrt(2)) / 2
            discrete = mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * std**2)) / total
            worst = max(worst, abs(mpmath.log(discrete / rounded)))
    bound = TAIL**2 / (24 * std**2)
    assert 0.9 * bound <= worst <= bound * 1.001


def test_the_printed_error_budget_is_the_one_that_is_computed():
    """Each line of the table on the proofs page: a name, and the exponent of two it stays below."""
    computed = {
        "smoothing, one more digit": smoothing_error(DIGIT_STD, BASE),
        "tail cut, one digit": tail_mass(TAIL),
        "table rounding, one digit": rounding_mass(2 * TAIL * DIGIT_STD + 1),
        "Gaussian variable, distance": GAUSSIAN_DISTANCE,
        "Laplace variable, distance": LAPLACE_DISTANCE,
        "Gaussian variable, log ratio": GAUSSIAN_LOG_RATIO,
    }
    table = dict(re.findall(r"^\| ([^|]+?) \| \$2\^\{-(\d+)\}\$ \|", PROOFS.read_text(), re.M))
    assert set(table) == set(computed)
    for name, value in computed.items():
        assert value <= 2.0 ** -int(table[name]), name
        assert value >= 2.0 ** -(int(table[name]) + 1), name
    assert OUTSIDE < 2**-125
    # A million million variables.
    assert 1e12 * (GAUSSIAN_DISTANCE + OUTSIDE) < 2**-70


def test_the_budget_adds_its_parts():
    parts = GAUSSIAN_DIGITS * (tail_mass(TAIL) + rounding_mass(13_313))
    assert pytest.approx(parts + 3 * smoothing_error(DIGIT_STD, BASE)) == GAUSSIAN_DISTANCE
    assert math.isclose(GAUSSIAN_STD**2, DIGIT_STD**2 * sum(256 ** (2 * i) for i in range(4)))


# ---------------------------------------------------------------- laws
def chi_square(counts, chances):
    """p-value with rare outcomes put together."""
    counts, chances = np.asarray(counts, float), np.asarray(chances, float)
    rare = chances * counts.sum() < 10
    observed = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(chances[~rare], chances[rare].sum()) * counts.sum()
    if expected[-1] == 0:
        observed, expected = observed[:-1], expected[:-1]
    return stats.chisquare(observed, expected * (observed.sum() / expected.sum())).pvalue


def base_digits(source, count):
    tables = module._gaussian_tables()
    return module._digits(source, tables, (count,))


def check_digits(draws, std):
    values = np.arange(-TAIL * DIGIT_STD, TAIL * DIGIT_STD + 1)
    density = np.exp(-(values**2) / (2 * std**2))
    counts = np.bincount(draws - values[0], minlength=len(values))
    assert chi_square(counts, density / density.sum()) > ALARM


@pytest.mark.statistical
def test_base_digits_have_their_law():
    draws = base_digits(SeededSource(1), 2 * DRAWS)  # false alarm: ALARM
    check_digits(draws, DIGIT_STD)
    with pytest.raises(AssertionError):
        check_digits(draws, 0.97 * DIGIT_STD)


@pytest.mark.statistical
def test_the_low_byte_is_uniform():
    # false alarms: 3 * ALARM. The discrete Gaussian's low bits are uniform to 2^-100.
    for shift in (0, 8, 16):
        draws = discrete_gaussian(SeededSource(2), DRAWS) >> shift
        counts = np.bincount(draws & 255, minlength=256)
        assert stats.chisquare(counts).pvalue > ALARM


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("sampler", "law"),
    [
        (discrete_gaussian, stats.norm(scale=GAUSSIAN_STD)),
        (discrete_laplace, stats.laplace(scale=LAPLACE_SCALE)),
    ],
    ids=["gaussian", "laplace"],
)
def test_the_whole_has_its_law_and_a_wrong_scale_is_noticed(sampler, law):
    draws = sampler(SeededSource(3), DRAWS)
    assert draws.dtype == np.int64
    assert stats.kstest(draws, law.cdf).pvalue > ALARM  # false alarm: ALARM
    assert stats.kstest(sampler(Half(3), DRAWS), law.cdf).pvalue < ALARM
    assert stats.kstest(draws * 1.03, law.cdf).pvalue < ALARM
    sizes = np.log(np.abs(draws) + 1.0)
    assert stats.spearmanr(sizes[:-1], sizes[1:]).pvalue > ALARM


@pytest.mark.statistical
def test_digits_of_a_geometric_variable_have_their_laws():
    """All five digits of the Laplace sampler, each against its exact chances."""
    tables = module._laplace_tables()
    for i in range(5):  # false alarms: 5 * ALARM
        digits = module._digits(SeededSource(4 + i), tables, (DRAWS,), i * tables.columns)
        chances = np.exp(-np.arange(256) * 256.0**i / LAPLACE_SCALE)
        assert chi_square(np.bincount(digits, minlength=256), chances / chances.sum()) > ALARM


def test_geometric_digits_make_a_geometric_variable_exactly():
    """Two digits in base 4, in fractions: a product of digits' chances is a power of one ratio."""
    ratio = Fraction(2, 3)
    for k in range(16):
        low, high = k % 4, k // 4
        assert ratio**low * (ratio**4) ** high == ratio**k


@pytest.mark.parametrize("sampler", [discrete_gaussian, discrete_laplace])
def test_shapes_blocks_and_silence(sampler):
    for shape in ((3, 5), 7, (), 0, module.BLOCK + 1):
        assert sampler(SeededSource(4), shape).shape == np.empty(shape).shape
    assert not sampler(SilentSource(), 9).any()


@pytest.mark.parametrize("sampler", [discrete_gaussian, discrete_laplace])
def test_the_number_of_random_words_does_not_depend_on_what_is_drawn(sampler):
    """No rejection: the stream stands at the same place after draws from different sources."""
    asked = []

    class Counting(SeededSource):
        @property
        def noise(self):
            source = super().noise.bit_generator

            class Generator:
                bit_generator = property(lambda self: self)

                def random_raw(self, count):
                    asked.append(count)
                    return source.random_raw(count)

            return Generator()

    for seed in range(20):
        sampler(Counting(seed), 1000)
    assert len(asked) == 20
    assert len(set(asked)) == 1


def test_raw_words_are_the_generators_integers():
    """The secure generator's, too: 64 bits each, whatever was drawn before."""
    from numpy.random import Generator
    from randomgen import AESCounter

    for make in (lambda: Generator(AESCounter(key=7)), lambda: SeededSource(7).noise):
        one, other = make(), make()
        for generator in (one, other):
            generator.standard_normal(3)
            generator.random(1, dtype=np.float32)
        words = one.integers(0, 2**64, 50, dtype=np.uint64)
        assert np.array_equal(words, other.bit_generator.random_raw(50))
