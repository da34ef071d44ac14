"""Several rows of one user in a Poisson batch: against integrals, another library's mixtures, and
rows that point anywhere."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.integrate import quad
from scipy.stats import binom, norm

from privopt.privacy import Accountant
from privopt.privacy.accountant import charge_of
from privopt.privacy.kinds import GaussianKind, SampledGaussian
from privopt.privacy.sampled_groups import Mixture, SampledGroupGaussian, group_distribution


@pytest.mark.parametrize("relation", ["zero_out", "add_remove", "replace_one"])
def test_one_row_is_a_sampled_gaussian(relation):
    accountant = Accountant(relation)
    for rate, mu in ((0.1, 0.5), (0.01, 1.0), (0.5, 2.0)):
        one = accountant.epsilon(charge_of(SampledGaussian(rate, mu), count=9), 1e-5)
        same = accountant.epsilon(charge_of(SampledGroupGaussian(rate, mu, 1), count=9), 1e-5)
        assert same == pytest.approx(one, rel=1e-7)


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_all_rows_are_a_gaussian(relation):
    accountant, moved = Accountant(relation), 2 if relation == "replace_one" else 1
    whole = accountant.epsilon(charge_of(GaussianKind(moved * 0.6, 0.6)), 1e-5)
    found = accountant.epsilon(charge_of(SampledGroupGaussian(1.0, 0.6, 3)), 1e-5)
    assert found == pytest.approx(whole, rel=1e-3)


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize(("rate", "mu", "size"), [(0.05, 1.0, 3), (0.5, 0.7, 2), (0.9, 0.3, 5)])
def test_the_profile_is_its_integral(rate, mu, size, replaced):
    """k equal rows, and their opposites where they are replaced: rounded up, by little."""
    counts = np.arange(size + 1)
    weights = binom.pmf(counts, size, rate)

    def mixed(x, moved):
        return float(weights @ norm.pdf(x, moved * counts))

    law = group_distribution(rate, mu, size, 1e-3, replaced)
    for epsilon in (0.1, 1.0):
        exact = max(
            quad(
                lambda x, a=a, b=b, e=epsilon: max(mixed(x, a) - math.exp(e) * mixed(x, b), 0.0),
                -15, 15, limit=800, epsabs=1e-13, epsrel=1e-9,
            )[0]
            for a, b in ([(mu, -mu)] if replaced else [(mu, 0.0), (0.0, mu)])
        )  # fmt: skip
        found = law.get_delta_for_epsilon(epsilon)
        assert exact * (1 - 1e-6) <= found <= exact * 1.02 + 1e-9


def test_many_batches_are_those_of_another_library():
    rate, mu, size, steps = 0.1, 0.4, 3, 20
    counts = np.arange(size + 1)
    other = pld.from_mixture_gaussian_mechanism(
        1 / mu, counts.tolist(), binom.pmf(counts, size, rate).tolist(),
        value_discretization_interval=1e-3,
    ).self_compose(steps)  # fmt: skip
    kind = SampledGroupGaussian(rate, size * mu, size)
    found = Accountant().epsilon(charge_of(kind, count=steps), 1e-5)
    assert found == pytest.approx(other.get_epsilon_for_delta(1e-5), rel=5e-3)


@pytest.mark.parametrize("replaced", [False, True])
def test_rows_that_point_anywhere_lose_no_more(replaced):
    """All directions in the plane, by a grid: the line is the worst, and rows on it attain it."""
    draws, rate, mu = np.random.default_rng(0), 0.4, 0.8
    ticks = np.arange(-9, 9, 0.05)
    z = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    base = np.exp(-(z**2).sum(axis=1) / 2) / (2 * math.pi) * 0.05**2
    sets = list(itertools.product((0, 1), repeat=2))
    chance = [rate ** sum(s) * (1 - rate) ** (2 - sum(s)) for s in sets]

    def ratio(rows):
        moved = [np.array(s) @ rows for s in sets]
        return sum(p * np.exp(z @ v - v @ v / 2) for p, v in zip(chance, moved, strict=True))

    law = group_distribution(rate, mu, 2, 1e-3, replaced)
    for trial in range(12):
        angle = draws.uniform(0, 2 * math.pi, 4) * (trial > 0) + [0, 0, math.pi, math.pi]
        rows = mu * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        first, second = ratio(rows[:2]), ratio(rows[2:]) if replaced else 1.0
        for epsilon in (0.2, 1.0):
            a = math.exp(epsilon)
            for one, other in ((first, second), (second, first)):
                lost = float((np.maximum(one - a * other, 0.0) * base).sum())
                most = law.get_delta_for_epsilon(epsilon)
                assert lost <= most * (1 + 1e-3)
                if trial == 0 and (replaced or one is first):
                    assert lost >= most * 0.98


def test_points_at_which_a_loss_takes_a_value():
    mixture = Mixture(0.2, 0.5, 4)
    x = np.linspace(-20, 30, 101)
    np.testing.assert_allclose(
        mixture.where(mixture.log_ratio(x))[40:], x[40:], rtol=1e-9, atol=1e-12
    )
    assert mixture.where(np.array([mixture.log_weights[0] - 1]))[0] == -np.inf
    apart = mixture.log_ratio(x) - mixture.log_ratio(-x)
    np.testing.assert_allclose(mixture.where_apart(apart), x, atol=1e-7)
