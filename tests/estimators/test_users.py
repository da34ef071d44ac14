"""Privacy for users: which rows count, what is certified, and replay on data sets that differ in
one user."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import privopt
from privopt import (
    Budget,
    ElasticNet,
    Lasso,
    LogisticRegression,
    Problem,
    QuantileRegressor,
    Refused,
    Ridge,
    solve,
)
from privopt.audit import record, replay, user_pairs
from privopt.estimators import linear_model, sparse_linear
from privopt.estimators.users import Owned, rows_that_count
from privopt.geometry import L1Ball, L2Ball
from privopt.losses import Logistic
from privopt.privacy import Accountant
from privopt.privacy.budget import NEIGHBOURING
from privopt.privacy.profiles import gaussian_mu
from tests.estimators.every import CASES, X, made

CAP, ROWS, USERS = 3, 5, 12
IDS = np.arange(len(X)) % 40


# ------------------------------------------------------------ which rows count
def test_the_first_rows_of_each_user():
    ids = ["b", "a", "b", "b", "a", "c"]
    for cap, rows, each in (
        (2, [0, 2, 1, 4, 5], [2, 2, 1]),
        (1, [0, 1, 5], [1, 1, 1]),
        (9, [0, 2, 3, 1, 4, 5], [3, 2, 1]),
    ):
        found = rows_that_count(ids, 6, cap)
        assert (found.rows.tolist(), found.each.tolist()) == (rows, each)
    assert rows_that_count(None, 6, None) is None


@pytest.mark.parametrize("kind", [list, pd.Series, pl.Series, pa.array, np.array])
def test_ids_in_every_container(kind):
    assert rows_that_count(kind(["b", "a", "b"]), 3, 1).rows.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("ids", "cap", "words"),
    [
        (None, 2, "rows_per_user promises privacy for users: pass user_ids"),
        (["a"] * 3, None, "user_ids need rows_per_user"),
        (["a"] * 3, 0, "rows_per_user must be a positive integer, got 0"),
        (["a"] * 3, 1.5, "rows_per_user must be a positive integer, got 1.5"),
        (["a"] * 2, 1, "one id for each of the 3 rows"),
        (["a", None, "b"], 1, "user_ids hold a missing value"),
        ([1.0, np.nan, 2.0], 1, "user_ids hold a missing value"),
        (pd.array(["a", pd.NA, "b"]), 1, "user_ids hold a missing value"),
    ],
)
def test_bad_ids_get_one_sentence(ids, cap, words):
    with pytest.raises(ValueError, match=words):
        rows_that_count(ids, 3, cap)


def test_rows_beyond_the_cap_do_not_matter():
    model, y = made("LogisticRegression, bounds", rows_per_user=2, classes=["no", "yes"])
    one = model.fit(X, y, user_ids=IDS).coef_
    changed, other = X.copy(), y.copy()
    changed[80:], other[80:] = 9.0, "no"  # the third row of each user
    np.testing.assert_array_equal(model.fit(changed, other, user_ids=IDS).coef_, one)


# ------------------------------------------------------------ what is certified
APART = ("Online",)
FULL_BATCH = [name for name in CASES if not any(word in name for word in APART)]


@pytest.mark.parametrize("name", FULL_BATCH)
def test_every_estimator_certifies_users(name):
    model, y = made(name, rows_per_user=CAP)
    certificate = model.fit(X, y, user_ids=IDS).privacy_
    assert certificate.unit == "user"
    assert certificate.settings["rows_per_unit"] == CAP
    assert 0.97 * model.epsilon <= certificate.epsilon <= model.epsilon
    assert certificate.verify()
    assert any("carries that user's id" in text for text in certificate.assumptions)
    assert privopt.Certificate.from_json(certificate.to_json()) == certificate


@pytest.mark.parametrize("relation", NEIGHBOURING)
def test_noise_is_that_of_a_whole_user(relation):
    """One record of the run loses a third of the budget's mu: the user with three, all of it."""
    model = LogisticRegression(
        1.0,
        1e-5,
        solver="noisy_gd",
        rows_per_user=CAP,
        neighbouring=relation,
        n_public=120,
        classes=["no", "yes"],
        random_state=0,
    )
    y = made("LogisticRegression")[1]
    _, tape = record(lambda X, y: model.fit(X, y, user_ids=IDS), (X, y))
    mu = np.sqrt(sum(kind.mu**2 for one in tape.releases for kind in one.event.kinds))
    assert CAP * mu == pytest.approx(gaussian_mu(1.0, 1e-5), rel=0.01)
    ((_, charge),) = model.privacy_.charges
    assert Accountant(relation).epsilon(charge, 1e-5) == model.privacy_.epsilon


