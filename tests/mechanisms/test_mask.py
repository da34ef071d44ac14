"""Hardened minimisers: integers within the sensitivity, the declared scale, silent low bits."""

import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from privopt import Budget, Problem, Refused, solve
from privopt.audit import low_bits, record
from privopt.geometry import L2Ball
from privopt.losses import Logistic
from privopt.mechanisms import (
    DiscreteNormGamma,
    Gate,
    Minimiser,
    ObjectivePerturbation,
    OutputPerturbation,
    mask,
)
from privopt.mechanisms.mask import LIMIT, ROUNDING, Mask, choose_masked, pure_mask, pure_scale
from privopt.noise import SeededSource, SilentSource, rounded
from privopt.noise.discrete import (
    FINE_LOG_RATIO,
    FINE_STD,
    GAUSSIAN_LOG_RATIO,
    GAUSSIAN_STD,
    LAPLACE_DISTANCE,
    LAPLACE_SCALE,
)
from privopt.oracle import Oracle, RowBounds
from privopt.oracle.sensitivity import FunctionFacts, Grid, Sensitivity
from privopt.privacy.kinds import GaussianKind, Pure

RUNS = 1_000_000
PAGE = Path(__file__).parents[2] / "docs" / "proofs" / "masks.md"
NOISES = ("gaussian", "pure")
every_noise = pytest.mark.parametrize("noise", NOISES)


def function_reach(p, lipschitz=1.0):
    facts = FunctionFacts(lipschitz, 0.25, 1, 1, True, True, p)
    return Sensitivity("function", lipschitz, lipschitz, facts=facts)


def sealed_function(n=40, p=3, seed=0):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((n, p)), np.where(rng.random(n) < 0.5, 1.0, -1.0)
    source = SeededSource(0)
    oracle = Oracle.over(X, y, neighbouring="zero_out", bounds=RowBounds(1.0), source=source)
    return oracle.everything().function(Logistic())


class Fixed:
    """A stable algorithm whose result is known; it stands for one number in many runs."""

    def __init__(self, value):
        self.result = value

    def output_sensitivity(self, sensitivity):
        return 1.0

    def value(self, objective):
        return self.result


# ---------------------------------------------------------------- the page
def test_the_printed_bounds_are_the_ones_that_are_computed():
    computed = {
        "counting, two vectors, one coordinate": ROUNDING,
        "chance of a longer Gaussian vector": rounded.TAIL_CHANCE,
        "Gaussian draw of 100 coordinates, distance": rounded.gaussian_error(100),
        "norm-Gamma draw of 100 coordinates, distance": rounded.norm_gamma_error(100),
    }
    table = dict(re.findall(r"^\| ([^|]+?) \| \$2\^\{(-?\d+)\}\$", PAGE.read_text(), re.M))
    assert set(table) == set(computed)
    for name, value in computed.items():
        assert value <= 2.0 ** int(table[name]), name
        assert value >= 2.0 ** (int(table[name]) - 1), name


# ---------------------------------------------------------------- counting
@every_noise
def test_counts_are_within_their_rounding_in_exact_arithmetic(noise):
    rng = np.random.default_rng(0)
    cover = Mask(noise, 3.0, 1e-3, 7)
    for size in (1e-12, 1.0, 1e5, 1e12):
        value = size * rng.standard_normal(7)
        counts = cover.count(value)
        for count, real in zip(counts.tolist(), value.tolist(), strict=True):
            exact = Fraction(real) / Fraction(cover.step)
            exact = max(min(exact, Fraction(LIMIT)), -Fraction(LIMIT))
            assert abs(count - exact) <= Fraction(2**9) + Fraction(1, 2)
    assert np.abs(cover.count(np.full(7, -1e300))).max() == 2**62


@every_noise
@pytest.mark.parametrize("p", [1, 5, 400])
def test_integers_move_by_no_more_than_the_noise_pays_for(noise, p):
    """Two vectors as far apart as declared: the integer noise is multiplier times their distance,
    in the norm of the noise, with the rounding on top."""
    cover, rng = Mask(noise, 50.0, 0.3, p), np.random.default_rng(p)
    order, scale = (2, GAUSSIAN_STD) if noise == "gaussian" else (1, LAPLACE_SCALE)
    worst = 0.0
    for trial in range(40):
        one = 10.0 ** rng.uniform(-3, 4) * rng.standard_normal(p)
        way = np.ones(p) if trial == 0 else rng.standard_normal(p)
        other = one + 0.3 * way / np.linalg.norm(way)
        moved = np.linalg.norm((cover.count(one) - cover.count(other)).astype(float), order)
        worst = max(worst, 50.0 * moved / scale)
    assert 0.99 < worst <= 1.0


