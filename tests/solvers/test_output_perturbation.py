"""Output perturbation as a solver: its lambda, its measured error, its refusals."""

import numpy as np
import pytest
from scipy.optimize import minimize

from privopt import Budget, Problem, Refused, solve
from privopt.facts import Facts
from privopt.geometry import Box, L2Ball, WholeSpace
from privopt.losses import Absolute, Hinge, Logistic, Quantile, Squared, Welsch
from privopt.solvers import catalogue

SOLVER = catalogue()["output_perturbation"]


def sphere(n, p, seed=0):
    """Rows on the unit sphere, labels from a logistic model of norm 3."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    theta = rng.standard_normal(p)
    theta *= 3 / np.linalg.norm(theta)
    return X, np.where(rng.random(n) < 1 / (1 + np.exp(-X @ theta)), 1.0, -1.0)


def risk(X, y, w, l2=0.0):
    return float(np.logaddexp(0, -y * (X @ w)).mean() + l2 / 2 * w @ w)


def best(X, y, l2=0.0):
    def slope(w):
        return -(y / (1 + np.exp(y * (X @ w)))) @ X / len(y) + l2 * w

    found = minimize(
        lambda w: risk(X, y, w, l2), np.zeros(X.shape[1]), jac=slope, options={"gtol": 1e-9}
    )
    return found.fun


@pytest.mark.statistical
def test_measured_error_with_a_ridge():
    """Measured before: sum excess .28 at p = 2, n = 1e4, ridge .02 n, pure, replace_one."""
    X, y = sphere(10_000, 2)
    task = Problem(Logistic(), L2Ball(5.0), l2=0.02)
    budget, least = Budget(1.0, 0.0, "replace_one"), best(X, y, 0.02)
    found = [
        risk(X, y, solve(task, X, y, budget=budget, solver=SOLVER.name, random_state=s).theta, 0.02)
        for s in range(200)
    ]
    assert 10_000 * (np.mean(found) - least) == pytest.approx(0.28, rel=0.35)


@pytest.mark.statistical
@pytest.mark.parametrize(("p", "target"), [(2, 9.7e-3), (10, 2.4e-2)])
def test_measured_error_without_a_ridge(p, target):
    """Mean excess measured before at n = 1e3, epsilon = 1."""
    X, y = sphere(1000, p)
    task, budget = Problem(Logistic(), L2Ball(5.0)), Budget(1.0, 1e-6)
    found = [
        risk(X, y, solve(task, X, y, budget=budget, solver=SOLVER.name, random_state=s).theta)
        for s in range(100)
    ]
    assert np.mean(found) - best(X, y) == pytest.approx(target, rel=0.3)
    facts = Facts(task, 1000, p, "zero_out")
    assert np.mean(found) - best(X, y) <= SOLVER.settings(facts, budget).bound


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("domain", [L2Ball(5.0), WholeSpace()], ids=repr)
def test_the_default_regularisation_minimises_the_bound(domain, delta):
    facts, budget = Facts(Problem(Logistic(), domain), 5000, 7, "zero_out"), Budget(1.0, delta)
    found = SOLVER.settings(facts, budget)
    for factor in (0.3, 0.7, 1.5, 4.0):
        other = SOLVER.settings(facts, budget, regularisation=factor * found.regularisation)
        assert other.bound >= found.bound * (1 - 1e-3)


def test_a_ridge_is_used_and_never_reduced():
    facts = Facts(Problem(Logistic(), L2Ball(5.0), l2=0.5), 1000, 3, "zero_out")
    for choice in ({}, {"regularisation": 0}, {"regularisation": 1.0}):
        assert SOLVER.settings(facts, Budget(1.0), **choice).regularisation == 500.0
    assert SOLVER.settings(facts, Budget(1.0), regularisation=900).regularisation == 900.0


def test_an_off_centre_domain_pulls_to_its_centre():
    """Without data the minimiser is the domain's centre, and with a ridge a point on the way."""
    from privopt.mechanisms import Gate
    from privopt.noise import SilentSource
    from privopt.oracle import Oracle, RowBounds

    oracle = Oracle.empty(2, neighbouring="zero_out", bounds=RowBounds(1.0), source=SilentSource())
    for l2, expected in ((0.0, [2.0, 0.0]), (0.01, [1.0, 0.0])):
        task = Problem(Logistic(), L2Ball(5.0, [2.0, 0.0]), l2=l2)
        settings = SOLVER.settings(
            Facts(task, 1000, 2, "zero_out"), Budget(1.0), regularisation=20.0
        )
        theta = SOLVER.run(oracle, Gate(SilentSource()), task, settings)
        np.testing.assert_allclose(theta, expected, atol=1e-3)


