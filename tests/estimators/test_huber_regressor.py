"""Private Huber regression: outliers of y, the width, the certificate."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

from privopt import HuberRegressor, LinearRegression
from privopt.audit import hostile_pairs, replay
from privopt.losses import Huber
from privopt.mechanisms import HOOK
from privopt.privacy.budget import NEIGHBOURING
from tests.covering import each_check

BOUNDS, TARGET = (0.0, 10.0), (0.0, 100.0)


@each_check(
    HuberRegressor(),
    HuberRegressor(epsilon=5.0, delta=1e-6, bounds=(-5.0, 5.0), random_state=0),
    HuberRegressor(width=0.3, fit_intercept=False, data_norm="private", random_state=0),
)
def test_checks_of_scikit_learn(estimator, check):
    """No check is expected to fail."""
    check(estimator)


@pytest.fixture(scope="module")
def line():
    """4000 points on a line with little noise; every tenth is at the top."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (4000, 2))
    y = 20 + 5 * X[:, 0] + rng.standard_normal(4000)
    return X, np.where(np.arange(4000) % 10 == 0, 100.0, y)


@pytest.mark.statistical
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("how", [{"bounds": BOUNDS}, {"data_norm": 10.0}])
def test_outliers_pull_little(line, delta, how):
    """Seeded. At epsilon 2 the line through nine tenths of the points is found."""
    X, y = line
    model = HuberRegressor(2.0, delta, width=3.0, target_bounds=TARGET, random_state=0, **how).fit(
        X, y
    )
    error = np.abs(model.predict(X) - 20 - 5 * X[:, 0]).mean()
    squares = LinearRegression(
        2.0, delta, residual_clip=1e3, target_bounds=TARGET, random_state=0, data_norm=10.0
    ).fit(X, y)
    assert error < 3.0
    assert error < np.abs(squares.predict(X) - 20 - 5 * X[:, 0]).mean()
    expected = "standardized_regression" if "bounds" in how else "objective_perturbation"
    assert model.plan_.name == expected
    assert 0.97 * 2 <= model.privacy_.epsilon <= 2 * (1 + 1e-9)


@pytest.mark.slow
def test_the_width_is_in_units_of_the_target(line):
    X, y = line
    model = HuberRegressor(width=3.0, target_bounds=TARGET, random_state=0).fit(X, y)
    assert model.plan_.facts.problem.loss == Huber(3.0 / 50)
    default = HuberRegressor(target_bounds=TARGET, random_state=0).fit(X, y)
    assert default.plan_.facts.problem.loss == Huber(10.0 / 50)
    same = HuberRegressor(width=0.06, random_state=0).fit(X, (y - 50) / 50)
    np.testing.assert_allclose(model.coef_, 50 * same.coef_, rtol=1e-9)
    assert model.intercept_ == pytest.approx(50 * same.intercept_ + 50, rel=1e-9)


@pytest.mark.parametrize(
    "container",
    [
        lambda X: pd.DataFrame(X, columns=list("ab")),
        lambda X: pl.DataFrame(X, schema=list("ab")),
        sp.csr_array,
    ],
    ids=["pandas", "polars", "csr"],
)
def test_features_in_every_container(line, container):
    X, y = line
    how = {"bounds": BOUNDS, "target_bounds": TARGET, "random_state": 1}
    expected = HuberRegressor(2.0, 1e-6, **how).fit(X, y)
    found = HuberRegressor(2.0, 1e-6, **how).fit(container(X), y)
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-6)
    np.testing.assert_allclose(found.predict(container(X)), expected.predict(X), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("how", [{}, {"bounds": (-1.0, 1.0)}])
@pytest.mark.parametrize("relation", NEIGHBOURING)
def test_replay_on_hostile_neighbours_finds_nothing(relation, how):
    def run(X, y):
        broken = ~np.isfinite(y)
        X, y = np.where(broken[:, None], np.nan, X), np.where(broken, 0.0, y)
        model = HuberRegressor(
            1.0,
            1e-5,
            neighbouring=relation,
            n_public=63,
            nan_policy="empty",
            random_state=0,
            **how,
        ).fit(X, y)
        return model.coef_, model.intercept_, model.privacy_.to_json()

    pairs = hostile_pairs(relation, classification=False)
    run(*pairs[0].first)
    assert {pair.name: found for pair in pairs if (found := replay(run, pair))} == {}


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"width": 0.0}, "width must be positive and finite, got 0.0"),
        ({"width": np.inf}, "width must be positive and finite"),
        ({"alpha": np.nan}, "alpha must be non-negative and finite"),
        ({"target_bounds": None}, "target_bounds must be two finite public numbers"),
    ],
)
def test_bad_parameters_spend_nothing(line, parameters, words):
    opened = []
    token = HOOK.set(lambda *args: opened.append(args))
    try:
        with pytest.raises(ValueError, match=words):
            HuberRegressor(**parameters).fit(*line)
    finally:
        HOOK.reset(token)
    assert opened == []
