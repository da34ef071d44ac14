"""Selection: its law, its exact privacy by enumeration, and what it refuses."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import softmax

from privopt.mechanisms import ExponentialMechanism, Gate, PermuteAndFlip, ReportNoisyMax
from privopt.mechanisms.maps import Rescale, Spread
from privopt.mechanisms.selection import flip_probabilities
from privopt.noise import SeededSource, SilentSource
from privopt.oracle import Sealed, Sensitivity
from privopt.oracle.sealed import KEY
from privopt.privacy import Accountant, Refused
from privopt.privacy.accountant import charge_of
from privopt.privacy.kinds import BoundedRange, Pure
from privopt.privacy.profiles import concentrated_rho

SCORES = np.array([3.0, 2.5, 0.0, -1.0, 2.9, 1.0])
ALL = [ExponentialMechanism, PermuteAndFlip, ReportNoisyMax]


def sealed(scores, radius=2.0, norm="range"):
    return Sealed(KEY, np.asarray(scores, dtype=float), Sensitivity(norm, radius, radius))


NODES, WEIGHTS = np.polynomial.legendre.leggauss(40)


def laplace_probabilities(scaled):
    """Law of the largest of Laplace-noised scores, by quadrature between the kinks."""
    kinks = np.sort(scaled)
    edges = np.unique([*(kinks[0] - [40, 10, 3]), *kinks, *(kinks[-1] + [3, 10, 40])])
    middle, half = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    x = (middle[:, None] + half[:, None] * NODES).ravel()
    weights = (half[:, None] * WEIGHTS).ravel()
    z = x[:, None] - scaled
    density = 0.5 * np.exp(-np.abs(z))
    below = np.where(z < 0, density, 1 - density)
    whole = np.prod(below, axis=1, keepdims=True)
    return weights @ (density * (whole / below))


LAWS = {
    ExponentialMechanism: softmax,
    PermuteAndFlip: flip_probabilities,
    ReportNoisyMax: laplace_probabilities,
}


# ------------------------------------------------------------ the law
@pytest.mark.statistical
@pytest.mark.parametrize("kind", ALL)
def test_choices_follow_the_law_and_no_other_scale(kind):
    """Chi-square, 200,000 draws of the exponential mechanism against softmax; false alarm 1e-4, and
    a scale off by two is found."""
    range_, multiplier = 2.0, 0.7
    draws = 200_000 if kind is ExponentialMechanism else 50_000
    mechanism, sensitivity = kind(multiplier), sealed(SCORES, range_).sensitivity
    source = SeededSource(1)
    chosen = [mechanism.run(SCORES, sensitivity, source) for _ in range(draws)]
    counts = np.bincount(chosen, minlength=6)
    for factor in (0.5, 1.0, 2.0):
        expected = draws * LAWS[kind](SCORES / (range_ * multiplier * factor))
        p = stats.chisquare(counts, expected / expected.sum() * draws).pvalue
        assert (p > 1e-4) if factor == 1.0 else (p < 1e-6)


def test_the_exact_law_of_permute_and_flip():
    """Against its definition: every order of the candidates, every coin."""
    scaled = SCORES[:5] / 1.3
    accept = np.exp(scaled - scaled.max())
    exact = np.zeros(5)
    orders = list(itertools.permutations(range(5)))
    for order in orders:
        left = 1.0
        for k in order:
            exact[k] += left * accept[k] / len(orders)
            left *= 1 - accept[k]
        assert left == 0.0
    np.testing.assert_allclose(flip_probabilities(scaled), exact, rtol=1e-12)


# ------------------------------------------------------------ exact privacy
def worst_pairs(count, range_, seed=0):
    """Scores, and changes whose largest and smallest entry differ by the range: all corners."""
    rng = np.random.default_rng(seed)
    starts = [np.zeros(count), np.r_[0.0, np.full(count - 1, -30.0)], *rng.normal(size=(2, count))]
    starts += [np.r_[v, np.zeros(count - 1)] for v in (8.0, -8.0)]
    for start in starts:
        for corner in itertools.product([0.0, 1.0], repeat=count):
            for shift in (0.0, -0.5):
                yield start, start + range_ * (np.array(corner) + shift)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_the_declared_epsilon_is_exact(kind, epsilon):
    """The worst log-ratio over all corners is at most epsilon, and reaches 99 % of it; a scale
    that forgets the factor two of scores that are not monotone is twice over."""
    count = 4 if kind is not ReportNoisyMax else 3
    range_ = 1.0
    (declared,) = kind(1 / epsilon).kinds(sealed(SCORES, range_).sensitivity)
    assert declared.pure("zero_out") == pytest.approx(epsilon)
    law, worst, careless = LAWS[kind], 0.0, 0.0
    for one, other in worst_pairs(count, range_):
        p, q = law(one * epsilon / range_), law(other * epsilon / range_)
        worst = max(worst, float(np.abs(np.log(p / q)).max()))
        p, q = law(one * epsilon / (range_ / 2)), law(other * epsilon / (range_ / 2))
        careless = max(careless, float(np.abs(np.log(p / q)).max()))
    assert worst <= epsilon * (1 + 1e-6)
    # Laplace noise gets there only for scores that lie infinitely far apart.
    assert worst >= (0.98 if kind is ReportNoisyMax else 0.99) * epsilon
    assert careless >= 1.9 * epsilon


def test_log_odds_of_the_exponential_mechanism_have_the_declared_range():
    """max - min of the log-ratios, which zCDP of eta^2/8 rests on; permute-and-flip exceeds it."""
    eta, widest = 1.0, {ExponentialMechanism: 0.0, PermuteAndFlip: 0.0}
    for one, other in worst_pairs(4, 1.0):
        for kind in widest:
            ratio = np.log(LAWS[kind](one * eta) / LAWS[kind](other * eta))
            widest[kind] = max(widest[kind], float(np.ptp(ratio)))
    assert widest[ExponentialMechanism] == pytest.approx(eta, rel=1e-9)
    assert widest[PermuteAndFlip] > 1.4 * eta


@pytest.mark.parametrize("alpha", [1.01, 2.0, 8.0, 20.0])
def test_renyi_divergence_stays_below_the_zcdp_curve(alpha):
    eta, worst = 0.8, 0.0
    for one, other in worst_pairs(4, 1.0):
        p, q = softmax(one * eta), softmax(other * eta)
        worst = max(worst, math.log(np.sum(p**alpha * q ** (1 - alpha))) / (alpha - 1))
    curve = BoundedRange(eta).renyi(alpha, "zero_out")
    assert worst <= curve * (1 + 1e-12)
    assert worst >= (0.8 if alpha < 3 else 0.4) * curve


def test_a_scale_for_each_candidate_is_not_private():
    """The counterexample of the module's text: loss K (1 - exp(-e)) where e was expected."""
    e, count = 0.1, 30
    wins = np.exp(-count * np.exp(-e * 0.0)), np.exp(-count * np.exp(-e * 1.0))
    assert math.log(wins[1] / wins[0]) == pytest.approx(count * (1 - math.exp(-e)))
    assert math.log(wins[1] / wins[0]) > 25 * e
    for kind in ALL:
        with pytest.raises(ValueError, match="not private"):
            kind(np.array([1.0, 2.0]))
    release = Gate(SeededSource(0)).release
    with pytest.raises(Refused, match="bounded in range"):
        release(ExponentialMechanism(1.0), sealed(SCORES, np.ones(6), "coordinates"))
    with pytest.raises(Refused, match="bounded in range"):
        release(ExponentialMechanism(1.0), sealed(SCORES, 1.0, "linf"))


