"""Private Poisson and Gamma regression: agreement with scikit-learn, the means, refusals.

Fits are seeded; where a figure depends on noise the test says how far from its limit it lies.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from sklearn import linear_model

import privopt
from privopt import GammaRegressor, PoissonRegressor
from privopt.audit import hostile_pairs, replay
from privopt.mechanisms import HOOK
from privopt.privacy.budget import NEIGHBOURING
from tests.covering import covering, each_check

BOUNDS = (-1.0, 1.0)
KINDS = {
    PoissonRegressor: linear_model.PoissonRegressor,
    GammaRegressor: linear_model.GammaRegressor,
}
each = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@each_check(
    PoissonRegressor(),
    GammaRegressor(epsilon=5.0, random_state=0),
    PoissonRegressor(epsilon=5.0, delta=1e-6, bounds=(-5.0, 5.0), random_state=0),
    GammaRegressor(5.0, 1e-6, bounds=(-5.0, 5.0), target_bounds=(0.0, 9.0), random_state=0),
)
def test_checks_of_scikit_learn(estimator, check):
    """No check is expected to fail."""
    check(estimator)


def made(kind, n=30_000, seed=0, bounds=(0.0, 30.0)):
    """Rows, targets whose logarithm is linear in the mean, and the upper target bound."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 4))
    mean = np.exp(0.2 + X @ [0.8, -0.5, 0.3, 0.0])
    y = rng.poisson(mean) if kind is PoissonRegressor else rng.gamma(2.0, mean / 2)
    return X, np.maximum(y, 1e-9 * (kind is GammaRegressor)), bounds


@each
@pytest.mark.parametrize(
    "how",
    [
        {"bounds": BOUNDS, "solver": "standardized_regression"},
        {"data_norm": 2.0, "solver": "objective_perturbation"},
    ],
    ids=["bounds", "data_norm"],
)
@pytest.mark.parametrize("alpha", [0.0, 0.1])
def test_without_noise_it_is_the_model_of_scikit_learn(kind, how, alpha):
    """At epsilon 5000 the noise is a thousandth; the ridge is on the columns as given, against
    which long rows count less. Without ``bounds`` it is on the intercept too: not compared."""
    X, y, target_bounds = made(kind)
    X = X * [1.0, 1.0, 0.5, 1.0]  # columns in other units than their bounds
    if alpha and "bounds" not in how:
        return
    model = kind(5e3, 1e-6, alpha=alpha, target_bounds=target_bounds, random_state=0, **how)
    model.fit(X, y)
    plain = KINDS[kind](alpha=alpha, tol=1e-8).fit(X, y)
    tolerance = 0.02 if alpha else 0.012
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=tolerance)
    assert model.intercept_ == pytest.approx(plain.intercept_, abs=tolerance)
    assert model.score(X, y) == pytest.approx(plain.score(X, y), abs=5e-3 if alpha else 1e-3)


@pytest.mark.statistical
@each
@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_means_and_slopes_at_epsilon_one(kind, delta, relation):
    """Seeded; at the first two seeds of each case."""
    X, y, target_bounds = made(kind)
    for seed in range(2):
        model = kind(
            1.0,
            delta,
            neighbouring=relation,
            bounds=BOUNDS,
            target_bounds=target_bounds,
            random_state=seed,
        ).fit(X, y)
        np.testing.assert_allclose(model.coef_, [0.8, -0.5, 0.3, 0.0], atol=0.12)
        assert model.predict(X).mean() / y.mean() == pytest.approx(1.0, abs=0.05)


