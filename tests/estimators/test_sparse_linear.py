"""Sparse linear models: scikit-learn's contract, sparse input, odd input, replay."""

from __future__ import annotations

import pickle
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from privopt import ElasticNet, Lasso, SparseLogisticRegression
from privopt.audit import hostile_pairs, replay
from privopt.privacy.budget import NEIGHBOURING
from tests.covering import each_check


@each_check(
    Lasso(delta=1e-6),
    ElasticNet(delta=1e-6, fit_intercept=True),
    ElasticNet(random_state=1),
    SparseLogisticRegression(random_state=0, fit_intercept=True),
)
def test_checks_of_scikit_learn(estimator, check):
    """No check is expected to fail."""
    check(estimator)


ALL = [Lasso, ElasticNet, SparseLogisticRegression]


def is_classifier(kind):
    return kind is SparseLogisticRegression


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


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("bounds", [1.0, 0.5, "each"])
def test_sparse_and_dense_are_one(kind, bounds):
    X, score = wide(200, 30)
    y = (score > 0).astype(int) if is_classifier(kind) else score
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


@pytest.mark.parametrize("kind", ALL)
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
            **({"classes": [-1, 1]} if is_classifier(kind) else {}),
        ).fit(X, np.where(y > 0, 1, -1) if is_classifier(kind) else y)
        return model.coef_, model.selected_features_, model.privacy_.to_json()

    checked = 0
    for pair in hostile_pairs(relation, classification=is_classifier(kind)):
        data = (*pair.first, *pair.second)
        if all(np.isfinite(v).all() and len(v) > 0 for v in data):
            assert replay(run, pair) == []
            checked += 1
    assert checked >= (5 if relation != "zero_out" else 0)


@pytest.mark.parametrize("kind", ALL)
def test_a_million_columns_stay_sparse(kind):
    """n p numbers would take 64 GB: nothing of that size is ever made."""
    rng = np.random.default_rng(2)
    n, p = 8000, 1_000_000
    columns = rng.integers(0, p, size=(n, 5)).astype(np.int32)
    X = sp.csr_array((np.ones(5 * n), columns.ravel(), np.arange(0, 5 * n + 1, 5)), shape=(n, p))
    y = rng.integers(0, 2, n)
    tracemalloc.start()
    model = kind(1.0, 1e-6, n_iter=3, random_state=0).fit(X, y)
    assert len(model.predict(X)) == n
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert model.coef_.shape == ((1, p) if is_classifier(kind) else (p,))
    # A penalty may put a coefficient back to zero.
    assert (kind is not ElasticNet) <= len(model.selected_features_) <= 3
    assert most < 5e8


@pytest.mark.parametrize("kind", ALL)
def test_names_of_columns(kind):
    pandas = pytest.importorskip("pandas")
    X, score = wide(2000, 12)
    y = (score > 0).astype(int) if is_classifier(kind) else score
    frame = pandas.DataFrame(X, columns=[f"gene {j}" for j in range(12)])
    model = kind(5.0, 1e-6, random_state=0).fit(frame, y)
    assert list(model.feature_names_in_) == list(frame.columns)
    chosen = set(frame.columns[model.selected_features_])
    assert "gene 7" in chosen
    again = kind(5.0, 1e-6, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.predict(frame), again.predict(X), atol=1e-12)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[frame.columns[::-1]])


@pytest.mark.parametrize("kind", ALL)
def test_odd_data(kind):
    """Features beyond their bounds are clipped; NaN is refused; empty columns and rows, a single
    column, a single step are taken."""
    X, score = wide(80, 8)
    y = (score > 0).astype(int) if is_classifier(kind) else score
    for clean in (np.zeros((80, 8)), X[:, :1], np.where(np.arange(80)[:, None] % 2, X, 0.0)):
        for data in (clean, sp.csr_array(clean)):
            model = kind(1.0, 1e-6, n_iter=1, random_state=0).fit(data, y)
            assert len(model.selected_features_) <= 1
            assert np.isfinite(model.coef_).all()
    for delta in (0.0, 1e-6):
        outside = kind(3.0, delta, feature_bounds=0.2, random_state=0).fit(X, y)
        inside = kind(3.0, delta, feature_bounds=0.2, random_state=0).fit(np.clip(X, -0.2, 0.2), y)
        np.testing.assert_array_equal(outside.coef_, inside.coef_)
    for bad in (np.nan, np.inf):
        broken = X.copy()
        broken[3, 2] = bad
        for data in (broken, sp.csr_array(broken)):
            with pytest.raises(ValueError, match=r"NaN|infinity"):
                kind().fit(data, y)


# ------------------------------------------------------------ elastic net
def test_without_noise_it_is_the_elastic_net_of_scikit_learn(monkeypatch):
    """Its objective is scikit-learn's when features are in units of their bounds."""
    from sklearn.linear_model import ElasticNet as Reference

    import privopt.estimators.sparse_linear as module
    from privopt.noise import SilentSource

    monkeypatch.setattr(module, "source_for", lambda random_state: SilentSource())
    rng = np.random.default_rng(5)
    bounds = np.array([1.0, 2.0, 0.5, 1.0, 4.0])
    X = rng.uniform(-1, 1, size=(400, 5)) * bounds
    y = X @ (np.array([0.5, -0.2, 0.0, 0.0, 0.1]) / bounds) + 0.05 * rng.normal(size=400)
    found = ElasticNet(1e9, feature_bounds=bounds, alpha=0.05, l1_ratio=0.6, n_iter=300)
    found.fit(X, y)
    expected = Reference(alpha=0.05, l1_ratio=0.6, fit_intercept=False, tol=1e-10)
    expected.fit(X / bounds, y)
    np.testing.assert_allclose(found.coef_ * bounds, expected.coef_, atol=1e-6)
    np.testing.assert_array_equal(found.selected_features_, np.flatnonzero(expected.coef_))


@pytest.mark.statistical
def test_elastic_net_finds_few_features_among_many():
    X, score = wide()
    y = score + 0.1 * np.random.default_rng(1).standard_normal(len(score))
    model = ElasticNet(4.0, 1e-8, residual_clip=0.5, y_bound=2.0, random_state=0).fit(X, y)
    assert {7, 100} <= set(model.selected_features_.tolist())
    assert model.score(X, score) > 0.6
    assert len(model.selected_features_) <= model.plan_.settings.n_iter
    heavy = ElasticNet(4.0, 1e-8, alpha=10.0, l1_ratio=1.0, random_state=0).fit(X, y)
    assert len(heavy.selected_features_) == 0
    pure = ElasticNet(8.0, y_bound=2.0, residual_clip=0.5, random_state=0).fit(X, y)
    assert pure.privacy_.delta == 0
    assert pure.score(X, score) > 0.3


def test_refusals_of_the_elastic_net():
    X, y = np.zeros((4, 2)), np.array([0.0, 1.0, 0.0, 1.0])
    for sentence, parameters in {
        "alpha must": {"alpha": -1.0},
        "alpha must be": {"alpha": np.nan},
        "l1_ratio must": {"l1_ratio": 1.5},
        "y_bound must": {"y_bound": 0.0},
        "feature_bounds": {"feature_bounds": [1.0, -1.0]},
        "residual_clip": {"residual_clip": -1.0},
        "n_iter must": {"n_iter": 0},
    }.items():
        with pytest.raises(ValueError, match=sentence):
            ElasticNet(**parameters).fit(X, y)


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
