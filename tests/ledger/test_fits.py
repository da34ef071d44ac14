"""Fits that pay: every estimator, solve, quantile, searches, and what is refused."""

from __future__ import annotations

import json
import pickle
from contextlib import contextmanager
from unittest.mock import patch

import jsonschema
import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import GridSearchCV

import privopt
from privopt import (
    Budget,
    Certificate,
    HuberRegressor,
    Lasso,
    Ledger,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    Problem,
    QuantileRegressor,
    Refused,
    Ridge,
    SparseLogisticRegression,
    prefix_sums,
    quantile,
    solve,
)
from privopt.geometry import L2Ball
from privopt.losses import Logistic
from privopt.oracle import Oracle
from privopt.privacy import Accountant, certificate_schema

CLASSIFIERS = (LogisticRegression, LinearSVC, SparseLogisticRegression)
REGRESSORS = (LinearRegression, Ridge, HuberRegressor, QuantileRegressor, Lasso)
PROBLEM = Problem(Logistic(), L2Ball(2.0))


@pytest.fixture
def records():
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (300, 3))
    return X, np.where(X @ [3, 1, -1] > 0, 1, -1)


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "ledger.db", 4.0, 1e-5, dataset="people")


@pytest.mark.parametrize("kind", CLASSIFIERS + REGRESSORS)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_every_estimator_pays(records, ledger, kind, delta):
    X, y = records
    model = kind(1.0, delta, ledger=ledger, dataset="people").fit(X, y)
    budget = ledger.dataset()
    assert budget.counts["committed"] == 1
    # At the ledger's larger delta Gaussian noise costs less: what the accountant says there.
    ((_, charge),) = model.privacy_.charges
    there = Accountant("zero_out").epsilon(charge, 1e-5)
    spent, certified = budget.spent[0], model.privacy_.epsilon
    assert any(spent == pytest.approx(known, rel=0.05) for known in (certified, there))
    assert budget.left[0] < (3.4 if spent > 0.95 * certified else 3.9)
    mark = model.privacy_.ledger
    assert mark["dataset"] == "people"
    assert ledger.verify(model.privacy_) == 3
    back = Certificate.from_json(model.privacy_.to_json())
    assert back == model.privacy_
    jsonschema.validate(json.loads(back.to_json()), certificate_schema())
    assert "charged to 'people', entry 2" in str(back)


@pytest.mark.parametrize(
    ("options", "share"),
    [
        ({"bounds": (-0.5, 0.5), "delta": 1e-6}, 1.0),
        ({"data_norm": "private"}, 1.0),
        ({"data_norm": "private", "delta": 1e-6, "solver": "noisy_gd"}, 1.0),
    ],
)
def test_what_is_learned_before_the_fit_is_paid_with_it(records, ledger, options, share):
    """Standardisation and the private row bound are in the same charge."""
    model = LogisticRegression(1.0, ledger=ledger, **options).fit(*records)
    stored = json.loads(_reservation(ledger).body)["charges"]
    assert stored == json.loads(model.privacy_.to_json())["charges"]
    assert sum(s["count"] for s in stored[0]["steps"]) == model.privacy_.releases > 1


def _reservation(ledger):
    from privopt.ledger.store import store_at

    return store_at(ledger.path).entry(2)


def test_gaussian_fits_compose_as_the_accountant_says(records, tmp_path):
    """Several fits with Gaussian noise: the ledger's epsilon is the accountant's of the union."""
    ledger = Ledger.create(tmp_path / "ledger.db", 2.0, 1e-6)
    union = None
    for _ in range(4):
        model = LogisticRegression(0.5, 1e-7, solver="noisy_gd", ledger=ledger).fit(*records)
        ((_, charge),) = model.privacy_.charges
        union = charge if union is None else union + charge
    epsilon = Accountant("zero_out").epsilon(union, 1e-6)
    # A part of delta is kept for fits with other noise.
    assert epsilon <= ledger.dataset().spent[0] <= epsilon * 1.005
    assert ledger.dataset().spent[1] == 1e-6
    assert epsilon < 1.1


def test_an_account_that_turned_gaussian_takes_other_fits_too(records, tmp_path):
    """Gradient descent first, then objective perturbation and sampled steps, each at the price of a
    Gaussian above it; and the ledger still verifies."""
    ledger = Ledger.create(tmp_path / "ledger.db", 8.0, 1e-5)
    LogisticRegression(0.5, 1e-7, solver="noisy_gd", ledger=ledger).fit(*records)
    assert ledger.dataset().gaussian
    before = ledger.dataset().left[0]
    for solver in ("objective_perturbation", "noisy_sgd"):
        model = LogisticRegression(1.0, 1e-7, solver=solver, ledger=ledger).fit(*records)
        assert model.privacy_.ledger is not None
    assert before - 4.0 < ledger.dataset().left[0] < before
    ledger.verify()


