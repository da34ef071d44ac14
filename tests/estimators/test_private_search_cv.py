"""The private search: what it costs, what it shows, what it refuses, and scikit-learn's checks."""

from __future__ import annotations

import json
import math
import pickle
from unittest.mock import patch

import jsonschema
import numpy as np
import pytest
from sklearn.base import clone

from privopt import (
    Budget,
    Certificate,
    HuberRegressor,
    Ledger,
    LogisticRegression,
    PrivateSearchCV,
    Refused,
    Ridge,
)
from privopt.estimators import private_search_cv as search_module
from privopt.estimators import search_shares
from privopt.estimators.search_run import losses_of, score_loss
from privopt.estimators.search_shares import held_out
from privopt.mechanisms import BestOf, Gate
from privopt.noise import SeededSource
from privopt.oracle import sealed_runs, sealed_total
from privopt.privacy import Accountant, RandomCount, certificate_schema, charge_of
from privopt.privacy.kinds import GaussianKind, Pure
from tests.covering import each_check

RNG = np.random.default_rng(5)
X = RNG.standard_normal((600, 3))
Y = X[:, 0] + 0.3 * RNG.standard_normal(600) > 0
GRID = {"data_norm": [0.5, 2.0]}


@each_check(
    PrivateSearchCV(LogisticRegression(), {"data_norm": [1.0, 4.0]}, n_runs=2, random_state=0),
    PrivateSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, n_runs=2, random_state=0),
)
def test_scikit_learn_conformance(estimator, check):
    check(estimator)


# ---------------------------------------------------------------- what it costs
@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
@pytest.mark.parametrize(
    ("delta", "law"), [(0.0, "geometric"), (1e-6, "geometric"), (1e-6, "poisson")]
)
def test_the_certificate_pays_for_the_random_number_of_runs(delta, law, relation):
    search = PrivateSearchCV(
        LogisticRegression(),
        GRID,
        epsilon=1.0,
        delta=delta,
        neighbouring=relation,
        law=law,
        refit=False,
        random_state=3,
    ).fit(X, Y)
    certificate = search.privacy_
    assert 0.99 < certificate.epsilon <= 1.0
    assert certificate.neighbouring == relation
    ((_, charge),) = certificate.charges
    ((step, count),) = charge.items()
    (kind,) = step.kinds
    assert (kind.name, count, certificate.releases) == ("tuned", 1, 1)
    # One run alone costs much less: whoever forgets the random stopping certifies this.
    alone = max(
        Accountant(relation).epsilon(charge_of(*(k for k, _ in loss)), delta) for loss in kind.runs
    )
    assert alone <= search.epsilon_per_run_ * (1 + 1e-9) < 0.5
    if delta == 0:
        assert search.epsilon_per_run_ == pytest.approx(1 / 3, rel=3e-3)
    # The score's noise is among the losses, and it is that of one record in [0, 1].
    assert score_loss(search.epsilon_per_run_, delta) in kind.runs
    fitted = (
        LogisticRegression(
            search.epsilon_per_run_,
            delta,
            neighbouring=relation,
            classes=[False, True],
            n_public=480,
            random_state=0,
            solver=search.best_estimator_.solver,
            **search.best_params_,
        )
        .fit(X[:480], Y[:480])
        .privacy_
    )
    assert losses_of(fitted) <= set(kind.runs)
    jsonschema.validate(json.loads(certificate.to_json()), certificate_schema())
    assert Certificate.from_json(certificate.to_json()) == certificate


def test_scores_move_by_one():
    assert score_loss(0.5, 0.0) == ((Pure(0.5), 1),)
    ((kind, count),) = score_loss(0.5, 1e-6)
    assert count == 1
    assert Accountant().epsilon(charge_of(kind), 1e-6) == pytest.approx(0.5, rel=1e-6)
    wild = np.array([0.5, 7.0, -3.0, math.nan, math.inf])
    totals = [Gate(SeededSource(0)).release(Silent(), sealed_total(part, "l2")) for part in (wild,)]
    assert totals == [2.5]


class Silent:
    accepts = "l2"

    def kinds(self, sensitivity):
        assert (sensitivity.radius, sensitivity.single) == (1.0, 1.0)
        return (GaussianKind(1.0, 1.0),)

    def run(self, payload, sensitivity, source):
        return float(payload[0])


def test_the_number_of_runs_follows_its_law():
    """4000 searches: the mean of a geometric law of mean 5 (deviation 4.47) within 5 standard
    errors, false alarm below 1e-6; and the best score is the one that is kept."""
    count, tried = RandomCount.named("geometric", 5), []

    def run(which, source):
        tried.append(which)
        return (float(which), which)

    mechanism = BestOf(count, 3, (((Pure(1.0), 1),),))
    source = SeededSource(11)
    for _ in range(4000):
        start = len(tried)
        index, score, result = Gate(source).release(mechanism, sealed_runs(run))
        assert index == score == result == max(tried[start:])
    assert abs(len(tried) / 4000 - 5) < 5 * math.sqrt(20 / 4000)
    assert abs(np.mean(tried) - 1) < 5 * math.sqrt(2 / 3 / len(tried))