def test_a_pure_budget_is_shared_by_the_rows():
    y = made("LogisticRegression")[1]
    alone = LogisticRegression(0.5, random_state=0, classes=["no", "yes"]).fit(X, y)
    users = LogisticRegression(
        2.0, random_state=0, classes=["no", "yes"], rows_per_user=4, n_public=120
    ).fit(X, y, user_ids=IDS)
    assert users.plan_.settings.noise_multiplier == pytest.approx(
        alone.plan_.settings.noise_multiplier, rel=1e-9
    )


def test_what_has_no_theorem_is_refused_by_name():
    signs = np.where(made("LogisticRegression")[1] == "yes", 1.0, -1.0)
    problem, budget = Problem(Logistic(), L2Ball(5.0)), Budget(1.0, 1e-3, "replace_one")
    with pytest.raises(Refused, match="in this sampled batch"):
        solve(
            problem, X, signs, budget=budget, solver="noisy_sgd", sampling="fixed",
            user_ids=IDS, rows_per_user=2,
        )  # fmt: skip
    with pytest.raises(Refused, match="have no place for the 60 rows of a user"):
        solve(
            Problem(Logistic(), L1Ball(5.0)), X, signs, budget=budget, solver="tree_sfw", phases=3,
            user_ids=IDS // 20, rows_per_user=60,
        )  # fmt: skip


def test_a_ledger_of_users(tmp_path):
    y = made("LogisticRegression")[1]
    model = LogisticRegression(1.0, rows_per_user=2, ledger=tmp_path / "l.db")
    ledger = privopt.Ledger.create(tmp_path / "l.db", epsilon=3.0, unit="user")
    model.fit(X, y, user_ids=IDS)
    assert ledger.dataset().left[0] == pytest.approx(2.0, rel=1e-6)
    model.set_params(rows_per_user=None)
    with pytest.raises(Refused, match="kept per user: a guarantee per record"):
        model.fit(X, y)


# ------------------------------------------------------------ replay
def fit_of(kind, relation, delta, cap=CAP, **how):
    """What a fit makes public; the last column says who owns a row."""

    def run(X, y):
        labels = how.get("classes")
        model = kind(
            1.0,
            delta,
            neighbouring=relation,
            n_public=USERS * ROWS,
            rows_per_user=cap,
            random_state=0,
            **how,
        ).fit(X[:, :-1], np.where(y > 0, 1, -1) if labels else y, user_ids=X[:, -1].astype(int))
        return model.coef_, model.intercept_, model.privacy_.to_json()

    return run


TWO = {"classes": [-1, 1], "nan_policy": "empty"}
FITS = {
    "objective": (LogisticRegression, TWO),
    "standardised": (LogisticRegression, {**TWO, "bounds": (-1.0, 1.0)}),
    "gradient descent": (LogisticRegression, {**TWO, "solver": "noisy_gd"}),
    "private norm": (Ridge, {"nan_policy": "empty", "data_norm": "private"}),
    "standardised regression": (Ridge, {"nan_policy": "empty", "bounds": (-1.0, 1.0)}),
    "a constant": (QuantileRegressor, {"nan_policy": "empty", "intercept_only": True}),
    "greedy": (ElasticNet, {"n_iter": 2}),
    "frank-wolfe": (Lasso, {"n_iter": 2}),
}


PURE = [(name, "zero_out", 0.0) for name in ("objective", "standardised", "private norm")]
MIXED = [
    (name, relation, 1e-5)
    for name, (_, how) in FITS.items()
    for relation in NEIGHBOURING
    if relation != "zero_out" or "nan_policy" in how  # an empty row holds NaN
]


@pytest.mark.parametrize(("name", "relation", "delta"), PURE + MIXED)
def test_replay_on_data_sets_that_differ_in_one_user(name, relation, delta):
    kind, how = FITS[name]
    run = fit_of(kind, relation, delta, **how)
    pairs = user_pairs(relation, users=USERS, rows=ROWS, classification="classes" in how)
    found = {pair.name: found for pair in pairs[:3] if (found := replay(run, pair, group=CAP))}
    assert found == {}


