"""All classes in one release: sensitivity, law, certificate, attack, and what a fit returns."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats

import privopt
from privopt import Budget, LinearSVC, LogisticRegression, Refused
from privopt.audit import hostile_pairs, noise_p_value, record, replay
from privopt.facts import Facts
from privopt.losses import Softmax
from privopt.mechanisms import Gate, same_event
from privopt.noise import SeededSource, SilentSource
from privopt.oracle import ClassCounts, ClassGradient, Oracle, RowBounds, RowMap
from privopt.oracle.sealed import KEY
from privopt.privacy import Accountant
from privopt.privacy.budget import NEIGHBOURING
from privopt.privacy.profiles import gaussian_mu
from privopt.solvers import catalogue, declare

from .joint import CLASSES, NAMES, PROBLEMS, fitted, joint_plan, joint_run, sample

DELTA = 1e-5


# ---------------------------------------------------------------- the loss
def test_softmax_by_finite_differences():
    rng = np.random.default_rng(0)
    for margin in (0.0, 2.0):
        loss = Softmax(5, margin)
        z, y, h = rng.normal(size=(20, 5)) * 4, rng.integers(0, 5, 20), 1e-6
        for k in range(5):
            up = (loss.value(z + h * np.eye(5)[k], y) - loss.value(z - h * np.eye(5)[k], y)) / 2 / h
            np.testing.assert_allclose(loss.residuals(z, y)[:, k], up, atol=1e-8)
        flat = np.linalg.norm(loss.residuals(np.zeros((1, 5)), np.array([3])))
        np.testing.assert_allclose(loss.cap, flat, rtol=1e-12)
    np.testing.assert_allclose(Softmax(5).cap, math.sqrt(1 - 1 / 5))


# ---------------------------------------------------------------- sensitivity
def _oracle(X, y, kind, relation="zero_out"):
    """Rows as they come, or mapped by a public map, dense or sparse."""
    mapped = "mapped" in kind
    oracle = Oracle.over(
        sp.csr_array(X) if "sparse" in kind else X,
        y,
        neighbouring=relation,
        bounds=RowBounds(math.inf, 1.0) if mapped else RowBounds(1.5, 0.5),
        source=SilentSource(),
        classification=False,
    )
    centre, scale = np.linspace(-0.3, 0.4, X.shape[1]), np.geomspace(0.5, 20, X.shape[1])
    return oracle.mapped(RowMap(centre, scale, 2.0, 3.0)) if mapped else oracle


KINDS = ["dense", "sparse", "dense, mapped", "sparse, mapped"]


@pytest.mark.parametrize("kind", KINDS)
def test_no_record_is_longer_than_the_bound(kind):
    """Integers of single records, adversarial scores and rows at and beyond the clip; some reach
    the bound."""
    rng = np.random.default_rng(1)
    longest = 0.0
    for trial in range(300):
        steps = 2.0 ** rng.integers(18, 34)
        X = rng.normal(size=(1, 4)) * 10.0 ** rng.uniform(-2, 3)
        X[rng.random((1, 4)) < 0.3] = 0.0
        oracle = _oracle(X, rng.integers(0, 3, 1).astype(float), kind)
        size = oracle.bounds.size
        query = ClassGradient(Softmax(3), Softmax(3).cap * size)
        at = rng.normal(size=(3, 5)) * 10.0 ** rng.uniform(-3, 3) * (trial % 4 > 0)
        counts = oracle.everything().ask_all(query, at, resolution=steps).open(KEY)
        square = sum(int(c) ** 2 for c in counts)
        assert square <= steps**2
        longest = max(longest, math.sqrt(square) / steps)
    assert longest > 0.99


@pytest.mark.parametrize("kind", KINDS)
def test_the_sum_is_the_plain_formula_and_that_of_its_records(kind):
    X, y = sample(200, 4)
    X[3], y[5] = np.nan, np.nan  # empty records
    oracle = _oracle(X, y, kind)
    size, rng = oracle.bounds.size, np.random.default_rng(2)
    query, at = ClassGradient(Softmax(4), 0.7 * size), rng.normal(size=(4, 5))
    counts = oracle.everything().ask_all(query, at, resolution=2.0**33).open(KEY)
    single = [
        _oracle(X[i : i + 1], y[i : i + 1], kind)
        .everything()
        .ask_all(query, at, resolution=2.0**33)
        .open(KEY)
        for i in range(200)
    ]
    np.testing.assert_array_equal(counts, np.sum(single, axis=0))
    keep = np.isfinite(X).all(axis=1) & np.isfinite(y)
    V = X[keep]
    if "mapped" in kind:
        centre, scale = np.linspace(-0.3, 0.4, 4), np.geomspace(0.5, 20, 4)
        V = np.column_stack([scale * (V - centre), np.full(len(V), 2.0)])
        V /= np.maximum(np.linalg.norm(V, axis=1), 3.0)[:, None]
    else:
        V = V * np.minimum(1, 1.5 / np.linalg.norm(V, axis=1))[:, None]
        V = np.column_stack([V, np.full(len(V), 0.5)])
    q = np.exp(V @ at.T)
    q /= q.sum(axis=1, keepdims=True)
    q[np.arange(len(q)), y[keep].astype(int)] -= 1
    sizes = np.linalg.norm(q, axis=1) * np.linalg.norm(V, axis=1)
    plain = (q * np.minimum(1, 0.7 * size / sizes)[:, None]).T @ V
    np.testing.assert_allclose(
        counts.reshape(4, 5) * (0.7 * size / 2**33), plain, rtol=1e-3, atol=1e-2
    )


def test_counts_leave_empty_records_out():
    X, y = sample(50, 3)
    view = _oracle(X, y, "dense").everything()
    right = np.bincount(y.astype(int), minlength=CLASSES)
    np.testing.assert_array_equal(view.ask(ClassCounts(CLASSES)).open(KEY), right)
    X[0] = np.nan
    right[int(y[0])] -= 1
    for kind in KINDS:
        view = _oracle(X, y, kind).everything()
        np.testing.assert_array_equal(view.ask(ClassCounts(CLASSES)).open(KEY), right)


@pytest.mark.parametrize("relation", NEIGHBOURING)
@pytest.mark.parametrize("name", NAMES)
def test_replay_on_hostile_neighbours(name, relation):
    run = joint_run(name, Budget(1.0, DELTA, relation))
    pairs = hostile_pairs(relation, classification=False)
    assert len(pairs) >= 20
    found = {pair.name: findings for pair in pairs if (findings := replay(run, pair))}
    assert found == {}


# ---------------------------------------------------------------- law and certificate
@pytest.mark.parametrize("relation", NEIGHBOURING)
@pytest.mark.parametrize("name", NAMES)
def test_the_certificate_is_one_gaussian(name, relation):
    """Squares of all releases add up to mu^2: nothing is wasted, nothing beyond."""
    budget = Budget(0.7, DELTA, relation)
    plan = joint_plan(name, budget, n=200, n_iter=None)
    assert plan.settings.n_iter == 30
    X, y = sample(200, 4)
    _, certificate = fitted(plan, X, y, SeededSource(0))
    ((_, charge),) = certificate.charges
    kinds = Counter({kind: n for step, n in charge.items() for kind in step.kinds})
    square = sum(kind.mu**2 * n for kind, n in kinds.items())
    np.testing.assert_allclose(square, gaussian_mu(0.7, DELTA) ** 2, rtol=1e-9)
    assert certificate.releases == plan.settings.passes
    assert 0.999 * 0.7 < certificate.epsilon <= 0.7 * (1 + 1e-9)
    assert certificate.numerics["exact_releases"] == certificate.releases


@pytest.mark.parametrize("name", NAMES)
def test_steps_and_noise_do_not_depend_on_data(name):
    budget = Budget(1.0, DELTA)
    plan = joint_plan(name, budget)
    log = []
    gate = Gate(SeededSource(1), guard=log.append)
    X, y = sample(60, 4)
    bounds = plan.solver.row_bounds(PROBLEMS[name])
    oracle = Oracle.over(
        X,
        y,
        neighbouring="zero_out",
        bounds=bounds,
        source=SeededSource(2),
        classification=False,
    )
    plan.solver.run_all([oracle], gate, PROBLEMS[name], plan.settings)
    declared = declare(plan)
    assert len(declared) == len(log)
    assert all(same_event(a, b) for a, b in zip(declared, log, strict=True))
    assert Accountant("zero_out").epsilon(privopt.privacy.spend(declared), DELTA) <= 1.0


@pytest.mark.statistical
@pytest.mark.parametrize("relation", NEIGHBOURING)
@pytest.mark.parametrize("name", NAMES)
def test_noise_follows_the_declared_law(name, relation):
    """False alarm: 1e-6 each."""
    tapes = [
        record(joint_run(name, Budget(1.0, DELTA, relation), seed), sample(40, 4))[1]
        for seed in range(40)
    ]
    assert noise_p_value(tapes) > 1e-6


@pytest.mark.statistical
def test_noise_of_one_step_without_records():
    """Entries of the released gradient are N(0, sigma^2), sigma = c sqrt(T) / (mu sqrt .99) in
    units of the row bound, before it is centred over classes; false alarm 1e-6."""
    plan = joint_plan("joint_softmax", Budget(1.0, DELTA), n_iter=3)
    X, y = np.full((5, 4), np.nan), np.zeros(5)
    size = PROBLEMS["joint_softmax"].size
    sigma = math.sqrt(1 - 1 / CLASSES) * math.sqrt(3 / 0.99) / gaussian_mu(1.0, DELTA) * size
    entries = []
    for seed in range(60):
        tape = record(joint_run("joint_softmax", Budget(1.0, DELTA), seed, n_iter=3), (X, y))[1]
        entries += [release.result.ravel() for release in tape.releases[1:]]
    energy = float(np.sum(np.concatenate(entries) ** 2)) / sigma**2
    count = sum(len(part) for part in entries)
    assert len(entries) == 180
    assert 2 * min(stats.chi2.cdf(energy, count), stats.chi2.sf(energy, count)) > 1e-6
    assert plan.settings.noise_multiplier == pytest.approx(sigma / size / math.sqrt(0.75))


@pytest.mark.statistical
def test_likelihood_ratio_of_the_whole_transcript():
    """One record of norm 1 whose residual is as long as the cap at every step, present or empty:
    the attacker's best test reaches the declared trade-off and does not pass it.

    With mu in all, delta(0) = 2 Phi(mu/2) - 1. Of 2 x 700 runs, five deviations each way."""
    runs, budget, n = 700, Budget(1.0, DELTA), 10**7
    mu = gaussian_mu(1.0, DELTA)
    row = np.array([[0.6, 0.8, 0.0, 0.0]])
    wins = {}
    for present in (True, False):
        X = row if present else np.full((1, 4), np.nan)
        log_ratios = []
        for seed in range(runs):
            plan_run = joint_run("joint_softmax", budget, seed + 5000 * present, n=n)
            tape = record(plan_run, (X, np.array([1.0])))[1]
            total = 0.0
            for index, release in enumerate(tape.releases):
                out = np.ravel(release.result)
                if index == 0:
                    shift = np.eye(CLASSES)[1]
                    sigma = 1 / (mu * math.sqrt(0.01))
                else:  # the rate is 10 K / n: scores stay at the prior of counts, nearly equal
                    residual = np.full(CLASSES, 0.25) - np.eye(CLASSES)[1]
                    shift = np.outer(residual, np.append(row, 0.5)).ravel()
                    cap = math.sqrt(0.75) * PROBLEMS["joint_softmax"].size
                    shift *= cap / np.linalg.norm(shift)
                    sigma = cap * math.sqrt(6 / 0.99) / mu
                total += float(out @ shift - shift @ shift / 2) / sigma**2
            log_ratios.append(total)
        wins[present] = np.mean(np.array(log_ratios) > 0)
    advantage = wins[True] - wins[False]
    right = 2 * stats.norm.cdf(mu / 2) - 1
    deviation = math.sqrt(0.5 / runs)
    assert right - 5 * deviation < advantage < right + 5 * deviation


# ---------------------------------------------------------------- what comes out
def test_permuting_labels_permutes_the_answer():
    order = np.array([2, 0, 3, 1])
    X, y = sample(300, 4)
    plan = joint_plan("standardized_softmax", Budget(1.0, DELTA), n=300, n_iter=20)
    one = np.stack(fitted(plan, X, y, SilentSource())[0].thetas)
    other = np.stack(fitted(plan, X, order[y.astype(int)].astype(float), SilentSource())[0].thetas)
    np.testing.assert_allclose(other[order], one, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(one.sum(axis=0), 0.0, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_refusals_are_one_sentence(name):
    solver, problem = catalogue()[name], PROBLEMS[name]
    cases = {
        "three classes or more": (Facts(problem, 50, 3, "zero_out", 2), Budget(1.0, DELTA)),
        "delta > 0": (Facts(problem, 50, 3, "zero_out", 3), Budget(1.0)),
    }
    for words, (facts, budget) in cases.items():
        sentence = solver.refuse(facts, budget)
        assert sentence is not None
        assert words in sentence
        assert sentence.endswith(".")
    facts = Facts(problem, 50, 3, "zero_out", 3)
    with pytest.raises(ValueError, match="no setting named 'speed'"):
        solver.settings(facts, Budget(1.0, DELTA), speed=11)
    with pytest.raises(ValueError, match="n_iter must be positive"):
        solver.settings(facts, Budget(1.0, DELTA), n_iter=-1)


@pytest.fixture(scope="module")
def four():
    X, y = sample(4000, 5, seed=3)
    return X, np.array(["ash", "elm", "fir", "oak"])[y.astype(int)]


WAYS = {
    "bounds": {"bounds": (-1, 1)},
    "data_norm": {"data_norm": 2.0},
    "private norm": {"data_norm": "private"},
    "no intercept": {"data_norm": 2.0, "fit_intercept": False},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [LogisticRegression, LinearSVC])
def test_it_is_the_default_of_three_classes_or_more(four, kind, way):
    X, y = four
    model = kind(2.0, 1e-6, random_state=0, **WAYS[way]).fit(X, y)
    joint = "standardized_softmax" if way == "bounds" else "joint_softmax"
    assert model.plan_.name.split("+")[-1] == joint
    assert model.coef_.shape == (4, 5)
    assert model.intercept_.shape == (4,)
    assert model.decision_function(X).shape == (4000, 4)
    assert model.privacy_.epsilon <= 2.0 * (1 + 1e-9)
    one_each = kind(2.0, 1e-6, random_state=0, solver="objective_perturbation", **WAYS[way])
    assert model.score(X, y) > one_each.fit(X, y).score(X, y) - 0.01
    assert model.score(X, y) > 0.55
    if kind is LogisticRegression:
        proba = model.predict_proba(X)
        np.testing.assert_allclose(proba.sum(axis=1), 1.0)
        np.testing.assert_array_equal(model.classes_[proba.argmax(axis=1)], model.predict(X))


def test_two_classes_and_pure_noise_stay_one_model_each(four):
    X, y = four
    two = LogisticRegression(2.0, 1e-6, bounds=(-1, 1), random_state=0).fit(X, y == "elm")
    assert two.plan_.name == "standardized_objective"
    pure = LogisticRegression(2.0, bounds=(-1, 1), random_state=0).fit(X, y)
    assert pure.plan_.name == "standardized_objective"


@pytest.mark.parametrize("relation", NEIGHBOURING)
def test_relations_and_users(four, relation):
    X, y = four
    how = {"bounds": (-1, 1), "neighbouring": relation, "n_public": 4000, "random_state": 0}
    model = LogisticRegression(2.0, 1e-6, classes=np.unique(y), **how).fit(X, y)
    assert model.privacy_.epsilon <= 2.0 * (1 + 1e-9)
    assert model.score(X, y) > 0.5
    owners = np.repeat(np.arange(2000), 2)
    users = LogisticRegression(2.0, 1e-6, classes=np.unique(y), rows_per_user=2, **how)
    users.fit(X, y, user_ids=owners)
    assert users.plan_.name == "standardized_softmax"
    assert users.privacy_.unit == "user"
    assert 0.95 * 2.0 < users.privacy_.epsilon <= 2.0 * (1 + 1e-9)


def test_a_class_that_never_occurs_gets_little(four):
    X, y = four
    classes = ["ash", "elm", "fir", "oak", "yew"]
    model = LogisticRegression(4.0, 1e-6, bounds=(-1, 1), classes=classes, random_state=0)
    proba = model.fit(X, y).predict_proba(X)
    assert proba.shape == (4000, 5)
    assert proba[:, 4].mean() < 0.05
    with pytest.raises(ValueError, match="at least two classes, got one class"):
        LogisticRegression(1.0, 1e-6, bounds=(-1, 1)).fit(X, np.full(4000, "elm"))


def test_exported_and_saved_models_are_the_same(four, tmp_path):
    X, y = four
    model = LogisticRegression(2.0, 1e-6, data_norm=9.0, random_state=0).fit(X, y)
    plain = model.to_sklearn()
    np.testing.assert_allclose(plain.predict_proba(X), model.predict_proba(X), rtol=1e-9)
    privopt.save(model, tmp_path / "model.skops")
    again = privopt.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.privacy_ == model.privacy_


def test_sparse_rows_give_the_same_model():
    X, y = sample(1000, 6)
    X[np.random.default_rng(0).random(X.shape) < 0.6] = 0.0
    how = {"epsilon": 4.0, "delta": 1e-6, "bounds": (-1, 1), "random_state": 0}
    dense = LogisticRegression(**how).fit(X, y)
    sparse = LogisticRegression(**how).fit(sp.csr_array(X), y)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=2e-2)
    assert sparse.privacy_ == dense.privacy_


def test_the_plan_says_why_and_promises_nothing(four):
    X, y = four
    ranking = privopt.plan(
        PROBLEMS["standardized_softmax"], n=4000, p=5, budget=Budget(1.0, 1e-6), repeats=4
    )
    assert ranking.best.name == "standardized_softmax"
    text = str(ranking)
    assert "split the budget" in text
    assert "no proof" in text
    assert "inf" not in text.split("\n\n")[1].replace("infinite", "")
    assert "Nothing is proved" in str(ranking.best.frontier())
    search = privopt.PrivateSearchCV(
        LogisticRegression(bounds=(-1, 1), classes=np.unique(y)),
        {"fit_intercept": [True]},
        epsilon=1.0,
        delta=1e-6,
        strategy="plan",
    )
    with pytest.raises(Refused, match="nothing is proved of the error"):
        search.fit(X, y)


def test_one_map_for_all_classes():
    """The map is that of the shared standardisation; its releases come first."""
    plan = joint_plan("standardized_softmax", Budget(1.0, DELTA), n=300)
    X, y = sample(300, 4)
    tape = record(lambda X, y: np.stack(fitted(plan, X, y, SeededSource(0))[0].thetas), (X, y))[1]
    sizes = [np.size(release.result) for release in tape.releases]
    assert sizes == [64, 8, CLASSES] + [CLASSES * 5] * 6
