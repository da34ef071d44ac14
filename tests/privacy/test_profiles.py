"""Gaussian, zCDP and Renyi profiles against 50-digit arithmetic and brute force."""

import math

import mpmath as mp
import numpy as np
import pytest

from privopt.privacy.profiles import (
    concentrated_rho,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    renyi_epsilon,
)


def test_gaussian_delta_has_relative_precision_over_the_whole_range(exact):
    checked = 0
    for epsilon in np.geomspace(1e-3, 50, 23):
        for mu in np.geomspace(1e-4, 20, 23):
            truth = exact.gaussian_delta(epsilon, mu)
            found = gaussian_delta(float(epsilon), float(mu))
            if truth < mp.mpf("1e-300"):
                assert 0 <= found <= 1e-299
                continue
            # In the far tail log_ndtr has an error of an ulp of its own size, log(1/delta), and
            # the difference of two logarithms is of size mu * mu/eps.
            bound = 1e-9 if truth > mp.mpf("1e-30") else 1e-6
            assert abs(found / truth - 1) < bound, (epsilon, mu)
            checked += 1
    assert checked > 250


def test_gaussian_delta_at_the_ends():
    assert gaussian_delta(1.0, 0.0) == 0.0
    assert gaussian_delta(-1.0, 0.0) == pytest.approx(1 - math.exp(-1), rel=1e-14)
    assert gaussian_delta(0.0, 2.0) == pytest.approx(math.erf(1 / math.sqrt(2)), rel=1e-13)
    assert gaussian_delta(1e6, 1.0) == 0.0
    assert gaussian_delta(0.0, 1e4) == 1.0


def random_pairs(seed, count, low, high):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield math.exp(rng.uniform(math.log(low), math.log(high))), 10 ** rng.uniform(-15, -1)


def test_gaussian_mu_is_rounded_down_and_tight(exact):
    for epsilon, delta in random_pairs(1, 400, 1e-3, 50):
        mu = gaussian_mu(epsilon, delta)
        assert exact.gaussian_delta(epsilon, mu) <= mp.mpf(delta)
        assert exact.gaussian_delta(epsilon, mu * (1 + 1e-6)) > mp.mpf(delta)


def test_gaussian_epsilon_is_rounded_up_and_tight(exact):
    positive = 0
    for mu, delta in random_pairs(2, 400, 1e-4, 20):
        epsilon = gaussian_epsilon(mu, delta)
        assert exact.gaussian_delta(epsilon, mu) <= mp.mpf(delta)
        if epsilon > 0:
            lower = epsilon * (1 - 1e-6) - 1e-12
            assert exact.gaussian_delta(lower, mu) > mp.mpf(delta)
            positive += 1
    assert positive > 200


def test_no_delta_means_no_gaussian_guarantee():
    assert gaussian_mu(1.0, 0.0) == 0.0
    assert gaussian_epsilon(1.0, 0.0) == math.inf
    assert gaussian_epsilon(0.0, 0.0) == 0.0
    assert concentrated_rho(1.0, 0.0) == 0.0
    assert renyi_epsilon(lambda alpha: alpha, 0.0) == math.inf


@pytest.mark.parametrize(
    ("epsilon", "multiplier", "tolerance"), [(0.1, 36.3, 0.05), (1, 4.225, 5e-4), (4, 1.194, 5e-4)]
)
def test_known_noise_multipliers(epsilon, multiplier, tolerance):
    assert 1 / gaussian_mu(epsilon, 1e-6) == pytest.approx(multiplier, abs=tolerance)


def zcdp_epsilon(rho, delta):
    """min over alpha of alpha rho + log((alpha-1)/alpha) - log(delta alpha)/(alpha-1), 50 digits.

    The minimiser solves a monotone equation; here by golden section on log(alpha - 1).
    """
    with mp.workdps(30):
        rho, delta = mp.mpf(rho), mp.mpf(delta)

        def value(x):
            e = mp.exp(x)
            return (1 + e) * rho + mp.log(e / (1 + e)) - mp.log(delta * (1 + e)) / e

        low, high, ratio = mp.mpf(-7), mp.mpf(20), (mp.sqrt(5) - 1) / 2
        for _ in range(120):
            a, b = high - ratio * (high - low), low + ratio * (high - low)
            low, high = (low, b) if value(a) < value(b) else (a, high)
        return value((low + high) / 2)


def test_concentrated_rho():
    assert concentrated_rho(1.0, 1e-6) == pytest.approx(0.02436, abs=5e-6)
    for epsilon, delta in random_pairs(3, 25, 1e-2, 20):
        rho = concentrated_rho(epsilon, delta)
        truth = zcdp_epsilon(rho, delta)
        assert truth <= epsilon
        assert truth >= epsilon * (1 - 1e-6)


@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-2])
def test_renyi_epsilon_is_the_minimum_over_all_orders(exact, delta):
    curves = {
        "gaussian": lambda a: a * 0.3**2 / 2,
        "strong gaussian": lambda a: a * 9.0**2 / 2,
        "weak zCDP": lambda a: 1e-6 * a,
        "saturating": lambda a: np.minimum(2.0, 3 * a),
        "affine": lambda a: 0.2 + 0.05 * a,
    }
    for name, curve in curves.items():
        found = renyi_epsilon(curve, delta)
        truth = max(0.0, exact.renyi_conversion(curve, delta))
        # any order is valid, so the result must not undercut the minimum ...
        assert found >= truth * (1 - 1e-6), name
        # ... and must not waste anything either
        assert found <= truth * (1 + 1e-4) + 1e-9, name


def test_renyi_conversion_is_a_valid_bound_for_the_gaussian(exact):
    """The tight conversion of the Gaussian's curve never undercuts its exact epsilon."""
    for mu in (0.01, 0.1, 1.0, 5.0):
        for delta in (1e-12, 1e-6, 1e-2):
            found = renyi_epsilon(lambda a, mu=mu: a * mu**2 / 2, delta)
            assert exact.gaussian_delta(found, mu) <= mp.mpf(delta)
