"""Calibration never exceeds its target and wastes less than one per cent: 1100 random settings.

Each setting is checked by a computation that shares no code with the accountant. With m calibrated
to (epsilon, delta): the profile at epsilon is at most delta, at 0.99 epsilon it is more.
"""

import math
from collections import Counter

import mpmath as mp
import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as pld

from privopt.privacy import Accountant, Sampling, charge_of
from privopt.privacy.kinds import Concentrated, GaussianKind, ObjectiveGaussian, Pure
from privopt.privacy.profiles import gaussian_mu, smallest_holding
from privopt.privacy.spend import Step

RELATIONS = ("zero_out", "add_remove", "replace_one")


def settings(seed, count):
    rng = np.random.default_rng(seed)
    for index in range(count):
        epsilon = math.exp(rng.uniform(math.log(1e-2), math.log(20)))
        yield index, rng, epsilon, 10 ** rng.uniform(-12, -2)


def test_400_gaussian_calibrations(exact):
    for index, rng, epsilon, delta in settings(10, 400):
        count = int(rng.choice([1, 2, 10, 137, 10_000]))
        relation = RELATIONS[index % 3]
        sensitivity = 2.0 if relation == "replace_one" else 1.0

        def charge(m, count=count, sensitivity=sensitivity):
            return charge_of(GaussianKind(sensitivity / m, 1 / m), count=count)

        start = 2 * math.sqrt(count) / gaussian_mu(epsilon, delta)
        m = Accountant(relation).calibrate(charge, epsilon, delta, start=start)
        mu = mp.sqrt(count) * sensitivity / mp.mpf(m)
        assert exact.gaussian_delta(epsilon, mu) <= mp.mpf(delta)
        assert exact.gaussian_delta(0.99 * epsilon, mu) > mp.mpf(delta)
        # gaussian_mu answers the same question without a search over charges
        assert float(mu) <= gaussian_mu(epsilon, delta) * (1 + 1e-12)
        assert float(mu) >= gaussian_mu(epsilon, delta) / 1.0011


@pytest.mark.slow
def test_200_concentrated_calibrations(exact):
    for index, rng, epsilon, delta in settings(11, 200):
        count = int(rng.choice([1, 3, 50]))
        m = Accountant(RELATIONS[index % 3]).calibrate(
            lambda m, count=count: charge_of(Concentrated(1 / m), count=count), epsilon, delta
        )
        truth = exact.renyi_conversion(lambda alpha, m=m, c=count: alpha * c / m, delta, 8001)
        assert truth <= epsilon * (1 + 1e-6)
        assert truth >= 0.99 * epsilon


def test_150_pure_calibrations_without_delta():
    for index, rng, epsilon, _ in settings(12, 150):
        count = int(rng.integers(1, 200))
        m = Accountant(RELATIONS[index % 3]).calibrate(
            lambda m, count=count: charge_of(Pure(1 / m), count=count), epsilon, 0.0
        )
        assert 0.99 * epsilon <= count / m <= epsilon * (1 + 1e-12)


@pytest.mark.slow
def test_60_pure_compositions_with_delta(exact):
    for index, rng, epsilon, delta in settings(13, 60):
        count = int(rng.integers(1, 25))
        m = Accountant(RELATIONS[index % 3]).calibrate(
            lambda m, count=count: charge_of(Pure(1 / m), count=count),
            epsilon,
            delta,
            start=count / epsilon,
        )
        assert exact.response_delta(1 / m, count, epsilon) <= mp.mpf(delta) * (1 + mp.mpf("1e-9"))
        assert exact.response_delta(1 / m, count, 0.99 * epsilon) > mp.mpf(delta)


def objective_profile(exact, kind, relation, mu_g):
    """Independent profile: condition on the objective's loss, not on the Gaussian's."""
    mu, c = kind.mu, kind.log_determinant
    if relation == "replace_one":
        angles = np.linspace(0, math.pi / 4, 257)[1:]

        def profile(epsilon):
            parts = [
                exact.folded_then_gaussian(epsilon, mu_g, c + 2 * mu**2, 2 * k * mu)
                for angle in angles[:: 32 if mu_g else 8]
                for k in (math.cos(angle), math.sin(angle))
            ]
            ends = exact.folded_then_gaussian(epsilon, mu_g, c + 2 * mu**2, 2 * mu)
            return max([ends, *(a + b for a, b in zip(parts[::2], parts[1::2], strict=True))])

        return profile

    def profile(epsilon):
        present = exact.truncated_then_gaussian(epsilon, mu_g, c, mu)
        if kind.one_signed:
            return present
        return max(present, exact.folded_then_gaussian(epsilon, mu_g, mu**2 / 2, mu))

    return profile


def objective_setting(rng, epsilon):
    c = float(rng.choice([0.0, 0.02, 0.3, 0.8])) * epsilon
    return c, bool(rng.integers(2))


@pytest.mark.parametrize(("relation", "count"), [(r, 80) for r in RELATIONS])
def test_240_objective_calibrations_alone(exact, relation, count):
    for _, rng, epsilon, delta in settings(14 + RELATIONS.index(relation), count):
        c, one_signed = objective_setting(rng, epsilon)
        m = Accountant(relation).calibrate(
            lambda m, c=c, one_signed=one_signed: charge_of(
                ObjectiveGaussian(1 / m, c, one_signed)
            ),
            epsilon,
            delta,
            start=3 / gaussian_mu(epsilon - c, delta),
        )
        check_objective(
            exact, ObjectiveGaussian(1 / m, c, one_signed), relation, 0.0, epsilon, delta
        )


