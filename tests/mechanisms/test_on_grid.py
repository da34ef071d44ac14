"""Hardened releases: exact integers underneath, the declared scale, no low-order bits to read."""

import json
import math

import jsonschema
import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats

from privopt import Budget, LogisticRegression, Problem, Refused, solve
from privopt.audit import low_bits, record
from privopt.geometry import L2Ball
from privopt.losses import Logistic
from privopt.mechanisms import (
    DiscreteGaussian,
    DiscreteLaplace,
    Gate,
    Gaussian,
    Laplace,
    choose_discrete,
)
from privopt.noise import SecureSource, SeededSource
from privopt.noise.discrete import GAUSSIAN_DISTANCE, GAUSSIAN_LOG_RATIO, GAUSSIAN_STD, OUTSIDE
from privopt.oracle import CountRecords, NormHistogram, Oracle, RowBounds
from privopt.oracle.sealed import KEY, Sealed
from privopt.oracle.sensitivity import Grid, Sensitivity
from privopt.privacy import Certificate, Event, Log, certificate_schema
from privopt.privacy.certificate import slack
from privopt.privacy.kinds import GaussianKind, Pure

RUNS = 1_000_000
PROBLEM = Problem(Logistic(), L2Ball(3.0), intercept=0.5)
HARDENED = [DiscreteGaussian, DiscreteLaplace]


def reach_of(mechanism, radius=1.0, count=1):
    return Sensitivity(
        mechanism.accepts, radius, radius, grid=Grid(radius / mechanism.resolution, count)
    )


def released(mechanism, value, runs, seed):
    """One coordinate for each run, of a value in units of the sensitivity."""
    if mechanism.resolution is None:
        sensitivity, payload = Sensitivity(mechanism.accepts, 1.0, 1.0), np.full(runs, value)
    else:
        sensitivity = reach_of(mechanism, count=runs)
        payload = np.full(runs, int(value / sensitivity.grid.step), dtype=np.int64)
    return mechanism.run(payload, sensitivity, SeededSource(seed)), sensitivity


# ---------------------------------------------------------------- low-order bits
@pytest.mark.statistical
@pytest.mark.parametrize("multiplier", [0.25, 1.0, 7.3])
@pytest.mark.parametrize("kind", HARDENED)
def test_low_bits_of_a_hardened_release_tell_nothing(kind, multiplier):
    """A million runs on each of two neighbours: the bound prints as 0.00. A fair coin's rate would
    have to be off by 10 standard errors."""
    mechanism = kind(multiplier)
    (one, sensitivity), (other, _) = (
        released(mechanism, v, RUNS, s) for s, v in enumerate((0.0, 0.9))
    )
    assert low_bits(one, other, sensitivity.grid.step) < 0.005
    assert low_bits(one, other, sensitivity.grid.step, confidence=0.5) < 0.005


@pytest.mark.statistical
@pytest.mark.parametrize("plain", [Laplace, Gaussian])
def test_low_bits_of_noise_in_floating_point_leak(plain):
    """The same audit: values 0 and 1 at epsilon (or mu) 1/4 give away far more than that."""
    one, other = (released(plain(4.0), v, RUNS, s)[0] for s, v in enumerate((0.0, 1.0)))
    assert low_bits(one, other, 2.0**-53) > 7.0  # 8.0 and 9.6 were found