def test_refused_when_short_before_the_data_is_read(records, tmp_path):
    ledger = Ledger.create(tmp_path / "ledger.db", 1.0)
    with (
        _reads(records) as seen,
        pytest.raises(Refused, match=r"needs epsilon=2 at delta=0, and epsilon=1 at delta=0 is"),
    ):
        LogisticRegression(2.0, ledger=ledger).fit(*records)
    assert not seen
    assert ledger.head[0] == 1


@contextmanager
def _reads(records, look=lambda: None):
    """What ``look`` sees when an oracle takes these records; plans make up data of their own."""
    honest, seen = Oracle.over, []

    def spy(X, *arguments, **options):
        if np.array_equal(X, records[0]):
            seen.append(look())
        return honest(X, *arguments, **options)

    with patch.object(Oracle, "over", spy):
        yield seen


def test_the_charge_is_on_the_disk_before_the_data_is_read(records, ledger):
    def look():
        return ledger.dataset().counts["open"], ledger.dataset().left[0]

    with _reads(records, look) as seen:
        LogisticRegression(1.0, ledger=ledger).fit(*records)
    assert seen == [(1, 3.0)]


def test_a_fit_that_fails_after_paying_stays_paid(records, ledger):
    with (
        patch.object(Oracle, "over", side_effect=MemoryError),
        pytest.raises(MemoryError),
    ):
        LogisticRegression(1.0, solver="objective_perturbation", ledger=ledger).fit(*records)
    assert ledger.dataset().left[0] == 3.0
    assert ledger.dataset().counts["burned"] == 1


def test_bad_input_is_refused_before_it_costs_anything(records, ledger):
    X, y = records
    for broken in (np.full_like(X, np.nan), X[:, :0]):
        with pytest.raises(ValueError, match=r"NaN|0 feature"):
            LogisticRegression(1.0, ledger=ledger).fit(broken, y)
    assert ledger.head[0] == 1


@pytest.mark.parametrize(
    "run",
    [
        lambda X, y, to: LogisticRegression(1.0, random_state=0, ledger=to).fit(X, y),
        lambda X, y, to: Lasso(1.0, random_state=0, ledger=to).fit(X, y),
        lambda X, y, to: solve(PROBLEM, X, y, budget=Budget(1.0), random_state=0, ledger=to),
        lambda X, y, to: quantile(y, 0.5, bounds=(-2, 2), random_state=0, ledger=to),
    ],
)
def test_seeded_runs_are_refused(records, ledger, run):
    with pytest.raises(Refused, match="a seeded run is not private"):
        run(*records, ledger)
    assert ledger.head[0] == 1


def test_another_relation_is_refused(records, ledger):
    with pytest.raises(Refused, match="under zero_out"):
        LogisticRegression(1.0, neighbouring="replace_one", ledger=ledger).fit(*records)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ledger": 3}, "must be a Ledger or its path"),
        ({"dataset": "people"}, "give ledger="),
    ],
)
def test_bad_parameters(records, options, words):
    with pytest.raises(ValueError, match=words):
        LogisticRegression(1.0, **options).fit(*records)
    with pytest.raises(ValueError, match=words):
        solve(PROBLEM, *records, budget=Budget(1.0), **options)
    with pytest.raises(ValueError, match="a key belongs to a ledger"):
        solve(PROBLEM, *records, budget=Budget(1.0), key="k")


# ---------------------------------------------------------------- solve and quantile
def test_a_retry_of_solve_touches_nothing(records, ledger):
    def run(**options):
        return solve(PROBLEM, *records, budget=Budget(1.0), ledger=ledger, **options)

    first = run(key="2026-11")
    with patch.object(Oracle, "over", side_effect=AssertionError("read")):
        again = run(key="2026-11")
    np.testing.assert_array_equal(again.theta, first.theta)
    assert again.certificate == first.certificate
    assert ledger.dataset().left[0] == 3.0
    assert not np.array_equal(run(key="2026-12").theta, first.theta)
    with pytest.raises(Refused, match="another release"):
        run(key="2026-11", solver="noisy_gd")