def check_objective(exact, kind, relation, mu_g, epsilon, delta, slack=1e-8):
    profile = objective_profile(exact, kind, relation, mu_g)
    assert profile(epsilon) <= delta * (1 + slack), (kind, relation, mu_g, epsilon, delta)
    # The Renyi route may be tighter than the profile: then its epsilon is the one to be met.
    assert profile(0.99 * epsilon) > delta, (kind, relation, mu_g, epsilon, delta)


@pytest.mark.parametrize(
    ("relation", "count"), [("zero_out", 25), ("add_remove", 25), ("replace_one", 1)]
)
def test_51_objective_calibrations_after_gaussians(exact, relation, count):
    for _, rng, epsilon, delta in settings(18 + RELATIONS.index(relation), count):
        c, one_signed = objective_setting(rng, epsilon)
        share, times = rng.uniform(0.05, 0.95), int(rng.integers(1, 5))
        sensitivity = 2.0 if relation == "replace_one" else 1.0

        def charge(
            m, c=c, one_signed=one_signed, share=share, times=times, sensitivity=sensitivity
        ):
            mu = math.sqrt(share / times) / m
            together = charge_of(GaussianKind(sensitivity * mu, mu), count=times)
            return together + charge_of(ObjectiveGaussian(math.sqrt(1 - share) / m, c, one_signed))

        start = 1.1 * sensitivity / gaussian_mu(epsilon - c, delta)
        m = Accountant(relation).calibrate(charge, epsilon, delta, start=start, tolerance=5e-3)
        kind = ObjectiveGaussian(math.sqrt(1 - share) / m, c, one_signed)
        mu_g = sensitivity * math.sqrt(share) / m
        check_objective(exact, kind, relation, mu_g, epsilon, delta)


def direct_sampled_epsilon(relation, rate, mu, count, delta, step, pessimistic):
    """dp-accounting called directly: unit sensitivity, standard deviation 1/mu."""
    meaning = {
        "zero_out": NeighboringRelation.ADD_OR_REMOVE_ONE,
        "add_remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
        "replace_one": NeighboringRelation.REPLACE_ONE,
    }[relation]
    one = pld.from_gaussian_mechanism(
        standard_deviation=1 / mu,
        sampling_prob=rate,
        pessimistic_estimate=pessimistic,
        value_discretization_interval=step,
        use_connect_dots=pessimistic,
        neighboring_relation=meaning,
    )
    return one.self_compose(count).get_epsilon_for_delta(delta)


@pytest.mark.slow
def test_9_poisson_calibrations():
    rng = np.random.default_rng(30)
    for index in range(9):
        relation = RELATIONS[index % 3]
        rate, count = float(10 ** rng.uniform(-2, -0.5)), int(rng.integers(1, 12))
        epsilon, delta = float(10 ** rng.uniform(-0.3, 0.4)), float(10 ** rng.uniform(-8, -4))
        sensitivity = 2.0 if relation == "replace_one" else 1.0

        def charge(m, rate=rate, count=count, sensitivity=sensitivity):
            return Counter({Step(Sampling(rate), (GaussianKind(sensitivity / m, 1 / m),)): count})

        m = Accountant(relation).calibrate(charge, epsilon, delta, tolerance=5e-3)
        step = 2e-3 * epsilon / math.sqrt(count)
        case = (relation, rate, 1 / m, count, delta)
        # an optimistic grid bounds the true epsilon from below, a pessimistic one from above
        assert direct_sampled_epsilon(*case, step, False) <= epsilon
        assert 0.99 * epsilon <= direct_sampled_epsilon(*case, step, True) <= 1.002 * epsilon


# ---------------------------------------------------------------- the search itself
@pytest.mark.parametrize("power", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("start", [1e-3, 1.0, 700.0])
def test_smallest_holding_finds_known_roots_in_few_steps(power, start):
    """Surplus power * log(3/x), which is 0 at 3; a jump in its size must not mislead it."""
    asked = []

    def surplus(x):
        asked.append(x)
        value = power * math.log(3 / x)
        return 10 * value if x < 2 else value

    found = smallest_holding(surplus, start, 3e-4)
    assert 3 <= found <= 3 * (1 + 3e-4)
    assert len(asked) < 40


def test_smallest_holding_at_the_ends():
    assert smallest_holding(lambda x: 1.0, 1.0, 1e-3) == math.inf
    assert smallest_holding(lambda x: math.inf, 1.0, 1e-3) == math.inf
    assert smallest_holding(lambda x: -1.0, 1.0, 1e-3) < 1e-11
    assert 5 <= smallest_holding(lambda x: -math.inf if x >= 5 else math.inf, 1.0, 1e-3) < 5.01


@pytest.mark.slow
def test_a_long_sampled_run_against_the_finest_grid():
    """Rate 0.01, 10,000 steps, epsilon 1: within 0.1 % of dp-accounting's finest grid, which rounds
    towards more loss, and never below it."""

    def charge(m):
        return Counter({Step(Sampling(0.01), (GaussianKind(1 / m, 1 / m),)): 10_000})

    def finest(m):
        one = pld.from_gaussian_mechanism(m, value_discretization_interval=1e-5, sampling_prob=0.01)
        return one.self_compose(10_000).get_epsilon_for_delta(1e-6)

    found = Accountant().calibrate(charge, 1.0, 1e-6)
    assert finest(found) <= 1 < finest(found / 1.001)
