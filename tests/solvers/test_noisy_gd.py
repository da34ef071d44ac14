"""Noisy gradient descent: number of steps, step size, bound, averages, projection."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from privopt import Budget, Problem
from privopt.facts import Facts
from privopt.geometry import Box, L1Ball, L2Ball, Simplex, WholeSpace
from privopt.losses import Absolute, Hinge, Huber, Logistic, Quantile, SmoothedHinge, Squared
from privopt.mechanisms import Gate
from privopt.mechanisms.mask import PURE_GROWTH
from privopt.noise import SeededSource, SilentSource
from privopt.oracle import Oracle, RowBounds
from privopt.privacy.budget import NEIGHBOURING
from privopt.solvers import catalogue

from .formulas import gdp_mu, sphere

GD = catalogue()["noisy_gd"]
BALL = Problem(Logistic(), L2Ball(5.0))


def facts(problem=BALL, n=1000, p=2, relation="zero_out", repeats=1):
    return Facts(problem, n, p, relation, repeats)


# ---------------------------------------------------------------- the number of steps
@pytest.mark.parametrize(
    ("p", "n", "epsilon", "steps"),
    [
        (2, 1_000, 0.1, 18),
        (2, 1_000, 1.0, 148),
        (2, 10_000, 0.1, 173),
        (10, 1_000, 0.1, 8),
        (10, 1_000, 1.0, 67),
        (10, 1_000, 4.0, 235),
        (10, 10_000, 0.1, 77),
        (50, 1_000, 0.1, 4),
        (50, 1_000, 1.0, 30),
        (50, 1_000, 4.0, 105),
        (50, 10_000, 0.1, 35),
    ],
)
def test_steps_of_the_smooth_rule(p, n, epsilon, steps):
    """The first number of steps at which the smooth bound stops falling.

    The Lipschitz rule's bound falls on, to 1/sqrt(2) of it, for far more steps: not worth them.
    """
    found = GD.settings(facts(n=n, p=p), Budget(epsilon, 1e-6))
    assert (found.rule, found.n_iter) == ("smooth", steps)
    path = 5 * gdp_mu(epsilon, 1e-6) / math.sqrt(2 * p)  # the best step times T
    assert math.ceil(n / 4 * path) == steps
    assert found.step * found.n_iter == pytest.approx(path, rel=1e-6)
    assert found.bound == pytest.approx(math.sqrt(2 * p) * 5 / gdp_mu(epsilon, 1e-6) / n, rel=1e-6)


def lipschitz_bound(n, radius, variance, steps, ridge=0.0):
    return radius * math.sqrt(((n + ridge * radius) ** 2 + variance) / steps)


def smooth_bound(n, radius, variance, steps, ridge=0.0):
    """min over eta <= 1/(n/4 + ridge) of R^2/(2 eta T) + eta V, on a grid of eta."""
    top = 1 / (n / 4 + ridge)
    eta = top * np.exp(np.linspace(math.log(1e-6), 0.0, 1001))
    return float((radius**2 / (2 * eta * steps) + eta * variance).min())


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("relation", NEIGHBOURING)
@pytest.mark.parametrize(("n", "p", "epsilon"), [(300, 2, 0.5), (5000, 20, 1.0), (100, 5, 8.0)])
@pytest.mark.parametrize("l2", [0.0, 0.05])
@pytest.mark.parametrize("repeats", [1, 3])
def test_the_bound_is_the_best_of_its_formulas(delta, relation, n, p, epsilon, l2, repeats):
    """Every rule and every number of steps tried by hand; the choice is within 2 % of its rule's
    best, and no other rule is better by half."""
    problem, most = Problem(Logistic(), L2Ball(5.0), l2=l2), 100
    budget = Budget(epsilon, delta, relation)
    found = GD.settings(facts(problem, n, p, relation, repeats), budget, most_steps=most)
    sensitivity, ridge = 2.0 if relation == "replace_one" else 1.0, n * l2
    one = gdp_mu(epsilon, delta) if delta else math.nan
    best = {}
    for steps in range(1, most + 1):
        if delta:
            variance = p * steps * repeats * (sensitivity / one) ** 2
        else:
            variance = p * (p + 1) * (PURE_GROWTH * sensitivity * steps * repeats / epsilon) ** 2
        best["smooth", steps] = smooth_bound(n, 5.0, variance, steps, ridge)
        best["lipschitz", steps] = lipschitz_bound(n, 5.0, variance, steps, ridge)
        if ridge:
            square = (n + ridge * 5.0) ** 2 + variance
            best["strongly_convex", steps] = 2 * square / (ridge * (steps + 1))
    # The stated bound belongs to the stated rule and steps ...
    assert found.bound * n == pytest.approx(best[found.rule, found.n_iter], rel=2e-3)
    # ... and hardly any other choice has a smaller one.
    assert found.bound * n <= 1.02 * min(v for (rule, _), v in best.items() if rule == found.rule)
    assert found.bound * n <= 1.02 * 1.5 * min(best.values())
    assert found.passes == found.n_iter * repeats


@pytest.mark.parametrize("repeats", [1, 4])
def test_noise_of_a_step(repeats):
    """sqrt(T k)/mu times the sensitivity, or T k/epsilon for pure noise; not less, not much
    more."""
    for relation in NEIGHBOURING:
        f = facts(relation=relation, repeats=repeats)
        gaussian = GD.settings(f, Budget(0.7, 1e-7, relation), n_iter=50)
        assert gaussian.noise == "gaussian"
        exact = math.sqrt(50 * repeats) / gdp_mu(0.7, 1e-7)
        assert exact * (1 - 1e-9) <= gaussian.noise_multiplier <= exact * (1 + 1e-6)
        pure = GD.settings(f, Budget(0.7, 0.0, relation), n_iter=50)
        assert pure.noise == "pure"
        assert pure.noise_multiplier == pytest.approx(50 * repeats / 0.7, rel=1e-9)


def test_steps_that_are_chosen_by_hand():
    found = GD.settings(facts(), Budget(1.0, 1e-6), n_iter=7, average="last", clip_norm=0.5)
    assert (found.n_iter, found.average, found.clip_norm) == (7, "last", 0.5)
    assert GD.settings(facts(), Budget(1.0, 1e-6), most_steps=9).n_iter <= 9


@pytest.mark.parametrize("average", ["uniform", "suffix", "last"])
def test_an_unbounded_domain_uses_the_expected_size(average):
    one = GD.settings(
        facts(Problem(Logistic(), theta_norm=5.0)), Budget(1.0, 1e-6), average=average
    )
    assert one == GD.settings(facts(), Budget(1.0, 1e-6), average=average)
    other = GD.settings(facts(Problem(Logistic(), theta_norm=10.0)), Budget(1.0, 1e-6))
    assert other.bound == pytest.approx(2 * one.bound, rel=0.05)


# ---------------------------------------------------------------- the path, without noise
def oracle_over(X, y, source, *, classification=True, bounds=None):
    return Oracle.over(
        X,
        y,
        neighbouring="zero_out",
        bounds=bounds or RowBounds(1.0),
        source=source,
        classification=classification,
    )


def weights(rule, average, steps):
    """Weights of theta_0..theta_T as the module's text states them."""
    t = np.arange(steps + 1)
    if average == "last":
        return (t == steps).astype(float)
    if average == "suffix":
        return (t > steps // 2) * (t if rule == "strongly_convex" else 1.0)
    if rule == "smooth":
        return (t >= 1).astype(float)
    return (t < steps) * (t + 1.0 if rule == "strongly_convex" else 1.0)


@pytest.mark.parametrize("rule", ["smooth", "lipschitz", "strongly_convex"])
@pytest.mark.parametrize("average", ["suffix", "uniform", "last"])
@pytest.mark.parametrize("steps", [1, 2, 9, 10])
@pytest.mark.parametrize(("discrete_noise", "exact"), [(False, 1e-10), (True, 1e-7)])
def test_the_path_and_its_average(rule, average, steps, discrete_noise, exact):
    """Against gradient descent written out: projection, ridge, step sizes, weights."""
    X, y = sphere(40, 3)
    problem = Problem(Logistic(), L2Ball(0.8), l2=0.1)
    settings = GD.settings(facts(problem, 40, 3), Budget(1.0, 1e-6), n_iter=steps, average=average)
    settings = replace(settings, rule=rule, step=0.5 if rule == "strongly_convex" else 0.04)
    settings = replace(settings, discrete_noise=discrete_noise)
    source = SilentSource()
    found = GD.run(oracle_over(X, y, source), Gate(source), problem, settings)

    theta, path = np.zeros(3), []
    for t in range(steps + 1):
        path.append(theta)
        gradient = -(y / (1 + np.exp(y * (X @ theta)))) @ X + 4.0 * theta  # 4 = n l2
        step = 0.5 / (t + 2) if rule == "strongly_convex" else 0.04
        theta = theta - step * gradient
        theta = theta * min(1.0, 0.8 / np.linalg.norm(theta))
    mass = weights(rule, average, steps)
    np.testing.assert_allclose(found, mass @ path / mass.sum(), rtol=exact)


def test_gradients_are_clipped():
    """A clip below the Lipschitz constant shortens the first step of every record."""
    X, y = np.eye(2), np.ones(2)
    problem = Problem(Hinge(), L2Ball(100.0))
    settings = GD.settings(
        facts(problem, 2), Budget(1.0, 1e-6), n_iter=1, average="last", clip_norm=0.25
    )
    source = SilentSource()
    found = GD.run(oracle_over(X, y, source), Gate(source), problem, settings)
    np.testing.assert_allclose(found, 0.25 * settings.step * np.ones(2))


@pytest.mark.parametrize(
    "domain",
    [
        L2Ball(0.3),
        L2Ball(0.5, centre=[2.0, -1.0, 0.0]),
        Box(-0.2, 0.1),
        Box([0.5, -3.0, 0.0], [0.6, 4.0, 0.0]),
        L1Ball(0.4),
        Simplex(),
    ],
    ids=repr,
)
@pytest.mark.parametrize("average", ["suffix", "uniform", "last"])
def test_loud_noise_does_not_leave_the_domain(domain, average):
    X, y = sphere(30, 3)
    problem = Problem(Logistic(), domain)
    settings = GD.settings(facts(problem, 30, 3), Budget(0.01, 1e-6), n_iter=15, average=average)
    source = SeededSource(0)
    theta = GD.run(oracle_over(X, y, source), Gate(source), problem, settings)
    assert domain.contains(theta)
    assert not np.allclose(theta, domain.centre(3))


def test_it_starts_at_the_centre_and_ticks_every_step():
    domain = L2Ball(1.0, centre=[5.0, 5.0])
    problem = Problem(Hinge(), domain)
    settings = GD.settings(facts(problem, 3), Budget(1.0, 1e-6), n_iter=4, average="uniform")
    assert settings.rule == "lipschitz"
    source, seen = SilentSource(), []
    # No record has a hinge loss here, so theta stays where it starts.
    oracle = oracle_over(np.ones((3, 2)) / 2, np.ones(3), source)
    theta = GD.run(oracle, Gate(source), problem, settings, lambda *step: seen.append(step))
    np.testing.assert_allclose(theta, [5.0, 5.0])
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


# ---------------------------------------------------------------- what it accepts
@pytest.mark.parametrize(
    "loss",
    [
        Logistic(),
        Hinge(),
        SmoothedHinge(0.5),
        Huber(1.0),
        Absolute(),
        Quantile(0.9),
        Squared(residual_clip=2.0),
    ],
    ids=repr,
)
def test_accepts_every_lipschitz_loss(loss):
    f = facts(Problem(loss, L2Ball(5.0)))
    assert GD.refuse(f, Budget(1.0)) is None
    found = GD.settings(f, Budget(1.0, 1e-6))
    assert found.clip_norm == loss.lipschitz
    assert loss.smooth or found.rule == "lipschitz"


def test_refuses_a_loss_without_a_lipschitz_constant():
    sentence = GD.refuse(facts(Problem(Squared(), WholeSpace())), Budget(1.0))
    assert sentence == (
        "noisy_gd needs a Lipschitz loss to clip at; Squared is not: "
        "use Squared(residual_clip=...) or Huber(width)."
    )


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"n_iter": 0}, "n_iter must be positive, got 0"),
        ({"n_iter": -3}, "n_iter must be positive, got -3"),
        ({"average": "median"}, "average must be suffix, uniform or last, got 'median'"),
        ({"clip": 1.0}, "noisy_gd has no setting named 'clip'"),
        ({"zeta": 1.0, "alpha": 2.0}, "no setting named 'alpha'"),
    ],
)
def test_settings_it_does_not_take(choices, words):
    with pytest.raises(ValueError, match=words):
        GD.settings(facts(), Budget(1.0, 1e-6), **choices)
