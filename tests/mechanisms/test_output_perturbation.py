"""Laws, sensitivities and refusals of output perturbation.

Seeded. On a fresh seed each comparison would raise a false alarm with a probability of 1e-6.
"""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize

from privopt.audit import hostile_pairs
from privopt.geometry import Box, L1Ball, L2Ball, Simplex, WholeSpace
from privopt.losses import Absolute, Hinge, Huber, Logistic, SmoothedHinge, Squared
from privopt.mechanisms import Gate, Minimiser, OutputPerturbation
from privopt.noise import SeededSource, SilentSource
from privopt.numerics import newton as newton
from privopt.oracle import Oracle, RowBounds
from privopt.privacy import Refused
from privopt.privacy.kinds import GaussianKind, Pure
from privopt.privacy.profiles import gaussian_delta

ALARM = 1e-6
RELATIONS = {"zero_out": 1, "add_remove": 1, "replace_one": 2}
every_relation = pytest.mark.parametrize("neighbouring", RELATIONS)


def agrees(sample, cdf):
    return stats.kstest(np.ravel(sample), cdf).pvalue > ALARM


def over(X, y, loss, neighbouring="zero_out", bounds=None):
    oracle = Oracle.over(
        X,
        y,
        neighbouring=neighbouring,
        bounds=bounds or RowBounds(1.0),
        source=SeededSource(0),
        classification=loss.classification,
    )
    return oracle.everything().function(loss)


def value(algorithm, sealed):
    return Gate(SilentSource()).release(OutputPerturbation("pure", 1.0, algorithm), sealed)


def some_data(n=60, p=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    X /= np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))
    return X, np.where(rng.random(n) < 1 / (1 + np.exp(-3 * X[:, 0])), 1.0, -1.0)


# ------------------------------------------------------------ the law
@pytest.mark.statistical
@every_relation
@pytest.mark.parametrize("p", [1, 3])
def test_distance_from_the_exact_minimiser_is_gamma(neighbouring, p):
    """||theta - theta*|| / (multiplier S) is Gamma(p), S = (a L + 2 tolerance L) / Lambda."""
    X, y = some_data(p=p)
    lam, tolerance, multiplier = 2.0, 1e-6, 1.5
    exact = minimize(
        lambda w: np.logaddexp(0, -y * (X @ w)).sum() + lam / 2 * w @ w,
        np.zeros(p),
        jac=lambda w: -(y / (1 + np.exp(y * (X @ w)))) @ X + lam * w,
        method="BFGS",
        options={"gtol": 1e-9},
    ).x
    mechanism = OutputPerturbation("pure", multiplier, Minimiser(lam, tolerance))
    sealed, gate = over(X, y, Logistic(), neighbouring), Gate(SeededSource(1))
    theta = np.array([gate.release(mechanism, sealed) for _ in range(1500)])
    scale = multiplier * (RELATIONS[neighbouring] + 2 * tolerance) / lam
    lengths = np.linalg.norm(theta - exact, axis=1) / scale
    assert agrees(lengths, stats.gamma(p).cdf)
    for factor in (0.5, 2.0):
        assert not agrees(factor * lengths, stats.gamma(p).cdf)


@pytest.mark.statistical
@every_relation
def test_gaussian_noise_has_the_scale_of_the_sensitivity(neighbouring):
    X, y = some_data()
    algorithm = Minimiser(2.0, 1e-3, L2Ball(0.2))
    sealed, gate = over(X, y, Logistic(), neighbouring), Gate(SeededSource(2))
    centre = value(algorithm, sealed)
    mechanism = OutputPerturbation("gaussian", 3.0, algorithm)
    theta = np.array([gate.release(mechanism, sealed) for _ in range(800)])
    z = (theta - centre) / (3.0 * (RELATIONS[neighbouring] + 2e-3) / 2.0)
    assert agrees(z, stats.norm.cdf)
    for factor in (0.5, 2.0):
        assert not agrees(factor * z, stats.norm.cdf)


