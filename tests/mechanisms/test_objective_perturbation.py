"""Laws of objective perturbation, and what it refuses.

Seeded. On a fresh seed each comparison would raise a false alarm with a probability of 1e-6.
"""

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy import stats
from scipy.integrate import cumulative_trapezoid
from scipy.special import expit

from privopt.losses import (
    Absolute,
    Hinge,
    Huber,
    Logistic,
    Quantile,
    SmoothedHinge,
    Squared,
)
from privopt.mechanisms import Gate, ObjectivePerturbation
from privopt.mechanisms import objective_perturbation as module
from privopt.noise import SeededSource, SilentSource, rounded
from privopt.numerics import newton as minimiser
from privopt.oracle import Oracle, RowBounds
from privopt.oracle.sealed import KEY
from privopt.privacy import Refused
from privopt.privacy.kinds import GaussianKind, ObjectiveGaussian, Pure

ALARM = 1e-6
RELATIONS = {"zero_out": 1, "add_remove": 1, "replace_one": 2}
every_relation = pytest.mark.parametrize("neighbouring", RELATIONS)


def agrees(sample, cdf):
    return stats.kstest(np.ravel(sample), cdf).pvalue > ALARM


def over(X, y, loss, neighbouring="zero_out", bounds=None, form=np.asarray):
    oracle = Oracle.over(
        form(X),
        y,
        neighbouring=neighbouring,
        bounds=bounds or RowBounds(1.0),
        source=SeededSource(0),
        classification=loss.classification,
    )
    return oracle.everything().function(loss)


def over_nothing(p, loss, neighbouring, bounds):
    oracle = Oracle.empty(p, neighbouring=neighbouring, bounds=bounds, source=SeededSource(0))
    return oracle.everything().function(loss)


def releases(mechanism, sealed, count, seed):
    gate = Gate(SeededSource(seed))
    return np.array([gate.release(mechanism, sealed) for _ in range(count)])


# ------------------------------------------------------------ (i) no data
@pytest.mark.statistical
@every_relation
@pytest.mark.parametrize("p", [1, 3])
def test_pure_noise_on_no_data(neighbouring, p):
    """lambda ||theta|| is Gamma(p) with scale multiplier L; replace_one doubles it."""
    bounds, lam = RowBounds(0.8, 0.6), 0.3
    sealed = over_nothing(p, Huber(1.7), neighbouring, bounds)
    theta = releases(ObjectivePerturbation("pure", 2.0, lam, 1e-9, 1.0), sealed, 1500, 1)
    scale = 2.0 * RELATIONS[neighbouring] * 1.7
    lengths = lam * np.linalg.norm(theta, axis=1) / scale
    assert agrees(lengths, stats.gamma(p).cdf)
    for factor in (0.5, 2.0):
        assert not agrees(factor * lengths, stats.gamma(p).cdf)


@pytest.mark.statistical
@every_relation
@pytest.mark.parametrize("p", [1, 4])
def test_gaussian_noise_on_no_data(neighbouring, p):
    """lambda theta is N(0, (multiplier L)^2), under every relation: the profile does the rest."""
    bounds, lam = RowBounds(0.8, 0.6), 0.3
    sealed = over_nothing(p, Huber(1.7), neighbouring, bounds)
    theta = releases(ObjectivePerturbation("gaussian", 2.0, lam, 1e-9, 1.0), sealed, 1500, 2)
    z = lam * theta / (2.0 * 1.7)
    assert agrees(z, stats.norm.cdf)
    assert agrees(np.linalg.norm(z, axis=1), stats.chi(p).cdf)
    for factor in (0.5, 2.0):
        assert not agrees(factor * z, stats.norm.cdf)


def test_the_centre_is_where_the_regulariser_pulls():
    sealed = over_nothing(2, Logistic(), "zero_out", RowBounds(1.0))
    for noise in ("pure", "gaussian"):
        plain = ObjectivePerturbation(noise, 2.0, 0.3, 1e-9, 1.0)
        moved = ObjectivePerturbation(noise, 2.0, 0.3, 1e-9, 1.0, centre=(5.0, -7.0))
        one = Gate(SeededSource(3)).release(plain, sealed)
        other = Gate(SeededSource(3)).release(moved, sealed)
        np.testing.assert_allclose(other - one, [5.0, -7.0], atol=1e-6)
        silent = Gate(SilentSource()).release(moved, sealed)
        np.testing.assert_array_equal(silent, [5.0, -7.0])


