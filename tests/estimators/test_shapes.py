"""Additive models: one function in every form, the linear fit where shapes do not pay, and
sentences. Seeded; nothing here is a statistical test but the accuracies, which have wide margins.
"""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import privopt
from privopt import LogisticRegression, SplineFeatures

LOW, HIGH = [0.0, -3.0, 0.0], [120.0, 5.0, 1.0]
GIVEN = {"delta": 1e-6, "bounds": (LOW, HIGH), "random_state": 0}


def people(n=6000, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 121, n)  # many of them on an edge of a bin
    X = np.column_stack([age, np.clip(rng.normal(size=n), -3, 5), rng.random(n) < 0.4])
    z = 3 * np.sin(X[:, 0] / 15) + 2 * np.abs(X[:, 1]) - 1.5 + X[:, 2]
    return X.astype(float), np.where(rng.random(n) < 1 / (1 + np.exp(-z)), "yes", "no")


@pytest.fixture(scope="module")
def fitted():
    X, y = people()
    return LogisticRegression(2.0, features=[0, 1], **GIVEN).fit(X, y)


def test_shapes_are_learned_where_the_truth_is_additive(fitted):
    X, y = people(seed=1)
    straight = LogisticRegression(2.0, **GIVEN).fit(*people())
    assert fitted.score(X, y) > straight.score(X, y) + 0.1
    assert fitted.privacy_.epsilon <= 2.0
    assert fitted.privacy_.releases == 5
    assert fitted.plan_.settings.discrete_noise
    assert straight.shapes_ is None


def test_coefficients_and_tables_are_the_score(fitted):
    X, _ = people(500, seed=2)
    score = X @ fitted.coef_[0] + fitted.intercept_[0]
    for shape in fitted.shapes_:
        inside = np.searchsorted(shape.edges[1:-1], X[:, shape.column], side="right")
        score += shape.values[0, inside]
    np.testing.assert_allclose(fitted.decision_function(X), score, rtol=0, atol=1e-12)
    assert [shape.name for shape in fitted.shapes_] == ["x0", "x1"]


def test_the_export_and_the_file_are_the_same_function(fitted, tmp_path):
    X, _ = people(4000, seed=3)
    edges = np.column_stack([shape.edges for shape in fitted.shapes_])
    X[:65, :2] = edges
    X[65:129, :2] = np.nextafter(edges[1:], -np.inf)
    expected = fitted.predict_proba(X)
    np.testing.assert_allclose(fitted.to_sklearn().predict_proba(X), expected, atol=1e-12)
    privopt.save(fitted, tmp_path / "model.skops")
    loaded = privopt.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(loaded.predict_proba(X), expected)
    with pytest.raises(ValueError, match="scikit-learn has none like it"):
        LogisticRegression(link="capped").to_sklearn()


def test_where_shapes_do_not_pay_the_fit_is_the_linear_one():
    """Bit for bit: the same releases with the same noise."""
    X, y = people(300)
    one, other = (
        LogisticRegression(0.3, features=wish, **GIVEN).fit(X, y) for wish in ("splines", "linear")
    )
    np.testing.assert_array_equal(one.coef_, other.coef_)
    np.testing.assert_array_equal(one.intercept_, other.intercept_)
    assert one.shapes_ is None
    assert one.privacy_.charges == other.privacy_.charges


