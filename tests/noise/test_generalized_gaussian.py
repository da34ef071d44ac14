"""The l_r relatives of Gaussian and Laplace noise: their radial laws, and the declared loss."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import gamma

from privopt.geometry.norms import lp_norm
from privopt.mechanisms import Gate, GeneralizedGaussian, KNorm
from privopt.noise import SeededSource, generalized_gaussian, k_norm
from privopt.oracle import Sealed, Sensitivity
from privopt.oracle.sealed import KEY
from privopt.oracle.sensitivity import norm_named, order_of
from privopt.privacy import Accountant, Refused, spend
from privopt.privacy.kinds import Concentrated

ALARM = 1e-6


def lengths(draw, order, p, count, scale=0.7):
    source = SeededSource(5)
    return np.array([lp_norm(draw(source, scale, p, order), order) for _ in range(count)]) / scale


@pytest.mark.statistical
@pytest.mark.parametrize("order", [2.0, 3.0, 8.0, 200.0])
@pytest.mark.parametrize("p", [1, 2, 5, 50])
def test_the_radial_laws(order, p):
    """||z||_r^2 / (2 s^2) is Gamma(p/2), ||z||_r / s of the pure relative Gamma(p); a wrong shape
    fails at once."""
    halves = lengths(generalized_gaussian, order, p, 4000) ** 2 / 2
    assert stats.kstest(halves, stats.gamma(p / 2).cdf).pvalue > ALARM
    for wrong in (p, p / order if order > 2 else p / 4):
        assert stats.kstest(halves, stats.gamma(wrong).cdf).pvalue < ALARM
    pure = lengths(k_norm, order, p, 4000)
    assert stats.kstest(pure, stats.gamma(p).cdf).pvalue > ALARM
    assert stats.kstest(pure, stats.gamma(p + 1).cdf).pvalue < ALARM


@pytest.mark.statistical
def test_the_mean_square_length():
    square = lengths(generalized_gaussian, 4.0, 20, 40_000) ** 2
    assert square.mean() / 20 == pytest.approx(1.0, rel=0.01)


@pytest.mark.statistical
@pytest.mark.parametrize("order", [2.0, 4.0])
def test_the_direction_in_two_dimensions(order):
    """The share of an angle is the area of its sector of the l_r disc: the cone measure."""
    source = SeededSource(1)
    z = np.array([generalized_gaussian(source, 1.0, 2, order) for _ in range(20_000)])
    # One of eight equal sectors: in the whole circle the differences would average out.
    angles = np.arctan2(np.abs(z).min(axis=1), np.abs(z).max(axis=1))
    grid = np.linspace(0, np.pi / 4, 20_001)
    radius = (np.cos(grid) ** order + np.sin(grid) ** order) ** (-1 / order)
    area = np.concatenate([[0.0], np.cumsum(radius[1:] ** 2 + radius[:-1] ** 2)])
    law = lambda t: np.interp(t, grid, area / area[-1])  # noqa: E731
    assert stats.kstest(angles, law).pvalue > ALARM
    if order != 2:
        assert stats.kstest(angles, stats.uniform(0, np.pi / 4).cdf).pvalue < ALARM


@pytest.mark.statistical
def test_the_relatives_they_generalise():
    source = SeededSource(2)
    laplaces = np.concatenate([k_norm(source, 1.0, 5, 1.0) for _ in range(4000)])
    assert stats.kstest(laplaces, stats.laplace.cdf).pvalue > ALARM
    normals = np.concatenate([generalized_gaussian(source, 1.0, 5, 2.0) for _ in range(4000)])
    assert stats.kstest(normals, stats.norm.cdf).pvalue > ALARM


def divergence(order: float, alpha: float, shift: np.ndarray) -> float:
    """Renyi divergence of order alpha in the plane, by quadrature, in units of the scale."""
    grid = np.linspace(-16, 16, 1201) if alpha < 16 else np.linspace(-60, 60, 2401)
    x, y = np.meshgrid(grid, grid, indexing="ij")

    def half_square(dx, dy):
        largest = np.maximum(np.maximum(abs(dx), abs(dy)), 1e-12)
        power = (abs(dx) / largest) ** order + (abs(dy) / largest) ** order
        return largest**2 * power ** (2 / order) / 2

    exponent = -alpha * half_square(x - shift[0], y - shift[1]) - (1 - alpha) * half_square(x, y)
    area = (2 * gamma(1 + 1 / order)) ** 2 / gamma(1 + 2 / order)  # of the l_r disc
    mass = 2 * area  # the integral of exp(-t^2/2) over discs of radius t: area * 2t dt
    total = np.exp(exponent - exponent.max()).sum() * (grid[1] - grid[0]) ** 2
    return float((np.log(total / mass) + exponent.max()) / (alpha - 1))


@pytest.mark.slow
@pytest.mark.parametrize("order", [2.0, 3.0, 4.0, 8.0])
def test_the_divergence_stays_below_the_declared_bound(order):
    """The exact divergence is at most alpha rho; without the factor r - 1 it would not be."""
    reached = 0.0
    for alpha in (1.1, 2.0, 8.0, 32.0):
        for angle in (0.0, 0.3, np.pi / 4):
            shift = np.array([np.cos(angle), np.sin(angle)])
            shift *= 0.6 / np.sqrt(order - 1) / lp_norm(shift, order)
            bound = alpha * (order - 1) * lp_norm(shift, order) ** 2 / 2
            exact = divergence(order, alpha, shift)
            assert exact <= bound * (1 + 1e-5)
            reached = max(reached, exact / bound)
    if order == 2:
        assert reached == pytest.approx(1.0, rel=1e-5)
    else:
        assert reached > 1 / (order - 1)  # so that the factor of regularity cannot be dropped


def sealed(value, radius, order):
    return Sealed(KEY, np.asarray(value), Sensitivity(norm_named(order), radius, radius))


def test_the_mechanism_declares_what_the_theorem_says():
    gate = Gate(SeededSource(0))
    gate.release(GeneralizedGaussian(2.0, 4.0), sealed(np.zeros(3), 5.0, 4.0))
    assert gate.log[0].kinds == (Concentrated(1 / 8),)
    assert Accountant().epsilon(spend(gate.log), 1e-6) < 4
    gate.release(KNorm(2.0, 4.0), sealed(np.zeros(3), 5.0, 4.0))
    assert gate.log[1].kinds[0].pure("zero_out") == 0.5


@pytest.mark.statistical
@pytest.mark.parametrize("order", [2.0, 6.0])
def test_the_mechanisms_noise_has_the_declared_scale(order):
    gate, p, radius = Gate(SeededSource(3)), 6, 2.5
    for mechanism in (GeneralizedGaussian(1.5, order), KNorm(1.5, order)):
        pure = isinstance(mechanism, KNorm)
        scale = 1.5 * radius * (1 if pure else np.sqrt(order - 1))
        noise = [
            gate.release(mechanism, sealed(np.ones(p), radius, order)) - 1 for _ in range(3000)
        ]
        size = np.array([lp_norm(z, order) for z in noise]) / scale
        sample, law = (size, stats.gamma(p)) if pure else (size**2 / 2, stats.gamma(p / 2))
        assert stats.kstest(sample, law.cdf).pvalue > ALARM
        assert stats.kstest(sample / 2, law.cdf).pvalue < ALARM


def test_what_is_refused():
    for build in (
        lambda: GeneralizedGaussian(1.0, 1.5),
        lambda: GeneralizedGaussian(1.0, np.inf),
        lambda: GeneralizedGaussian(0.0, 3.0),
        lambda: KNorm(1.0, 0.5),
        lambda: generalized_gaussian(SeededSource(0), 1.0, 3, 0.5),
    ):
        with pytest.raises(ValueError, match=r"order|multiplier"):
            build()
    with pytest.raises(Refused, match="bounded in l3"):
        Gate(SeededSource(0)).release(GeneralizedGaussian(1.0, 3.0), sealed(np.zeros(2), 1.0, 2.0))


@pytest.mark.parametrize("order", [1.0, 2.0, 2.5, 10 / 3, np.inf])
def test_names_of_norms(order):
    assert order_of(norm_named(order) if order < np.inf else "linf") == order
    with pytest.raises(ValueError, match="exponent"):
        order_of("range")