# ------------------------------------------------------------ (ii) a quadratic
@pytest.mark.statistical
def test_a_quadratic_has_the_covariance_of_theory():
    """Huber with an endless parabola: (H + lambda)(theta - ridge) / sigma is standard normal."""
    width, lam, sigma = 1e6, 0.5, 2.0
    rng = np.random.default_rng(4)
    X = rng.normal(size=(40, 3)) * [0.3, 0.1, 0.02]
    y = X @ [1.0, -2.0, 3.0] + rng.normal(size=40)
    assert np.linalg.norm(X, axis=1).max() < 1.0
    mechanism = ObjectivePerturbation("gaussian", sigma / width, lam, 1e-15, 1.0)
    theta = releases(mechanism, over(X, y, Huber(width)), 1500, 5)
    H = X.T @ X + lam * np.eye(3)
    z = (theta - np.linalg.solve(H, X.T @ y)) @ H / sigma
    assert agrees(z, stats.norm.cdf)
    assert agrees(np.linalg.norm(z, axis=1), stats.chi(3).cdf)
    correlation = np.corrcoef(z.T)[np.triu_indices(3, 1)]
    assert np.abs(correlation).max() * math.sqrt(1500) < 5
    covariance = np.cov(theta.T)
    expected = sigma**2 * np.linalg.inv(H) @ np.linalg.inv(H)
    np.testing.assert_allclose(covariance, expected, rtol=0, atol=0.2 * np.diag(expected).max())


# ------------------------------------------------------------ (iii) the determinant
@pytest.mark.statistical
@pytest.mark.parametrize("noise", ["gaussian", "pure"])
def test_one_dimensional_logistic_has_the_density_with_the_determinant(noise):
    """Density nu(J') J''. Without J'', or with 1/J'', the law is another, and the test sees it."""
    x = np.array([1.0] * 30 + [-0.8] * 20 + [0.3] * 10)
    y = np.array([1.0] * 22 + [-1.0] * 8 + [-1.0] * 12 + [1.0] * 8 + [1.0] * 10)
    lam, scale = 0.8, 9.0
    mechanism = ObjectivePerturbation(noise, scale, lam, 1e-10, 1.0)
    theta = releases(mechanism, over(x[:, None], y, Logistic()), 2000, 6)[:, 0]

    grid = np.linspace(-400.0, 400.0, 80_001)
    first, second = lam * grid, np.full_like(grid, lam)
    for record, label in zip(x, y, strict=True):
        s = expit(-label * record * grid)
        first = first - label * record * s
        second = second + record**2 * s * (1 - s)
    nu = stats.norm.pdf(first / scale) if noise == "gaussian" else np.exp(-abs(first) / scale) / 2
    right = nu * second / scale
    mass = np.trapezoid(right, grid)
    assert mass == pytest.approx(1.0, abs=1e-5)

    def cdf(density):
        total = cumulative_trapezoid(density, grid, initial=0.0)
        return lambda t: np.interp(t, grid, total / total[-1])

    assert agrees(theta, cdf(right))
    assert not agrees(theta, cdf(nu))
    assert not agrees(theta, cdf(nu / second))
    assert not agrees(theta, cdf(np.sqrt(second) * nu))


# ------------------------------------------------------------ (iv) the tolerance is paid for
@pytest.mark.statistical
@every_relation
@pytest.mark.parametrize("noise", ["gaussian", "pure"])
def test_output_noise_covers_the_tolerance(neighbouring, noise):
    """A tolerance so large that the start is good enough: what is left is the output noise.

    Its scale is output_multiplier 2 tolerance L / lambda, whatever the relation: the computed
    minimisers of both data sets are each within tolerance L / lambda of their own exact ones.
    """
    p, lam, tolerance, output = 3, 0.25, 0.7, 1.5
    sealed = over_nothing(p, Huber(2.0), neighbouring, RowBounds(0.8, 0.6))
    mechanism = ObjectivePerturbation(noise, 1e-9, lam, tolerance, output)
    theta = releases(mechanism, sealed, 1500, 7)
    lengths = np.linalg.norm(theta, axis=1) / (output * 2 * tolerance * 2.0 / lam)
    law = stats.chi(p) if noise == "gaussian" else stats.gamma(p)
    assert agrees(lengths, law.cdf)
    for factor in (0.5, 2.0):
        assert not agrees(factor * lengths, law.cdf)