@pytest.mark.parametrize("relation", ["zero_out", "replace_one", "add_remove"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_every_relation_and_pure(relation, delta):
    X, y = people(3000)
    given = {**GIVEN, "delta": delta, "neighbouring": relation, "n_public": 3000}
    model = LogisticRegression(4.0, features=[0, 1], **given).fit(X, y)
    assert model.shapes_ is not None
    assert model.privacy_.epsilon <= 4.0
    assert model.plan_.settings.noise == ("gaussian" if delta else "pure")
    assert model.score(X, y) > 0.7


def measured(kind, n=6000, seed=0):
    """Targets in [0, 10] whose mean, or its logarithm, is additive."""
    X, _ = people(n, seed)
    rng = np.random.default_rng(seed + 10)
    z = np.sin(X[:, 0] / 15) + np.abs(X[:, 1]) / 2
    y = 4 + 1.5 * z if kind in NUMBERS else np.exp(0.5 * z)
    noise = rng.normal(0, 0.3, n) if kind in NUMBERS else rng.uniform(-0.3, 0.3, n) * y
    return X, np.clip(y + noise, 0.01, 10)


NUMBERS = (
    privopt.LinearRegression,
    privopt.Ridge,
    privopt.HuberRegressor,
    privopt.QuantileRegressor,
)
LOGARITHMS = (privopt.PoissonRegressor, privopt.GammaRegressor)


@pytest.mark.parametrize("kind", [*NUMBERS, *LOGARITHMS])
def test_every_regression_learns_shapes_and_is_one_function(kind, tmp_path):
    X, y = measured(kind)
    given = {**GIVEN, "epsilon": 4.0, "target_bounds": (0.0, 10.0)}
    straight = kind(**given).fit(X, y)
    model = kind(features=[0, 1], **given).fit(X, y)
    X, y = measured(kind, seed=1)
    assert model.score(X, y) > straight.score(X, y) + 0.2
    assert model.privacy_.epsilon <= 4.0
    assert model.privacy_.releases == straight.privacy_.releases + 1
    assert straight.shapes_ is None
    score = X @ model.coef_ + model.intercept_
    for shape in model.shapes_:
        inside = np.searchsorted(shape.edges[1:-1], X[:, shape.column], side="right")
        score += shape.values[0, inside]
    expected = model.predict(X)
    link = np.exp if kind in LOGARITHMS else np.asarray
    np.testing.assert_allclose(np.clip(link(score), 0, 10), expected, rtol=1e-12, atol=1e-12)
    plain = model.to_sklearn().predict(X)
    np.testing.assert_allclose(np.clip(plain, 0, 10), expected, rtol=1e-12, atol=1e-12)
    privopt.save(model, tmp_path / "model.skops")
    np.testing.assert_array_equal(privopt.load(tmp_path / "model.skops").predict(X), expected)


def test_a_regression_stays_linear_where_shapes_do_not_pay():
    X, y = measured(privopt.Ridge, 300)
    given = {**GIVEN, "epsilon": 0.3, "target_bounds": (0.0, 10.0)}
    one, other = (privopt.Ridge(features=f, **given).fit(X, y) for f in ("splines", "linear"))
    np.testing.assert_array_equal(one.coef_, other.coef_)
    assert (one.intercept_, one.shapes_) == (other.intercept_, None)


@pytest.mark.parametrize("relation", ["zero_out", "replace_one", "add_remove"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_regression_with_shapes_under_every_relation(relation, delta):
    X, y = measured(privopt.LinearRegression)
    given = {**GIVEN, "delta": delta, "neighbouring": relation, "n_public": 6000}
    model = privopt.LinearRegression(8.0, target_bounds=(0, 10), features=[0, 1], **given).fit(X, y)
    assert model.shapes_ is not None
    assert model.privacy_.epsilon <= 8.0
    assert model.score(X, y) > 0.5


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        ({"bounds": None}, "shapes of columns need their declared bounds"),
        ({"fit_intercept": False}, "needs an intercept"),
        ({"solver": "noisy_gd"}, "noisy_gd fits no shapes"),
    ],
)
def test_bad_wishes_of_a_regression_get_a_sentence(wish, sentence):
    with pytest.raises((ValueError, privopt.Refused), match=sentence):
        privopt.LinearRegression(1.0, **{**GIVEN, "features": [0], **wish}).fit(
            np.zeros((50, 3)), np.zeros(50)
        )
    with pytest.raises(ValueError, match="a model of the intercept alone has no shapes"):
        privopt.QuantileRegressor(1.0, **GIVEN, features=[0], intercept_only=True).fit(
            np.zeros((50, 3)), np.zeros(50)
        )


def test_frames_sparse_rows_and_three_classes():
    X, y = people(3000)
    frame = pd.DataFrame(X, columns=["age", "z", "flag"])
    bounds = {name: (low, high) for name, low, high in zip(frame, LOW, HIGH, strict=True)}
    given = {**GIVEN, "epsilon": 4.0}
    one = LogisticRegression(features=[0, 1], **given).fit(X, y)
    named = LogisticRegression(features=["z", "age"], **{**given, "bounds": bounds}).fit(frame, y)
    assert [shape.name for shape in named.shapes_] == ["age", "z"]
    np.testing.assert_allclose(
        named.decision_function(frame), one.decision_function(X), rtol=0, atol=1e-12
    )
    sparse = LogisticRegression(features=[0, 1], **given).fit(sp.csr_array(X), y)
    np.testing.assert_allclose(
        sparse.decision_function(sp.csr_array(X)), one.decision_function(X), atol=0.05
    )
    three = np.where(X[:, 0] > 80, "old", y)
    many = LogisticRegression(features=[0], **{**given, "epsilon": 8.0}).fit(X, three)
    assert many.shapes_[0].values.shape == (3, 64)
    np.testing.assert_allclose(
        many.to_sklearn().decision_function(X), many.decision_function(X), atol=1e-12
    )


def test_columns_that_hold_one_value_or_lie_at_one_end():
    X, y = people(3000)
    X[:, 0], X[:, 1] = 7.0, np.clip(X[:, 1], -3, -2.9)
    model = LogisticRegression(4.0, features=[0, 1], **GIVEN).fit(X, y)
    assert all(np.isfinite(shape.values).all() for shape in model.shapes_)


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        ({"features": "splines", "bounds": None}, "shapes of columns need their declared bounds"),
        ({"features": "cubic"}, 'features must be "linear", "splines" or a list'),
        ({"features": 3}, "features must list names or positions"),
        ({"features": [0, 3]}, "positions from 0 to 2, got 3"),
        ({"features": ["age"]}, "'age', which is not a column of X"),
        ({"features": [1, 1]}, "names a column twice"),
        ({"features": [0], "link": "capped"}, 'link="logit" alone'),
        ({"features": [0], "solver": "noisy_gd"}, "noisy_gd fits no shapes"),
        ({"features": [0], "fit_intercept": False}, "needs an intercept"),
        ({"features": [0], "bounds": ([0, 1, 0], [120, 1, 1])}, "low must be below high"),
    ],
)
def test_bad_wishes_get_a_sentence(wish, sentence):
    with pytest.raises((ValueError, privopt.Refused), match=sentence):
        LogisticRegression(1.0, **{**GIVEN, **wish}).fit(*people(50))


