"""Laws of the additive mechanisms, through the gate, on payloads that are zero.

Seeded. On a fresh seed each comparison would raise a false alarm with a probability of 1e-6; noise
halved or doubled must raise it, and each test shows that it does.
"""

import numpy as np
import pytest
from scipy import stats

from privopt.losses import Logistic
from privopt.mechanisms import Gate, Gaussian, Laplace, NormGamma
from privopt.mechanisms.maps import Scale
from privopt.noise import SeededSource, SilentSource
from privopt.oracle import ClippedGradient, CountRecords, Oracle, RowBounds, Sealed, Sensitivity
from privopt.oracle.sealed import KEY
from privopt.privacy.kinds import GaussianKind, Pure

ALARM = 1e-6
RELATIONS = [("zero_out", 1), ("add_remove", 1), ("replace_one", 2)]
every_relation = pytest.mark.parametrize(("neighbouring", "factor"), RELATIONS)


def agrees(sample, law):
    """Kolmogorov-Smirnov."""
    return stats.kstest(np.ravel(sample), law.cdf).pvalue > ALARM


def check_law(sample, law):
    assert agrees(sample, law)
    for factor in (0.5, 2.0):
        assert not agrees(factor * np.asarray(sample), law)


def zero_payload(neighbouring, clip_norm, dimension, seed=0):
    """The sum over no records: all that comes out is noise."""
    oracle = Oracle.empty(
        dimension,
        neighbouring=neighbouring,
        bounds=RowBounds(1.0),
        source=SeededSource(seed),
    )
    return oracle.everything().ask(ClippedGradient(Logistic(), clip_norm))


@pytest.mark.statistical
@every_relation
def test_gaussian_noise_has_the_declared_scale(neighbouring, factor):
    gate, sealed = Gate(SeededSource(1)), zero_payload(neighbouring, 0.7, 50)
    noise = np.array([gate.release(Gaussian(3.0), sealed) for _ in range(200)])
    scale = 3.0 * factor * 0.7
    check_law(noise / scale, stats.norm)
    square = np.sum((noise / scale) ** 2)
    assert ALARM / 2 < stats.chi2(noise.size).cdf(square) < 1 - ALARM / 2


@pytest.mark.statistical
@every_relation
def test_norm_gamma_noise_has_the_declared_scale(neighbouring, factor):
    """Length Gamma(3), direction uniform: a coordinate of it is uniform (Archimedes)."""
    gate, sealed = Gate(SeededSource(2)), zero_payload(neighbouring, 0.7, 3)
    noise = np.array([gate.release(NormGamma(3.0), sealed) for _ in range(4000)])
    lengths = np.linalg.norm(noise, axis=1)
    check_law(lengths / (3.0 * factor * 0.7), stats.gamma(3))
    directions = noise / lengths[:, None]
    for axis in range(3):
        assert agrees(directions[:, axis], stats.uniform(-1, 2))
    angle = np.arctan2(directions[:, 1], directions[:, 0])
    assert agrees(angle, stats.uniform(-np.pi, 2 * np.pi))
    assert abs(stats.spearmanr(lengths, directions[:, 2]).statistic) * np.sqrt(4000) < 5
    # Independent Laplace coordinates have another law of the length.
    rng = np.random.default_rng(0)
    assert not agrees(np.linalg.norm(rng.laplace(size=(4000, 3)), axis=1), stats.gamma(3))