def test_too_many_coordinates_are_refused():
    with pytest.raises(Refused, match="too many coordinates"):
        _ = Mask("pure", 1e3, 1.0, 10_000).step
    assert not Mask("pure", 1e3, 1.0, 10_000).fits()
    assert Mask("gaussian", 1e3, 1.0, 10_000).fits()
    assert not Mask("gaussian", 1.0, 1e-12, 5).fits(1.0)
    with pytest.raises(ValueError, match="discrete_noise=True has no room"):
        choose_masked(True, Mask("pure", 1e3, 1.0, 10_000), 1.0)
    assert not choose_masked(None, Mask("gaussian", 1.0, 1e-12, 5), 1.0)
    assert choose_masked(None, Mask("gaussian", 1.0, 1e-3, 5), 1.0)
    assert not choose_masked(False, Mask("gaussian", 1.0, 1e-3, 5), 1.0)


# ---------------------------------------------------------------- noise inside
@pytest.mark.statistical
@pytest.mark.parametrize("p", [1, 2, 9])
def test_rounded_noise_has_its_law(p):
    source = SeededSource(p)
    lengths = [np.linalg.norm(rounded.norm_gamma(source, 2.0, p)) for _ in range(4000)]
    assert stats.kstest(lengths, stats.gamma(p, scale=2.0).cdf).pvalue > 1e-6
    assert stats.kstest(lengths, stats.gamma(p, scale=1.7).cdf).pvalue < 1e-6
    first = [rounded.norm_gamma(source, 1.0, p)[0] for _ in range(4000)]
    assert abs(np.sign(first).sum()) < 5 * math.sqrt(4000)
    draws = rounded.gaussian(source, 3.0, 20_000)
    assert stats.kstest(draws, stats.norm(scale=3.0).cdf).pvalue > 1e-6


@pytest.mark.parametrize("p", [1, 3, 50])
def test_exact_draws_lie_within_the_stated_distance(p):
    """The exact Gaussians behind the integers: half a step off, at the worst corner too."""
    rng = np.random.default_rng(p)
    half = 0.5 / FINE_STD
    for trial in range(50):
        seed = 100 * p + trial
        drawn = rounded.fine_gaussian(SeededSource(seed), 2 * p + 1) / FINE_STD
        signs = rng.choice([-1.0, 1.0], 2 * p + 1) if trial % 2 else np.sign(drawn)
        exact = drawn + half * signs
        found = rounded.norm_gamma(SeededSource(seed), 5.0, p)
        off = np.linalg.norm(5.0 * np.linalg.norm(exact[p:]) * exact[:p] - found)
        assert off <= 5.0 * rounded.norm_gamma_error(p)
        found = rounded.gaussian(SeededSource(seed), 5.0, 2 * p + 1)
        assert np.linalg.norm(5.0 * exact - found) <= 5.0 * rounded.gaussian_error(2 * p + 1)


def test_silent_noise_is_silent():
    assert not rounded.gaussian(SilentSource(), 1.0, 4).any()
    assert not rounded.norm_gamma(SilentSource(), 1.0, 4).any()


# ---------------------------------------------------------------- low-order bits
@pytest.mark.statistical
@every_noise
def test_low_bits_of_a_masked_number_tell_nothing(noise):
    """A million runs on each of two neighbours, whose computed numbers end in different digits."""
    cover = Mask(noise, 4.0, 1.0, 1)
    one, other = (
        cover.cover(cover.count(np.full(RUNS, value)), SeededSource(seed))
        for seed, value in enumerate((0.3, 1.3))
    )
    assert low_bits(one, other, cover.step) < 0.005


@pytest.mark.statistical
def test_low_bits_of_pure_noise_on_integers_tell_nothing():
    """A million coordinates in one release each."""
    mechanism = DiscreteNormGamma(1.0, RUNS)
    sensitivity = Sensitivity("l2", 1.0, 1.0, grid=Grid(1 / mechanism.resolution, RUNS))
    one, other = (
        mechanism.run(np.full(RUNS, count), sensitivity, SeededSource(seed))
        for seed, count in enumerate((7, 1000))
    )
    assert low_bits(one, other, sensitivity.grid.step) < 0.005


