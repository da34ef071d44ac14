"""What one record does to an evaluation: replay, law, attack, and models that would couple
records."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression as PlainLine
from sklearn.linear_model import LogisticRegression as Plain
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import SVC, LinearSVC

import privopt
from privopt import Ledger, Refused
from privopt.audit import Pair, audit, hostile_pairs, noise_p_value, record, replay, user_pairs
from privopt.evaluation.predictions import row_by_row
from privopt.noise import SeededSource
from privopt.oracle import Shares, sealed_shares, shares_radius
from privopt.oracle.sealed import KEY
from privopt.tables import DeclaredColumns
from tests.evaluation.models import Centred, Failing, Fixed, Line, Remembering, Writing, people

RELATIONS = ("zero_out", "replace_one", "add_remove")


# ------------------------------------------------------------ the sum
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_no_record_is_longer_than_its_share_whatever_made_it(relation, norm):
    """NaN, infinite, negative and huge weights, a place twice; and two records far apart."""
    resolution = 1000.0
    radius = shares_radius(relation, norm)
    assert radius == {"l1": 2.0, "l2": math.sqrt(2)}[norm] if relation == "replace_one" else 1.0
    rng = np.random.default_rng(0)

    def counted(places, weights):
        sealed = sealed_shares(Shares(places, weights, 6), relation, norm, resolution)
        assert sealed.sensitivity.radius == radius
        return sealed.open(KEY)

    wild = [np.nan, np.inf, -np.inf, -3.0, 0.0, 1e-300, 0.3, 1.0, 7.0, 1e300]
    vectors = []
    for _ in range(400):
        places = (
            rng.permutation(6)[None, :4] if rng.random() < 0.8 else rng.integers(6, size=(1, 4))
        )
        vectors.append(counted(places, rng.choice(wild, size=(1, 4))))
    order = 1 if norm == "l1" else 2
    lengths = [np.linalg.norm(v, order) for v in vectors]
    # Steps of which ``resolution`` make up the radius: one record has resolution / radius of them.
    assert max(lengths) <= resolution / radius
    assert max(lengths) >= 0.99 * resolution / radius
    if relation == "replace_one":
        apart = max(np.linalg.norm(a - b, order) for a in vectors[:60] for b in vectors[:60])
        assert 0.98 * resolution <= apart <= resolution
    one = np.array([[0, 1]]), np.array([[0.25, 0.75]])
    exact = [w * resolution / radius for w in (0.25, 0.75)]
    assert all(0 <= e - c <= 1 for e, c in zip(exact, counted(*one).tolist()[:2], strict=True))


# ------------------------------------------------------------ replay, law, attack
def binary(relation, model=None, **more):
    def run(X, y):
        found = privopt.evaluate(
            Fixed() if model is None else model,
            X,
            y,
            epsilon=1.0,
            neighbouring=relation,
            n_public=63 if relation == "add_remove" else None,
            random_state=0,
            **more,
        )
        return found.to_json()

    return run


CLASSES = Fixed(classes=(-1.0, 1.0, 2.0))


class Three(Fixed):
    """Three classes, the third one rare."""

    def predict_proba(self, X):
        found = super().predict_proba(X)
        return np.column_stack([0.9 * found, np.full(len(found), 0.1)])

    def predict(self, X):
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]


WAYS = {
    "two classes": {},
    "one at a time": {"one_at_a_time": True},
    "all at once": {"one_at_a_time": False},
    "three classes": {"model": Three(classes=(-1.0, 1.0, 2.0)), "one_vs_rest": True},
    "three classes, Gaussian": {
        "model": Three(classes=(-1.0, 1.0, 2.0)), "one_vs_rest": True, "delta": 1e-2,
    },
    "numbers": {"model": Line()},
    "a model that fails": {"model": Failing()},
    "a model that writes": {"model": Writing()},
}  # fmt: skip


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.filterwarnings("ignore")
def test_replay_of_hostile_pairs(relation, way):
    run = binary(relation, **WAYS[way])
    with np.errstate(all="ignore"):
        for pair in hostile_pairs(relation, classification=way != "numbers")[::2]:
            assert replay(run, pair) == [], pair.name


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_a_model_that_looks_at_other_rows_is_harmless_one_at_a_time(relation):
    """And moves the counts of others if it is not: that is why it is asked row by row."""
    for model in (Centred(), Failing()):
        run = binary(relation, model=model)
        for pair in hostile_pairs(relation)[:6]:
            assert replay(run, pair) == [], pair.name


@pytest.mark.filterwarnings("ignore")
def test_replay_sees_a_model_that_couples_rows(monkeypatch):
    """The check on made-up rows is what stands before it."""
    evaluating = __import__("importlib").import_module("privopt.evaluation.evaluate")
    monkeypatch.setattr(evaluating, "check_apart", lambda *_: None)
    run = binary("zero_out", model=Centred(), one_at_a_time=False)
    found = [text for pair in hostile_pairs("zero_out") for text in replay(run, pair)]
    assert found


@pytest.mark.filterwarnings("ignore")
def test_replay_for_users():
    def run(X, y):
        users = X[:, -1].astype(int)
        found = privopt.evaluate(
            Fixed(), X[:, :-1], np.sign(y), epsilon=1.0, user_ids=users, rows_per_user=3,
            random_state=0,
        )  # fmt: skip
        return found.to_json()

    for pair in user_pairs("zero_out")[:6]:
        assert replay(run, pair, group=3) == [], pair.name


@pytest.mark.statistical
@pytest.mark.parametrize("delta", [0.0, 1e-2])
def test_the_noise_follows_its_law(delta):
    """60 runs, seeded; false alarm 1e-4."""
    X, y = people(50)
    y[:5] = 2.0
    model, tapes = Three(classes=(-1.0, 1.0, 2.0)), []
    for seed in range(60):
        _, tape = record(
            lambda X, y, seed=seed: privopt.evaluate(
                model, X, y, 1.0, delta, one_vs_rest=True, random_state=seed
            ),
            (X, y),
        )
        tapes.append(tape)
    assert noise_p_value(tapes) > 1e-4
    multiplier = {release.mechanism.multiplier for tape in tapes for release in tape.releases}
    assert len(multiplier) == 1


@pytest.mark.statistical
def test_an_attack_sees_much_of_epsilon_and_no_more():
    """One record or none, 250 runs a side, a bound with 99.9 % confidence."""
    here = np.array([[1.0]]), np.array([1.0])
    pair = Pair("one or none", here, (np.array([[np.nan]]), here[1]), (0,), (0,))

    def run(X, y, source):
        return privopt.evaluate(Fixed(), X, y, epsilon=4.0, random_state=source)

    claimed = run(*pair.first, SeededSource(0)).certificate
    finding = audit(run, pair, claimed, runs=250, confidence=0.999)
    assert not finding.refuted
    assert finding.lower_bound > 1.0


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 3.0, 20.0])
def test_the_certificate_says_what_was_asked(relation, epsilon):
    X, y = people(60)
    found = privopt.evaluate(Fixed(), X, y, epsilon, neighbouring=relation, n_public=60)
    assert found.certificate.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert found.certificate.delta == 0
    assert found.certificate.private
    assert found.certificate.releases == 1
    assert found.certificate.numerics["exact_releases"] == 1
    assert found.certificate.neighbouring == relation


def test_gaussian_noise_is_taken_where_it_is_smaller():
    X, y = people(60)
    classes = (-1.0, 1.0, *range(2, 30))

    class Many(Fixed):
        def predict_proba(self, X):
            return np.full((len(X), 30), 1 / 30)

        def predict(self, X):
            return np.full(len(X), -1.0)

    found = privopt.evaluate(Many(classes=classes), X, y, 1.0, 1e-6, one_vs_rest=True)
    assert found.layout.gaussian
    assert found.certificate.delta == 1e-6
    assert 0.98 <= found.certificate.epsilon <= 1.0
    assert not privopt.evaluate(Many(classes=classes), X, y, 1.0, one_vs_rest=True).layout.gaussian


# ------------------------------------------------------------ models
def test_who_is_known_to_predict_row_by_row():
    X, y = people(60)
    plain = Plain().fit(X, y)
    own = privopt.LogisticRegression(classes=[-1, 1]).fit(X, y)
    ufunc = FunctionTransformer(np.arcsinh)
    assert all(
        row_by_row(model)
        for model in (
            plain, own, make_pipeline(StandardScaler(), plain), make_pipeline(ufunc, plain),
            RandomForestClassifier(), VotingClassifier([("a", plain), ("b", own)]), SVC(),
            make_pipeline(ColumnTransformer([("one", OneHotEncoder(), [0])]), plain),
        )
    )  # fmt: skip

    class Step:
        def fit(self, X, y=None):
            return self

        def transform(self, X):
            return X - X.mean(axis=0)

    class Subclass(Plain):
        pass

    patched = Plain().fit(X, y)
    patched.predict = lambda X: plain.predict(X - X.mean(axis=0))
    centre = FunctionTransformer(lambda X: X - X.mean(axis=0))
    assert not any(
        row_by_row(model)
        for model in (
            Fixed(), Subclass(), patched, make_pipeline(centre, plain),
            make_pipeline(Step(), plain), VotingClassifier([("a", Fixed())]),
            SVC(kernel=lambda a, b: a @ b.T),
            make_pipeline(ColumnTransformer([("one", Step(), [0])]), plain),
        )
    )  # fmt: skip


@pytest.mark.parametrize("model", [Centred(), Remembering()])
def test_a_model_that_couples_rows_is_refused_before_the_data_is_touched(model):
    X, y = people(60)
    alone = {} if isinstance(model, Remembering) else {"one_at_a_time": False}
    with pytest.raises(Refused, match="another prediction when other records stand beside"):
        privopt.evaluate(model, X, y, **alone)


def test_what_is_not_enforced_is_in_the_certificate():
    X, y = people(60)
    own = privopt.LogisticRegression(classes=[-1, 1]).fit(X, y)
    assert privopt.evaluate(own, X, y).certificate.assumptions == ()
    plain = privopt.evaluate(Plain().fit(X, y), X, y).certificate
    assert plain.assumptions == (
        "LogisticRegression is public: what it learned, and from whom, is not covered",
    )
    apart = privopt.evaluate(Fixed(), X, y).certificate.assumptions[0]
    assert apart == (
        "Fixed.predict keeps nothing of the records that it is called with: not proved"
    )
    beside = privopt.evaluate(Fixed(), X, y, one_at_a_time=False).certificate.assumptions[0]
    assert "without looking at those beside it: not proved" in beside


def test_rows_are_not_written_to():
    X, y = people(60)
    before = X.copy()
    privopt.evaluate(Writing(), X, y)
    assert np.array_equal(X, before)


def test_every_kind_of_table():
    """The same rows in every form, with hardly any noise, give the same numbers."""
    X, y = people(400)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = Plain().fit(X, y)
    named = make_pipeline(StandardScaler(), Plain()).fit(frame, y)
    same = {"epsilon": 40.0, "random_state": 0}
    expected = privopt.evaluate(model, X, y, **same).sums
    for rows in (X.tolist(), sp.csr_array(X), np.ma.array(X), X.astype(object)):
        assert np.allclose(privopt.evaluate(model, rows, y, **same).sums, expected, atol=0.5)
    expected = privopt.evaluate(named, frame, y, **same).sums
    for rows in (frame, pl.from_pandas(frame)):
        assert np.allclose(privopt.evaluate(named, rows, pd.Series(y), **same).sums, expected)
    columns = {name: {"kind": "numeric", "lower": -5, "upper": 5} for name in "abc"}
    declared = make_pipeline(DeclaredColumns(columns), privopt.LogisticRegression(bounds=(-1, 1)))
    declared = declared.set_params(logisticregression__classes=[-1, 1]).fit(frame, y)
    one = privopt.evaluate(declared, frame, y, **same).sums
    two = privopt.evaluate(declared, pa.Table.from_pandas(frame), y, **same).sums
    assert np.array_equal(one, two)


def test_missing_numbers_and_unknown_labels_are_empty_records():
    X, y = people(400)
    X[:40, 0] = np.nan
    model = Plain().fit(X[40:], y[40:])
    labels = y.astype(object)
    labels[40:60] = "neither"
    labels[60:80] = None
    found = privopt.evaluate(model, X, labels, epsilon=40.0, random_state=0)
    assert found.sums.sum() == pytest.approx(320, abs=3)
    filled = make_pipeline(SimpleImputer(), model)
    filled.fit(X[40:], y[40:])
    found = privopt.evaluate(filled, X, y, epsilon=40.0, random_state=0)
    assert found.sums.sum() == pytest.approx(400, abs=3)


def test_scores_that_are_no_probabilities_and_no_scores_at_all():
    X, y = people(400)
    margins = privopt.evaluate(LinearSVC().fit(X, y), X, y, epsilon=5.0)
    assert "auc" in margins.metrics
    assert "log_loss" not in margins.metrics
    assert margins.calibration == []

    class Bare:
        classes_ = np.array([-1.0, 1.0])

        def predict(self, X):
            return np.where(X[:, 0] > 0, 1.0, -1.0)

    bare = privopt.evaluate(Bare(), X, y, epsilon=5.0)
    assert set(bare.metrics) == {
        "accuracy", "rate of the second class", "precision", "recall", "specificity", "f1",
    }  # fmt: skip
    assert bare.roc == []


def test_a_torch_module_is_asked_in_evaluation_mode():
    torch = pytest.importorskip("torch")
    X, y = people(200)
    net = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.BatchNorm1d(1), torch.nn.Dropout(0.9))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0, 0.5, 1 / 3]]))
        net[0].bias.zero_()
    found = privopt.evaluate(net, X, y, epsilon=30.0, classes=[-1, 1], random_state=0)
    assert net.training
    exact = privopt.evaluate(Fixed(), X, y, epsilon=30.0, random_state=0)
    assert found.accuracy.value == pytest.approx(exact.accuracy.value, abs=0.02)
    assert found.certificate.assumptions[0].startswith("Sequential.predict keeps nothing")
    two = torch.nn.Linear(3, 2)
    assert "auc" in privopt.evaluate(two, torch.tensor(X), y, classes=[-1, 1]).metrics
    line = privopt.evaluate(net, X, y, target_bounds=(-3, 3))
    assert set(line.metrics) >= {"r2", "rmse", "mae"}


# ------------------------------------------------------------ refusals and accounts
def test_refusals_come_before_the_budget(tmp_path):
    X, y = people(60)
    model = Plain().fit(X, y)
    ledger = Ledger.create(tmp_path / "l", 1.0, dataset="people")
    for wrong, words in {
        "rows": "held_out", "level": "level must lie", "score_limit": "score_limit must be",
        "epsilon": "epsilon must be", "one_vs_rest": "more than two classes",
        "rows_per_user": "pass user_ids",
    }.items():  # fmt: skip
        value = {"rows": "mine", "one_vs_rest": True, "rows_per_user": 2}.get(wrong, -1.0)
        with pytest.raises(ValueError, match=words):
            privopt.evaluate(model, X, y, ledger=ledger, **{wrong: value})
    with pytest.raises(ValueError, match="60 rows and y 59"):
        privopt.evaluate(model, X, y[:59], ledger=ledger)
    with pytest.raises(TypeError, match="has no predict"):
        privopt.evaluate(object(), X, y, ledger=ledger)
    with pytest.raises(ValueError, match="target_bounds, public bounds of y"):
        privopt.evaluate(PlainLine().fit(X, y), X, y, ledger=ledger)
    with pytest.raises(ValueError, match="n_public"):
        privopt.evaluate(model, X, y, neighbouring="add_remove", ledger=ledger)
    assert ledger.dataset("people").spent[0] == 0


def test_a_ledger_pays_once_for_a_key(tmp_path):
    X, y = people(60)
    model = Plain().fit(X, y)
    ledger = Ledger.create(tmp_path / "l", 1.0, dataset="people")
    first = privopt.evaluate(model, X, y, 0.4, ledger=ledger, key="monday")
    again = privopt.evaluate(model, X, y, 0.4, ledger=ledger, key="monday")
    assert np.array_equal(first.sums, again.sums)
    assert ledger.dataset("people").spent[0] == pytest.approx(0.4)
    privopt.evaluate(model, X, y, 0.4, ledger=ledger)
    with pytest.raises(Refused):
        privopt.evaluate(model, X, y, 0.4, ledger=ledger)


def test_training_rows_are_said_to_be_so():
    X, y = people(60)
    model = Plain().fit(X, y)
    held, own = (privopt.evaluate(model, X, y, rows=rows) for rows in ("held_out", "training"))
    assert "pays for the fit and for this evaluation" in str(own)
    assert own.certificate.settings["rows"] == "training"
    assert "were not used to fit" in held.meaning
