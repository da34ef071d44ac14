"""Private quantile regression: coverage, the exact draw of one constant, the certificate."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from scipy import stats

import privopt
from privopt import QuantileRegressor
from privopt.audit import hostile_pairs, replay
from privopt.losses import Quantile, SmoothedQuantile
from privopt.mechanisms import HOOK
from privopt.privacy.budget import NEIGHBOURING
from tests.covering import each_check

BOUNDS, TARGET = (0.0, 10.0), (0.0, 200.0)


@each_check(
    QuantileRegressor(),
    QuantileRegressor(epsilon=5.0, delta=1e-6, width=0.0, random_state=0),
    QuantileRegressor(epsilon=5.0, delta=1e-6, bounds=(-5.0, 5.0), random_state=0),
    QuantileRegressor(intercept_only=True, random_state=0),
)
def test_checks_of_scikit_learn(estimator, check):
    """No check is expected to fail."""
    check(estimator)


@pytest.fixture(scope="module")
def waits():
    """5000 waiting times whose spread grows with the first feature."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (5000, 2))
    return X, 20 + X[:, 0] * rng.uniform(0, 10, 5000)


# ---------------------------------------------------------------- accuracy
@pytest.mark.statistical
@pytest.mark.parametrize("q", [0.1, 0.5, 0.9])
@pytest.mark.parametrize(
    ("how", "solver"),
    [
        ({"bounds": BOUNDS}, "auto"),
        ({"data_norm": 10.0}, "objective_perturbation"),
        ({"data_norm": "private"}, "objective_perturbation"),
    ],
)
def test_coverage(waits, q, how, solver):
    """Seeded; the share of targets below the prediction is near the level, on both sides."""
    X, y = waits
    model = QuantileRegressor(
        3.0, 1e-6, quantile=q, width=4.0, target_bounds=TARGET, random_state=0, solver=solver, **how
    ).fit(X, y)
    below = y <= model.predict(X)
    assert below.mean() == pytest.approx(q, abs=0.05)
    low, high = X[:, 0] < 5, X[:, 0] >= 5
    assert below[low].mean() == pytest.approx(q, abs=0.12)
    assert below[high].mean() == pytest.approx(q, abs=0.12)
    assert 0.97 * 3 <= model.privacy_.epsilon <= 3 * (1 + 1e-9)


@pytest.mark.slow
def test_a_kink_is_left_to_the_solver(waits):
    X, y = waits
    model = QuantileRegressor(
        3.0, 1e-6, width=0.0, data_norm=10.0, target_bounds=TARGET, random_state=0
    ).fit(X, y)
    assert model.plan_.facts.problem.loss == Quantile(0.5)
    assert "gd" in model.plan_.name or model.plan_.settings.rounded
    assert (y <= model.predict(X)).mean() == pytest.approx(0.5, abs=0.1)


@pytest.mark.slow
def test_the_width_is_in_units_of_the_target(waits):
    model = QuantileRegressor(width=4.0, target_bounds=TARGET, random_state=0).fit(*waits)
    assert model.plan_.facts.problem.loss == SmoothedQuantile(0.5, 0.04)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "n", "width"),
    [(10.0, 5000, 0.005), (1.0, 5000, 0.015), (0.01, 5000, 0.1), (0.1, 10_000, 0.075)],
)
def test_the_default_width_is_public(waits, epsilon, n, width):
    """25 (p + 1) / (n epsilon), within [0.005, 0.1]: other data of the same shape has the same."""
    X, y = waits
    for target in (y, np.zeros(5000)):
        model = QuantileRegressor(epsilon, target_bounds=TARGET, n_public=n, random_state=0)
        loss = model.fit(X, target).plan_.facts.problem.loss
        assert (loss.q, loss.width) == pytest.approx((0.5, width))


# ---------------------------------------------------------------- one constant
@pytest.mark.statistical
@pytest.mark.parametrize("relation", NEIGHBOURING)
def test_one_constant_follows_the_law_of_the_exact_draw(relation):
    """Two hundred draws against the density exp(-k sum of losses); false alarm 1e-6."""
    y = np.array([3.0, 10.0, 11.0, 40.0, 90.0])
    grid = np.linspace(0, 100, 20_001)
    epsilon, q = 3.0, 0.7
    range_ = 0.7 * 100 * (2 if relation == "replace_one" else 1)
    total = np.maximum((1 - q) * (grid[:, None] - y), q * (y - grid[:, None])).sum(axis=1)
    density = np.exp(-epsilon / range_ * (total - total.min()))
    law = np.cumsum(density) / density.sum()
    draws = [
        QuantileRegressor(
            epsilon,
            quantile=q,
            intercept_only=True,
            solver="exponential_sampling",
            target_bounds=(0, 100),
            neighbouring=relation,
            n_public=5,
            random_state=seed,
        )
        .fit(y[:, None], y)
        .intercept_
        for seed in range(200)
    ]
    assert stats.kstest(draws, lambda t: np.interp(t, grid, law)).pvalue > 1e-6


