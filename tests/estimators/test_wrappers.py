"""Whatever of scikit-learn fits a clone of a private estimator is seen, warned of and certified."""

from __future__ import annotations

import inspect
import warnings

import numpy as np
import pytest
from sklearn import model_selection
from sklearn.base import BaseEstimator, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import cross_val_score, cross_validate
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils import all_estimators

from privopt import BoundedScaler, LinearRegression, LogisticRegression, PrivateSearchCV
from privopt.privacy import PrivacyWarning

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
CLASSES = np.arange(60) % 2
NUMBERS = np.clip(X[:, 0], -1, 1)
SEEN: list[tuple[str, ...]] = []


class Watched(LogisticRegression):
    """Keeps what its certificates assume."""

    def fit(self, X, y, **others):
        super().fit(X, y, **others)
        SEEN.append(self.privacy_.assumptions)
        return self


class WatchedRegression(LinearRegression):
    def fit(self, X, y, **others):
        super().fit(X, y, **others)
        SEEN.append(self.privacy_.assumptions)
        return self


def _classifier():
    return Watched(random_state=0, classes=[0, 1])


def _regressor():
    return WatchedRegression(random_state=0)


def _wrappers():
    """Every class of scikit-learn that takes an estimator."""
    for name, kind in all_estimators():
        parameters = inspect.signature(kind.__init__).parameters
        if {"estimator", "estimators", "regressor"} & set(parameters):
            yield name, kind


WRAPPERS = {name: kind for name, kind in _wrappers() if kind is not FrozenEstimator}
WRAPPERS.pop("AdaBoostClassifier")  # needs weights, which every estimator refuses
SEARCHES = [
    "GridSearchCV",
    "RandomizedSearchCV",
    "HalvingGridSearchCV",
    "HalvingRandomSearchCV",
]


def _around(name):
    kind = WRAPPERS.get(name) or getattr(model_selection, name)
    y, model = CLASSES, _classifier()
    if "Regressor" in name or name.startswith("RegressorChain"):
        y, model = NUMBERS, _regressor()
    if name in SEARCHES:
        return kind(model, {"data_norm": [1.0, 2.0]}, cv=2), y
    if name in ("StackingClassifier", "StackingRegressor", "VotingClassifier", "VotingRegressor"):
        return kind([("a", model), ("b", clone(model))]), y
    if name == "TransformedTargetRegressor":
        return TransformedTargetRegressor(model), y
    if name == "SelfTrainingClassifier":
        return kind(model), np.where(np.arange(60) < 6, -1, y)
    if name in ("MultiOutputClassifier", "ClassifierChain"):
        return kind(model), np.column_stack([y, 1 - y])
    if name in ("MultiOutputRegressor", "RegressorChain"):
        return kind(model), np.column_stack([y, -y])
    if name == "OutputCodeClassifier":
        return kind(Watched(random_state=0), random_state=0), y
    if name == "RANSACRegressor":
        return kind(model, min_samples=20, max_trials=2, residual_threshold=10.0), y
    return kind(model), y


@pytest.mark.parametrize("name", sorted({*WRAPPERS, *SEARCHES}))
@pytest.mark.filterwarnings("ignore:.*:UserWarning")
@pytest.mark.filterwarnings("ignore:.*:FutureWarning")
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
def test_every_wrapper_of_scikit_learn_is_seen(name):
    SEEN.clear()
    wrapper, y = _around(name)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        wrapper.fit(X, y)
    assert SEEN, "the wrapper fitted nothing: the test says nothing"
    assert all(any(name in text for text in assumed) for assumed in SEEN)
    texts = [str(one.message) for one in caught if one.category is PrivacyWarning]
    assert sum(name in text and "PrivateSearchCV" in text for text in texts) == len(SEEN)
    assert all("ledger" in text for text in texts if name in text)