def test_the_minimiser_is_asked_for_three_quarters_of_the_tolerance(monkeypatch):
    """Its own rounding included; the last quarter belongs to that of the noise."""
    asked = []

    def spy(function, *, gradient_norm, **arguments):
        asked.append(gradient_norm)
        return minimiser.minimise_surely(function, gradient_norm=gradient_norm, **arguments)

    monkeypatch.setattr("privopt.mechanisms.objective_perturbation.minimise_surely", spy)
    sealed = over_nothing(2, Huber(2.0), "replace_one", RowBounds(3.0, 4.0))
    Gate(SeededSource(0)).release(ObjectivePerturbation("pure", 1.0, 1.0, 1e-3, 1.0), sealed)
    assert asked == [pytest.approx(0.75e-3 * 2.0 * 5.0)]
    assert asked[0] <= 0.75e-3 * 10.0 * (1 + 1e-12)


def test_released_minimisers_are_stationary_points():
    """Noise known from a twin source: sum of gradients + lambda theta + b vanishes."""
    rng = np.random.default_rng(8)
    X, y = rng.normal(size=(200, 3)), rng.choice([-1.0, 1.0], size=200)
    bounds, lam = RowBounds(1.0, 0.5), 0.2
    for form in (np.asarray, sp.csr_array, torch.from_numpy):
        sealed = over(X, y, Logistic(), bounds=bounds, form=form)
        mechanism = ObjectivePerturbation("gaussian", 3.0, lam, 1e-9, 1e-3)
        theta = Gate(SeededSource(9)).release(mechanism, sealed)
        b = rounded.gaussian(SeededSource(9), 3.0 * math.hypot(1.0, 0.5), 4)
        rows = X * np.minimum(1, 1 / np.linalg.norm(X, axis=1))[:, None]
        rows = np.column_stack([rows, np.full(200, 0.5)])
        gradient = rows.T @ (-y * expit(-y * (rows @ theta))) + lam * theta + b
        assert np.linalg.norm(gradient) < 1e-7


# ------------------------------------------------------------ kinds
@every_relation
@pytest.mark.parametrize("lam", [1e-3, 1.0, 1e5])
def test_kinds_in_closed_form(neighbouring, lam):
    bounds = RowBounds(3.0, 4.0)  # rows up to 5: Lipschitz 5, smoothness 25/4
    sealed = over_nothing(2, Logistic(), neighbouring, bounds)
    c = math.log(1 + 6.25 / lam) if lam < 10 else math.log1p(6.25 / lam)
    pure = ObjectivePerturbation("pure", 4.0, lam, 1e-6, 8.0).kinds(sealed.sensitivity)
    assert [type(kind) for kind in pure] == [Pure, Pure]
    assert pure[0].epsilon == pytest.approx(c + 0.25, rel=1e-12)
    assert pure[1].epsilon == 0.125
    first, second = ObjectivePerturbation("gaussian", 4.0, lam, 1e-6, 8.0).kinds(sealed.sensitivity)
    assert isinstance(first, ObjectiveGaussian)
    assert first.mu == 0.25  # never doubled: the kind's own formulas know the relation
    assert first.log_determinant == pytest.approx(c, rel=1e-12)
    assert first.one_signed
    assert first.dimension == 1
    assert second == GaussianKind(0.125, 0.125)
    two_signed = over_nothing(2, Huber(1.0), neighbouring, bounds)
    kinds = ObjectivePerturbation("gaussian", 4.0, lam, 1e-6, 8.0).kinds(two_signed.sensitivity)
    assert not kinds[0].one_signed


@pytest.mark.parametrize("noise", ["gaussian", "pure"])
def test_one_release_is_one_event_of_two_kinds(noise):
    gate = Gate(SeededSource(0))
    sealed = over(np.eye(2), np.ones(2), Logistic())
    mechanism = ObjectivePerturbation(noise, 4.0, 1.0, 1e-6, 8.0)
    gate.release(mechanism, sealed)
    assert len(gate.log) == 1
    assert gate.log[0].kinds == mechanism.kinds(sealed.sensitivity)
    assert len(gate.log[0].kinds) == 2


def test_kinds_do_not_depend_on_the_data():
    mechanism = ObjectivePerturbation("gaussian", 4.0, 1.0, 1e-6, 8.0)
    declared = mechanism.kinds(over_nothing(2, Logistic(), "zero_out", RowBounds(1.0)).sensitivity)
    for X in (np.eye(2), np.full((50, 2), 1e300), np.full((3, 2), np.nan)):
        assert mechanism.kinds(over(X, np.ones(len(X)), Logistic()).sensitivity) == declared