def test_one_constant_is_the_function_quantile():
    y = np.linspace(0, 60, 2001)
    X = np.zeros((2001, 3))
    how = {"solver": "exponential_sampling", "target_bounds": (-100, 100), "random_state": 5}
    model = QuantileRegressor(1.0, quantile=0.9, intercept_only=True, **how).fit(X, y)
    value, certificate = privopt.quantile(y / 100, 0.9, bounds=(-1, 1), epsilon=1.0, random_state=5)
    assert model.intercept_ == pytest.approx(100 * value, rel=1e-9)
    assert model.privacy_.epsilon == certificate.epsilon
    assert model.coef_.tolist() == [0.0, 0.0, 0.0]
    assert model.plan_.name == "exponential_sampling"
    np.testing.assert_array_equal(model.predict(X[:2]), [model.intercept_] * 2)


@pytest.mark.slow
def test_one_constant_does_not_look_at_the_features(waits):
    X, y = waits
    how = {"intercept_only": True, "target_bounds": TARGET, "random_state": 0}
    one = QuantileRegressor(**how).fit(X, y)
    other = QuantileRegressor(data_norm="private", bounds=(0, 1), **how).fit(np.sin(X), y)
    assert one.intercept_ == other.intercept_
    assert one.privacy_ == other.privacy_


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_a_broken_row_is_an_empty_record(waits, container):
    X, y = waits
    X = X.copy()
    X[[0, 7], [1, 0]] = np.nan, np.inf
    how = {"intercept_only": True, "target_bounds": TARGET, "random_state": 0}
    model = QuantileRegressor(nan_policy="empty", **how).fit(container(X), y)
    rest = QuantileRegressor(n_public=5000, **how).fit(
        np.delete(X, [0, 7], axis=0), np.delete(y, [0, 7])
    )
    assert model.intercept_ == pytest.approx(rest.intercept_, rel=1e-9)


# ---------------------------------------------------------------- containers, privacy, bad input
@pytest.mark.slow
@pytest.mark.parametrize(
    "container",
    [
        lambda X: pd.DataFrame(X, columns=list("ab")),
        lambda X: pl.DataFrame(X, schema=list("ab")),
        sp.csr_array,
    ],
    ids=["pandas", "polars", "csr"],
)
@pytest.mark.parametrize("only", [False, True])
def test_features_in_every_container(waits, container, only):
    X, y = waits
    how = {"intercept_only": only, "target_bounds": TARGET, "random_state": 1}
    expected = QuantileRegressor(2.0, **how).fit(X, y)
    found = QuantileRegressor(2.0, **how).fit(container(X), y)
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-6)
    np.testing.assert_allclose(found.predict(container(X)), expected.predict(X), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", [{}, {"bounds": (-1.0, 1.0)}, {"width": 0.0}, {"intercept_only": True}]
)
@pytest.mark.parametrize("relation", NEIGHBOURING)
def test_replay_on_hostile_neighbours_finds_nothing(relation, how):
    def run(X, y):
        broken = ~np.isfinite(y)
        X, y = np.where(broken[:, None], np.nan, X), np.where(broken, 0.0, y)
        model = QuantileRegressor(
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
        ({"quantile": 0.0}, "strictly between 0 and 1"),
        ({"quantile": 1.0, "width": 0.0}, "strictly between 0 and 1"),
        ({"width": -1.0}, "width must be non-negative and finite, got -1.0"),
        ({"target_bounds": (2.0, 2.0)}, "target_bounds must be two finite public numbers"),
    ],
)
def test_bad_parameters_spend_nothing(waits, parameters, words):
    opened = []
    token = HOOK.set(lambda *args: opened.append(args))
    try:
        with pytest.raises(ValueError, match=words):
            QuantileRegressor(**parameters).fit(*waits)
    finally:
        HOOK.reset(token)
    assert opened == []
