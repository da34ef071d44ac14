"""Accounting at random parameters against a composition that shares no code with the library.

A loss is put on a grid with its mean kept, composed by one Fourier transform on a window around the
mean, and read at delta. Its error is of second order in the grid's step. Seeded: 48 draws of the
number of batches (1 to 300, odd and even), the rate (0.01 to 0.99), the noise (0.3 to 10 of the
sensitivity) and the relation.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from scipy.special import ndtr

from privopt.privacy import Accountant, Sampling, charge_of
from privopt.privacy.kinds import BoundedRange, GaussianKind, Pure
from privopt.privacy.spend import Step

DELTA = 1e-4
RELATIONS = ("zero_out", "replace_one", "add_remove")


def losses(q, mu, kind):
    """Cells of the noise's axis: the loss log(dP/dQ) in the middle, and the mass under P."""
    x = np.linspace(-11 - mu, 11 + mu, 60_001)
    middle = (x[1:] + x[:-1]) / 2

    def mass(centre):
        below, above = ndtr(np.abs(x - centre) * -1.0), x > centre
        upper = np.where(above, 1 - below, below)
        tails = np.where(above[:-1], below[:-1] - below[1:], upper[1:] - upper[:-1])
        return np.maximum(tails, 0.0)

    def log_mix(shift):
        return np.logaddexp(np.log1p(-q), math.log(q) + shift * middle - shift**2 / 2)

    if kind == "present":
        return log_mix(mu), (1 - q) * mass(0.0) + q * mass(mu)
    if kind == "absent":
        return -log_mix(mu), mass(0.0)
    return log_mix(mu) - log_mix(-mu), (1 - q) * mass(0.0) + q * mass(mu)


def composed(loss, mass, times):
    """The law of the sum of so many independent losses: values and masses."""
    mass = mass / mass.sum()
    mean = float(mass @ loss)
    std = math.sqrt(float(mass @ (loss - mean) ** 2))
    kept = mass > 1e-14
    reach = float(np.ptp(loss[kept]))
    width = min(max(20 * math.sqrt(times) * std, 2 * reach), 2 * times * reach)
    size = 1 << 18
    step = width / size
    place = (loss[kept] - mean) / step
    low = np.floor(place).astype(int)
    share = place - low
    one = np.zeros(size)
    np.add.at(one, low % size, mass[kept] * (1 - share))
    np.add.at(one, (low + 1) % size, mass[kept] * share)
    total = np.fft.irfft(np.fft.rfft(one) ** times, size)
    at = (np.arange(size) + size // 2) % size - size // 2
    return times * mean + at * step, np.maximum(total, 0.0)


def epsilon_of(values, masses, delta):
    low, high = 0.0, float(values.max())
    while high - low > 1e-6 * max(1.0, high):
        middle = (low + high) / 2
        above = values > middle
        found = float(masses[above] @ -np.expm1(middle - values[above]))
        low, high = (low, middle) if found <= delta else (middle, high)
    return high


def repeated(kind, times):
    (step,) = charge_of(kind)
    return Counter({step: times})


def draws(count):
    generator = np.random.default_rng(15)
    for _ in range(count):
        times = int(generator.integers(1, 301))
        q = float(generator.choice([generator.uniform(0.01, 0.99), generator.uniform(0.9, 0.99)]))
        sigma = float(np.exp(generator.uniform(math.log(0.3), math.log(10))))
        yield times, q, sigma, str(generator.choice(RELATIONS))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_poisson_batches_of_gaussian_noise(part):
    checked = 0
    for times, q, sigma, relation in list(draws(48))[part::4]:
        mu = 1 / sigma
        if relation == "replace_one":
            kind, ways = GaussianKind(2 * mu, mu), ("replaced",)
        else:
            kind, ways = GaussianKind(mu, mu), ("present", "absent")
        truth = max(epsilon_of(*composed(*losses(q, mu, way), times), DELTA) for way in ways)
        if truth > 60:
            continue
        charge = Counter({Step(Sampling(q), (kind,)): times})
        found = Accountant(relation).epsilon(charge, DELTA)
        # Never below the truth, and not far above it.
        assert found >= truth * (1 - 2e-3) - 1e-4, (times, q, sigma, relation)
        assert found <= truth * 1.02 + 1e-3, (times, q, sigma, relation)
        checked += 1
    assert checked >= 4


def test_the_other_code_is_right_where_there_is_a_closed_form():
    """One batch of everybody is Gaussian: delta(epsilon) in closed form; so are many."""
    for mu, times in ((0.5, 1), (0.3, 49), (0.1, 300)):
        loss, mass = losses(1 - 1e-12, mu, "present")
        values, masses = composed(loss, mass, times)
        epsilon = epsilon_of(values, masses, DELTA)
        total = mu * math.sqrt(times)
        closed = ndtr(total / 2 - epsilon / total) - math.exp(epsilon) * ndtr(
            -total / 2 - epsilon / total
        )
        assert closed == pytest.approx(DELTA, rel=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_many_pure_releases(seed):
    """Randomised response composed k times: binomial sums, k odd and even up to 300."""
    generator = np.random.default_rng(seed)
    for _ in range(12):
        times = int(generator.integers(1, 301))
        each = float(np.exp(generator.uniform(math.log(0.005), math.log(0.4))))
        yes = 1 / (1 + math.exp(-each))
        j = np.arange(times + 1)
        chances = np.array(
            [
                math.exp(
                    math.lgamma(times + 1)
                    - math.lgamma(i + 1)
                    - math.lgamma(times - i + 1)
                    + i * math.log(yes)
                    + (times - i) * math.log1p(-yes)
                )
                for i in j
            ]
        )
        truth = epsilon_of(each * (2.0 * j - times), chances, DELTA)
        found = Accountant("zero_out").epsilon(repeated(Pure(each), times), DELTA)
        assert truth * (1 - 2e-6) - 1e-6 <= found <= truth * 1.02 + 1e-3, (times, each)


@pytest.mark.parametrize("seed", range(2))
def test_many_choices_of_bounded_range(seed):
    """Never below a pair that attains the range: log-odds t and t - eta, one for all choices."""
    generator = np.random.default_rng(seed)
    for _ in range(6):
        times = int(generator.integers(1, 301))
        eta = float(np.exp(generator.uniform(math.log(0.01), math.log(0.5))))
        found = Accountant("zero_out").epsilon(repeated(BoundedRange(eta), times), DELTA)
        for t in (0.25 * eta, 0.5 * eta, 0.75 * eta):
            # Losses t and t - eta under P, with chances that make both laws sum to one.
            p = math.expm1(eta - t) / math.expm1(eta) * math.exp(t)
            j = np.arange(times + 1)
            log_chance = [
                math.lgamma(times + 1)
                - math.lgamma(i + 1)
                - math.lgamma(times - i + 1)
                + i * math.log(p)
                + (times - i) * math.log1p(-p)
                for i in j
            ]
            truth = epsilon_of(j * t + (times - j) * (t - eta), np.exp(log_chance), DELTA)
            assert found >= truth * (1 - 1e-6) - 1e-9, (times, eta, t)
        assert found <= times * eta * (1 + 1e-9)