# ------------------------------------------------------------ composition
@pytest.mark.parametrize(("steps", "scale"), [(10, 14.3), (100, 45.3), (1000, 143.0)])
def test_noise_of_many_choices(steps, scale):
    """Scale over sensitivity for T choices at epsilon 1, delta 1e-6, non-monotone scores."""
    multiplier = math.sqrt(steps / (8 * concentrated_rho(1.0, 1e-6)))
    assert 2 * multiplier == pytest.approx(scale, rel=0.01)
    accountant = Accountant("zero_out")
    charge = charge_of(BoundedRange(1 / multiplier), count=steps)
    assert accountant.epsilon(charge, 1e-6) <= 1 + 1e-9
    quieter = charge_of(BoundedRange(2 / multiplier), count=steps)
    assert accountant.epsilon(quieter, 1e-6) > 1.9


def test_one_choice_is_pure():
    assert Accountant("zero_out").epsilon(charge_of(BoundedRange(0.5)), 1e-6) <= 0.5
    (kind,) = PermuteAndFlip(4.0).kinds(sealed(SCORES).sensitivity)
    assert kind == Pure(0.25)


# ------------------------------------------------------------ through the gate
def test_scores_of_different_sensitivity_are_rescaled():
    own = np.array([1.0, 10.0, 0.1])
    value = sealed(5 * own, own, "coordinates").through(Rescale(own)).through(Spread())
    assert value.sensitivity.radius == 2.0
    gate = Gate(SilentSource())
    assert gate.release(ExponentialMechanism(3.0), value) == 0
    assert gate.log[0].kinds == (BoundedRange(1 / 3),)


@pytest.mark.parametrize("kind", ALL)
def test_without_noise_the_best_is_chosen_and_nothing_fails(kind):
    gate = Gate(SilentSource())
    assert gate.release(kind(1.0), sealed(SCORES)) == 0
    assert gate.release(kind(1.0), sealed([-5.0])) == 0
    loud = Gate(SeededSource(0))
    for scores in ([1e308, -1e308, 0.0], [np.nan, 1.0], [np.inf, -np.inf], [-1e300, -1e300]):
        chosen = loud.release(kind(1.0), sealed(scores))
        assert isinstance(chosen, int)
        assert 0 <= chosen < len(scores)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("multiplier", [0.0, -1.0, math.nan, math.inf])
def test_bad_multipliers_are_refused(kind, multiplier):
    with pytest.raises(ValueError, match="positive and finite"):
        kind(multiplier)


@pytest.mark.statistical
def test_permute_and_flip_errs_less():
    """At the same epsilon; exact expectations."""
    for seed in range(5):
        scaled = np.random.default_rng(seed).normal(size=8) * 3
        errors = [scaled.max() - LAWS[kind](scaled) @ scaled for kind in ALL[:2]]
        assert errors[1] < errors[0]
        assert errors[0] <= math.log(8)