def test_a_fit_that_costs_more_than_declared_is_not_shown(monkeypatch):
    from privopt.estimators import search_run

    real = search_run.losses_of
    search = PrivateSearchCV(LogisticRegression(), GRID, refit=False, random_state=0)
    calls = []

    def swollen(certificate):
        calls.append(1)
        # Declared for the two dry fits and the calibration; more for a real one.
        return real(certificate) if certificate.settings["n"] != 480 or len(calls) < 30 else {"x"}

    calibrated = search_run.calibrated

    def then_swell(*arguments):
        found = calibrated(*arguments)
        calls.extend([1] * 30)
        return found

    monkeypatch.setattr(search_run, "losses_of", swollen)
    monkeypatch.setattr("privopt.estimators.private_search_cv.calibrated", then_swell)
    with pytest.raises(Refused, match="costs more than was declared"):
        search.fit(X, Y)
    assert not hasattr(search, "best_estimator_")


# ---------------------------------------------------------------- what it shows
def test_it_finds_the_better_candidate_and_shows_nothing_else():
    search = PrivateSearchCV(
        LogisticRegression(),
        {"data_norm": [2.0, 5000.0]},
        epsilon=6.0,
        delta=1e-6,
        n_runs=20,
        random_state=1,
    ).fit(X, Y)
    assert search.best_params_ == {"data_norm": 2.0}
    assert search.score(X, Y) > 0.85
    assert abs(search.best_score_ - search.score(X, Y)) < 0.15
    shown = {name for name in vars(search) if name.endswith("_") and not name.startswith("_")}
    assert shown == {
        "best_estimator_",
        "best_index_",
        "best_params_",
        "best_score_",
        "epsilon_per_run_",
        "n_features_in_",
        "privacy_",
    }
    assert search.best_estimator_.privacy_ is search.privacy_
    np.testing.assert_array_equal(search.classes_, [False, True])
    assert search.predict_proba(X[:3]).shape == (3, 2)


def test_held_out_records_are_not_fitted():
    """Labels of the held-out fifth may be anything: the model of a fixed candidate stays."""
    other = Y.copy()
    alone = {"n_runs": 1.0001, "refit": False, "random_state": 2}
    held = held_out(600, False, None)
    assert held.sum() == 120
    other[held] = ~other[held]
    models = [
        PrivateSearchCV(LogisticRegression(), {"data_norm": [1.0]}, **alone)
        .fit(X, labels)
        .best_estimator_
        for labels in (Y, other)
    ]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_winner_is_fitted_to_records_that_took_no_part(delta):
    """Two cells: the search, and a fit with the whole budget that a record of the search leaves as
    it was."""
    search = PrivateSearchCV(
        LogisticRegression(classes=[False, True]), {"data_norm": [2.0]}, delta=delta, random_state=2
    )
    searched = search_shares.searched(600, Budget(1.0, delta), True, None)
    assert 0.1 * 600 <= searched.sum() <= 0.4 * 600
    found = search.fit(X, Y)
    assert (found.privacy_.cells, found.privacy_.epsilon <= 1.0) == (2, True)
    assert found.best_estimator_.plan_.budget.epsilon == 1.0
    assert found.best_estimator_.plan_.facts.n == 600 - searched.sum()
    assert any("the search took" in text for text in found.privacy_.assumptions)
    alone = LogisticRegression(
        1.0, delta, classes=[False, True], data_norm=2.0, random_state=0
    ).fit(X[~searched], Y[~searched])
    assert found.privacy_.epsilon == pytest.approx(alone.privacy_.epsilon, rel=1e-3)
    other = Y.copy()
    other[searched] = ~other[searched]
    again = clone(search).fit(X, other)
    assert again.best_estimator_.coef_.shape == found.best_estimator_.coef_.shape
    with patch.object(search_module.PrivateSearchCV, "_last_source", staticmethod(lambda s: 7)):
        models = [clone(search).fit(X, labels).best_estimator_ for labels in (Y, other)]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)


def test_the_ledger_pays_for_the_search_and_the_fit_at_once(tmp_path):
    ledger = Ledger.create(tmp_path / "ledger.db", 1.0)
    search = PrivateSearchCV(
        LogisticRegression(classes=[False, True]), {"data_norm": [1.0, 2.0]}, ledger=ledger
    ).fit(X, Y)
    assert search.privacy_.private
    assert search.privacy_.ledger is not None
    assert search.best_estimator_.ledger is None
    with pytest.raises(Refused):
        LogisticRegression(0.1, ledger=ledger).fit(X, Y)


def test_plans_that_mean_different_things_are_not_compared():
    for grid in ({"data_norm": [0.1, 2.0]}, {"fit_intercept": [True, False]}):
        with pytest.raises(Refused, match="candidates minimise different losses or over rows"):
            PrivateSearchCV(LogisticRegression(), grid, strategy="plan").fit(X, Y)