def _curves():
    model, scores = _classifier(), {"cv": 2}
    yield "cross_val_score", (model, X, CLASSES), scores
    yield "cross_val_predict", (model, X, CLASSES), scores
    yield "cross_validate", (model, X, CLASSES), scores
    yield "learning_curve", (model, X, CLASSES), {**scores, "train_sizes": [0.5, 1.0]}
    yield "permutation_test_score", (model, X, CLASSES), {**scores, "n_permutations": 2}
    ranged = {**scores, "param_name": "data_norm", "param_range": [1.0, 2.0]}
    yield "validation_curve", (model, X, CLASSES), ranged


CURVES = {name: (given, options) for name, given, options in _curves()}


def test_no_function_that_takes_an_estimator_is_missing():
    found = {
        name
        for name in model_selection.__all__
        if inspect.isfunction(getattr(model_selection, name))
        and "estimator" in inspect.signature(getattr(model_selection, name)).parameters
    }
    assert found == set(CURVES)


@pytest.mark.parametrize("name", CURVES)
def test_every_function_that_fits_is_seen(name):
    SEEN.clear()
    given, options = CURVES[name]
    with pytest.warns(PrivacyWarning, match=f"^{name} may fit this model several times"):
        getattr(model_selection, name)(*given, **options)
    assert SEEN
    assert all(any(name in text for text in assumed) for assumed in SEEN)


@pytest.mark.parametrize("display", ["LearningCurveDisplay", "ValidationCurveDisplay"])
def test_displays_are_seen(display):
    pytest.importorskip("matplotlib")
    name = "learning_curve" if display.startswith("L") else "validation_curve"
    given, options = CURVES[name]
    SEEN.clear()
    with pytest.warns(PrivacyWarning):
        getattr(model_selection, display).from_estimator(*given, **options)
    assert SEEN
    assert all(assumed for assumed in SEEN)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::privopt.privacy.PrivacyWarning")
def test_worker_processes_still_see_what_they_were_sent_for():
    model = LogisticRegression(random_state=0, classes=[0, 1])
    found = cross_validate(model, X, CLASSES, cv=2, n_jobs=2, return_estimator=True)
    for one in found["estimator"]:
        assert any("sklearn.model_selection" in text for text in one.privacy_.assumptions)


class Homemade(BaseEstimator):
    """Nobody knows how often it fits."""

    def __init__(self, estimator):
        self.estimator = estimator

    def fit(self, X, y):
        clone(self.estimator).fit(X, y)
        return self


def test_wrappers_of_others_and_wrappers_in_wrappers_are_seen():
    SEEN.clear()
    with pytest.warns(PrivacyWarning, match="^Homemade may fit"):
        Homemade(_classifier()).fit(X, CLASSES)
    with pytest.warns(PrivacyWarning, match="^cross_val_score and OneVsRestClassifier may fit"):
        cross_val_score(OneVsRestClassifier(make_pipeline(_classifier())), X, CLASSES, cv=2)
    assert all(assumed for assumed in SEEN)


def test_a_search_of_ours_speaks_once_however_many_fits_it_runs():
    search = PrivateSearchCV(
        LogisticRegression(classes=[0, 1]), {"data_norm": [1.0, 2.0]}, epsilon=3.0, random_state=0
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cross_val_score(search, X, CLASSES, cv=2, error_score="raise")
    assert sum("cross_val_score may fit" in str(one.message) for one in caught) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search.fit(X, CLASSES)
    assert not any("fit is the only thing" in text for text in search.privacy_.assumptions)


def test_what_fits_once_and_reads_nothing_else_is_not_warned_of():
    class Caller:
        """Its method is given estimators; it is none."""

        def run(self, other, model):
            return model.fit(X, CLASSES)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = LogisticRegression(random_state=0, classes=[0, 1])
        pipe = make_pipeline(BoundedScaler((-5, 5)), model).fit(X, CLASSES)
        Caller().run(OneVsRestClassifier(model), model)
        FrozenEstimator(model).fit(X, CLASSES)
    assert pipe[-1].privacy_.assumptions == model.privacy_.assumptions == ()
