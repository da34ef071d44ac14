"""Every sampler has the law it is named after, at the scale it was asked for.

Each p-value is compared with ALARM: a right sampler fails one such check in a million seeds. The
seeds are fixed, so that a check that has passed keeps passing until a sampler changes.
"""

import math

import numpy as np
import pytest
from scipy import stats

from privopt.noise import SeededSource, gaussian, gumbel, laplace, norm_gamma

ALARM = 1e-6
DRAWS = 60_000


class Half(SeededSource):
    """Half of the noise: the planted mistake that every check below must notice."""

    volume = 0.5


class Louder(SeededSource):
    """Ten per cent too much."""

    volume = 1.1


def check_law(sample, law):
    assert stats.kstest(sample, law.cdf).pvalue > ALARM


def vectors(source, scale, p, count=5000):
    return np.array([norm_gamma(source, scale, p) for _ in range(count)])


def check_gaussian(source, scale):
    check_law(gaussian(source, scale, DRAWS), stats.norm(scale=scale))


def check_laplace(source, scale):
    check_law(laplace(source, scale, DRAWS), stats.laplace(scale=scale))


def check_gumbel(source, scale):
    check_law(gumbel(source, scale, DRAWS), stats.gumbel_r(scale=scale))


def check_norm_gamma(source, scale):
    """Density proportional to exp(-||b|| / scale) in R^3: the length is Gamma(3, scale)."""
    lengths = np.linalg.norm(vectors(source, scale, 3), axis=1)
    check_law(lengths, stats.gamma(3, scale=scale))


CHECKS = [check_gaussian, check_laplace, check_gumbel, check_norm_gamma]


@pytest.mark.statistical
@pytest.mark.parametrize("scale", [1.0, 1e-3, 250.0])
@pytest.mark.parametrize("check", CHECKS)
def test_the_law_at_its_scale(check, scale):
    # false alarms: ALARM in each of the twelve
    check(SeededSource(1), scale)


@pytest.mark.statistical
@pytest.mark.parametrize("wrong", [Half(1), Louder(1)], ids=["half", "louder"])
@pytest.mark.parametrize("check", CHECKS)
def test_a_wrong_scale_is_noticed(check, wrong):
    """The checks above can fail: with half of the noise, and with 10 % too much."""
    with pytest.raises(AssertionError):
        check(wrong, 1.0)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("draw", "size"),
    [
        # E |noise| / scale in closed form, and the relative deviation of a single |draw|
        (lambda s: np.abs(gaussian(s, 3.0, DRAWS)), (3 * math.sqrt(2 / math.pi), 0.76)),
        (lambda s: np.abs(laplace(s, 3.0, DRAWS)), (3.0, 1.0)),
        (lambda s: gumbel(s, 3.0, DRAWS), (3 * 0.5772156649015329, 2.23)),
        (lambda s: np.linalg.norm(vectors(s, 3.0, 4), axis=1), (12.0, 0.5)),
    ],
    ids=["gaussian", "laplace", "gumbel", "norm_gamma"],
)
def test_the_mean_size_of_the_noise(draw, size):
    # five standard errors: false alarm 6e-7 each
    expected, spread = size
    sample = draw(SeededSource(2))
    band = 5 * spread / math.sqrt(len(sample))
    assert band < 0.1
    assert np.mean(sample) == pytest.approx(expected, rel=band)
    assert np.mean(draw(Half(2))) != pytest.approx(expected, rel=band)


@pytest.mark.parametrize("sampler", [gaussian, laplace, gumbel, norm_gamma])
def test_noise_is_proportional_to_its_scale(sampler):
    one, four = (sampler(SeededSource(3), scale, 50) for scale in (1.0, 4.0))
    np.testing.assert_allclose(four, 4 * one, rtol=1e-14)


