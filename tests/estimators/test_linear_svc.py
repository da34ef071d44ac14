"""The private support vector classifier: losses, solvers, classes, the certificate."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

from privopt import LinearSVC
from privopt.audit import hostile_pairs, replay
from privopt.mechanisms import HOOK
from privopt.privacy.budget import NEIGHBOURING
from tests.covering import each_check, in_turn


@each_check(
    LinearSVC(),
    LinearSVC(epsilon=5.0, delta=1e-6, loss="hinge", random_state=0),
    LinearSVC(epsilon=5.0, random_state=3, fit_intercept=False),
    LinearSVC(epsilon=5.0, delta=1e-6, bounds=(-20.0, 20.0), random_state=0),
)
def test_checks_of_scikit_learn(estimator, check):
    """No check is expected to fail."""
    check(estimator)


@pytest.fixture(scope="module")
def halves():
    """4000 points on a circle, in two halves."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((4000, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, np.where(X @ [3.0, 1.0, 0.0] > 0, "yes", "no")


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("how", "solver"),
    [
        ({}, "objective_perturbation"),
        ({"delta": 1e-6}, "objective_perturbation"),
        ({"delta": 1e-6, "loss": "hinge"}, None),
        ({"delta": 1e-6, "loss": "hinge", "solver": "noisy_gd"}, "noisy_gd"),
        ({"delta": 1e-6, "bounds": (-1.0, 1.0)}, "standardized_objective"),
        ({"bounds": (-1.0, 1.0)}, "standardized_objective"),
        ({"delta": 1e-6, "data_norm": "private"}, "private_norm+objective_perturbation"),
    ],
)
def test_accuracy_on_an_easy_problem(halves, how, solver):
    """Seeded; the halves leave no room for bad luck at this n."""
    X, y = halves
    model = LinearSVC(1.0, random_state=0, **how).fit(X[:2000], y[:2000])
    assert model.score(X[2000:], y[2000:]) > 0.9
    assert 0.97 <= model.privacy_.epsilon <= 1 + 1e-9
    if solver is not None:
        assert model.plan_.name == model.privacy_.solver == solver
    assert LinearSVC(1e-4, random_state=0).fit(X, y).score(X, y) < 0.9


def test_scores_decide(halves):
    X, y = halves
    model = LinearSVC(5.0, random_state=0).fit(X, y)
    scores = model.decision_function(X)
    assert model.coef_.shape == (1, 3)
    np.testing.assert_array_equal(model.predict(X), np.where(scores > 0, "yes", "no"))
    assert not hasattr(model, "predict_proba")


def test_three_classes_share_one_certificate(three):
    X, y = three
    model = LinearSVC(3.0, 1e-6, solver="objective_perturbation", random_state=0).fit(X, y)
    assert model.coef_.shape == (3, 2)
    assert model.privacy_.releases == 3
    assert model.privacy_.epsilon <= 3.0 * (1 + 1e-9)
    assert model.score(X, y) > 0.8


def test_rows_are_clipped_in_predict_as_in_fit(halves):
    X, y = halves
    model = LinearSVC(data_norm=0.5, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), model.decision_function(X / 2))


def test_alpha_is_a_least_penalty(halves):
    X, y = halves
    how = {"alpha": 1e5, "solver": "objective_perturbation", "random_state": 0}
    model = LinearSVC(1.0, 1e-6, **how).fit(X, y)
    assert model.plan_.settings.regularisation == pytest.approx(1e5)
    assert np.abs(model.coef_).max() < 0.1


def test_classes_read_from_data_are_an_assumption(halves):
    X, y = halves
    assert any("classes was read from y" in a for a in LinearSVC().fit(X, y).privacy_.assumptions)
    assert LinearSVC(classes=["no", "yes"]).fit(X, y).privacy_.assumptions == ()


@pytest.mark.parametrize(
    "container",
    [
        lambda X: pd.DataFrame(X, columns=list("abc")),
        lambda X: pl.DataFrame(X, schema=list("abc")),
        sp.csr_array,
    ],
    ids=["pandas", "polars", "csr"],
)
def test_features_in_every_container(halves, container):
    X, y = halves
    expected = LinearSVC(random_state=4).fit(X, y)
    found = LinearSVC(random_state=4).fit(container(X), y)
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-6)
    np.testing.assert_array_equal(found.predict(container(X)), expected.predict(X))


@pytest.mark.parametrize(
    ("how", "relation"), in_turn([{}, {"bounds": (-1.0, 1.0)}, {"loss": "hinge"}], NEIGHBOURING)
)
def test_replay_on_hostile_neighbours_finds_nothing(relation, how):
    def run(X, y):
        broken = ~np.isfinite(y)
        X, y = np.where(broken[:, None], np.nan, X), np.where(broken | (y > 0), 1, -1)
        model = LinearSVC(
            1.0,
            1e-5,
            neighbouring=relation,
            n_public=63,
            classes=[-1, 1],
            nan_policy="empty",
            random_state=0,
            **how,
        ).fit(X, y)
        return model.coef_, model.intercept_, model.privacy_.to_json()

    pairs = hostile_pairs(relation)
    run(*pairs[0].first)
    assert {pair.name: found for pair in pairs if (found := replay(run, pair))} == {}


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"loss": "squared_hinge"}, 'loss must be "smoothed_hinge" or "hinge", got'),
        ({"width": 0.0}, "positive finite width"),
        ({"alpha": -1.0}, "alpha must be non-negative and finite"),
        ({"data_norm": "big"}, "data_norm must be positive and finite, got 'big'"),
        ({"classes": ["no"]}, "not in classes|two classes"),
        ({"loss": "hinge", "solver": "standardized_objective"}, "not for Hinge"),
    ],
)
def test_bad_parameters_spend_nothing(halves, parameters, words):
    from privopt import Refused

    opened = []
    token = HOOK.set(lambda *args: opened.append(args))
    try:
        with pytest.raises((ValueError, Refused), match=words):
            LinearSVC(**parameters).fit(*halves)
    finally:
        HOOK.reset(token)
    assert opened == []


def test_one_class_is_named_in_one_sentence(halves):
    X, _ = halves
    with pytest.raises(ValueError, match="LinearSVC needs at least two classes, got one class"):
        LinearSVC().fit(X, np.ones(len(X)))
