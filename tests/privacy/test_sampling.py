"""Gaussian and Poisson accounting against numbers, dp-accounting and explicit densities."""

import math
from collections import Counter

import numpy as np
import pytest
from dp_accounting import (
    GaussianDpEvent,
    NeighboringRelation,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld import privacy_loss_distribution as pld

from privopt.privacy import Accountant, Event, Log, Sampling, charge_of, spend
from privopt.privacy.kinds import GaussianKind, Pure, SampledGaussian
from privopt.privacy.spend import Step


def poisson(rate, *kinds, count=1):
    return Counter({Step(Sampling(rate), kinds): count})


# ------------------------------------------------------------------------------ known numbers
def test_one_gaussian_release_under_each_relation():
    delta = 1e-6
    for relation in ("zero_out", "add_remove"):
        found = Accountant(relation).epsilon(charge_of(GaussianKind(1, 1)), delta)
        assert found == pytest.approx(4.887, abs=5e-4)
    found = Accountant("replace_one").epsilon(charge_of(GaussianKind(2, 1)), delta)
    assert found == pytest.approx(10.997, abs=5e-4)


@pytest.mark.parametrize(
    ("relation", "mu", "epsilon"),
    [("zero_out", 1.0, 1.828), ("add_remove", 1.0, 1.828), ("replace_one", 2.0, 2.843)],
)
def test_a_thousand_poisson_batches(relation, mu, epsilon):
    """sigma = 1, q = .01: one record reaches 1, two records differ by 2."""
    charge = poisson(0.01, GaussianKind(mu, 1.0), count=1000)
    assert Accountant(relation).epsilon(charge, 1e-5) == pytest.approx(epsilon, rel=0.01)


def test_the_same_thousand_batches_by_the_oracle_library():
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-3)
    event = SelfComposedDpEvent(PoissonSampledDpEvent(0.01, GaussianDpEvent(1.0)), 1000)
    accountant.compose(event)
    direct = accountant.get_epsilon(1e-5)
    ours = Accountant("add_remove").epsilon(poisson(0.01, GaussianKind(1, 1), count=1000), 1e-5)
    assert 0.99 * direct <= ours <= direct * 1.0001


# ------------------------------------------------------------------------------ nesting
def batches(questions, same_batch):
    log, view = Log(), 0
    for _ in range(200):
        for question in range(questions):
            view += 1 if question == 0 or not same_batch else 0
            kind = GaussianKind(1 / 1.2, 1 / 1.2)
            log.append(Event("gaussian", (kind,), view=view, sampling=Sampling(0.05)))
    return log


def test_two_questions_on_one_batch_are_one_sampled_release():
    accountant = Accountant("zero_out")
    nested = spend(batches(2, same_batch=True))
    apart = spend(batches(2, same_batch=False))
    (step,) = nested.cells[()]
    assert len(step.kinds) == 2
    assert nested.cells[()][step] == 200
    assert sum(apart.cells[()].values()) == 400
    assert 6.6 < accountant.epsilon(nested, 1e-5) < 6.8
    assert 4.75 < accountant.epsilon(apart, 1e-5) < 4.85

    one = pld.from_gaussian_mechanism(
        1.2 / math.sqrt(2), sampling_prob=0.05, value_discretization_interval=1e-3
    )
    direct = one.self_compose(200).get_epsilon_for_delta(1e-5)
    assert accountant.epsilon(nested, 1e-5) == pytest.approx(direct, rel=0.005)


def test_the_joint_law_of_two_questions_is_what_nesting_says(exact):
    """Two coordinates of noise, one coin: mixture density in the plane against mu sqrt(2)."""
    q, mu, epsilon = 0.3, 0.9, 0.4
    x, w = exact.rule(np.linspace(-9, 10, 25))
    a, b = np.meshgrid(x, x)
    without = exact.density(a) * exact.density(b)
    present = (1 - q) * without + q * exact.density(a - mu) * exact.density(b - mu)
    weight = np.outer(w, w)

    def worse(present):
        return max(
            float(np.sum(weight * np.maximum(p - math.exp(epsilon) * r, 0)))
            for p, r in ((present, without), (without, present))
        )

    truth = worse(present)
    one, two = ((1 - q) * exact.density(z) + q * exact.density(z - mu) for z in (a, b))
    two_coins = worse(one * two)
    accountant = Accountant("zero_out")
    nested = poisson(q, GaussianKind(mu, mu), GaussianKind(mu, mu))
    apart = poisson(q, GaussianKind(mu, mu), count=2)
    for charge, delta in ((nested, truth), (apart, two_coins)):
        assert accountant.epsilon(charge, delta * 0.9999) > epsilon
        assert accountant.epsilon(charge, delta * 1.005) <= epsilon
    assert two_coins < 0.85 * truth


