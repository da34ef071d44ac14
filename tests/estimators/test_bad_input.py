"""Bad input: one clear sentence each, and nothing is spent and nothing is set."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from privopt import LogisticRegression, PrivacyWarning
from privopt.mechanisms import HOOK
from privopt.solvers import catalogue


@pytest.fixture
def releases():
    """Every release of the test; a refused fit must leave it empty."""
    seen = []

    def hook(mechanism, payload, sensitivity, event, run):
        seen.append(event)
        return run()

    token = HOOK.set(hook)
    yield seen
    HOOK.reset(token)


def fails_cleanly(model, X, y, words, releases, error=ValueError):
    """The fit raises one sentence with these words, releases nothing and sets nothing."""
    with pytest.raises(error, match=words) as caught:
        model.fit(X, y)
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")
    assert ". " not in text  # one sentence
    assert caught.value.__cause__ is None
    assert releases == []
    for name in ("privacy_", "coef_", "intercept_", "plan_"):
        assert not hasattr(model, name)


PARAMETERS = [
    ({"epsilon": 0}, "epsilon must be a positive finite number, got 0"),
    ({"epsilon": -1.0}, "epsilon must be a positive finite number, got -1.0"),
    ({"epsilon": np.inf}, "epsilon must be a positive finite number"),
    ({"epsilon": np.nan}, "epsilon must be a positive finite number"),
    ({"epsilon": "1"}, "epsilon must be a positive finite number"),
    ({"epsilon": None}, "epsilon must be a positive finite number"),
    ({"delta": 1.0}, r"delta must lie in \[0, 1\).*well below 1/n"),
    ({"delta": 2}, r"delta must lie in \[0, 1\)"),
    ({"delta": -1e-9}, r"delta must lie in \[0, 1\)"),
    ({"delta": np.nan}, r"delta must lie in \[0, 1\)"),
    ({"neighbouring": "substitute"}, "one of zero_out, replace_one, add_remove; got 'substitute'"),
    ({"neighbouring": "add_remove"}, "number of rows is private: give n_public"),
    ({"neighbouring": "add_remove", "n_public": 0}, "n_public must be a positive number"),
    ({"n_public": -5}, "n_public must be a positive number of records, got -5"),
    ({"data_norm": 0}, "data_norm must be positive and finite, got 0"),
    ({"data_norm": -2.0}, "data_norm must be positive and finite, got -2.0"),
    ({"data_norm": np.inf}, "data_norm must be positive and finite"),
    ({"data_norm": np.nan}, "data_norm must be positive and finite"),
    ({"random_state": "seven"}, "random_state must be None .*or an integer.*got str"),
    ({"random_state": 1.5}, "random_state must be None .*or an integer.*got float"),
    ({"random_state": True}, "random_state must be None .*or an integer.*got bool"),
    ({"random_state": -1}, "random_state"),
    ({"nan_policy": "drop"}, 'nan_policy must be "raise" or "empty", got \'drop\''),
    ({"classes": ["no", "maybe"]}, "y holds a label that is not in classes"),
    ({"classes": [0, 1]}, "y holds a label that is not in classes"),
    ({"classes": ["no"]}, "label that is not in classes|two classes"),
]


@pytest.mark.parametrize(("parameters", "words"), PARAMETERS, ids=lambda v: str(v)[:40])
def test_parameters(two, releases, parameters, words):
    fails_cleanly(LogisticRegression(**parameters), *two, words, releases)


def test_unknown_solver_lists_the_known_ones(two, releases):
    words = "unknown solver 'sgd'; choose from auto, " + ", ".join(sorted(catalogue()))
    fails_cleanly(LogisticRegression(solver="sgd"), *two, words, releases)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_missing_values_without_a_policy(two, releases, value, container):
    """The sentence names the way out, which is a public choice."""
    X, y = two
    X = X.copy()
    X[7, 1] = value
    fails_cleanly(LogisticRegression(), container(X), y, "nan_policy", releases)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("classes", [None, [0.0, 1.0]])
def test_missing_labels(two, releases, value, classes):
    X, y = two
    y = (y == "yes").astype(float)
    y[3] = value
    fails_cleanly(LogisticRegression(classes=classes), X, y, "y contains", releases)


def test_labels_that_are_not_classes(two, releases):
    X, _ = two
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        LogisticRegression().fit(X, X[:, 0])
    fails_cleanly(LogisticRegression(), X, np.ones(300), "at least two classes", releases)
    fails_cleanly(LogisticRegression(), X, None, "requires y to be passed", releases)
    fails_cleanly(LogisticRegression(), X, np.ones(299), "300 rows and y has 299", releases)


def test_the_label_sentence_quotes_no_label(two):
    """What stands in the data does not stand in the text."""
    X, y = two
    y = y.astype(object)
    y[0] = "Mr Smith"
    with pytest.raises(ValueError, match="not in classes") as caught:
        LogisticRegression(classes=["no", "yes"]).fit(X, y)
    assert "Smith" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parameters", "n"),
    [({}, 300), ({"n_public": 50}, 50), ({"neighbouring": "add_remove", "n_public": 200}, 200)],
)
def test_delta_above_one_over_n_warns_and_names_the_risk(two, parameters, n):
    X, y = two
    model = LogisticRegression(delta=1.01 / n, random_state=0, **parameters)
    with pytest.warns(PrivacyWarning, match=r"publishing whole records at random") as caught:
        model.fit(X, y)
    assert len(caught) == 1
    assert "1/n" in str(caught[0].message)
    assert caught[0].filename.endswith("logistic_regression.py") or caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LogisticRegression(delta=0.99 / n, random_state=0, **parameters).fit(X, y)


@pytest.mark.parametrize("parameters", [{"solver": "sgd"}, {"classes": ["no", "maybe"]}])
def test_a_failed_fit_leaves_no_half_model(two, parameters):
    """After a failure the model is not fitted, and an earlier model stays whole."""
    X, y = two
    fresh = LogisticRegression(**parameters)
    with pytest.raises(ValueError, match=r"unknown solver|not in classes"):
        fresh.fit(X, y)
    with pytest.raises(NotFittedError):
        fresh.predict(X)

    model = LogisticRegression(random_state=0).fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError, match=r"unknown solver|not in classes"):
        model.set_params(**parameters).fit(X, np.resize(["p", "q", "r"], 300))
    np.testing.assert_array_equal(model.predict(X), before)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_empty_policy_makes_an_empty_record(two, container, value):
    """A broken row contributes nothing: the fit is that of the other rows with the same n."""
    X, y = two
    broken = X.copy()
    broken[[0, 299], [2, 0]] = value
    model = LogisticRegression(nan_policy="empty", random_state=2).fit(container(broken), y)
    rest = LogisticRegression(n_public=300, random_state=2).fit(X[1:-1], y[1:-1])
    np.testing.assert_allclose(model.coef_, rest.coef_, rtol=1e-9)
    np.testing.assert_allclose(model.intercept_, rest.intercept_, rtol=1e-9)
    assert model.privacy_ == rest.privacy_


def test_empty_policy_still_refuses_broken_labels(two):
    X, y = two
    y = (y == "yes").astype(float)
    y[3] = np.nan
    with pytest.raises(ValueError, match="y contains NaN"):
        LogisticRegression(nan_policy="empty").fit(X, y)


def test_wrong_number_of_features_in_predict(two):
    X, y = two
    with pytest.raises(ValueError, match="3 features as input"):
        LogisticRegression().fit(X, y).predict(X[:, :2])


def test_predict_before_fit(two):
    with pytest.raises(NotFittedError):
        LogisticRegression().predict(two[0])