@pytest.mark.slow
def test_regression_and_a_scoring_of_ones_own():
    y = np.clip(X[:, 0], -2, 2)
    search = PrivateSearchCV(
        HuberRegressor(target_bounds=(-2, 2)),
        {"data_norm": [1.0, 4.0]},
        epsilon=8.0,
        delta=1e-6,
        scoring=lambda y, predicted: np.abs(y - predicted) < 0.5,
        random_state=0,
    ).fit(X, y)
    assert search.score(X, y) > 0.5
    assert not hasattr(search, "predict_proba")


def test_the_planner_chooses_without_data():
    search = PrivateSearchCV(
        LogisticRegression(), {"solver": ["output_perturbation", "auto"]}, strategy="plan"
    ).fit(X, Y)
    assert search.best_params_ == {"solver": "auto"}
    assert search.privacy_.epsilon == pytest.approx(1.0)
    assert search.privacy_.private
    again = clone(search).fit(X[::-1], ~Y)
    assert again.best_params_ == search.best_params_


def test_clone_pickle_and_reproducibility():
    search = PrivateSearchCV(LogisticRegression(), GRID, epsilon=2.0, random_state=4)
    assert clone(search).get_params()["estimator__epsilon"] == 1.0
    one, two = clone(search).fit(X, Y), clone(search).fit(X, Y)
    np.testing.assert_array_equal(one.best_estimator_.coef_, two.best_estimator_.coef_)
    back = pickle.loads(pickle.dumps(one))
    np.testing.assert_array_equal(back.predict(X), one.predict(X))
    assert not one.privacy_.private
    assert PrivateSearchCV(LogisticRegression(), GRID).fit(X, Y).privacy_.private


def test_the_ledger_is_charged_once(tmp_path):
    ledger = Ledger.create(tmp_path / "ledger.db", 2.0, 0.0, dataset="data")
    search = PrivateSearchCV(LogisticRegression(), GRID, epsilon=1.5, ledger=ledger, dataset="data")
    search.fit(X, Y)
    assert search.privacy_.ledger["dataset"] == "data"
    assert ledger.dataset("data").left[0] == pytest.approx(0.5, abs=0.01)
    with pytest.raises(Refused):
        search.fit(X, Y)
    with pytest.raises(Refused):
        PrivateSearchCV(LogisticRegression(), GRID, ledger=ledger, random_state=0).fit(X, Y)


# ---------------------------------------------------------------- what it refuses
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"neighbouring": "add_remove"}, "splits records by their position"),
        ({"param_grid": {"epsilon": [1, 2]}}, "epsilon is set by the search"),
        ({"param_grid": []}, "no candidate"),
        ({"strategy": "guess"}, "strategy must be"),
        ({"holdout": 1.0}, "holdout must lie between"),
        ({"share": 1.5}, "share must lie between"),
        ({"n_runs": 0.5}, "expected number of runs"),
        ({"law": "uniform"}, "the law must be one of"),
        ({"estimator": LogisticRegression(ledger="x.db")}, "give the ledger to the search"),
        ({"param_grid": {"data_norm": [-1.0]}}, "data_norm must be positive"),
    ],
)
def test_one_clear_sentence(changes, words):
    search = PrivateSearchCV(LogisticRegression(), GRID).set_params(**changes)
    with pytest.raises(ValueError, match=words):
        search.fit(X, Y)


def test_other_estimators_are_refused():
    from sklearn.linear_model import LogisticRegression as Plain

    with pytest.raises(TypeError, match="linear estimator of privopt"):
        PrivateSearchCV(Plain(), {"C": [1.0]}).fit(X, Y)


@pytest.mark.slow
def test_no_run_at_all_is_possible_with_a_poisson_law():
    search = PrivateSearchCV(
        LogisticRegression(), GRID, delta=1e-6, law="poisson", n_runs=1e-9, random_state=0
    )
    with pytest.raises(Refused, match="no candidate was drawn"):
        search.fit(X, Y)


@pytest.mark.parametrize("home", ["pandas", "polars", "pyarrow"])
@pytest.mark.filterwarnings("ignore")
def test_what_a_candidate_costs_is_found_without_a_record(home):
    """In a frame of NaN every reading of a record shows: it was fitted to the first row, for the
    sake of the columns' names."""
    from privopt.audit.replay import Tape
    from privopt.mechanisms import HOOK

    frames = pytest.importorskip(home)
    make = frames.table if home == "pyarrow" else frames.DataFrame
    frame = make({name: np.full(30, np.nan) for name in ("a", "b")})
    model = LogisticRegression(classes=[0, 1], nan_policy="empty", solver="output_perturbation")
    search = PrivateSearchCV(
        model, {"data_norm": [1.0, 2.0]}, epsilon=1.0, refit=False, random_state=0
    )
    tape = Tape()
    token = HOOK.set(tape)
    try:
        search.fit(frame, np.arange(30) % 2)
    finally:
        HOOK.reset(token)
    made_up = [one.payload.rows for one in tape.releases if hasattr(one.payload, "rows")]
    assert made_up
    assert all(rows.active().all() for rows in made_up)