@pytest.mark.parametrize("sampler", [gaussian, laplace, gumbel])
def test_shapes(sampler):
    assert sampler(SeededSource(4), 1.0, (3, 5)).shape == (3, 5)
    assert sampler(SeededSource(4), 1.0, 7).shape == (7,)
    assert sampler(SeededSource(4), 1.0, ()).shape == ()
    assert sampler(SeededSource(4), 1.0, 0).shape == (0,)


def test_norm_gamma_shapes():
    assert norm_gamma(SeededSource(4), 1.0, 0).shape == (0,)
    assert norm_gamma(SeededSource(4), 1.0, 6).shape == (6,)


# ------------------------------------------------------------------------------ several coordinates
@pytest.mark.statistical
@pytest.mark.parametrize("sampler", [gaussian, laplace, gumbel])
def test_coordinates_are_independent(sampler):
    """Rank correlations of three coordinates, plain and of their sizes."""
    # false alarms: 6 * ALARM for each sampler
    draws = sampler(SeededSource(5), 1.0, (5000, 3))
    for values in (draws, np.abs(draws)):
        for i, j in ((0, 1), (0, 2), (1, 2)):
            assert stats.spearmanr(values[:, i], values[:, j]).pvalue > ALARM


@pytest.mark.statistical
@pytest.mark.parametrize("p", [1, 2, 7])
def test_norm_gamma_in_other_dimensions(p):
    # false alarm: ALARM each
    lengths = np.linalg.norm(vectors(SeededSource(6), 0.5, p, 4000), axis=1)
    check_law(lengths, stats.gamma(p, scale=0.5))


@pytest.mark.statistical
def test_norm_gamma_in_one_dimension_is_laplace():
    # false alarm: ALARM
    check_law(vectors(SeededSource(7), 2.0, 1).ravel(), stats.laplace(scale=2.0))


@pytest.mark.statistical
def test_norm_gamma_has_a_uniform_direction_that_is_independent_of_its_length():
    # false alarms: 7 * ALARM
    draws = vectors(SeededSource(8), 1.0, 3)
    lengths = np.linalg.norm(draws, axis=1)
    for coordinate in (draws / lengths[:, None]).T:  # Archimedes: uniform on [-1, 1] in R^3
        check_law(coordinate, stats.uniform(-1, 2))
        assert stats.spearmanr(np.abs(coordinate), lengths).pvalue > ALARM
    angle = np.arctan2(draws[:, 1], draws[:, 0])
    check_law(angle, stats.uniform(-math.pi, 2 * math.pi))


@pytest.mark.statistical
def test_independent_laplaces_would_not_pass_for_norm_gamma():
    draws = laplace(SeededSource(8), 1.0, (5000, 3))
    with pytest.raises(AssertionError):
        check_law(np.linalg.norm(draws, axis=1), stats.gamma(3))


@pytest.mark.statistical
def test_the_largest_gumbel_is_the_exponential_mechanism():
    """argmax of score + scale * Gumbel has chances proportional to exp(score / scale)."""
    # false alarm: ALARM
    scores, scale = np.array([0.0, 0.5, 1.0, -1.0, 2.0]), 0.8
    noisy = scores + gumbel(SeededSource(9), scale, (DRAWS, 5))
    counts = np.bincount(noisy.argmax(axis=1), minlength=5)
    chances = np.exp(scores / scale) / np.exp(scores / scale).sum()
    assert stats.chisquare(counts, chances * DRAWS).pvalue > ALARM
    halved = scores + gumbel(Half(9), scale, (DRAWS, 5))
    wrong = np.bincount(halved.argmax(axis=1), minlength=5)
    assert stats.chisquare(wrong, chances * DRAWS).pvalue < ALARM


def test_a_gumbel_is_finite_even_when_its_exponential_is_zero():
    class Zero(SeededSource):
        @property
        def noise(self):
            return self

        def standard_exponential(self, shape):
            return np.zeros(shape)

    assert np.isfinite(gumbel(Zero(0), 1.0, 3)).all()
