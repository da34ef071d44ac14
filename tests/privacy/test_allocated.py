"""Each record in one of T batches: against enumeration, sampling, and never below the truth."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from scipy.stats import norm

from privopt.privacy import Accountant, Budget, Refused
from privopt.privacy.allocated import AllocatedGaussian, _summed, allocated_distribution
from privopt.privacy.batches import allocated_multiplier, batch_multiplier
from privopt.privacy.events import FULL, Event, Sampling
from privopt.privacy.kinds import GaussianKind, Pure, kind_from_dict
from privopt.privacy.spend import Step, spend

EPSILONS = (0.1, 0.5, 1.0, 2.0)


def enumerated(mu, taken, turns):
    """Both profiles from the densities of ``taken`` outputs on a grid: record there, or not."""
    x = np.linspace(-8.5, 8.5 + mu, 1501)
    cell = (x[1] - x[0]) ** taken
    shape = np.meshgrid(*[x] * taken, indexing="ij")
    absent = np.prod([norm.pdf(one) for one in shape], axis=0)
    moved = [
        np.prod([norm.pdf(one, mu if i == t else 0.0) for i, one in enumerate(shape)], axis=0)
        for t in range(taken)
    ]
    present = (sum(moved) + (turns - taken) * absent) / turns
    for epsilon in EPSILONS:
        factor = math.exp(epsilon)
        yield (
            epsilon,
            float(np.maximum(present - factor * absent, 0).sum() * cell),
            float(np.maximum(absent - factor * present, 0).sum() * cell),
        )


def profile(turns, taken, mu, epsilon):
    found = allocated_distribution(turns, taken, mu, 1e-3)
    return tuple(one.get_delta_for_epsilon(epsilon) for one in (found._pmf_remove, found._pmf_add))


@pytest.mark.parametrize("mu", [0.4, 1.0, 2.5])
@pytest.mark.parametrize(("turns", "taken"), [(2, 2), (2, 1), (5, 2)])
def test_profiles_of_two_batches(mu, turns, taken):
    for epsilon, there, away in enumerated(mu, taken, turns):
        for exact, found in zip((there, away), profile(turns, taken, mu, epsilon), strict=True):
            assert found >= exact - 1e-9
            assert found <= exact * 1.03 + 1e-9


@pytest.mark.parametrize(("turns", "mu"), [(3, 1.0), (12, 0.8), (100, 1.5)])
def test_profiles_of_many_batches(turns, mu):
    """By sampling, with the record in its batch: unbiased, within five standard errors."""
    rng, count = np.random.default_rng(0), 40_000
    z = rng.standard_normal((count, turns))
    ratio = np.exp(mu * z - mu**2 / 2).mean(1)  # without the record
    for epsilon in (0.1, 0.4):
        for values, found in zip(
            (
                np.maximum(ratio - math.exp(epsilon), 0),
                np.maximum(1 - math.exp(epsilon) * ratio, 0),
            ),
            profile(turns, turns, mu, epsilon),
            strict=True,
        ):
            error = values.std() / math.sqrt(count)
            assert abs(values.mean() - found) <= 5 * error + 0.01 * found


@pytest.mark.parametrize(("count", "mu"), [(1, 0.3), (2, 1.0), (31, 2.0), (400, 1.0), (64, 4.0)])
def test_sums_of_lognormals_keep_mass_and_mean_and_grow_in_spread(count, mu):
    found = _summed(count, mu)
    assert found.masses.min() >= 0
    assert found.masses.sum() == pytest.approx(1, abs=1e-12)
    mean = (found.values * found.masses).sum()
    assert mean + found.infinite == pytest.approx(count, rel=1e-12)
    assert found.infinite < 1e-12 * count
    variance = (found.values**2 * found.masses).sum() - mean**2
    if mu < 3:  # beyond, the variance is that of values with no probability
        assert 1 <= variance / (count * math.expm1(mu**2)) < 1.02


def charge(multiplier, turns, epochs):
    return Counter({Step(FULL, (AllocatedGaussian(turns, turns, 1 / multiplier),)): epochs})


def test_one_turn_is_a_gaussian_and_epochs_compose():
    gaussian = Counter({Step(FULL, (GaussianKind(1.0, 1.0),)): 3})
    accountant = Accountant("zero_out")
    assert accountant.epsilon(charge(1.0, 1, 3), 1e-5) == pytest.approx(
        accountant.epsilon(gaussian, 1e-5), rel=1e-3
    )
    one, three = (accountant.epsilon(charge(1.0, 50, n), 1e-5) for n in (1, 3))
    assert one < three < 3 * one


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "turns", "epochs"), [(1.0, 20, 3), (4.0, 60, 5)])
def test_less_noise_than_without_a_secret_and_about_that_of_coins(epsilon, turns, epochs):
    budget = Budget(epsilon, 1e-5)
    found = allocated_multiplier(budget, turns, epochs)
    assert Accountant("zero_out").epsilon(charge(found, turns, epochs), 1e-5) <= epsilon
    coins = batch_multiplier(budget, Sampling(1 / turns), turns * epochs)
    open_order = batch_multiplier(budget, FULL, epochs)
    assert found < open_order
    assert 0.8 < found / coins < 1.1


def test_charges_follow_from_events():
    sampling = Sampling(1 / 4, turns=4)
    kind = GaussianKind(0.5, 0.5)

    def events(count):
        return [Event("gaussian", (kind,), view=v + 1, sampling=sampling) for v in range(count)]

    def kinds(count):
        return {s.kinds[0]: n for s, n in spend(events(count)).cells[()].items()}

    assert kinds(3) == {AllocatedGaussian(4, 3, 0.5): 1}
    assert kinds(9) == {AllocatedGaussian(4, 4, 0.5): 2, AllocatedGaussian(4, 1, 0.5): 1}
    with pytest.raises(Refused, match="Gaussian noise only"):
        spend([Event("laplace", (Pure(1.0),), view=1, sampling=sampling)])
    kind = AllocatedGaussian(4, 3, 0.5)
    assert kind_from_dict(kind.to_dict()) == kind
    with pytest.raises(ValueError, match="5 of 4"):
        AllocatedGaussian(4, 5, 0.5)
    with pytest.raises(ValueError, match="one of its turns"):
        Sampling(0.5, turns=4)


def test_records_that_are_replaced_have_no_theorem():
    with pytest.raises(ValueError, match="no theorem"):
        allocated_multiplier(Budget(1.0, 1e-5, "replace_one"), 4, 1)
    with pytest.raises(Refused, match="no accounting is known"):
        Accountant("replace_one").epsilon(charge(1.0, 4, 1), 1e-5)
