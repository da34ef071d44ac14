"""Lasso and sparse logistic regression: scikit-learn's contract, sparse input, replay."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.utils.estimator_checks import parametrize_with_checks

from privopt import Lasso, SparseLogisticRegression
from privopt.audit import hostile_pairs, replay
from privopt.privacy.budget import NEIGHBOURING


@parametrize_with_checks(
    [
        Lasso(delta=1e-6),
        SparseLogisticRegression(random_state=0, fit_intercept=True),
    ]
)
def test_checks_of_scikit_learn(estimator, check):
    """No check is expected to fail."""
    check(estimator)


def wide(n=3000, p=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, p)) * (rng.random((n, p)) < 0.3)
    return X, X[:, 7] - 0.8 * X[:, p // 4]


def test_the_right_features_are_selected_among_many():
    X, score = wide()
    rng = np.random.default_rng(1)
    model = Lasso(4.0, 1e-8, radius=2.0, residual_clip=0.5, y_bound=2.0, random_state=0)
    model.fit(X, score + 0.1 * rng.standard_normal(len(score)))
    assert {7, 100} <= set(model.selected_features_.tolist())
    assert model.score(X, score) > 0.5
    assert np.count_nonzero(model.coef_) == len(model.selected_features_)
    assert len(model.selected_features_) <= model.plan_.settings.n_iter
    assert np.abs(model.coef_).sum() <= 2.0 + 1e-9
    y = np.where(rng.random(len(score)) < 1 / (1 + np.exp(-8 * score)), "yes", "no")
    clf = SparseLogisticRegression(4.0, 1e-8, random_state=0).fit(X, y)
    assert clf.score(X, y) > 0.6
    np.testing.assert_allclose(clf.predict_proba(X).sum(axis=1), 1.0)
    assert set(clf.predict(X)) == {"no", "yes"}
    back = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(back.decision_function(X), clf.decision_function(X))


@pytest.mark.parametrize("kind", [Lasso, SparseLogisticRegression])
@pytest.mark.parametrize("bounds", [1.0, 0.5, "each"])
def test_sparse_and_dense_are_one(kind, bounds):
    X, score = wide(200, 30)
    y = score if kind is Lasso else (score > 0).astype(int)
    if bounds == "each":
        bounds = np.linspace(0.2, 2.0, 30)
    model = kind(2.0, 1e-6, feature_bounds=bounds, fit_intercept=True, random_state=3)
    dense, sparse = model.fit(X, y).coef_, None
    scores = model.predict(X)
    sparse = model.fit(sp.csr_array(X), y)
    np.testing.assert_allclose(sparse.coef_, dense, atol=1e-12)
    np.testing.assert_allclose(
        np.asarray(sparse.predict(sp.csr_array(X)), float), np.asarray(scores, float), atol=1e-9
    )
    clipped = model.fit(np.clip(X, -np.asarray(bounds), bounds), y)
    np.testing.assert_allclose(clipped.coef_, dense, atol=1e-12)


@pytest.mark.parametrize("kind", [Lasso, SparseLogisticRegression])
@pytest.mark.parametrize("relation", NEIGHBOURING)
def test_replay_of_the_whole_fit(kind, relation):
    """Everything a fit leaves behind, on hostile neighbours without missing values."""

    def run(X, y):
        model = kind(
            1.0,
            1e-5,
            neighbouring=relation,
            n_iter=3,
            n_public=60,
            random_state=0,
            feature_bounds=[1.0, 2.0, 0.5, 1.0],
            **({} if kind is Lasso else {"classes": [-1, 1]}),
        ).fit(X, y if kind is Lasso else np.where(y > 0, 1, -1))
        return model.coef_, model.selected_features_, model.privacy_.to_json()

    checked = 0
    for pair in hostile_pairs(relation, classification=kind is not Lasso):
        data = (*pair.first, *pair.second)
        if all(np.isfinite(v).all() and len(v) > 0 for v in data):
            assert replay(run, pair) == []
            checked += 1
    assert checked >= (5 if relation != "zero_out" else 0)


def test_a_million_columns_stay_sparse():
    """p = 10^6, nothing of size n p is ever made."""
    rng = np.random.default_rng(2)
    n, p = 200, 1_000_000
    X = sp.random_array((n, p), density=2e-5, rng=rng, format="csr")
    y = rng.integers(0, 2, n)
    model = SparseLogisticRegression(1.0, 1e-6, n_iter=3, random_state=0).fit(X, y)
    assert model.coef_.shape == (1, p)
    assert 1 <= len(model.selected_features_) <= 3
    assert len(model.predict(X)) == n


def test_refusals_are_sentences():
    X, y = np.zeros((4, 2)), np.array([0.0, 1.0, 0.0, 1.0])
    wrong = {
        "radius must": {"radius": 0.0},
        "feature_bounds must be a number": {"feature_bounds": [1.0, 2.0, 3.0]},
        "positive and finite": {"feature_bounds": [1.0, 0.0]},
        "y_bound must": {"y_bound": np.nan},
        "residual_clip": {"residual_clip": -1.0},
        "n_iter must": {"n_iter": 0},
    }
    for sentence, parameters in wrong.items():
        with pytest.raises(ValueError, match=sentence):
            Lasso(**parameters).fit(X, y)
    with pytest.raises(ValueError, match="Only binary"):
        SparseLogisticRegression().fit(X, [0, 1, 2, 0])
    with pytest.raises(ValueError, match="not in classes"):
        SparseLogisticRegression(classes=[0, 1]).fit(X, [0, 1, 2, 0])
    with pytest.raises(ValueError, match="one class"):
        SparseLogisticRegression().fit(X, [1, 1, 1, 1])
    with pytest.raises(ValueError, match="add_remove"):
        Lasso(neighbouring="add_remove").fit(X, y)