# ------------------------------------------------------------ the sensitivity
@every_relation
@pytest.mark.parametrize("domain", [WholeSpace(), L2Ball(0.3), Box(-0.2, 0.5)], ids=repr)
@pytest.mark.parametrize("loss", [Logistic(), Huber(0.5), SmoothedHinge(0.5)], ids=repr)
def test_hostile_neighbours_stay_within_the_sensitivity(neighbouring, domain, loss):
    algorithm = Minimiser(3.0, 1e-3, domain)
    for pair in hostile_pairs(neighbouring, classification=loss.classification):
        first = over(*pair.first, loss, neighbouring)
        second = over(*pair.second, loss, neighbouring)
        moved = np.linalg.norm(value(algorithm, first) - value(algorithm, second))
        assert moved <= algorithm.output_sensitivity(first.sensitivity)


@every_relation
@pytest.mark.parametrize("loss", [Hinge(), Absolute()], ids=repr)
def test_rounded_kinks_stay_within_the_sensitivity_and_attain_it(neighbouring, loss):
    algorithm = Minimiser(3.0, 1e-3, width=1e-3)
    for pair in hostile_pairs(neighbouring, classification=loss.classification):
        first = over(*pair.first, loss, neighbouring)
        second = over(*pair.second, loss, neighbouring)
        moved = np.linalg.norm(value(algorithm, first) - value(algorithm, second))
        assert moved <= algorithm.output_sensitivity(first.sensitivity)
    # A lone record on a line of the loss, against none.
    one = over(np.ones((1, 1)), np.ones(1), loss, neighbouring)
    none = over(np.full((1, 1), np.nan), np.ones(1), loss, neighbouring)
    moved = abs(value(algorithm, one) - value(algorithm, none))[0]
    assert moved == pytest.approx(1 / 3.0, rel=5e-3)


@pytest.mark.parametrize("neighbouring", ["zero_out", "replace_one"])
def test_the_sensitivity_is_attained(neighbouring):
    """A single record on the linear part of the loss moves the minimiser by L / Lambda exactly."""
    lam = 4.0
    one = (np.ones((1, 1)), np.ones(1))
    other = (np.full((1, 1), np.nan), np.ones(1))
    if neighbouring == "replace_one":
        other = (np.ones((1, 1)), -np.ones(1))
    algorithm = Minimiser(lam, 1e-6)
    sealed = [over(*data, SmoothedHinge(0.1), neighbouring) for data in (one, other)]
    moved = abs(value(algorithm, sealed[0]) - value(algorithm, sealed[1]))[0]
    assert moved == pytest.approx(RELATIONS[neighbouring] / lam, rel=1e-5)
    assert moved <= algorithm.output_sensitivity(sealed[0].sensitivity)


@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_exact_privacy_in_one_dimension(epsilon):
    """Hockey-stick divergence between neighbours by quadrature: below delta, and close to it."""
    lam, loss, delta = 4.0, SmoothedHinge(0.1), 1e-3
    sealed = [over(np.full((1, 1), x), np.ones(1), loss, "zero_out") for x in (1.0, np.nan)]
    algorithm = Minimiser(lam, 1e-3)
    centres = [float(value(algorithm, s)[0]) for s in sealed]
    S = algorithm.output_sensitivity(sealed[0].sensitivity)
    grid = np.linspace(-400, 400, 2_000_001) * S
    for noise in ("pure", "gaussian"):
        if noise == "pure":
            densities = [np.exp(-abs(grid - c) * epsilon / S) * epsilon / (2 * S) for c in centres]
            allowed = 0.0
        else:
            from privopt.privacy.profiles import gaussian_mu

            sigma = S / gaussian_mu(epsilon, delta)
            densities = [stats.norm.pdf(grid, c, sigma) for c in centres]
            allowed = delta
        for one, other in (densities, densities[::-1]):
            found = np.trapezoid(np.maximum(one - math.exp(epsilon) * other, 0), grid)
            assert found <= allowed + 1e-9
            if noise == "gaussian":
                # The tolerance is the only slack: 2e-3 of the sensitivity.
                tight = gaussian_delta(epsilon, gaussian_mu(epsilon, delta) / (1 + 2.1e-3))
                assert found >= 0.999 * tight


