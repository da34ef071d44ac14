"""Odd labels, bounds, targets and weights: one clear sentence, or what the pages say."""

from __future__ import annotations

import numpy as np
import pytest

import privopt

X = np.random.default_rng(0).uniform(-1, 1, (300, 3))
Y = (X[:, 0] > 0).astype(int)
GIVEN = {"epsilon": 1.0, "delta": 1e-6, "bounds": (-1, 1), "random_state": 0}
FLAT = ([0, -1, -1], [0, 1, 1])
WIDTH = "bounds must be finite, and low must be below high in each column"


def classifier(**more):
    return privopt.LogisticRegression(**{**GIVEN, **more})


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_class_that_never_occurs_is_unlikely(delta):
    """All classes together and one against the rest; chances stay chances."""
    model = classifier(classes=[0, 1, 2], delta=delta).fit(X, Y)
    chances = model.predict_proba(X)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    assert chances[:, 2].mean() < 0.2
    assert set(model.predict(X)) <= {0, 1}


def test_one_class_of_two_declared_ones_is_predicted():
    model = classifier(classes=[0, 1]).fit(X, np.zeros(300, dtype=int))
    assert model.predict_proba(X)[:, 1].mean() < 0.2


REFUSED = [
    (lambda: classifier().fit(X, 0 * Y), "at least two classes, got one class: declare all of"),
    (lambda: privopt.SparseLogisticRegression().fit(X, 0 * Y), "two classes, got one class"),
    (lambda: classifier(bounds=FLAT).fit(X, Y), WIDTH),
    (lambda: classifier(bounds=FLAT, features=[0]).fit(X, Y), WIDTH),
    (lambda: classifier(bounds=None, features="splines").fit(X, Y), "need their declared bounds"),
    (lambda: privopt.Ridge(bounds=(1, -1)).fit(X, X[:, 0]), WIDTH),
    (lambda: privopt.Ridge(target_bounds=(1, 1)).fit(X, X[:, 0]), "the lower one first, got"),
    (lambda: privopt.SplineFeatures((1, 1)).fit(X), WIDTH),
    (lambda: classifier().fit(X, Y, sample_weight=Y + 1), "sample_weight needs max_weight"),
]


@pytest.mark.parametrize(("fit", "words"), REFUSED, ids=[words[:24] for _, words in REFUSED])
def test_one_clear_sentence(fit, words):
    with pytest.raises(ValueError, match=words) as caught:
        fit()
    assert str(caught.value).endswith(".")
    assert ". " not in str(caught.value)


@pytest.mark.slow
def test_targets_outside_their_bounds_are_moved_there():
    model = privopt.Ridge(**{**GIVEN, "epsilon": 9.0}, target_bounds=(-1, 1))
    wild = model.fit(X, 50 * X[:, 0]).predict(X)
    assert np.abs(wild).max() <= 1.0
    same = privopt.Ridge(**{**GIVEN, "epsilon": 9.0}, target_bounds=(-1, 1))
    same.fit(X, np.clip(50 * X[:, 0], -1, 1))
    np.testing.assert_array_equal(same.coef_, model.coef_)
    counts = privopt.PoissonRegressor(**GIVEN, target_bounds=(0, 4)).fit(X, -5 * X[:, 0])
    assert counts.predict(X).min() >= 0.0


def test_weights_above_their_bound_count_as_the_bound():
    models = [classifier(max_weight=2).fit(X, Y, sample_weight=np.full(300, w)) for w in (2, 900)]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)