@pytest.mark.statistical
def test_the_same_numbers_counted_in_floating_point_leak_too():
    """Rounding off the noise alone is not enough: the value must lie on the grid as well."""
    mechanism = DiscreteGaussian(4.0)
    step = reach_of(mechanism).grid.step
    noise = [released(mechanism, 0.0, 10_000, seed)[0] for seed in (0, 1)]
    assert low_bits(noise[0], noise[1] + 0.3 * step, step) > 4.0


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("solver", ["noisy_gd", "noisy_sgd", "one_point_sgd"])
def test_every_release_of_a_gradient_method_is_its_integer_times_the_step(solver, form):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 3)), np.where(rng.random(60) < 0.5, 1.0, -1.0)

    def run(X, y):
        return solve(
            PROBLEM, form(X), y, budget=Budget(1.0, 1e-5), solver=solver, n_iter=8, random_state=1
        )

    result, tape = record(run, (X, y))
    assert len(tape.releases) == 8
    for release in tape.releases:
        step = release.sensitivity.grid.step
        assert release.payload.dtype == np.int64
        assert np.array_equal(np.rint(release.result / step) * step, release.result)
        assert isinstance(release.mechanism, DiscreteGaussian)
    assert result.certificate.numerics["exact_releases"] == 8
    plain, tape = record(
        lambda X, y: solve(
            PROBLEM,
            form(X),
            y,
            budget=Budget(1.0, 1e-5),
            solver=solver,
            n_iter=8,
            random_state=1,
            discrete_noise=False,
        ),
        (X, y),
    )
    assert {type(r.mechanism) for r in tape.releases} == {Gaussian}
    assert plain.certificate.numerics is None
    assert plain.certificate.epsilon == result.certificate.epsilon


# ---------------------------------------------------------------- scale and guarantee
@pytest.mark.statistical
@pytest.mark.parametrize("kind", HARDENED)
@pytest.mark.parametrize("radius", [1.0, 3e-5, 40.0])
def test_the_noise_has_the_declared_scale(kind, radius):
    mechanism = kind(2.5)
    sensitivity = reach_of(mechanism, radius, 50_000)
    noise = mechanism.run(np.zeros(50_000, dtype=np.int64), sensitivity, SeededSource(3))
    law = stats.norm if kind is DiscreteGaussian else stats.laplace
    assert stats.kstest(noise, law(scale=2.5 * radius).cdf).pvalue > 1e-6
    assert stats.kstest(noise, law(scale=2.2 * radius).cdf).pvalue < 1e-6


def test_events_are_those_of_the_plain_mechanisms():
    sensitivity = Sensitivity("l2", 2.0, 1.0, grid=Grid(2.0 / DiscreteGaussian(4.0).resolution, 3))
    assert DiscreteGaussian(4.0).kinds(sensitivity) == (GaussianKind(0.25, 0.125),)
    assert DiscreteLaplace(4.0).kinds(sensitivity) == (Pure(0.25),)


def test_the_discrete_laplace_ratio_is_the_declared_epsilon():
    """One reach is LAPLACE_SCALE / multiplier steps: chances differ by e^(1/multiplier)."""
    assert DiscreteLaplace(4.0).resolution / 2.0**33 == 0.25
    assert DiscreteGaussian(4.0).resolution / GAUSSIAN_STD == 0.25


@pytest.mark.parametrize("kind", HARDENED)
def test_only_integers_on_its_own_grid(kind):
    mechanism, gate = kind(2.0), Gate(SeededSource(0))
    zeros = np.zeros(2, dtype=np.int64)
    other = reach_of(kind(1.0), count=2)
    for payload, sensitivity in ((zeros, other), (zeros, Sensitivity(mechanism.accepts, 1.0, 1.0))):
        with pytest.raises(Refused, match="grid of its own"):
            gate.release(mechanism, Sealed(KEY, payload, sensitivity))
    with pytest.raises(Refused, match="integers"):
        gate.release(mechanism, Sealed(KEY, np.zeros(2), reach_of(mechanism, count=2)))
    plain = Gaussian(2.0) if kind is DiscreteGaussian else Laplace(2.0)
    with pytest.raises(Refused, match="takes no sum on a grid"):
        gate.release(plain, Sealed(KEY, zeros, other))


@pytest.mark.parametrize("multiplier", [1e-4, 1e11, 0.0, math.inf, math.nan])
@pytest.mark.parametrize("kind", HARDENED)
def test_multipliers_that_leave_no_room(kind, multiplier):
    with pytest.raises(ValueError, match="multiplier"):
        kind(multiplier)


def test_hardened_where_it_can_be():
    assert choose_discrete(None, True, 10.0, 10**6)
    assert not choose_discrete(None, True, 1e-4, 10**6)
    assert not choose_discrete(None, True, 0.01, 10**9)
    assert choose_discrete(None, False, 10.0, 100, 50)
    assert not choose_discrete(None, False, 1e8, 100, 50)  # its mask would be too wide
    assert not choose_discrete(None, False, 1e-4, 100, 50)
    assert not choose_discrete(False, True, 10.0, 100)
    for gaussian, multiplier, records in ((False, 1e7, 10), (True, 1e-4, 10), (True, 0.01, 10**9)):
        with pytest.raises(ValueError, match="discrete_noise=True needs"):
            choose_discrete(True, gaussian, multiplier, records)


