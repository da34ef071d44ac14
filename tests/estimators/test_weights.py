"""Weights of records and of classes: what they mean, what bounds them, what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.linear_model import LinearRegression as PlainRegression
from sklearn.linear_model import LogisticRegression as PlainClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import privopt
from privopt.facts import Facts
from privopt.mechanisms import HOOK
from privopt.solvers import catalogue
from tests.estimators.every import CASES

ROWS = np.random.default_rng(0).uniform(-1, 1, (4000, 3))
HEAVY = ROWS[:, 2] > 0
WEIGHTS = np.where(HEAVY, 5.0, 1.0)
SIGN = np.where(HEAVY, 1.0, -1.0)
LABELS = (SIGN * ROWS[:, 0] + 0.3 * np.random.default_rng(1).logistic(size=4000) > 0).astype(int)
TARGET = SIGN * (ROWS @ [0.6, 0.2, 0.0])
MUCH = {"epsilon": 50.0, "delta": 1e-6, "random_state": 1}
WEIGHED = sorted(
    {case[1] for case in CASES.values() if "max_weight" in case[1]().get_params()},
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize("solver", ["objective_perturbation", "noisy_gd"])
def test_a_classifier_is_that_of_scikit_learn(solver):
    """Two groups of records contradict each other: weights decide."""
    model = privopt.LogisticRegression(solver=solver, data_norm=2.0, max_weight=5.0, **MUCH)
    model.fit(ROWS, LABELS, sample_weight=WEIGHTS)
    plain = PlainClassifier(C=1e6).fit(ROWS, LABELS, sample_weight=WEIGHTS)
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=0.05)
    np.testing.assert_allclose(model.intercept_, plain.intercept_, atol=0.05)


@pytest.mark.parametrize("kind", [privopt.LinearRegression, privopt.Ridge])
def test_a_regression_is_that_of_scikit_learn(kind):
    model = kind(bounds=(-1, 1), max_weight=5.0, **MUCH)
    model.fit(ROWS, TARGET, sample_weight=WEIGHTS)
    plain = PlainRegression().fit(ROWS, TARGET, sample_weight=WEIGHTS)
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=0.03)
    assert model.intercept_ == pytest.approx(plain.intercept_, abs=0.03)


@pytest.mark.parametrize("bounds", [(-1, 1), None])
@pytest.mark.parametrize("many", [False, True])
def test_class_weights_move_the_boundary(bounds, many):
    rows, labels = ROWS[:1500], LABELS[:1500]
    y = labels + (rows[:, 1] > 0.5) if many else labels
    given = {"bounds": bounds, "data_norm": 2.0, **MUCH}
    model = privopt.LogisticRegression(class_weight={1: 4.0}, **given).fit(rows, y)
    plain = PlainClassifier(C=1e6, class_weight={1: 4.0}).fit(rows, y)
    assert np.mean(model.predict(rows) == plain.predict(rows)) > 0.95
    by_hand = privopt.LogisticRegression(max_weight=4.0, **given)
    by_hand.fit(rows, y, sample_weight=np.where(y == 1, 4.0, 1.0))
    np.testing.assert_allclose(by_hand.coef_, model.coef_, rtol=1e-9)


@pytest.mark.parametrize("kind", WEIGHED, ids=lambda kind: kind.__name__)
def test_the_bound_is_public_and_holds(kind):
    """What is beyond the bound counts as the bound; the certificate is that of equal weights."""
    y = LABELS if sklearn.base.is_classifier(kind()) else np.abs(TARGET)
    made = lambda: kind(1.0, 1e-6, bounds=(-1, 1), max_weight=2.0, random_state=0)  # noqa: E731
    rows, y, weights = ROWS[:400], y[:400], WEIGHTS[:400]
    beyond = made().fit(rows, y, sample_weight=weights * 100)
    at = made().fit(rows, y, sample_weight=np.full(400, 2.0))
    np.testing.assert_array_equal(beyond.coef_, at.coef_)
    some = made().fit(rows, y, sample_weight=weights / 4)
    assert some.privacy_.epsilon == at.privacy_.epsilon
    assert some.plan_.settings == at.plan_.settings
    doubled = kind(1.0, 1e-6, bounds=(-1, 1), max_weight=4.0, random_state=0)
    if "alpha" not in doubled.get_params():  # a ridge does not grow with weights
        doubled.fit(rows, y, sample_weight=weights / 2)
        np.testing.assert_allclose(doubled.coef_, some.coef_, rtol=1e-12)


@pytest.mark.parametrize("name", sorted(catalogue()))
def test_every_solver_takes_weights_or_refuses_before_it_releases(name):
    problem = privopt.Problem(privopt.losses.Logistic(), intercept=0.3, column_bounds=1.0)
    budget = privopt.Budget(1.0, 1e-3)
    plain = Facts(problem, 60, 4, "zero_out")
    if catalogue()[name].refuse(plain, budget) is not None:
        return
    seen = []
    token = HOOK.set(
        lambda mechanism, payload, sensitivity, event, run: seen.append(event) or run()
    )
    model = privopt.LogisticRegression(
        1.0, 1e-3, solver=name, bounds=(-1, 1), max_weight=5.0, random_state=0
    )
    weighted = replace(plain, problem=replace(problem, weighted=True))
    try:
        if catalogue()[name].refuse(weighted, budget) is None:
            model.fit(ROWS[:60], LABELS[:60], sample_weight=WEIGHTS[:60])
        else:
            with pytest.raises(privopt.Refused, match="takes no weights of records"):
                model.fit(ROWS[:60], LABELS[:60], sample_weight=WEIGHTS[:60])
            assert seen == []
    finally:
        HOOK.reset(token)


REFUSED = [
    ({}, WEIGHTS, "sample_weight needs max_weight, the public largest weight"),
    ({"max_weight": 0.0}, WEIGHTS, "max_weight must be positive and finite, got 0.0"),
    ({"max_weight": np.inf}, WEIGHTS, "max_weight must be positive and finite"),
    ({"max_weight": 5.0}, WEIGHTS[:7], "one number for each of the 4000 rows"),
    ({"max_weight": 5.0}, -WEIGHTS, "finite numbers that are not negative"),
    ({"max_weight": 5.0}, np.where(HEAVY, np.nan, 1.0), "finite numbers that are not negative"),
    ({"max_weight": 5.0}, np.full(4000, "Mr Smith"), "must hold one number for each row"),
    ({"class_weight": "balanced"}, None, "give a mapping of public weights"),
    ({"class_weight": 3.0}, None, "must be a mapping"),
    ({"class_weight": {2: 1.0}}, None, "class_weight names 2, which is not one of the classes"),
    ({"class_weight": {0: -1.0}}, None, "finite numbers that are not negative"),
    ({"class_weight": {0: 0.0, 1: 0.0}}, None, "one above zero"),
]


@pytest.mark.parametrize(("given", "weights", "words"), REFUSED, ids=lambda v: str(v)[:30])
def test_what_is_refused(given, weights, words):
    model = privopt.LogisticRegression(**given)
    with pytest.raises(ValueError, match=words) as caught:
        model.fit(ROWS, LABELS, sample_weight=weights)
    assert "Smith" not in str(caught.value)
    assert ". " not in str(caught.value)
    assert not hasattr(model, "coef_")


def test_estimators_without_a_bound_say_so():
    problem = privopt.Problem(privopt.losses.Logistic())
    with pytest.raises(TypeError, match="a public bound on how far a record can move the model"):
        privopt.PrivateERM(problem).fit(ROWS, LABELS, sample_weight=WEIGHTS)


def test_weights_travel_through_pipelines_frames_and_users():
    model = privopt.LogisticRegression(max_weight=5.0, rows_per_user=2, **MUCH)
    pipe = make_pipeline(FunctionTransformer(), model)
    users = np.arange(4000) // 2
    with sklearn.config_context(enable_metadata_routing=True):
        model.set_fit_request(sample_weight=True, user_ids=True)
        routed = pipe.fit(ROWS, LABELS, sample_weight=pd.Series(WEIGHTS), user_ids=users)
    alone = privopt.LogisticRegression(max_weight=5.0, rows_per_user=2, **MUCH)
    alone.fit(ROWS, LABELS, sample_weight=WEIGHTS.tolist(), user_ids=users)
    np.testing.assert_array_equal(routed[-1].coef_, alone.coef_)
