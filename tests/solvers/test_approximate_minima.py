"""Approximate minima perturbation: coarse, certified, the same noise vector from start to end."""

import math

import numpy as np
import pytest
from scipy import stats

from privopt import Budget, Problem, solve
from privopt.facts import Facts
from privopt.geometry import L2Ball, WholeSpace
from privopt.losses import Huber, Logistic, Squared
from privopt.mechanisms import Gate, ObjectivePerturbation
from privopt.noise import SeededSource, SilentSource
from privopt.numerics import accelerated
from privopt.oracle import Oracle, RowBounds
from privopt.privacy import Refused
from privopt.solvers import catalogue

SOLVER = catalogue()["approximate_minima"]
NEWTON = catalogue()["objective_perturbation"]


def facts(n=1000, p=10, neighbouring="zero_out"):
    return Facts(Problem(Logistic(), L2Ball(5.0)), n, p, neighbouring)


def sealed_loss(n=300, p=5, loss=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    y = rng.choice([-1.0, 1.0], n)
    oracle = Oracle.over(
        X, y, neighbouring="zero_out", bounds=RowBounds(1.0), source=SeededSource(0)
    )
    return oracle.everything().function(loss or Logistic())


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_tolerance_is_coarse_and_public(delta):
    ours = SOLVER.settings(facts(), Budget(1.0, delta))
    exact = NEWTON.settings(facts(), Budget(1.0, delta))
    assert 20 * exact.tolerance < ours.tolerance < 2e3 * exact.tolerance
    assert ours.noise_multiplier < 1.2 * exact.noise_multiplier
    assert exact.bound < ours.bound < 1.3 * exact.bound


@pytest.mark.parametrize("noise", ["pure", "gaussian"])
def test_gradients_sensitivity_the_certificate_with_the_same_noise(noise):
    """The noise vector is known from a twin source: the gradient of the objective with that vector
    is within the tolerance, and coarser than what Newton steps leave."""
    sealed, lam, tolerance = sealed_loss(), 0.5, 1e-2
    mechanism = ObjectivePerturbation(noise, 3.0, lam, tolerance, 1e-9, method="gradient")
    theta = Gate(SeededSource(4)).release(mechanism, sealed)
    twin = Gate(SeededSource(4)).release(
        ObjectivePerturbation(noise, 3.0, lam, 1e-10, 1e-9, method="newton"), sealed
    )
    distance = np.linalg.norm(theta - twin)
    assert 1e-8 < distance <= tolerance / lam


@pytest.mark.statistical
@pytest.mark.parametrize("noise", ["pure", "gaussian"])
def test_output_noise_pays_for_both_tolerances(noise):
    """Scale output_multiplier 2 tolerance L / lambda on no data. False alarm: 1e-6."""
    p, lam, tolerance, output = 3, 0.25, 0.7, 1.5
    oracle = Oracle.empty(p, neighbouring="zero_out", bounds=RowBounds(1.0), source=SeededSource(0))
    sealed, gate = oracle.everything().function(Huber(2.0)), Gate(SeededSource(7))
    mechanism = ObjectivePerturbation(noise, 1e-9, lam, tolerance, output, method="gradient")
    theta = np.array([gate.release(mechanism, sealed) for _ in range(1500)])
    lengths = np.linalg.norm(theta, axis=1) / (output * 2 * tolerance * 2.0 / lam)
    law = stats.chi(p) if noise == "gaussian" else stats.gamma(p)
    assert stats.kstest(lengths, law.cdf).pvalue > 1e-6
    for factor in (0.5, 2.0):
        assert stats.kstest(factor * lengths, law.cdf).pvalue < 1e-6


def test_an_unmet_tolerance_is_refused_and_never_loosened(monkeypatch):
    """The text is constant, the release stays in the log, and nothing is drawn a second time."""
    draws = []
    usual = accelerated.descend

    def shaken(function, **arguments):
        """A gradient with a rounding error far above the tolerance."""
        draws.append(arguments["linear"])
        jolts = SeededSource(1).noise

        class Shaken:
            def gradient(self, theta):
                return function.gradient(theta) + jolts.standard_normal(theta.size)

        return usual(Shaken(), **arguments)

    monkeypatch.setattr("privopt.mechanisms.objective_perturbation.descend", shaken)
    gate = Gate(SeededSource(0))
    mechanism = ObjectivePerturbation("gaussian", 1.0, 1.0, 1e-9, 1.0, method="gradient")
    with pytest.raises(Refused, match="not minimised to its certified tolerance"):
        gate.release(mechanism, sealed_loss())
    assert len(gate.log) == len(draws) == 1


def test_accuracy_is_close_to_that_of_an_exact_minimiser():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 4))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.where(rng.random(3000) < 1 / (1 + np.exp(-3 * X[:, 0])), 1.0, -1.0)
    task, budget = Problem(Logistic(), WholeSpace(), theta_norm=3.0), Budget(1.0, 1e-6)

    def risk(name):
        thetas = [
            solve(task, X, y, budget=budget, solver=name, random_state=s).theta for s in range(20)
        ]
        return np.mean([np.logaddexp(0, -y * (X @ w)).mean() for w in thetas])

    zero = math.log(2)
    assert abs(risk(SOLVER.name) - risk(NEWTON.name)) < 0.01 * (zero - risk(NEWTON.name))


# ------------------------------------------------------------ descent by gradients
@pytest.mark.parametrize("smoothness", [1.0, 1e3, 1e6])
def test_descent_reaches_any_distance_on_a_quadratic(smoothness):
    curvatures = np.geomspace(1e-3, 1, 5) * smoothness

    class Quadratic:
        def gradient(self, theta):
            return curvatures * (theta - 1.0)

    found = accelerated.descend(
        Quadratic(),
        domain=WholeSpace(),
        smoothness=smoothness,
        regularisation=1.0,
        centre=np.zeros(5),
        linear=np.full(5, 2.0),
        start=np.zeros(5),
        distance=1e-6,
    )
    exact = (curvatures - 2.0) / (curvatures + 1.0)
    assert np.linalg.norm(found - exact) <= 1e-6


def test_silent_runs_agree_with_newton():
    sealed = sealed_loss()
    thetas = [
        Gate(SilentSource()).release(
            ObjectivePerturbation("pure", 1.0, 0.3, 1e-7, 1.0, method=method), sealed
        )
        for method in ("newton", "gradient")
    ]
    np.testing.assert_allclose(*thetas, atol=1e-6)


# ------------------------------------------------------------ refusals
def test_settings_out_of_range_are_refused():
    assert SOLVER.settings(facts(), Budget(1.0), tolerance=1e-4).tolerance == 1e-4
    with pytest.raises(ValueError, match="rounding error"):
        SOLVER.settings(facts(), Budget(1.0), tolerance=1e-18)
    with pytest.raises(ValueError, match="method"):
        ObjectivePerturbation("pure", 1.0, 1.0, 1e-3, 1.0, method="guess")
    text = SOLVER.refuse(Facts(Problem(Squared()), 10, 2, "zero_out"), Budget(1.0))
    assert text.startswith("approximate_minima needs a Lipschitz loss")
