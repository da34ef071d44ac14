"""``data_norm="private"``: a row bound paid from the same budget, in the same certificate."""

from __future__ import annotations

import math
import sys
from collections import Counter
from functools import lru_cache
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp

from privopt import (
    HuberRegressor,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    QuantileRegressor,
    Ridge,
)
from privopt.audit import hostile_pairs, record, replay
from privopt.audit.replay import in_units
from privopt.facts import Facts
from privopt.losses import Logistic
from privopt.mechanisms.standardizer import norm_bound
from privopt.oracle import NormHistogram, Oracle, RowBounds
from privopt.planner.private_norm import SHARE, WIDE, choose_with_private_norm
from privopt.privacy import Accountant, Budget, Certificate
from privopt.privacy.budget import NEIGHBOURING
from privopt.privacy.kinds import GaussianKind, Pure
from privopt.privacy.profiles import gaussian_mu
from privopt.problem import Problem
from tests.covering import covering, in_turn

ESTIMATORS = [
    LogisticRegression,
    LinearSVC,
    LinearRegression,
    Ridge,
    HuberRegressor,
    QuantileRegressor,
]


@pytest.fixture(scope="module")
def far():
    """3000 rows of norm about 400, labels from a line."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 4)) * 200
    return X, X @ [0.002, -0.001, 0.0, 0.0]


def labels_for(model, y):
    return y > 0 if hasattr(model, "classes") else np.clip(y, -1, 1)


# ---------------------------------------------------------------- what it does
@pytest.mark.statistical
@pytest.mark.parametrize(("make", "delta"), in_turn(ESTIMATORS, [0.0, 1e-6]))
def test_it_finds_the_scale(far, make, delta):
    """Seeded. Without it every row would be clipped to a four-hundredth of its norm."""
    X, y = far
    model = make(1.0, delta, data_norm="private", random_state=0)
    y = labels_for(model, y)
    model.fit(X, y)
    norms = np.linalg.norm(X, axis=1)
    assert np.quantile(norms, 0.8) < model.data_norm_ < math.sqrt(2) * np.quantile(norms, 0.95)
    assert model.plan_.name.startswith("private_norm+")
    assert model.score(X, y) > 0.7
    assert 0.97 <= model.privacy_.epsilon <= 1 + 1e-9


def test_rows_are_clipped_in_predict_at_the_released_bound(far):
    X, y = far
    model = Ridge(1.0, 1e-6, data_norm="private", random_state=0).fit(X, y)
    bound = model.data_norm_
    short = X * np.minimum(1, bound / np.linalg.norm(X, axis=1))[:, None]
    assert not np.allclose(X, short)
    np.testing.assert_allclose(model.predict(X), model.predict(short))
    short = X[np.linalg.norm(X, axis=1) < bound]
    line = np.clip(short @ model.coef_ + model.intercept_, -1, 1)
    np.testing.assert_allclose(model.predict(short), line)


def test_scale_does_not_matter(far):
    """A power of two times the rows is the same model in other units."""
    X, y = far
    one = Ridge(1.0, data_norm="private", random_state=0).fit(X, y)
    other = Ridge(1.0, data_norm="private", random_state=0).fit(X / 64, y)
    assert one.data_norm_ == pytest.approx(64 * other.data_norm_)
    np.testing.assert_allclose(one.coef_ * 64, other.coef_, rtol=1e-9)


def test_sparse_rows_give_the_same_model(far):
    X, y = far
    one = Ridge(1.0, 1e-6, data_norm="private", random_state=0).fit(X, y)
    other = Ridge(1.0, 1e-6, data_norm="private", random_state=0).fit(sp.csr_array(X), y)
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-9)


def test_declared_columns_are_standardised_and_need_no_bound(far):
    X, y = far
    model = Ridge(1.0, 1e-6, data_norm="private", bounds=(-900, 900), random_state=0).fit(X, y)
    assert model.plan_.name == "standardized_regression"
    assert model.data_norm_ is None
    same = Ridge(1.0, 1e-6, bounds=(-900, 900), random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.coef_, same.coef_)


def test_several_classes_share_one_bound(three):
    X, y = three
    model = LogisticRegression(3.0, 1e-6, data_norm="private", random_state=0).fit(50 * X, y)
    assert model.plan_.name == "private_norm+joint_softmax"
    assert model.privacy_.releases == 1 + model.plan_.settings.inner.passes
    assert model.privacy_.epsilon <= 3 * (1 + 1e-9)
    assert 40 < model.data_norm_ < 80
    assert model.score(50 * X, y) > 0.8


# ---------------------------------------------------------------- what it costs
def kinds_of(certificate):
    ((_, charge),) = certificate.charges
    return Counter({kind: n for step, n in charge.items() for kind in step.kinds})


@pytest.mark.parametrize("relation", NEIGHBOURING)
def test_the_share_stands_in_the_certificate_pure(far, relation):
    X, y = far
    model = Ridge(0.8, data_norm="private", neighbouring=relation, n_public=3000).fit(X, y)
    privacy = model.privacy_
    assert privacy.settings["norm_share"] == SHARE == 0.05
    assert privacy.settings["norm_multiplier"] == pytest.approx(1 / (0.05 * 0.8))
    kinds = kinds_of(privacy)
    (bound,) = [kind for kind in kinds if math.isclose(kind.epsilon, 0.04)]
    assert isinstance(bound, Pure)
    rest = sum(kind.epsilon * n for kind, n in kinds.items()) - bound.epsilon
    assert rest == pytest.approx(0.95 * 0.8, rel=1e-9)
    assert privacy.epsilon == pytest.approx(0.8, rel=1e-9)
    assert privacy.epsilon <= 0.8 * (1 + 1e-9)
    assert Certificate.from_json(privacy.to_json()) == privacy


@pytest.mark.parametrize("relation", NEIGHBOURING)
def test_the_share_stands_in_the_certificate_gaussian(far, relation):
    X, y = far
    model = Ridge(
        0.8, 1e-6, data_norm="private", neighbouring=relation, n_public=3000, solver="noisy_gd"
    ).fit(X, y)
    privacy, mu = model.privacy_, gaussian_mu(0.8, 1e-6)
    kinds = kinds_of(privacy)
    assert all(isinstance(kind, GaussianKind) for kind in kinds)
    assert math.isclose(max(kind.mu for kind in kinds), math.sqrt(0.05) * mu)
    squares = sum(kind.mu**2 * n for kind, n in kinds.items())
    assert squares == pytest.approx(mu**2, rel=1e-6)
    assert squares <= mu**2 * (1 + 1e-9)
    # Leaving the bound out of the account would understate epsilon.
    spent = Accountant(relation).epsilon(privacy.charges[0][1], 1e-6)
    assert spent == pytest.approx(0.8, rel=1e-6)
    ((_, charge),) = privacy.charges
    without = Counter({s: n for s, n in charge.items() if s.kinds[0].mu < math.sqrt(0.05) * mu / 2})
    assert Accountant(relation).epsilon(without, 1e-6) < 0.98 * 0.8


@pytest.mark.parametrize("relation", NEIGHBOURING)
@pytest.mark.parametrize("p", [3, 60])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_plans_use_the_budget_and_never_more(relation, p, epsilon):
    from privopt.privacy import spend
    from privopt.solvers import declare

    budget = Budget(epsilon, 1e-6, relation)
    facts = Facts(Problem(Logistic(), intercept=1 / 3), 10_000, p + 1, relation)
    plan = choose_with_private_norm(facts, budget)
    found = Accountant(relation).epsilon(spend(declare(plan)), 1e-6)
    assert 0.97 * epsilon <= found <= epsilon * (1 + 1e-9)


def test_the_noise_of_the_histogram_follows_from_its_share(far):
    """The released counts differ from the true ones by noise of the declared size; 1e-6."""
    X, y = far
    seen = []
    for seed in range(30):
        model = Ridge(1.0, 1e-6, data_norm="private", solver="noisy_gd", random_state=seed)
        tape = record(lambda X, y, model=model: model.fit(X, y).coef_, (X, y))[1]
        first = tape.releases[0]
        before = in_units(first.payload, first.sensitivity)
        seen.append((first.result - before) * math.sqrt(SHARE) * gaussian_mu(1.0, 1e-6))
    noise = np.concatenate(seen)
    assert np.sqrt(np.mean(noise**2)) == pytest.approx(1.0, abs=5 / math.sqrt(2 * len(noise)))


# ---------------------------------------------------------------- neighbours
@pytest.mark.parametrize(
    ("make", "relation", "delta"), covering(list(product(ESTIMATORS, NEIGHBOURING, [0.0, 1e-5])))
)
def test_replay_on_hostile_neighbours_finds_nothing(make, relation, delta, monkeypatch):
    planner = sys.modules["privopt.planner.choose"]
    monkeypatch.setattr(planner, "rank", lru_cache(planner.rank))  # public, so made once

    def run(X, y):
        broken = ~np.isfinite(y)
        X, y = np.where(broken[:, None], np.nan, X), np.where(broken, 1.0, y)
        model = make(
            1.0,
            delta,
            data_norm="private",
            neighbouring=relation,
            n_public=63,
            nan_policy="empty",
            random_state=0,
        )
        if hasattr(model, "classes"):
            model.set_params(classes=[-1, 1])
            y = np.where(y > 0, 1, -1)
        model.fit(X, y)
        return model.coef_, model.intercept_, model.data_norm_, model.privacy_.to_json()

    pairs = hostile_pairs(relation, classification=False)
    run(*pairs[0].first)
    assert {pair.name: found for pair in pairs if (found := replay(run, pair))} == {}


# ---------------------------------------------------------------- the parts
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array, lambda X: X.astype(np.float32)])
def test_rows_within_a_norm(container):
    """x becomes x / max(||x||, B); the constant column and empty records stay what they are."""
    from privopt.noise import SilentSource
    from privopt.oracle import ClippedGradient

    rng = np.random.default_rng(1)
    X = rng.standard_normal((50, 3)) * 10
    X[4] = np.nan
    y = np.sign(rng.standard_normal(50))
    oracle = Oracle.over(
        container(X),
        y,
        neighbouring="zero_out",
        bounds=RowBounds(math.inf, 0.5),
        source=SilentSource(),
    ).clipped_to(12.0)
    assert oracle.bounds == RowBounds(1.0, 0.5)
    from privopt.mechanisms import Gate
    from privopt.mechanisms import Gaussian as Noise

    theta = np.array([0.3, -0.2, 0.1, 0.4])
    sealed = oracle.everything().ask(ClippedGradient(Logistic(), 10.0), theta)
    found = Gate(SilentSource()).release(Noise(1.0), sealed)
    good = np.delete(X, 4, axis=0)
    full = np.column_stack(
        [good / np.maximum(np.linalg.norm(good, axis=1), 12.0)[:, None], np.full(49, 0.5)]
    )
    expected = Logistic().slope(full @ theta, np.delete(y, 4)) @ full
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert np.linalg.norm(full, axis=1).max() <= oracle.bounds.size * (1 + 1e-12)


def test_rows_are_clipped_once_and_to_a_number():
    from privopt import Refused
    from privopt.noise import SilentSource

    def over(norm):
        return Oracle.over(
            np.ones((3, 2)),
            np.ones(3),
            neighbouring="zero_out",
            bounds=RowBounds(norm),
            source=SilentSource(),
        )

    with pytest.raises(Refused, match="rows are clipped once"):
        over(1.0).clipped_to(2.0)
    for norm in (0.0, math.inf, math.nan, -1.0):
        with pytest.raises(ValueError, match="row bound must be positive and finite"):
            over(math.inf).clipped_to(norm)


def test_a_bound_from_noisy_counts():
    edges = np.arange(1.0, 9.0)
    exact = np.array([0, 0, 10, 40, 45, 5, 0, 0.0])
    assert norm_bound(edges, exact, 0.9, 100, 0.0) == 5.0
    noisy = exact + np.array([9, -8, 7, -6, 5, -4, 9, -9])
    assert norm_bound(edges, noisy, 0.9, 100, 9.0) == 5.0
    everywhere = exact + 30.0  # noise in empty bins alone would reach the quantile at once
    assert norm_bound(edges, everywhere, 0.9, 100, 0.0) == 5.0
    assert norm_bound(edges, np.zeros(8), 0.9, 100, 1.0) == 8.0
    assert norm_bound(edges, exact, 0.9, 100, 1e6) == 8.0  # the counts say nothing


def test_the_histogram_covers_every_scale():
    assert WIDE[0] < 1e-6
    assert WIDE[-1] > 1e6
    np.testing.assert_allclose(np.diff(np.log2(WIDE)), 0.5)
    histogram = NormHistogram(WIDE)
    assert (histogram.radius(), histogram.diameter()) == (1.0, math.sqrt(2))


@pytest.mark.parametrize("make", ESTIMATORS)
def test_other_words_are_refused(far, make):
    model = make(data_norm="automatic")
    X, y = far
    with pytest.raises(ValueError, match="data_norm must be positive and finite, got 'automatic'"):
        model.fit(X, labels_for(model, y))