# ------------------------------------------------------------------------------ replace one
def plane_hockey_stick(exact, q, first, second, epsilon):
    """Hockey-stick divergence of (1-q) N(0) + q N(first) and (1-q) N(0) + q N(second) in 2-D."""
    x, w = exact.rule(np.linspace(-9, 9, 21))
    a, b = np.meshgrid(x, x)
    base = (1 - q) * exact.density(a) * exact.density(b)
    p, r = (base + q * exact.density(a - u) * exact.density(b - v) for u, v in (first, second))
    return float(np.sum(np.outer(w, w) * np.maximum(p - math.exp(epsilon) * r, 0.0)))


def line_hockey_stick(exact, q, first, second, epsilon):
    """The same for two records on one line, which needs one dimension only."""
    x, w = exact.rule(np.linspace(-9, 9, 1000))
    base = (1 - q) * exact.density(x)
    p, r = (base + q * exact.density(x - u) for u in (first, second))
    return float(np.sum(w * np.maximum(p - math.exp(epsilon) * r, 0.0)))


@pytest.mark.parametrize(("q", "mu"), [(0.1, 1.0), (0.5, 0.5), (0.02, 2.0), (0.9, 1.5)])
def test_antipodal_records_are_the_worst_pair_and_the_radius_is_what_counts(exact, q, mu):
    accountant = Accountant("replace_one")
    charge = poisson(q, GaussianKind(2 * mu, mu))
    for epsilon in (0.05, 1.0):
        opposite = line_hockey_stick(exact, q, mu, -mu, epsilon)
        assert accountant.epsilon(charge, opposite * 0.9999) > epsilon
        # the diameter in place of the radius would fail
        assert accountant.epsilon(charge, opposite * 1.01) <= epsilon
        for angle in (0.5, 2.0, 2.8):
            other = (mu * math.cos(angle), mu * math.sin(angle))
            for first, second in (((mu, 0.0), other), (other, (mu, 0.0))):
                turned = plane_hockey_stick(exact, q, first, second, epsilon)
                assert turned <= opposite * 1.001 + 1e-9  # the error of the plane's coarse grid
        for length in (0.0, 0.5):
            assert line_hockey_stick(exact, q, mu, -length * mu, epsilon) <= opposite + 1e-9
            assert line_hockey_stick(exact, q, -length * mu, mu, epsilon) <= opposite + 1e-9


def test_replace_one_uses_the_radius_of_a_direct_distribution():
    radius, q, count, delta = 0.8, 0.05, 30, 1e-5

    def direct(mu):
        one = pld.from_gaussian_mechanism(
            1 / mu,
            sampling_prob=q,
            value_discretization_interval=5e-4,
            neighboring_relation=NeighboringRelation.REPLACE_ONE,
        )
        return one.self_compose(count).get_epsilon_for_delta(delta)

    charge = poisson(q, GaussianKind(2 * radius, radius), count=count)
    ours = Accountant("replace_one").epsilon(charge, delta)
    assert ours == pytest.approx(direct(radius), rel=0.005)
    assert ours < 0.7 * direct(2 * radius)


# ------------------------------------------------------------------------------ pure
@pytest.mark.parametrize("relation", ["zero_out", "add_remove"])
@pytest.mark.parametrize(("q", "epsilon"), [(0.01, 1.0), (0.5, 3.0), (0.3, 0.1)])
def test_pure_release_on_a_batch_is_amplified_exactly(relation, q, epsilon):
    """Randomised response on a sampled bit attains log(1 + q (e^eps - 1))."""
    yes = 1 / (1 + math.exp(-epsilon))
    present, absent = q * yes + (1 - q) * (1 - yes), 1 - yes
    worst = max(abs(math.log(present / absent)), abs(math.log((1 - present) / (1 - absent))))
    found = Accountant(relation).epsilon(poisson(q, Pure(epsilon)), 0.0)
    assert found == pytest.approx(worst, rel=1e-12)


def test_two_pure_questions_on_one_batch_add_before_sampling():
    found = Accountant().epsilon(poisson(0.2, Pure(0.7), Pure(0.4)), 0.0)
    assert found == pytest.approx(math.log1p(0.2 * math.expm1(1.1)), rel=1e-12)
    assert found > 2 * math.log1p(0.2 * math.expm1(0.55))


def test_resolution_keeps_the_radius_and_not_the_diameter():
    (kind,) = Step(Sampling(0.1), (GaussianKind(2.0, 1.0), GaussianKind(4.0, 2.0))).resolve(
        "replace_one"
    )
    assert isinstance(kind, SampledGaussian)
    assert kind.rate == 0.1
    assert kind.mu == pytest.approx(math.sqrt(5), rel=1e-15)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, math.nan])
def test_a_sampling_rate_is_a_probability(rate):
    with pytest.raises(ValueError, match="sampling rate"):
        Sampling(rate)