# ------------------------------------------------------------ kinks
@pytest.mark.parametrize("loss", [Hinge(), Absolute(), Quantile(0.2)], ids=repr)
@pytest.mark.parametrize("domain", [L2Ball(0.7), Box(-0.4, 0.6), WholeSpace()], ids=repr)
def test_without_noise_a_kink_costs_what_was_allowed(loss, domain):
    """Compared with a linear-programming-like descent: many small projected subgradient steps."""
    X, y = sphere(300, 2, seed=3)
    if not loss.classification:
        y = X[:, 0] - 0.3 * X[:, 1] + 0.1 * y
    task = Problem(loss, domain, l2=0.1, theta_norm=2.0)

    def total(w):
        return float(loss.value(X @ w, y).sum() + 15 * w @ w)

    found = solve(task, X, y, budget=Budget(1e5), solver=SOLVER.name, random_state=0)
    w, best_value = np.zeros(2), np.inf
    for t in range(20_000):
        best_value = min(best_value, total(w))
        w = domain.project(w - (X.T @ loss.slope(X @ w, y) + 30 * w) * 2 / (30 * (t + 2)))
    assert total(found.theta) - best_value <= 300 * found.plan.settings.bound + 1e-3
    assert found.plan.settings.rounded > 0


@pytest.mark.statistical
def test_kinks_and_noise_stay_within_the_bound():
    X, y = sphere(2000, 3)
    task, budget = Problem(Hinge(), L2Ball(2.0), l2=0.05), Budget(1.0)

    def risk(w):
        return float(np.maximum(0, 1 - y * (X @ w)).mean() + 0.025 * w @ w)

    exact = solve(task, X, y, budget=Budget(1e5), solver=SOLVER.name, random_state=0).theta
    results = [
        solve(task, X, y, budget=budget, solver=SOLVER.name, random_state=s) for s in range(50)
    ]
    excess = np.mean([risk(r.theta) for r in results]) - risk(exact)
    assert 0 < excess <= results[0].plan.settings.bound


# ------------------------------------------------------------ refusals
def test_an_objective_without_strong_convexity_is_refused_in_one_sentence():
    task = Problem(Logistic(), L2Ball(5.0))
    with pytest.raises(Refused) as caught:
        SOLVER.settings(Facts(task, 100, 3, "zero_out"), Budget(1.0), regularisation=0)
    text = str(caught.value)
    assert "strongly convex" in text
    assert "Problem(l2=...)" in text
    assert text.count(". ") == 0
    assert text.endswith(".")


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (Welsch(1.0), ("convex",)),
        (Squared(), ("Lipschitz", "residual_clip")),
    ],
    ids=repr,
)
@pytest.mark.parametrize(
    "name", ["output_perturbation", "localization", "bolt_on_sgd", "phased_localization"]
)
def test_losses_outside_the_theorem_are_refused_in_one_sentence(name, loss, words):
    facts = Facts(Problem(loss, L2Ball(1.0)), 100, 3, "zero_out")
    text = catalogue()[name].refuse(facts, Budget(1.0))
    assert text is not None
    assert all(word in text for word in words)
    assert text.startswith(name)
    assert text.count(". ") == 0
    assert text.endswith(".")


def test_settings_out_of_range_are_refused():
    facts = Facts(Problem(Logistic(), L2Ball(5.0)), 100, 3, "zero_out")
    with pytest.raises(ValueError, match="regularisation"):
        SOLVER.settings(facts, Budget(1.0), regularisation=-1.0)
    with pytest.raises(ValueError, match="rounding error"):
        SOLVER.settings(facts, Budget(1.0), tolerance=1e-17)
    with pytest.raises(ValueError, match="delta > 0"):
        SOLVER.settings(facts, Budget(1.0), noise="gaussian")