@pytest.mark.statistical
@pytest.mark.parametrize(("radius", "single"), [(0.7, 0.7), (1.4, 0.7)])
def test_laplace_noise_has_the_declared_scale(radius, single):
    gate = Gate(SeededSource(3))
    sealed = Sealed(KEY, np.zeros(50), Sensitivity("l1", radius, single))
    noise = np.array([gate.release(Laplace(3.0), sealed) for _ in range(200)])
    check_law(noise / (3.0 * radius), stats.laplace)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("mechanism", "law"), [(Gaussian(2.0), stats.norm), (NormGamma(2.0), stats.laplace)]
)
def test_noise_in_one_dimension_and_through_a_map(mechanism, law):
    """In one dimension norm-Gamma is Laplace; a map's stretch scales the noise with it."""
    oracle = Oracle.empty(
        1, neighbouring="replace_one", bounds=RowBounds(1.0), source=SeededSource(0)
    )
    sealed = oracle.everything().ask(ClippedGradient(Logistic(), 0.5)).through(Scale(-10.0))
    gate = Gate(SeededSource(4))
    noise = np.array([gate.release(mechanism, sealed) for _ in range(3000)])
    check_law(noise / (2.0 * 10.0 * 1.0), law)


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", [Gaussian(1.0), Laplace(1.0)], ids=repr)
def test_coordinates_and_releases_are_independent(mechanism):
    """Correlations of neighbouring coordinates and successive releases, |z| < 5."""
    sealed = Sealed(KEY, np.zeros(60), Sensitivity(mechanism.accepts, 1.0, 1.0))
    gate = Gate(SeededSource(5))
    noise = np.array([gate.release(mechanism, sealed) for _ in range(300)])
    noise /= noise.std()
    for pairs in (noise[:, 1:] * noise[:, :-1], noise[1:] * noise[:-1]):
        assert abs(pairs.sum() / np.sqrt(pairs.size)) < 5
    squares = noise**2 - 1
    pairs = squares[:, 1:] * squares[:, :-1]
    assert abs(pairs.sum() / (np.sqrt(pairs.size) * np.var(squares))) < 5
    assert len(np.unique(noise)) == noise.size


def test_noise_is_added_to_the_payload_and_the_payload_is_kept():
    payload = np.array([1e6, -2e6, 3e6])
    for mechanism in (Gaussian(1e-6), NormGamma(1e-6), Laplace(1e-6)):
        sealed = Sealed(KEY, payload, Sensitivity(mechanism.accepts, 1.0, 1.0))
        value = Gate(SeededSource(6)).release(mechanism, sealed)
        np.testing.assert_allclose(value, [1e6, -2e6, 3e6], rtol=1e-10)
        assert np.all(value != payload)
        np.testing.assert_array_equal(payload, [1e6, -2e6, 3e6])


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (0,)])
def test_noise_has_the_shape_of_the_payload(shape):
    for mechanism in (Gaussian(1.0), NormGamma(1.0), Laplace(1.0)):
        sealed = Sealed(KEY, np.zeros(shape), Sensitivity(mechanism.accepts, 1.0, 1.0))
        assert np.shape(Gate(SeededSource(7)).release(mechanism, sealed)) == shape


def test_a_silent_source_makes_no_noise():
    for mechanism in (Gaussian(1.0), NormGamma(1.0), Laplace(1.0)):
        sealed = Sealed(KEY, np.arange(3.0), Sensitivity(mechanism.accepts, 1.0, 1.0))
        np.testing.assert_array_equal(
            Gate(SilentSource()).release(mechanism, sealed), np.arange(3.0)
        )


# ------------------------------------------------------------ kinds
@every_relation
@pytest.mark.parametrize("clip_norm", [1e-6, 0.37, 1e6])
def test_kinds_are_one_over_the_multiplier(neighbouring, factor, clip_norm):
    """Whatever the radius: under replace_one, one record's own sensitivity is half of the
    movement."""
    sensitivity = zero_payload(neighbouring, clip_norm, 2).sensitivity
    (kind,) = Gaussian(4.0).kinds(sensitivity)
    assert kind == GaussianKind(0.25, 0.25 / factor)
    assert NormGamma(4.0).kinds(sensitivity) == (Pure(0.25),)
    assert Laplace(4.0).kinds(Sensitivity("l1", clip_norm, clip_norm)) == (Pure(0.25),)


def test_a_count_moves_by_one_under_every_relation():
    """A record is there or not: replacing one by another moves a count by at most one."""
    for neighbouring, _ in RELATIONS:
        oracle = Oracle.empty(
            1, neighbouring=neighbouring, bounds=RowBounds(1.0), source=SeededSource(0)
        )
        sensitivity = oracle.everything().ask(CountRecords()).sensitivity
        assert (sensitivity.radius, sensitivity.single) == (1.0, 1.0)
        assert Gaussian(2.0).kinds(sensitivity) == (GaussianKind(0.5, 0.5),)


@pytest.mark.parametrize("make", [Gaussian, Laplace, NormGamma])
@pytest.mark.parametrize("multiplier", [0.0, -1.0, np.inf, np.nan])
def test_a_multiplier_must_be_positive_and_finite(make, multiplier):
    with pytest.raises(ValueError, match="multiplier"):
        make(multiplier)


@pytest.mark.parametrize("make", [Gaussian, Laplace, NormGamma])
def test_mechanisms_are_frozen(make):
    with pytest.raises(AttributeError):
        make(1.0).multiplier = 0.5