# ------------------------------------------------------------ the public map
@parametrize_with_checks([SplineFeatures(), SplineFeatures((-5.0, 2.0), degree=0)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_public_splines_learn_nothing_and_stand_in_a_pipeline():
    X, y = people(2000)
    one, other = (SplineFeatures((LOW, HIGH)).fit(each) for each in (X, X / 2))
    np.testing.assert_array_equal(one.transform(X).toarray(), other.transform(X).toarray())
    assert one.transform(X).shape == (2000, 3 + 3 * 10) == (2000, len(one.get_feature_names_out()))
    assert abs(one.transform(X)).max() <= 1
    np.testing.assert_allclose(
        one.transform(sp.csr_array(X)).toarray(), one.transform(X).toarray(), atol=1e-12
    )
    some = SplineFeatures((LOW, HIGH), columns=[1], degree=0, knots=5)
    pipeline = make_pipeline(some, LogisticRegression(8.0, 1e-6, bounds=(-1, 1), random_state=0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pipeline.fit(X, y)
    assert privopt.check_pipeline(pipeline) == []
    assert list(some.fit(X).get_feature_names_out()[3:]) == [f"x1_sp_{k}" for k in range(4)]


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        ({"knots": 1}, "knots must be a whole number from 2"),
        ({"degree": -1}, "degree must be a whole number from 0"),
        ({"columns": [4]}, "columns takes names or positions from 0 to 2"),
        ({"bounds": (1, 1)}, "low must be below high"),
    ],
)
def test_bad_splines_get_a_sentence(wish, sentence):
    with pytest.raises(ValueError, match=sentence):
        SplineFeatures(**{"bounds": (LOW, HIGH), **wish}).fit(people(50)[0])