# ------------------------------------------------------------ the minimiser
@pytest.mark.parametrize(
    "domain",
    [
        WholeSpace(),
        L2Ball(0.3),
        L2Ball(0.5, [1.0, 0.0, 0.0]),
        Box(-0.1, 0.4),
        L1Ball(0.3),
        Simplex(),
    ],
    ids=repr,
)
def test_the_computed_minimiser_is_within_its_tolerance(domain):
    """Compared with projected gradient descent that runs until nothing moves any more."""
    X, y = some_data(200)
    lam, tolerance, centre = 5.0, 1e-2, np.array([0.1, 0.0, -0.2])
    found = value(Minimiser(lam, tolerance, domain, tuple(centre)), over(X, y, Logistic()))
    theta = domain.project(np.zeros(3))
    for _ in range(3000):
        gradient = -(y / (1 + np.exp(y * (X @ theta)))) @ X + lam * (theta - centre)
        theta = domain.project(theta - gradient / (50 + lam))
    assert np.linalg.norm(found - theta) <= tolerance / lam
    assert domain.contains(found)


def test_a_failing_newton_method_is_rescued_by_gradients(monkeypatch):
    X, y = some_data()
    sealed, algorithm = over(X, y, Logistic()), Minimiser(1.0, 1e-6)
    usual = value(algorithm, sealed)
    monkeypatch.setattr(newton, "MOST_ITERATIONS", 0)
    rescued = value(algorithm, sealed)
    assert 0 < np.linalg.norm(rescued - usual) <= 2e-6


def test_ill_conditioned_objectives_terminate(monkeypatch):
    monkeypatch.setattr(newton, "MOST_ITERATIONS", 0)
    X, y = some_data(500)
    found = value(Minimiser(1e-2, 1e-3), over(X, y, Logistic()))
    gradient = -(y / (1 + np.exp(y * (X @ found)))) @ X + 1e-2 * found
    assert np.linalg.norm(gradient) <= 1e-3


# ------------------------------------------------------------ kinds and refusals
def test_kinds_are_those_of_the_noise():
    sealed = over(*some_data(), Logistic())
    for noise, kind in (("pure", Pure(0.25)), ("gaussian", GaussianKind(0.25, 0.25))):
        mechanism = OutputPerturbation(noise, 4.0, Minimiser(1.0, 1e-3))
        gate = Gate(SeededSource(0))
        gate.release(mechanism, sealed)
        assert gate.log[0].kinds == (kind,)


@pytest.mark.parametrize(
    ("loss", "word"),
    [(Hinge(), "smooth"), (Absolute(), "smooth"), (Squared(), "Lipschitz")],
    ids=repr,
)
def test_losses_outside_the_theorem_are_refused_before_the_log(loss, word):
    gate = Gate(SeededSource(0))
    mechanism = OutputPerturbation("pure", 1.0, Minimiser(1.0, 1e-3))
    with pytest.raises(Refused, match=word):
        gate.release(mechanism, over(np.eye(2), np.ones(2), loss))
    assert len(gate.log) == 0


def test_a_sampled_batch_is_refused():
    X, y = some_data()
    oracle = Oracle.over(
        X, y, neighbouring="zero_out", bounds=RowBounds(1.0), source=SeededSource(0)
    )
    mechanism = OutputPerturbation("gaussian", 1.0, Minimiser(1.0, 1e-3))
    with pytest.raises(Refused, match="not a sampled batch"):
        Gate(SeededSource(0)).release(mechanism, oracle.poisson(0.5).function(Logistic()))


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_parameters_must_be_positive_and_finite(value):
    with pytest.raises(ValueError, match="regularisation"):
        Minimiser(value, 1e-3)
    with pytest.raises(ValueError, match="tolerance"):
        Minimiser(1.0, value)
    with pytest.raises(ValueError, match="multiplier"):
        OutputPerturbation("pure", value, Minimiser(1.0, 1e-3))
    with pytest.raises(ValueError, match="noise must be"):
        OutputPerturbation("laplace", 1.0, Minimiser(1.0, 1e-3))
