"""Many different pure releases: composed on the safe side of the exact answer, and close to it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from privopt.privacy import Accountant, charge_of, kinds
from privopt.privacy.convolve import composed, epsilon_of
from privopt.privacy.kinds import pure_distribution


def exact_delta(epsilons, epsilon):
    """Hockey-stick divergence of randomised responses, over all outcomes."""
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=len(epsilons))))
    loss = signs @ epsilons
    mass = np.exp(np.sum(-np.log1p(np.exp(-signs * epsilons)), axis=1))
    return float(np.sum(mass * np.maximum(-np.expm1(epsilon - loss), 0.0)))


def answer(epsilons, delta):
    return Accountant().epsilon(charge_of(*[kinds.Pure(float(e)) for e in epsilons]), delta)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("delta", [1e-2, 1e-4])
def test_it_is_never_below_the_exact_answer_and_close_to_it(seed, delta):
    epsilons = np.random.default_rng(seed).uniform(0.02, 0.6, 14)
    found = answer(epsilons, delta)
    assert exact_delta(epsilons, found) <= delta
    assert found == math.fsum(epsilons) or exact_delta(epsilons, found * (1 - 3e-3)) > delta


@pytest.mark.parametrize("step", [0.3, 0.011, 1e-3])
@pytest.mark.parametrize("epsilon", [1e-4, 0.3, 0.30000001, 1.7])
def test_a_pure_loss_on_a_grid_dominates_it(epsilon, step):
    """In both directions, which are alike; its mass stays whole."""
    found = pure_distribution(epsilon, step)
    for at in np.linspace(-2.0, 2.0, 81):
        exact = exact_delta(np.array([epsilon]), at)
        assert found.get_delta_for_epsilon(at) >= exact * (1 - 1e-12) - 1e-15
    mass = np.asarray(found._pmf_remove._probs)
    places = (found._pmf_remove._lower_loss + np.arange(mass.size)) * step
    assert mass.min() >= 0
    assert mass.sum() == pytest.approx(1, abs=1e-14)
    assert (mass * np.exp(-places)).sum() == pytest.approx(1, rel=1e-12)
    assert np.allclose((mass * np.exp(-places))[::-1], mass, atol=1e-14)


def test_a_thousand_different_ones_are_bracketed():
    """From below by losses rounded down to a fine grid, convolved one after the other."""
    epsilons, delta, step = np.random.default_rng(0).uniform(0.01, 0.05, 300), 1e-6, 1e-4
    mass = np.array([1.0])
    for epsilon in epsilons:
        atoms = math.floor(epsilon / step)
        likely, wide = 1 / (1 + math.exp(-atoms * step)), np.zeros(mass.size + 2 * atoms)
        wide[2 * atoms :] += likely * mass
        wide[: mass.size] += (1 - likely) * mass
        mass = wide
    losses = (np.arange(mass.size) - mass.size // 2) * step
    found = answer(epsilons, delta)
    below = float(np.sum(mass * np.maximum(-np.expm1(found * (1 - 6e-3) - losses), 0.0)))
    at = float(np.sum(mass * np.maximum(-np.expm1(found - losses), 0.0)))
    assert at <= delta < below


def test_kinds_of_all_sorts_compose_like_dp_accounting():
    step = 1e-3
    parts = [(pure_distribution(e, step), 1) for e in np.linspace(0.01, 0.2, 40)]
    parts += [(kinds.gaussian_distribution(0.3, step), 3)]
    parts += [(kinds.SampledGaussian(0.1, 0.8).distribution(step, "zero_out"), 2)]
    whole = composed(parts)
    library = None
    for one, times in parts:
        many = one.self_compose(times) if times > 1 else one
        library = many if library is None else library.compose(many)
    assert library is not None
    for delta in (1e-2, 1e-5, 1e-8):
        expected = library.get_epsilon_for_delta(delta)
        assert epsilon_of(whole, delta) == pytest.approx(expected, rel=1e-4)