@pytest.mark.statistical
def test_low_bits_of_a_result_in_floating_point_leak():
    one, other = (
        OutputPerturbation("gaussian", 4.0, Fixed(np.full(RUNS // 5, value))).run(
            None, function_reach(1), SeededSource(seed)
        )
        for seed, value in enumerate((0.0, 1.0))
    )
    assert low_bits(one, other, 2.0**-53) > 5.0


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("solver", ["objective_perturbation", "output_perturbation"])
def test_releases_of_a_run_lie_on_their_grid(solver, delta):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((50, 3)), np.where(rng.random(50) < 0.5, 1.0, -1.0)
    problem, budget = Problem(Logistic(), L2Ball(3.0)), Budget(1.0, delta)
    noise = "gaussian" if delta else "pure"

    def run(X, y, **choices):
        return solve(
            problem, X, y, budget=budget, solver=solver, noise=noise, random_state=1, **choices
        )

    result, tape = record(run, (X, y))
    (release,) = tape.releases
    step = release.mechanism._mask(release.sensitivity).step
    assert np.array_equal(np.rint(release.result / step) * step, release.result)
    assert result.certificate.numerics["exact_releases"] == 1
    plain = run(X, y, discrete_noise=False)
    assert plain.certificate.numerics is None
    assert plain.certificate.epsilon == pytest.approx(result.certificate.epsilon, rel=1e-9)


# ---------------------------------------------------------------- scale and guarantee
@pytest.mark.statistical
@every_noise
def test_output_noise_has_its_scale(noise):
    """Of a hardened minimiser: with no noise inside, all that is left is the mask."""
    mechanism = ObjectivePerturbation(noise, 1e-9, 0.5, 1e-2, 3.0, discrete_noise=True)
    sealed = sealed_function(p=2)
    found = np.array([Gate(SeededSource(s)).release(mechanism, sealed) for s in range(400)])
    exact = Gate(SilentSource()).release(mechanism, sealed)
    scale = 3.0 * 2 * 1e-2 / 0.5
    law = stats.norm(scale=scale) if noise == "gaussian" else stats.laplace(scale=scale * 2**0.5)
    assert stats.kstest((found - exact).ravel(), law.cdf).pvalue > 1e-6
    assert stats.kstest((found - exact).ravel() * 2, law.cdf).pvalue < 1e-6


@pytest.mark.statistical
@pytest.mark.parametrize("p", [1, 2, 30])
def test_pure_noise_keeps_its_law_but_for_the_mask(p):
    """Lengths of norm-Gamma noise with its mask: a Gamma law, a few percent wider at most."""
    sensitivity, value = function_reach(p), np.zeros(p)
    mechanism = OutputPerturbation("pure", 2.0, Fixed(value), discrete_noise=True)
    drawn = [mechanism.run(None, sensitivity, SeededSource(s)) for s in range(1000)]
    on_grid = DiscreteNormGamma(2.0, p)
    grid = Sensitivity("l2", 1.0, 1.0, grid=Grid(1 / on_grid.resolution, p))
    counts = np.zeros(p, dtype=np.int64)
    summed = [on_grid.run(counts, grid, SeededSource(s)) for s in range(1000)]
    for noise in (drawn, summed):
        lengths = np.linalg.norm(noise, axis=1) / 2.0
        assert stats.kstest(lengths, stats.gamma(p).cdf).pvalue > 1e-6
        assert stats.kstest(1.5 * lengths, stats.gamma(p).cdf).pvalue < 1e-6
        spread = np.mean(lengths**2) / (p * (p + 1))
        assert spread < mask.PURE_GROWTH**2 * (1 + 5 * math.sqrt(10 / (p * 1000)))


def test_shares_of_pure_noise_add_up_to_the_declared_loss():
    cover = pure_mask(4.0, 2.0, 3)
    inner = 2.0 / pure_scale(4.0, 2.0)
    assert inner + 1 / cover.multiplier == pytest.approx(1 / 4.0, rel=1e-12)
    # What the mask covers: the error of the draw, for two neighbours.
    assert cover.movement >= 2 * pure_scale(4.0, 2.0) * rounded.norm_gamma_error(3)
    sensitivity = function_reach(3)
    assert OutputPerturbation("pure", 4.0, Fixed(0), discrete_noise=True).kinds(sensitivity) == (
        Pure(0.25),
    )
    assert DiscreteNormGamma(4.0, 3).kinds(sensitivity) == (Pure(0.25),)


@every_noise
def test_kinds_do_not_change_and_numerics_add_up(noise):
    sensitivity = function_reach(3, 2.0)
    hard = ObjectivePerturbation(noise, 4.0, 1.0, 1e-6, 8.0, discrete_noise=True)
    plain = ObjectivePerturbation(noise, 4.0, 1.0, 1e-6, 8.0)
    assert hard.kinds(sensitivity) == plain.kinds(sensitivity)
    assert hard.kinds(sensitivity)[1] == (
        Pure(0.125) if noise == "pure" else GaussianKind(0.125, 0.125)
    )
    assert plain.numerics(sensitivity) is None
    found = hard.numerics(sensitivity)
    inside = (7 if noise == "pure" else 3) * FINE_LOG_RATIO
    covering = 0.0 if noise == "pure" else 3 * GAUSSIAN_LOG_RATIO
    assert found.log_ratio == pytest.approx(inside + covering)
    if noise == "pure":
        own = rounded.norm_gamma_numerics(3)[1]
        assert found.distance == pytest.approx(own + 3 * LAPLACE_DISTANCE)
    algorithm = Minimiser(1.0, 1e-3)
    out = OutputPerturbation(noise, 4.0, algorithm, discrete_noise=True).numerics(sensitivity)
    assert out.log_ratio == pytest.approx(inside if noise == "pure" else covering)
    assert OutputPerturbation(noise, 4.0, algorithm).numerics(sensitivity) is None


@every_noise
def test_a_tolerance_below_the_rounding_of_the_noise_is_refused(noise):
    mechanism = ObjectivePerturbation(noise, 100.0, 1.0, 1e-12, 8.0, discrete_noise=True)
    with pytest.raises(Refused, match="does not cover the rounding of the noise"):
        Gate(SeededSource(0)).release(mechanism, sealed_function())
