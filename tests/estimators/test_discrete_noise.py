"""The parameter ``discrete_noise``: exact integers by default, on request only those, or none."""

from itertools import product

import numpy as np
import pytest
from sklearn.base import clone

from privopt import (
    Budget,
    HuberRegressor,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    Problem,
    QuantileRegressor,
    Refused,
    Ridge,
    solve,
)
from privopt.facts import Facts
from privopt.geometry import L2Ball
from privopt.losses import Hinge, Logistic
from privopt.planner import choose, rank
from tests.covering import covering

ESTIMATORS = (
    LogisticRegression,
    LinearSVC,
    LinearRegression,
    Ridge,
    HuberRegressor,
    QuantileRegressor,
)


@pytest.fixture(scope="module")
def records():
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (200, 3))
    return X, np.where(X @ [3, 1, -1] > 0, 1, -1)


OPTIONS = ({}, {"bounds": (-1, 1)}, {"data_norm": "private"})


@pytest.mark.parametrize(
    ("kind", "delta", "options"), covering([*product(ESTIMATORS, [0.0, 1e-6], OPTIONS)])
)
def test_every_release_of_the_default_path_is_exact(records, kind, delta, options):
    model = kind(1.0, delta, **options).fit(*records)
    assert model.privacy_.numerics["exact_releases"] == model.privacy_.releases
    assert 0 < model.privacy_.numerics["epsilon"] < 1e-12
    assert 0 < model.privacy_.numerics["delta"] < 1e-26
    plain = clone(model).set_params(discrete_noise=False).fit(*records)
    assert plain.privacy_.numerics is None
    assert plain.privacy_.epsilon == pytest.approx(model.privacy_.epsilon, rel=1e-6)
    assert plain.plan_.name == model.plan_.name
    hard = clone(model).set_params(discrete_noise=True).fit(*records)
    assert hard.plan_.settings == model.plan_.settings


def test_true_takes_solvers_that_can_and_no_others(records):
    problem = Problem(Logistic(), L2Ball(2.0))
    facts, budget = Facts(problem, 200, 3, "zero_out"), Budget(1.0, 1e-6)
    hard = rank(facts, budget, True)
    assert all(
        plan.solver.has_discrete_noise and plan.settings.discrete_noise for plan in hard.plans
    )
    assert "floating point" in hard.refused["exponential_sampling"]
    assert {plan.name for plan in hard.plans} < {plan.name for plan in rank(facts, budget).plans}
    with pytest.raises(Refused, match="exponential_sampling adds its noise in floating point"):
        solve(problem, *records, budget=budget, solver="exponential_sampling", discrete_noise=True)
    assert (
        choose(facts, budget, "exponential_sampling", discrete_noise=False).name
        == "exponential_sampling"
    )
    tiny = Facts(Problem(Hinge(), L2Ball(2.0)), 200, 3, "zero_out")
    assert choose(tiny, Budget(1e-9), discrete_noise=True).settings.discrete_noise


@pytest.mark.parametrize("value", ["yes", None, 1, 0.5])
def test_other_values_are_refused_in_one_sentence(records, value):
    with pytest.raises(ValueError, match='discrete_noise must be True, False or "auto"'):
        LogisticRegression(discrete_noise=value).fit(*records)
    with pytest.raises(ValueError, match='discrete_noise must be True, False or "auto"'):
        solve(Problem(Logistic()), *records, budget=Budget(1.0), discrete_noise=value)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_it_costs_no_accuracy(delta):
    """The plan's noise with and without: within one percent, bounds and output noise included."""
    problem = Problem(Logistic(), L2Ball(3.0))
    for n, p in ((1000, 5), (100_000, 50), (1_000_000, 20)):
        facts, budget = Facts(problem, n, p, "zero_out"), Budget(1.0, delta)
        for name in ("objective_perturbation", "output_perturbation"):
            hard, plain = (
                choose(facts, budget, name, discrete_noise=h).settings for h in (True, False)
            )
            assert hard.noise_multiplier == plain.noise_multiplier
            assert hard.bound <= 1.01 * plain.bound
            assert choose(facts, budget, name).settings.discrete_noise