# ------------------------------------------------------------ total on every data set
@pytest.mark.parametrize("loss", [Logistic(), Huber(1.0), SmoothedHinge(0.5)], ids=repr)
@pytest.mark.parametrize("form", [np.asarray, torch.from_numpy], ids=["dense", "torch"])
def test_hostile_rows_do_not_make_it_fail(loss, form):
    X = np.vstack(
        [
            np.random.default_rng(0).normal(size=(20, 3)),
            np.full((1, 3), np.nan),
            np.full((1, 3), np.inf),
            np.full((1, 3), 1e300),
            [[1e160, -1e160, 1e-160]],
            np.full((1, 3), 1e150),
            np.full((1, 3), 1e-300),
            np.zeros((1, 3)),
        ]
    )
    y = np.where(np.arange(len(X)) % 3, 1.0, -1.0)
    y[[0, 1]] = np.nan, 1e300
    sealed = over(X, y, loss, bounds=RowBounds(1.0, 1.0), form=form)
    for noise in ("pure", "gaussian"):
        theta = Gate(SeededSource(1)).release(
            ObjectivePerturbation(noise, 5.0, 0.5, 1e-8, 10.0), sealed
        )
        assert theta.shape == (4,)
        assert np.isfinite(theta).all()


# ------------------------------------------------------------ refusals
@pytest.mark.parametrize(
    ("loss", "word"),
    [
        (Hinge(), "smooth"),
        (Absolute(), "smooth"),
        (Quantile(0.3), "smooth"),
        (Squared(), "Lipschitz"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("noise", ["pure", "gaussian"])
def test_losses_outside_the_theorem_are_refused(loss, word, noise):
    gate = Gate(SeededSource(0))
    with pytest.raises(Refused, match=word):
        gate.release(
            ObjectivePerturbation(noise, 1.0, 1.0, 1e-6, 1.0), over(np.eye(2), np.ones(2), loss)
        )
    assert len(gate.log) == 0


@pytest.mark.parametrize("name", ["multiplier", "regularisation", "tolerance", "output_multiplier"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_parameters_must_be_positive_and_finite(name, value):
    arguments = dict(multiplier=1.0, regularisation=1.0, tolerance=1e-6, output_multiplier=1.0)
    with pytest.raises(ValueError, match=name):
        ObjectivePerturbation("pure", **{**arguments, name: value})
    with pytest.raises(ValueError, match="noise must be"):
        ObjectivePerturbation("laplace", **arguments)


def test_a_failed_minimisation_is_refused_with_constant_text_and_stays_in_the_log(monkeypatch):
    monkeypatch.setattr(minimiser, "MOST_ITERATIONS", 1)
    for name in ("MOST_STEPS", "MOST_GRADIENTS"):
        monkeypatch.setattr(f"privopt.numerics.enclosed_newton.{name}", 0)
    texts = set()
    for X in (np.eye(2) * 0.31415926, np.full((7, 2), 0.27182818)):
        gate = Gate(SeededSource(0))
        with pytest.raises(Refused) as caught:
            gate.release(
                ObjectivePerturbation("gaussian", 1.0, 1e-3, 1e-12, 1.0),
                over(X, np.ones(len(X)), Logistic()),
            )
        texts.add(str(caught.value))
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
        assert len(gate.log) == 1
    assert len(texts) == 1
    assert "314" not in texts.pop()


def test_a_centre_of_the_wrong_length_fails_without_a_word_about_the_data():
    gate = Gate(SeededSource(0))
    with pytest.raises(Refused, match="details are withheld"):
        gate.release(
            ObjectivePerturbation("pure", 1.0, 1.0, 1e-6, 1.0, centre=(1.0, 2.0, 3.0)),
            over(np.eye(2), np.ones(2), Logistic()),
        )


@pytest.mark.parametrize("method", ["newton", "gradient"])
def test_a_quarter_of_the_tolerance_is_left_to_the_rounding_of_the_noise(monkeypatch, method):
    """The mask pays for the whole tolerance: minimising may use three quarters of it."""
    asked = []
    surely, mapped = module.minimise_surely, module.mapped_below

    def minimised(payload, *, gradient_norm, **how):
        asked.append(gradient_norm)
        return surely(payload, gradient_norm=gradient_norm, **how)

    def below(problem, domain, theta, smoothness, distance):
        asked.append(distance * problem.strong)
        return mapped(problem, domain, theta, smoothness, distance)

    monkeypatch.setattr(module, "minimise_surely", minimised)
    monkeypatch.setattr(module, "mapped_below", below)
    X = np.random.default_rng(0).normal(size=(50, 3)) / 4
    sealed = over(X, np.ones(50), Logistic())
    tolerance = 1e-3
    mechanism = ObjectivePerturbation("gaussian", 1.0, 2.0, tolerance, 0.1, method=method)
    mechanism.run(sealed.open(KEY), sealed.sensitivity, SeededSource(0))
    assert asked
    assert max(asked) <= 0.75 * tolerance * (1 + 1e-12)
