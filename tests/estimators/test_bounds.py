"""Declared column bounds: how they are read, the map they make, and the model behind it."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from privopt import LogisticRegression, load, save
from privopt.estimators.bounds import ColumnBounds
from privopt.losses import CappedLogistic
from privopt.privacy.budget import NEIGHBOURING

LOW, HIGH = np.array([0.0, -5.0, 1000.0]), np.array([10.0, 5.0, 3000.0])
NAMES = ["age", "change", "rent"]
DELTA = 1e-6


@pytest.fixture(scope="module")
def data():
    """1500 rows on three scales, a few beyond the declared bounds, labels "no" and "yes"."""
    rng = np.random.default_rng(0)
    X = np.column_stack(
        [rng.gamma(2.0, 1.5, 1500), rng.normal(0.5, 1.5, 1500), rng.normal(1900, 250, 1500)]
    )
    score = (X[:, 0] - 3) / 2 + X[:, 1] - (X[:, 2] - 1900) / 200
    return X, np.where(score + 0.3 * rng.normal(size=1500) > 0, "yes", "no")


def model(epsilon=4.0, bounds=(LOW, HIGH), **arguments):
    arguments = {"delta": DELTA, **arguments}
    return LogisticRegression(epsilon, bounds=bounds, random_state=0, **arguments)


# ------------------------------------------------------------ reading
@pytest.mark.parametrize(
    "bounds",
    [(-2, 3), [-2.0, 3.0], np.array([-2.0, 3.0]), (np.full(3, -2.0), 3), ([-2, -2, -2], [3, 3, 3])],
)
def test_scalars_and_arrays(bounds):
    found = ColumnBounds.declared(bounds, 3)
    np.testing.assert_array_equal(found.low, [-2.0] * 3)
    np.testing.assert_array_equal(found.high, [3.0] * 3)


def test_a_mapping_is_read_by_column_name():
    bounds = {"rent": (1000, 3000), "age": (0, 10), "change": [-5, 5], "unused": (0, 1)}
    found = ColumnBounds.declared(bounds, 3, np.array(NAMES, dtype=object))
    np.testing.assert_array_equal(found.low, LOW)
    np.testing.assert_array_equal(found.high, HIGH)


@pytest.mark.parametrize(
    "bounds",
    [
        5.0,
        "wide",
        (0.0,),
        (0.0, 1.0, 2.0),
        (np.zeros(2), np.ones(2)),
        (np.zeros(3), np.ones(4)),
        ("a", "b"),
        np.ones((3, 2)),
        object(),
    ],
)
def test_a_wrong_shape_is_one_sentence(data, bounds):
    sentence = "bounds must be a pair .low, high. of numbers or of arrays .* each of the 3 columns"
    with pytest.raises(ValueError, match=sentence):
        ColumnBounds.declared(bounds, 3)
    with pytest.raises(ValueError, match=sentence):
        model(bounds=bounds).fit(*data)


@pytest.mark.parametrize(
    "bounds",
    [
        (1.0, 1.0),
        (2.0, -2.0),
        (np.nan, 1.0),
        (0.0, np.nan),
        (-np.inf, 1.0),
        (0.0, np.inf),
        (LOW, np.array([10.0, -5.0, 3000.0])),
    ],
)
def test_bounds_that_are_no_interval_are_one_sentence(data, bounds):
    with pytest.raises(ValueError, match="bounds must be finite, and low must be below high"):
        model(bounds=bounds).fit(*data)


def test_mappings_that_do_not_fit_are_one_sentence(data):
    X, y = data
    frame = pd.DataFrame(X, columns=NAMES)
    whole = {"age": (0, 10), "change": (-5, 5), "rent": (1000, 3000)}
    with pytest.raises(ValueError, match="bounds by column name need a data frame"):
        model(bounds=whole).fit(X, y)
    with pytest.raises(ValueError, match="bounds are missing for column 'change'"):
        model(bounds={k: v for k, v in whole.items() if k != "change"}).fit(frame, y)
    with pytest.raises(ValueError, match=r"each column's bounds must be a pair"):
        model(bounds={name: (0, 1, 2) for name in NAMES}).fit(frame, y)
    with pytest.raises(ValueError, match=r"each column's bounds must be a pair"):
        model(bounds=dict.fromkeys(NAMES, 3.0)).fit(frame, y)
    with pytest.raises(ValueError, match="low must be below high"):
        model(bounds={**whole, "age": (10, 0)}).fit(frame, y)


def test_ragged_pairs_in_a_mapping_are_one_sentence(data):
    frame = pd.DataFrame(data[0], columns=NAMES)
    ragged = {"age": (0, 10), "change": (-5, 5, 7), "rent": (1000, 3000)}
    with pytest.raises(ValueError, match=r"each column's bounds must be a pair"):
        model(bounds=ragged).fit(frame, data[1])


def test_a_failed_fit_leaves_nothing_behind(data):
    broken = model(bounds=(1.0, 0.0))
    with pytest.raises(ValueError, match="low must be below high"):
        broken.fit(*data)
    assert not [name for name in vars(broken) if name.endswith("_")]


# ------------------------------------------------------------ the map
def test_columns_are_divided_and_shifted_only_if_zero_lies_outside():
    found = ColumnBounds.declared((LOW, HIGH), 3)
    np.testing.assert_array_equal(found.shift, [0.0, 0.0, 2000.0])
    np.testing.assert_array_equal(found.scale, [10.0, 5.0, 1000.0])
    X = np.array([[0.0, 0.0, 1000.0], [10.0, 5.0, 3000.0], [5.0, -2.5, 2500.0], [-9.0, 9.0, 0.0]])
    expected = [[0.0, 0.0, -1.0], [1.0, 1.0, 1.0], [0.5, -0.5, 0.5], [0.0, 1.0, -1.0]]
    before = X.copy()
    np.testing.assert_array_equal(found.apply(X), expected)
    np.testing.assert_array_equal(X, before)  # the caller's array stays as it was
    uneven = ColumnBounds.declared((-1.0, 4.0), 2)
    np.testing.assert_array_equal(uneven.scale, 4.0)
    negative = ColumnBounds.declared((-8.0, -4.0), 1)
    np.testing.assert_array_equal(
        negative.apply(np.array([[-8.0], [-6.0], [7.0]])).ravel(), [-1, 0, 1]
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_entry_ends_in_the_unit_interval_and_keeps_its_type(dtype):
    rng = np.random.default_rng(1)
    X = (rng.standard_cauchy((500, 3)) * [10, 5, 3000]).astype(dtype)
    mapped = ColumnBounds.declared((LOW, HIGH), 3).apply(X)
    assert mapped.dtype == dtype
    assert np.abs(mapped).max() <= 1 + np.finfo(dtype).eps
    X[0], X[1], X[2] = np.inf, -np.inf, np.nan  # missing values, which no bound makes numbers
    mapped = ColumnBounds.declared((LOW, HIGH), 3).apply(X)
    assert np.isnan(mapped[:3]).all()
    assert np.isfinite(mapped[3:]).all()


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csr_matrix, sp.csc_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_sparse_matrix_is_mapped_like_a_dense_one_and_stays_sparse(kind, dtype):
    rng = np.random.default_rng(2)
    X = (rng.normal(size=(60, 3)) * 6 * (rng.random((60, 3)) < 0.3)).astype(dtype)
    low, high = np.array([-1.0, 0.0, -5.0]), np.array([4.0, 3.0, 0.0])
    bounds = ColumnBounds.declared((low, high), 3)
    mapped = bounds.apply(kind(X))
    assert sp.issparse(mapped)
    assert mapped.dtype == dtype
    assert mapped.nnz <= kind(X).nnz
    np.testing.assert_allclose(mapped.toarray(), bounds.apply(X), rtol=1e-6)
    held = kind(X)
    bounds.apply(held)
    np.testing.assert_array_equal(held.toarray(), X)


def test_bounds_of_a_sparse_matrix_must_contain_zero(data):
    X, y = data
    with pytest.raises(ValueError, match="every column of a sparse matrix must contain 0"):
        model().fit(sp.csr_array(X), y)
    with pytest.raises(ValueError, match="every column of a sparse matrix must contain 0"):
        ColumnBounds.declared((1.0, 2.0), 3).apply(sp.csr_array((4, 3)))
    ColumnBounds.declared((0.0, 2.0), 3).apply(sp.csr_array((4, 3)))
    ColumnBounds.declared((-2.0, 0.0), 3).apply(sp.csr_array((4, 3)))


# ------------------------------------------------------------ the model
@pytest.mark.parametrize("neighbouring", NEIGHBOURING)
@pytest.mark.parametrize("delta", [0.0, DELTA])
def test_bounds_and_an_intercept_choose_the_standardised_solver(data, neighbouring, delta):
    fitted = LogisticRegression(
        2.0, delta, neighbouring=neighbouring, bounds=(LOW, HIGH), n_public=1500, random_state=0
    ).fit(*data)
    assert fitted.plan_.name == "standardized_objective"
    assert fitted.privacy_.solver == "standardized_objective"
    assert fitted.privacy_.releases == 4
    assert 0.9 * 2.0 < fitted.privacy_.epsilon <= 2.0
    assert fitted.privacy_.delta == delta
    assert not fitted.privacy_.private  # a seed was given


def test_without_intercept_or_bounds_another_solver_is_taken(data):
    X, y = data
    fitted = model(fit_intercept=False).fit(X, y)
    assert fitted.plan_.name != "standardized_objective"
    assert fitted.intercept_.shape == (1,)
    mapped = ColumnBounds.declared((LOW, HIGH), 3).apply(X)
    clipped = mapped / np.maximum(np.linalg.norm(mapped, axis=1, keepdims=True), 1.0)
    scores = clipped @ (fitted.coef_[0] * [10.0, 5.0, 1000.0])
    np.testing.assert_allclose(fitted.decision_function(X), scores, atol=1e-9)
    assert fitted.privacy_.epsilon <= 4.0
    assert model(bounds=None).fit(X / 3000, y).plan_.name != "standardized_objective"


def test_another_solver_may_be_named(data):
    fitted = model(solver="objective_perturbation").fit(*data)
    assert fitted.plan_.name == "objective_perturbation"
    proba = fitted.predict_proba(data[0])[:, 1]
    np.testing.assert_allclose(proba, 1 / (1 + np.exp(-fitted.decision_function(data[0]))))


def test_entries_outside_are_clipped_in_fit_and_predict_alike(data):
    X, y = data
    outside = X.copy()
    outside[::7, 0], outside[::11, 1], outside[::13, 2] = 1e9, -1e9, 1e300
    inside = np.clip(outside, LOW, HIGH)
    one, other = model().fit(outside, y), model().fit(inside, y)
    np.testing.assert_array_equal(one.coef_, other.coef_)
    np.testing.assert_array_equal(one.intercept_, other.intercept_)
    np.testing.assert_allclose(one.decision_function(outside), one.decision_function(inside))
    np.testing.assert_array_equal(one.predict(outside), other.predict(inside))


def mapped_scores(fitted, X):
    """Bounds, then the private map with its clip, from the fitted row map alone."""
    row_map = fitted._row_map
    Z = ColumnBounds.declared((LOW, HIGH), 3).apply(X)
    V = np.column_stack([(Z - row_map.centre) * row_map.scale, np.full(len(X), row_map.column)])
    return V, np.linalg.norm(V, axis=1) / row_map.clip_norm


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 50.0])
def test_one_function(data, tmp_path, epsilon, delta):
    """Published coefficients, scores, probabilities, the plain model and the saved file agree on
    every row within the bounds."""
    X, y = data
    fitted = model(epsilon, delta=delta).fit(X, y)
    inside = X[((X >= LOW) & (X <= HIGH)).all(axis=1)]
    _, sizes = mapped_scores(fitted, inside)
    assert (sizes > 1).sum() > 100  # rows that the fit shortened or weighted are among them
    plain = inside @ fitted.coef_[0] + fitted.intercept_[0]
    scores = fitted.decision_function(inside)
    np.testing.assert_allclose(scores, plain, rtol=1e-12, atol=1e-12 * np.abs(plain).max())
    proba = fitted.predict_proba(inside)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(proba[:, 1], 1 / (1 + np.exp(-plain)), rtol=1e-10)
    np.testing.assert_array_equal(fitted.classes_[(plain > 0).astype(int)], fitted.predict(inside))
    np.testing.assert_allclose(np.exp(fitted.predict_log_proba(inside)), proba)
    save(fitted, tmp_path / "model.skops")
    np.testing.assert_array_equal(load(tmp_path / "model.skops").predict_proba(inside), proba)
    exported = fitted.to_sklearn().predict_proba(inside)
    np.testing.assert_allclose(exported, proba, rtol=1e-9, atol=1e-12)


def test_a_capped_link_predicts_from_clipped_rows_and_is_not_exported(data):
    X, y = data
    fitted = model(link="capped").fit(X, y)
    inside = ((X >= LOW) & (X <= HIGH)).all(axis=1)
    _, sizes = mapped_scores(fitted, X)
    plain = X @ fitted.coef_[0] + fitted.intercept_[0]
    scores = fitted.decision_function(X)
    long = inside & (sizes > 1)
    # A longer row has its whole score scaled down, so the class never changes.
    np.testing.assert_allclose(scores[long], plain[long] / sizes[long], rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(fitted.predict(X[inside]) == "yes", plain[inside] > 0)
    proba = fitted.predict_proba(X)
    np.testing.assert_allclose(proba[:, 1], CappedLogistic(0.5).probability(scores), rtol=1e-12)
    with pytest.raises(ValueError, match='fit with link="logit"'):
        fitted.to_sklearn()
    with pytest.raises(ValueError, match='link must be "logit" or "capped"'):
        model(link="cap").fit(X, y)


@pytest.mark.statistical
@pytest.mark.parametrize(("epsilon", "seed"), [(1.0, 0), (8.0, 1)])
def test_coefficients_are_log_odds(epsilon, seed):
    """Slope ratio within .95 and 1.05 of a true logistic model: sampling moves it by .012 (one
    standard deviation), noise by .02; false alarms about 3 %, none on these seeds."""
    rng = np.random.default_rng(seed)
    X = np.clip(rng.normal(size=(20_000, 8)) * np.linspace(0.3, 1.5, 8), -6, 6)
    true = rng.normal(size=8)
    y = rng.random(20_000) < 1 / (1 + np.exp(-(X @ true - 0.5)))
    fitted = LogisticRegression(
        epsilon, 1e-6, bounds=(-6, 6), classes=[False, True], random_state=0
    ).fit(X, y)
    ratio = float(fitted.coef_[0] @ true / (true @ true))
    assert 0.95 < ratio < 1.05
    old = LogisticRegression(
        epsilon, 1e-6, bounds=(-6, 6), classes=[False, True], random_state=0, link="capped"
    ).fit(X, y)
    assert old.coef_[0] @ true / (true @ true) > 1.4


@pytest.mark.statistical
def test_where_there_is_only_noise_probabilities_stay_near_one_half():
    """100 records at epsilon .1: the log loss of 20 fits is that of a coin, nearly."""
    rng = np.random.default_rng(3)
    X, y = rng.uniform(-1, 1, (100, 8)), np.arange(100) % 5 == 0
    found = []
    for seed in range(20):
        fitted = LogisticRegression(
            0.1, 1e-6, bounds=(-1, 1), classes=[False, True], random_state=seed
        ).fit(X, y)
        proba = fitted.predict_proba(X)[np.arange(100), y.astype(int)]
        found.append(-np.log(proba).mean())
    assert np.mean(found) < 0.74
    assert max(found) < 1.0


def test_more_classes_share_one_map(data):
    X, _ = data
    y = np.digitize(X[:, 2], [1800, 2000])
    fitted = model(8.0).fit(X, y)
    assert fitted.plan_.name == "standardized_objective"
    assert fitted.privacy_.releases == 2 + 2 * 3
    assert fitted.privacy_.epsilon <= 8.0
    assert fitted.coef_.shape == (3, 3)
    proba = fitted.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    assert fitted.score(X, y) > 0.6
    scores = fitted.decision_function(X)
    _, sizes = mapped_scores(fitted, X)
    short = (sizes <= 1) & ((X >= LOW) & (X <= HIGH)).all(axis=1)
    plain = X @ fitted.coef_.T + fitted.intercept_
    np.testing.assert_allclose(scores[short], plain[short], rtol=1e-9, atol=1e-9)


def test_pickle_and_clone(data):
    X, y = data
    fitted = model().fit(X, y)
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.decision_function(X), fitted.decision_function(X))
    np.testing.assert_array_equal(copy.predict_proba(X), fitted.predict_proba(X))
    fresh = clone(fitted)
    assert not hasattr(fresh, "coef_")
    np.testing.assert_array_equal(fresh.bounds[0], LOW)
    np.testing.assert_array_equal(fresh.fit(X, y).coef_, fitted.coef_)
    again = clone(model(bounds=dict(zip(NAMES, zip(LOW, HIGH, strict=True), strict=True))))
    again.fit(pd.DataFrame(X, columns=NAMES), y)
    np.testing.assert_allclose(again.coef_, fitted.coef_, rtol=1e-9)


def test_a_second_fit_forgets_the_map_of_the_first(data):
    X, y = data
    one = model().fit(X, y)
    one.set_params(bounds=None).fit(X / 4000, y)
    other = model(bounds=None).fit(X / 4000, y)
    np.testing.assert_array_equal(
        one.decision_function(X / 4000), other.decision_function(X / 4000)
    )


def test_single_precision_is_the_same_model(data):
    X, y = data
    single = X.astype(np.float32)
    one, other = model().fit(single, y), model().fit(single.astype(float), y)
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-3, atol=1e-6)
    assert one.coef_.dtype == np.float64
    scores = one.decision_function(single)
    np.testing.assert_allclose(
        scores, one.decision_function(single.astype(float)), rtol=1e-3, atol=1e-3
    )
    assert (one.predict(single) == other.predict(single)).mean() > 0.995


def test_data_frames_and_reordered_columns(data):
    X, y = data
    frame = pd.DataFrame(X, columns=NAMES)
    bounds = {"rent": (1000, 3000), "age": (0, 10), "change": (-5, 5)}
    fitted = model(bounds=bounds).fit(frame, y)
    plain = model().fit(X, y)
    np.testing.assert_allclose(fitted.coef_, plain.coef_, rtol=1e-9)
    np.testing.assert_allclose(
        fitted.decision_function(frame), plain.decision_function(X), rtol=1e-9, atol=1e-9
    )
    turned = model(bounds=bounds).fit(frame[["rent", "age", "change"]], y)
    assert (turned.predict(frame[["rent", "age", "change"]]) == fitted.predict(frame)).mean() > 0.9


def test_sparse_and_dense_give_the_same_model(data):
    X, y = data
    X = X * (np.random.default_rng(3).random(X.shape) < 0.5)
    bounds = (np.array([0.0, -5.0, 0.0]), HIGH)
    dense = model(bounds=bounds).fit(X, y)
    sparse = model(bounds=bounds).fit(sp.csr_matrix(X), y)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(
        sparse.decision_function(sp.csr_array(X)), dense.decision_function(X), atol=1e-4
    )


def test_a_sparse_fit_never_densifies(monkeypatch, data):
    X, y = data
    S = sp.csr_matrix(X * (np.random.default_rng(3).random(X.shape) < 0.5))

    def guard(original):
        def guarded(self, *args, **kwargs):
            assert self.shape != X.shape, "the whole sparse matrix was made dense"
            return original(self, *args, **kwargs)

        return guarded

    for kind in (sp.csr_array, sp.csc_array, sp.coo_array, sp.csr_matrix, sp.csc_matrix):
        for name in ("toarray", "todense"):
            monkeypatch.setattr(kind, name, guard(getattr(kind, name)))
    fitted = model(bounds=(-5.0, 3000.0)).fit(S, y)
    assert fitted.plan_.name == "standardized_objective"
    assert fitted.predict_proba(S).shape == (1500, 2)


def test_missing_values_are_empty_records_whatever_the_bounds(data):
    """Under nan_policy="empty" a row with NaN and a row with infinity both contribute nothing."""
    X, y = (values.copy() for values in data)
    X[5, 1], X[9, 0] = np.nan, np.nan
    with_nan = model(nan_policy="empty").fit(X, y)
    infinite = X.copy()
    infinite[5, 1], infinite[9, 0] = np.inf, -np.inf
    with_infinity = model(nan_policy="empty").fit(infinite, y)
    np.testing.assert_array_equal(with_infinity.coef_, with_nan.coef_)
    with pytest.raises(ValueError, match="NaN or infinity"):
        model().fit(X, y)
    with pytest.raises(ValueError, match="NaN or infinity"):
        model().fit(infinite, y)


# ------------------------------------------------------------ accuracy
@pytest.mark.statistical
def test_it_is_ahead_of_plain_perturbation_on_badly_scaled_columns():
    """Bounds many times too wide, centres far off: ten seeds, and no seed is near."""
    rng = np.random.default_rng(4)
    n, p = 6000, 8
    X = rng.normal(size=(n, p)) * np.logspace(-2, 2, p) + np.logspace(-2, 2, p) * 3
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    y = z @ rng.normal(size=p) + 0.5 * rng.normal(size=n) > 0
    low, high = np.zeros(p), 60 * np.logspace(-2, 2, p)
    plain, ours = [], []
    for seed in range(10):
        for found, solver in ((plain, "objective_perturbation"), (ours, "auto")):
            fitted = LogisticRegression(
                1.0, DELTA, bounds=(low, high), solver=solver, random_state=seed
            ).fit(X[:4000], y[:4000])
            found.append(fitted.score(X[4000:], y[4000:]))
    assert np.mean(ours) > np.mean(plain) + 0.04
    assert min(ours) > max(plain)
    assert np.mean(ours) > 0.8