def test_a_quantile_pays(records, ledger):
    median, certificate = quantile(
        records[0][:, 0], 0.5, bounds=(-1, 1), epsilon=0.5, ledger=ledger.path, key="median"
    )
    again = quantile(
        records[0][:, 0], 0.5, bounds=(-1, 1), epsilon=0.5, ledger=ledger.path, key="median"
    )
    assert again == (median, certificate)
    assert ledger.dataset().left[0] == pytest.approx(3.5)


@pytest.mark.parametrize("neighbouring", ["zero_out", "replace_one"])
def test_running_sums_pay_for_the_whole_stream(tmp_path, neighbouring):
    """Before the first item; the charge covers what the certificate says at the end."""
    ledger = Ledger.create(tmp_path / "ledger.db", 1.0, 1e-6, neighbouring=neighbouring)
    options = {"bound": 1.0, "delta": 1e-6, "neighbouring": neighbouring, "ledger": ledger}
    read = []
    stream = (read.append(k) or np.ones(2) for k in range(20))
    sums = prefix_sums(stream, epsilon=0.8, n_steps=20, **options)
    assert read == []
    assert ledger.dataset().spent[0] == pytest.approx(0.8, rel=5e-3)
    assert len(list(sums)) == 20
    assert ledger.dataset().counts["committed"] == 1
    assert sums.certificate.epsilon <= ledger.dataset().spent[0] * (1 + 1e-9)
    assert ledger.verify(sums.certificate) == 3
    with pytest.raises(Refused, match="is short"):
        prefix_sums(stream, epsilon=0.8, **options)
    with pytest.raises(Refused, match="a seeded run"):
        prefix_sums(stream, epsilon=0.1, random_state=0, **options)


# ---------------------------------------------------------------- scikit-learn
@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.filterwarnings("ignore:A worker stopped")
@pytest.mark.filterwarnings("ignore:.* may fit this model several times")
def test_a_grid_search_pays_for_every_fit(records, tmp_path, n_jobs):
    """Two candidates, three folds, one refit: seven charges."""
    ledger = Ledger.create(tmp_path / "ledger.db", 7.0)
    GridSearchCV(
        LogisticRegression(1.0, classes=[-1, 1], ledger=ledger),
        {"fit_intercept": [True, False]},
        cv=3,
        n_jobs=n_jobs,
    ).fit(*records)
    assert ledger.dataset().counts["committed"] == 7
    assert ledger.dataset().left == (0.0, 0.0)


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.filterwarnings("ignore:A worker stopped")
@pytest.mark.filterwarnings("ignore:.* may fit this model several times")
def test_a_grid_search_is_refused_when_the_budget_is_short(records, tmp_path, n_jobs):
    """Four fits are paid; the other candidates fail, and so does the refit."""
    ledger = Ledger.create(tmp_path / "ledger.db", 4.0)
    search = GridSearchCV(
        LogisticRegression(1.0, classes=[-1, 1], ledger=str(ledger.path)),
        {"fit_intercept": [True, False]},
        cv=3,
        n_jobs=n_jobs,
    )
    with (
        pytest.warns(FitFailedWarning, match="2 fits failed out of a total of 6"),
        pytest.warns(UserWarning, match="non-finite"),
        pytest.raises(Refused, match="is short"),
    ):
        search.fit(*records)
    assert ledger.dataset().counts["committed"] == 4
    assert not hasattr(search.best_estimator_, "coef_")
    strict = clone(search).set_params(error_score="raise")
    with pytest.raises(Refused, match="is short"):
        strict.fit(*records)


def test_estimators_travel_with_their_ledger(records, ledger):
    model = LogisticRegression(1.0, ledger=ledger).fit(*records)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy.ledger is not model.ledger
    back = pickle.loads(pickle.dumps(model))
    assert back.privacy_ == model.privacy_
    back.fit(*records)
    assert ledger.dataset().counts["committed"] == 2
    assert b"sqlite3" not in pickle.dumps(model)


def test_every_public_estimator_takes_a_ledger():
    kinds = [getattr(privopt, name) for name in privopt.__all__]
    found = [k for k in kinds if isinstance(k, type) and issubclass(k, BaseEstimator)]
    found = [k for k in found if hasattr(k, "predict")]  # a scaler by public bounds costs nothing
    assert {*CLASSIFIERS, *REGRESSORS} <= set(found)
    for kind in found:
        # A stream is charged as a whole, by its owner; fits by parts by what they fit.
        if not hasattr(kind, "partial_fit") and kind is not privopt.IntervalsByParts:
            assert {"ledger", "dataset"} <= set(kind._get_param_names()), kind.__name__