@each
def test_interface(kind, tmp_path):
    X, y, target_bounds = made(kind, 3000)
    how = {"bounds": BOUNDS, "target_bounds": target_bounds, "random_state": 0}
    model = kind(2.0, 1e-6, **how).fit(X, y)
    raw = np.exp(X @ model.coef_ + model.intercept_)
    assert raw.max() < 30
    np.testing.assert_allclose(model.predict(X), raw, rtol=1e-12)
    assert 1.97 < model.privacy_.epsilon <= 2 * (1 + 1e-9)
    assert model.plan_.name == "standardized_regression"
    plain = model.to_sklearn()
    assert isinstance(plain, KINDS[kind])
    np.testing.assert_allclose(plain.predict(X), model.predict(X), rtol=1e-12)
    # D^2 of scikit-learn, for the same predictions and data.
    assert model.score(X, y) == pytest.approx(plain.score(X, y), abs=1e-9)
    path = tmp_path / "model.skops"
    privopt.save(model, path)
    back = privopt.load(path)
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
    assert back.privacy_ == model.privacy_
    far = np.full((1, 4), 1e6)
    assert 0 < model.predict(far)[0] <= 30


@each
def test_the_plan_follows_from_public_facts(kind):
    how = {"bounds": BOUNDS, "target_bounds": (0.0, 30.0), "random_state": 0}
    X, y, _ = made(kind, 2000)
    one = kind(0.5, 1e-6, **how).fit(X, y)
    other = kind(0.5, 1e-6, **how).fit(np.zeros_like(X), np.full(len(y), 29.0))
    assert one.plan_.settings == other.plan_.settings
    assert one.privacy_ == other.privacy_


@pytest.mark.parametrize(
    ("kind", "how", "relation", "delta"),
    covering([*product(KINDS, [{}, {"bounds": (-1.0, 1.0)}], NEIGHBOURING, [0.0, 1e-5])]),
)
def test_replay_on_hostile_neighbours_finds_nothing(kind, relation, how, delta):
    def run(X, y):
        broken = ~np.isfinite(y)
        X, y = np.where(broken[:, None], np.nan, X), np.where(broken, 0.0, y)
        model = kind(
            1.0,
            delta,
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


# ---------------------------------------------------------------- bad input
@each
@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"target_bounds": (-1.0, 3.0)}, r"needs target_bounds of at least 0, got \(-1.0, 3.0\)"),
        ({"target_bounds": (0.0, 0.0)}, "target_bounds must be two finite public numbers"),
        ({"target_bounds": (2.0, 2.0)}, "target_bounds must be two finite public numbers"),
        ({"alpha": -1.0}, "alpha must be non-negative and finite, got -1.0"),
        ({"bounds": (1.0, 1.0)}, "low must be below high in each column"),
        ({"data_norm": 0.0}, "data_norm must be positive and finite"),
    ],
)
def test_bad_parameters_get_one_sentence_and_spend_nothing(kind, parameters, words):
    X, y, _ = made(kind, 50)
    opened = []
    token = HOOK.set(lambda *args: opened.append(args))
    try:
        with pytest.raises(ValueError, match=words) as caught:
            kind(**parameters).fit(X, y)
    finally:
        HOOK.reset(token)
    assert "\n" not in str(caught.value)
    assert opened == []


@each
def test_targets_outside_are_moved_to_the_nearest_bound(kind):
    X, y, _ = made(kind, 500)
    how = {"bounds": BOUNDS, "target_bounds": (0.0, 4.0), "random_state": 0}
    wild = y.copy()
    wild[:3] = -7.0, 1e9, 5.0
    cut = np.clip(wild, 0.0, 4.0)
    np.testing.assert_array_equal(kind(**how).fit(X, wild).coef_, kind(**how).fit(X, cut).coef_)


@each
def test_all_targets_equal_or_zero(kind):
    """No spread, or nothing at all: a fit that is finite."""
    X, _, _ = made(kind, 400)
    for value in (0.0, 2.0, 4.0):
        model = kind(1.0, 1e-6, bounds=BOUNDS, target_bounds=(0.0, 4.0), random_state=0)
        found = model.fit(X, np.full(400, value)).predict(X)
        assert np.isfinite(model.coef_).all()
        assert np.isfinite(found).all()
        assert found.min() >= 0
        assert found.max() <= 4


@each
def test_a_score_takes_no_weights(kind):
    X, y, target_bounds = made(kind, 200)
    model = kind(bounds=BOUNDS, target_bounds=target_bounds, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="sample_weight is not supported"):
        model.score(X, y, np.ones(200))
