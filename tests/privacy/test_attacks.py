"""Epsilon from an attacker's rates, and back."""

import math

import pytest
from scipy.stats import norm

from privopt.privacy import Budget
from privopt.privacy.attacks import epsilon_against


@pytest.mark.parametrize("right", [0.02, 0.1, 0.6, 0.95])
@pytest.mark.parametrize("delta", [0.0, 1e-4])
def test_an_attacker_is_held_to_the_wish_and_not_to_less(right, delta):
    """By the two inequalities, written out: at this epsilon one of them binds."""
    false = 0.01
    epsilon = epsilon_against(right, false, delta)
    most = min(delta + math.exp(epsilon) * false, 1 - math.exp(-epsilon) * (1 - delta - false))
    assert most == pytest.approx(right)


def test_a_gaussian_release_of_that_epsilon_is_held_too():
    """The exact curve of a Gaussian with this (epsilon, delta) lies below the wish."""
    from privopt.privacy.profiles import gaussian_mu

    epsilon = epsilon_against(0.05, 0.01, 1e-6)
    mu = gaussian_mu(epsilon, 1e-6)
    assert norm.cdf(norm.ppf(0.01) + mu) < 0.05
    assert Budget(epsilon, 1e-6).epsilon == epsilon


@pytest.mark.parametrize(
    ("right", "false", "delta"), [(0.01, 0.05, 0), (1.0, 0.1, 0), (0.1, 0.05, 0.1)]
)
def test_wishes_that_no_epsilon_meets(right, false, delta):
    with pytest.raises(ValueError, match="must"):
        epsilon_against(right, false, delta)