@pytest.mark.parametrize(
    "how", [{"solver": "objective_perturbation"}, {"solver": "noisy_gd"}, {"bounds": (-1.0, 1.0)}]
)
@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_replay_of_weighted_rows_of_users(relation, how):
    """A row's weight follows from the row: up to the bound, and beyond it."""

    def run(X, y):
        own = np.nan_to_num(X[:, 0], nan=0.0, posinf=9.0, neginf=-9.0)
        model = LogisticRegression(
            1.0,
            1e-6,
            neighbouring=relation,
            rows_per_user=CAP,
            max_weight=2.0,
            random_state=0,
            **how,
            **TWO,
        ).fit(
            X[:, :-1],
            np.where(y > 0, 1, -1),
            user_ids=X[:, -1].astype(int),
            sample_weight=np.clip(1.0 + 3.0 * own, 0.0, 4.0),
        )
        return model.coef_, model.intercept_, model.privacy_.to_json()

    pairs = user_pairs(relation, users=USERS, rows=ROWS, classification=True)
    found = {pair.name: found for pair in pairs[:3] if (found := replay(run, pair, group=CAP))}
    assert found == {}


def by_user(pair):
    """One user's rows behind another's, as they are held, each with a coin of its own."""
    first, second = (np.argsort(X[:, -1], kind="stable") for X, _ in (pair.first, pair.second))
    ids = np.array(pair.first_ids)[first], np.array(pair.second_ids)[second]
    return replace(
        pair,
        first=tuple(part[first] for part in pair.first),
        second=tuple(part[second] for part in pair.second),
        first_ids=tuple(ids[0].tolist()),
        second_ids=tuple(ids[1].tolist()),
    )


@pytest.mark.parametrize("relation", NEIGHBOURING)
def test_replay_of_sampled_batches(relation):
    """Every row by its own coin: values move by those of a user's rows that are there."""
    run = fit_of(LogisticRegression, relation, 1e-5, **TWO, solver="noisy_sgd")
    for pair in user_pairs(relation, users=USERS, rows=CAP)[:2]:
        assert replay(run, by_user(pair), group=CAP) == []


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
@pytest.mark.parametrize("solver", ["phased_localization", "dp_ftrl"])
def test_replay_of_data_that_is_cut(solver, relation):
    """Parts hold whole users: all other parts are the same."""
    run = fit_of(LogisticRegression, relation, 1e-5, **TWO, solver=solver)
    people = tuple(range(USERS))
    for pair in user_pairs(relation, users=USERS, rows=ROWS)[:2]:
        users = replace(pair, first_ids=people, second_ids=people)
        assert replay(run, users, group=CAP) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["objective", "standardised", "greedy"])
def test_replay_objects_to_a_user_with_more_rows(name, monkeypatch):
    """Without the cap, or for a group of one record less, values move further than declared."""
    kind, how = FITS[name]
    run = fit_of(kind, "replace_one", 1e-5, **how)
    pairs = user_pairs("replace_one", users=USERS, rows=ROWS, classification="classes" in how)
    assert any(replay(run, pair, group=CAP - 1) for pair in pairs)
    everyone = lambda ids, rows, cap: Owned(np.arange(rows), np.array([rows]))  # noqa: E731
    monkeypatch.setattr(linear_model, "rows_that_count", everyone)
    monkeypatch.setattr(sparse_linear, "rows_that_count", everyone)
    assert any(replay(run, pair, group=CAP) for pair in pairs)


# ------------------------------------------------------------ metadata
@pytest.mark.filterwarnings("ignore:.* may fit this model several times")
def test_ids_are_routed_through_pipelines_and_searches():
    model, y = made("LogisticRegression", rows_per_user=2, classes=["no", "yes"])
    with sklearn.config_context(enable_metadata_routing=True):
        model.set_fit_request(user_ids=True)
        pipe = make_pipeline(FunctionTransformer(np.tanh), model).fit(X, y, user_ids=IDS)
        assert pipe[-1].privacy_.unit == "user"
        found = cross_validate(
            model, X, y, cv=3, params={"user_ids": IDS}, return_estimator=True, error_score="raise"
        )
        assert [one.privacy_.unit for one in found["estimator"]] == ["user"] * 3


@pytest.mark.parametrize("name", [name for name in CASES if "Online" not in name])
def test_weights_are_refused_with_one_sentence(name):
    model, y = made(name)
    weighs = hasattr(model, "max_weight")
    error, words = (ValueError, "needs max_weight") if weighs else (TypeError, "takes no sample_")
    with pytest.raises(error, match=words):
        model.fit(X, y, sample_weight=np.ones(len(X)))
    with pytest.raises(TypeError, match="unexpected keyword argument 'weights'"):
        model.fit(X, y, weights=1)
    assert not hasattr(model, "coef_")


def test_no_weights_are_no_weights():
    model, y = made("Ridge")
    assert hasattr(model.fit(X, y, sample_weight=None), "coef_")