def test_pure_gradient_descent():
    """Hardened where the mask over its noise is narrow, in floating point beyond."""
    X, y = np.eye(3), np.ones(3)
    problem = Problem(Logistic(), L2Ball(1.0))

    def run(epsilon, **choices):
        return solve(
            problem, X, y, budget=Budget(epsilon), solver="noisy_gd", n_iter=2, **choices
        ).certificate.numerics

    assert run(1.0)["exact_releases"] == 2
    assert run(1.0, discrete_noise=False) is None
    assert run(1e-8) is None
    with pytest.raises(ValueError, match="discrete_noise=True needs"):
        run(1e-8, discrete_noise=True)


# ---------------------------------------------------------------- counts
@pytest.mark.parametrize("mechanism", [DiscreteLaplace(0.5), DiscreteLaplace(3.0)])
def test_counts_with_laplace_noise(mechanism):
    X = np.ones((1000, 2))
    view = Oracle.over(
        X,
        np.ones(1000),
        neighbouring="zero_out",
        bounds=RowBounds(math.inf),
        source=SecureSource(),
    ).everything()
    sealed = view.ask(NormHistogram((1.0, 2.0, 3.0), norm="l1"), resolution=mechanism.resolution)
    found = Gate(SeededSource(0)).release(mechanism, sealed)
    np.testing.assert_allclose(found, [0, 1000, 0], atol=20 * mechanism.multiplier)
    sealed = view.ask(CountRecords(norm="l1"), resolution=mechanism.resolution)
    assert abs(Gate(SeededSource(0)).release(mechanism, sealed)[0] - 1000) < 60


# ---------------------------------------------------------------- the certificate
def test_the_certificate_carries_the_slack():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((200, 4)), np.where(rng.random(200) < 0.5, 1.0, -1.0)
    model = LogisticRegression(1.0, 1e-6, solver="noisy_gd").fit(X, y)
    certificate = model.privacy_
    numerics, variables = certificate.numerics, certificate.releases * 5
    assert numerics["exact_releases"] == certificate.releases
    assert numerics["epsilon"] == pytest.approx(2 * variables * GAUSSIAN_LOG_RATIO)
    assert numerics["delta"] == pytest.approx(
        (1 + math.exp(certificate.epsilon)) * variables * (GAUSSIAN_DISTANCE + OUTSIDE)
    )
    assert 0 < numerics["epsilon"] < 1e-9 * certificate.epsilon
    assert 0 < numerics["delta"] < 1e-9 * certificate.delta
    assert "exact integers in" in str(certificate)
    data = json.loads(certificate.to_json())
    jsonschema.validate(data, certificate_schema())
    assert Certificate.from_json(certificate.to_json()) == certificate


def test_slack_adds_up_and_counts_only_exact_releases():
    mechanism = DiscreteGaussian(1.0)
    numerics = mechanism.numerics(reach_of(mechanism, count=10))
    assert numerics.log_ratio == 10 * GAUSSIAN_LOG_RATIO
    log = Log()
    assert slack(log, 1.0) is None
    plain = Event("Gaussian", (GaussianKind(1.0, 1.0),))
    log.append(plain)
    assert slack(log, 1.0) is None
    for _ in range(3):
        log.append(Event("DiscreteGaussian", (GaussianKind(1.0, 1.0),), numerics=numerics))
    found = slack(log, 1.0)
    assert found["exact_releases"] == 3
    assert found["epsilon"] == pytest.approx(60 * GAUSSIAN_LOG_RATIO)
    assert found["delta"] == pytest.approx((1 + math.e) * 3 * numerics.distance)
    far = slack(log, 20.0)
    assert far["epsilon"] == found["epsilon"]
    assert far["delta"] == pytest.approx((1 + math.exp(20.0)) * 3 * numerics.distance)
    with pytest.raises(Refused, match="add 1 to delta"):
        slack(log, 1e6)
