"""Learning from a stream: steps, certificates, promises, copies, regret."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from privopt import Budget, OnlineLinearRegression, OnlineLogisticRegression, Refused
from privopt.audit import hostile_pairs, noise_p_value, record, replay
from privopt.mechanisms import HOOK
from privopt.privacy import Accountant, Certificate, Log, spend
from privopt.privacy.factorizations import named
from privopt.privacy.participation import Participation
from privopt.privacy.profiles import gaussian_epsilon, gaussian_mu
from tests.covering import each_check

SIZE = 25


@each_check(
    OnlineLogisticRegression(epsilon=5.0, batch_size=50, momentum=0.5, random_state=0),
    OnlineLinearRegression(batch_size=50, nan_policy="empty", random_state=1),
)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


def circle(n=1000, seed=0):
    angle = np.random.default_rng(seed).uniform(0, 2 * np.pi, n)
    X = np.column_stack([np.cos(angle), np.sin(angle)])
    return X, np.where(X[:, 0] + 0.3 * X[:, 1] > 0, "yes", "no")


def logistic(**how):
    return OnlineLogisticRegression(
        **{"epsilon": 2.0, "n_steps": 40, "classes": ["no", "yes"], "random_state": 0, **how}
    )


def feed(model, X, y, first, last, size=SIZE, **how):
    for batch in range(first, last):
        rows = slice(size * batch, size * batch + size)
        model.partial_fit(X[rows], y[rows], **how)
    return model


@pytest.fixture
def releases():
    """Every release of the test."""
    seen = []

    def hook(mechanism, payload, sensitivity, event, run):
        seen.append(event)
        return run()

    token = HOOK.set(hook)
    yield seen
    HOOK.reset(token)


# ---------------------------------------------------------------- what is spent
@pytest.mark.parametrize("noise", ["honaker", "blt", "independent", "tree"])
@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_epsilon_at_every_moment(noise, relation):
    """The Gaussian of the steps so far, by the dense encoder, and the budget at the end."""
    X, y = circle()
    model = logistic(noise=noise, neighbouring=relation)
    C = named(noise, 40, Participation.single_pass()).encode(np.eye(40))
    whole = math.sqrt((C**2).sum(axis=0).max())
    mu = gaussian_mu(2.0, 1e-6)
    for step in (1, 2, 7, 40):
        feed(model, X, y, getattr(model, "steps_", 0), step)
        so_far = math.sqrt((C[:step, :step] ** 2).sum(axis=0).max())
        expected = gaussian_epsilon(mu * so_far / whole, 1e-6)
        assert model.epsilon_spent() == pytest.approx(expected, rel=1e-6)
        assert model.privacy_.epsilon == model.epsilon_spent()
        assert model.epsilon_spent(at_end=True) == pytest.approx(2.0, rel=1e-6)
        assert model.privacy_.releases == step
    certificate = model.privacy_
    assert certificate.verify()
    assert Certificate.from_json(certificate.to_json()) == certificate
    assert (certificate.neighbouring, certificate.private) == (relation, False)


def test_an_open_ended_stream_never_exceeds_its_budget():
    X, y = circle(4000)
    model = logistic(n_steps=None)
    for step in (1, 2, 3, 17, 150):
        feed(model, X, y, getattr(model, "steps_", 0), step)
        assert model.epsilon_spent() == pytest.approx(2.0, rel=1e-6)
        assert model.epsilon_spent(at_end=True) <= 2.0
    assert model.score(X, y) > 0.9


@pytest.mark.parametrize("make", [logistic, OnlineLinearRegression])
def test_the_certificate_covers_what_left_the_gate(make):
    """Spend of the events that a tape saw, three classes or one model, equals the certificate."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 3))
    if make is logistic:
        y, model = rng.integers(3, size=90), logistic(classes=[0, 1, 2], n_steps=9)
    else:
        y, model = rng.uniform(-1, 1, 90), make(2.0, n_steps=9, random_state=0)
    (found, tape) = record(lambda X, y: feed(model, X, y, 0, 9, size=10), (X, y))
    log = Log()
    for release in tape.releases:
        log.append(release.event)
    spent = Accountant("zero_out").epsilon(spend(log), 1e-6)
    assert found.privacy_.epsilon == pytest.approx(spent, rel=1e-9)
    assert found.privacy_.releases == len(log) == 9 * (3 if make is logistic else 1)
    assert spent == pytest.approx(2.0, rel=1e-6)


@pytest.mark.statistical
@pytest.mark.parametrize("how", [{"n_steps": 8}, {}, {"n_steps": 8, "neighbouring": "replace_one"}])
@pytest.mark.parametrize("kind", ["logistic", "linear"])
def test_noise_follows_the_declared_law(kind, how):
    """False alarm 1e-6 each."""
    X, y = circle(60)
    tapes = []
    for seed in range(25):
        if kind == "logistic":
            model, labels = logistic(**{"n_steps": None, **how, "random_state": seed}), y
        else:
            model, labels = OnlineLinearRegression(random_state=seed, **how), X[:, 0]
        tapes.append(record(lambda X, y, m=model: feed(m, X, y, 0, 8, 7), (X, labels))[1])
    assert noise_p_value(tapes) > 1e-6


@pytest.mark.parametrize(
    ("kind", "relation", "n_steps"),
    [
        ("logistic", "zero_out", 3),
        ("logistic", "replace_one", None),
        ("linear", "zero_out", None),
        ("linear", "replace_one", 3),
    ],
)
def test_replay_on_hostile_neighbours(kind, relation, n_steps):
    """One record differs: nothing but released values reaches the model or the certificate."""

    def run(X, y):
        how = {
            "n_steps": n_steps,
            "batch_size": 21,
            "neighbouring": relation,
            "nan_policy": "empty",
            "random_state": 0,
        }
        if kind == "logistic":
            model = OnlineLogisticRegression(1.0, 1e-5, classes=[-1.0, 1.0], **how)
            y = np.where(np.nan_to_num(y) > 0, 1.0, -1.0)
        else:
            model = OnlineLinearRegression(1.0, 1e-5, **how)
            y = np.nan_to_num(y, posinf=1e300, neginf=-1e300)
        feed(model, X, y, 0, -(-len(X) // 21), size=21)
        return model.coef_, model.intercept_, model.steps_, model.privacy_.to_json()

    pairs = hostile_pairs(relation, classification=kind == "logistic")
    found = {pair.name: findings for pair in pairs if (findings := replay(run, pair))}
    assert found == {}


# ---------------------------------------------------------------- what is learned
def test_the_logistic_model_is_dp_ftrl_on_the_stream():
    """Each model from the tape by hand: projected sum of released gradients over lambda."""
    X, y = circle(200)
    model = logistic(n_steps=8, fit_intercept=False, average="last")
    _, tape = record(lambda X, y: feed(model, X, y, 0, 8), (X, y))
    total = sum(release.result for release in tape.releases)
    leader = model._run.leaders[0]
    theta = -total / leader.regularisation
    theta *= min(1.0, 5.0 / np.linalg.norm(theta))
    np.testing.assert_allclose(model.coef_[0], theta, atol=1e-12)


def test_the_linear_model_is_ridge_on_the_released_sums():
    X, y = np.random.default_rng(0).uniform(-0.5, 0.5, (200, 2)), np.linspace(3, 5, 200)
    model = OnlineLinearRegression(
        3.0, 1e-6, n_steps=8, target_bounds=(2, 6), fit_intercept=False, random_state=0
    )
    _, tape = record(lambda X, y: feed(model, X, y, 0, 8), (X, y))
    total = sum(release.result for release in tape.releases)
    a, b, c, u, v = total
    matrix = np.array([[a, b / math.sqrt(2)], [b / math.sqrt(2), c]])
    ridge = 2 * model._run.noise(8) * math.sqrt(4)
    values, basis = np.linalg.eigh(matrix)
    theta = basis @ ((basis.T @ [u, v]) / (np.maximum(values, 0) + ridge))
    np.testing.assert_allclose(model.coef_, 2 * theta, rtol=1e-9)  # targets in units of 2
    assert model.intercept_ == 4.0


@pytest.mark.statistical
def test_more_budget_and_more_steps_learn_better():
    X, y = circle(4000)
    scores = {
        (epsilon, steps): np.mean(
            [
                feed(logistic(epsilon=epsilon, n_steps=160, random_state=s), X, y, 0, steps).score(
                    X, y
                )
                for s in range(3)
            ]
        )
        for epsilon, steps in [(0.2, 160), (3.0, 160), (3.0, 4)]
    }
    assert scores[3.0, 160] > 0.95
    assert scores[3.0, 160] > scores[0.2, 160]
    assert scores[3.0, 160] > scores[3.0, 4]


def test_fit_is_a_pass_in_order():
    X, y = circle(210)
    whole = logistic(n_steps=8).fit(X, y)
    parts = logistic(n_steps=8)
    for start in range(0, 210, 27):
        parts.partial_fit(X[start : start + 27], y[start : start + 27])
    np.testing.assert_array_equal(whole.coef_, parts.coef_)
    assert (whole.steps_, whole.batch_size_) == (8, 27)
    again = whole.fit(X, y)
    assert (again.steps_, again.privacy_.releases) == (8, 8)


def test_averages_of_models():
    X, y = circle(100)
    last, models = logistic(average="last"), []
    for batch in range(4):
        feed(last, X, y, batch, batch + 1)
        models.append(last.coef_)
    averaged = feed(logistic(average="all"), X, y, 0, 4)
    np.testing.assert_allclose(averaged.coef_, np.mean(models, axis=0), rtol=1e-12)
    recent = feed(logistic(), X, y, 0, 4)  # the window holds more iterates than these
    np.testing.assert_allclose(recent.coef_, averaged.coef_, rtol=1e-12)


def test_frames_bounds_and_sparse_rows():
    X, y = circle(100)
    frame = pd.DataFrame(50 + 40 * X, columns=["a", "b"])
    named_bounds = {"a": (10, 90), "b": (10, 90)}
    model = logistic(bounds=named_bounds, fit_intercept=False)
    model.partial_fit(frame[:50], y[:50]).partial_fit(frame[50:], y[50:])
    plain = logistic(fit_intercept=False)
    plain.partial_fit(X[:50], y[:50]).partial_fit(X[50:], y[50:])
    np.testing.assert_allclose(model.predict_proba(frame), plain.predict_proba(X), atol=1e-6)
    assert model.feature_names_in_.tolist() == ["a", "b"]
    thin = logistic().partial_fit(sp.csr_array(X[:50]), y[:50])
    np.testing.assert_allclose(thin.coef_, logistic().partial_fit(X[:50], y[:50]).coef_, rtol=1e-12)
    with pytest.raises(ValueError, match="feature names"):
        model.partial_fit(frame[["b", "a"]], y)


# ---------------------------------------------------------------- promises
def test_a_step_past_the_horizon_is_refused(releases):
    X, y = circle(100)
    model = feed(logistic(n_steps=3), X, y, 0, 3)
    before = model.coef_.copy()
    with pytest.raises(Refused, match="declared for 3 steps, and all are done"):
        feed(model, X, y, 3, 4)
    assert len(releases) == model.steps_ == 3
    np.testing.assert_array_equal(model.coef_, before)


def names(batch, size=SIZE):
    return np.arange(size * batch, size * batch + size)


def test_participations_are_counted(releases):
    X, y = circle(200)
    model = logistic(max_participations=2, min_separation_steps=3)
    for batch in range(3):
        feed(model, X, y, batch, batch + 1, record_ids=names(batch))
    with pytest.raises(Refused, match="less than 3 steps ago"):
        feed(model, X, y, 1, 2, record_ids=names(1))
    feed(model, X, y, 0, 1, record_ids=names(0))
    for batch in (3, 4):
        feed(model, X, y, batch, batch + 1, record_ids=names(batch))
    with pytest.raises(Refused, match="already taken part in 2 step"):
        feed(model, X, y, 0, 1, record_ids=names(0))
    with pytest.raises(Refused, match="stands twice"):
        feed(model, X, y, 6, 7, record_ids=np.zeros(SIZE, dtype=int))
    with pytest.raises(ValueError, match="one id for each of the 25 rows"):
        feed(model, X, y, 6, 7, record_ids=[1, 2])
    assert len(releases) == model.steps_ == 6
    assert model.privacy_.assumptions == ()


def test_an_unchecked_rule_is_an_assumption():
    X, y = circle(200)
    model = logistic(max_participations=3, min_separation_steps=10)
    feed(model, X, y, 0, 1, record_ids=names(0))
    assert model.privacy_.assumptions == ()
    feed(model, X, y, 1, 2)
    (text,) = model.privacy_.assumptions
    assert "at most 3 step(s), 10 steps apart" in text


def test_more_participations_cost_more_noise():
    X, y = circle(50)
    once, thrice = (
        feed(logistic(max_participations=k, min_separation_steps=10, noise="honaker"), X, y, 0, 1)
        for k in (1, 3)
    )
    assert thrice._run.multiplier > 1.5 * once._run.multiplier
    assert thrice.epsilon_spent(at_end=True) == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize(
    "change",
    [{"data_norm": 2.0}, {"epsilon": 3.0}, {"n_steps": 80}, {"neighbouring": "replace_one"}],
)
def test_what_the_noise_was_made_for_cannot_change(change, releases):
    X, y = circle(200)
    model = feed(logistic(), X, y, 0, 2).set_params(**change)
    with pytest.raises(Refused, match=f"{next(iter(change))} cannot change within a stream"):
        feed(model, X, y, 2, 3)
    assert len(releases) == 2


def test_a_new_stream_accounts_both():
    """mu^2 adds; the new stream gets what is left, or more from a larger budget."""
    X, y = circle(500)
    model = feed(logistic(noise="honaker"), X, y, 0, 10)
    before, coef = model.epsilon_spent(), model.coef_.copy()
    multiplier = model._run.multiplier
    model.start_new_stream()
    np.testing.assert_array_equal(model.coef_, coef)
    assert model.steps_ == 10
    assert model.epsilon_spent() == pytest.approx(before, rel=1e-9)
    assert model._run.multiplier > multiplier
    feed(model, X, y, 10, 12)
    assert before < model.epsilon_spent() < model.epsilon_spent(at_end=True) <= 2.0
    assert model.privacy_.releases == 12
    richer = feed(logistic(noise="honaker"), X, y, 0, 10).set_params(epsilon=4.0)
    richer.start_new_stream()
    feed(richer, X, y, 10, 12)
    assert richer.epsilon_spent(at_end=True) == pytest.approx(4.0, rel=1e-6)
    spent = gaussian_mu(2.0, 1e-6) ** 2 * _share(10)
    fresh = named("honaker", 30, Participation()).sensitivity_squared(Participation())
    left = gaussian_mu(4.0, 1e-6) ** 2 - spent
    assert richer._run.multiplier == pytest.approx(math.sqrt(fresh / left), rel=1e-6)


def test_a_new_stream_has_its_own_rule_and_horizon():
    X, y = circle(500)
    model = logistic(noise="honaker", n_steps=5)
    for batch in range(5):
        feed(model, X, y, batch, batch + 1, record_ids=names(batch))
    with pytest.raises(Refused, match="raise n_steps"):
        model.set_params(epsilon=4.0).start_new_stream()
    model.set_params(n_steps=9, max_participations=2).start_new_stream()
    feed(model, X, y, 0, 1, record_ids=names(0))
    with pytest.raises(Refused, match="already taken part in 2"):
        feed(model, X, y, 0, 1, record_ids=names(0))
    assert model.epsilon_spent(at_end=True) == pytest.approx(4.0, rel=1e-6)
    assert model.steps_ == 6


@pytest.mark.parametrize("change", [{"data_norm": 2.0}, {"neighbouring": "replace_one"}])
def test_what_the_model_is_made_of_needs_a_run_of_its_own(change):
    X, y = circle(200)
    model = feed(logistic(), X, y, 0, 2).set_params(**change)
    with pytest.raises(Refused, match="belongs to the model or to its guarantee"):
        model.start_new_stream()
    model.set_params(data_norm=1.0, neighbouring="zero_out")
    assert feed(model, X, y, 2, 3).steps_ == 3


def _share(steps):
    noise = named("honaker", 40, Participation())
    rule = Participation()
    return noise.sensitivity_squared(rule, steps) / noise.sensitivity_squared(rule)


def test_no_budget_no_new_stream():
    X, y = circle(1000)
    model = feed(logistic(n_steps=None), X, y, 0, 3)
    with pytest.raises(Refused, match="nothing of the budget is left"):
        model.start_new_stream()
    assert feed(model, X, y, 3, 4).steps_ == 4  # the old stream is untouched


def test_a_step_that_failed_is_not_repeated():
    """An interrupt inside a step: nothing was seen, and only a new stream goes on."""
    X, y = circle(500)
    model = feed(logistic(noise="honaker"), X, y, 0, 7)
    coef, spent = model.coef_.copy(), model.epsilon_spent()

    def interrupt(mechanism, payload, sensitivity, event, run):
        run()
        raise KeyboardInterrupt

    model._run._run._gate._hook = interrupt
    with pytest.raises(KeyboardInterrupt):
        feed(model, X, y, 7, 8)
    np.testing.assert_array_equal(model.coef_, coef)
    with pytest.raises(Refused, match="did not finish"):
        feed(model, X, y, 7, 8)
    model.start_new_stream()
    assert model.epsilon_spent() > spent  # the lost step is paid for
    assert feed(model, X, y, 7, 8).steps_ == 8


# ---------------------------------------------------------------- copies
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_predicts_and_cannot_go_on(copied):
    X, y = circle(200)
    model = feed(logistic(random_state=None), X, y, 0, 3)
    other = copied(model)
    np.testing.assert_array_equal(other.predict_proba(X), model.predict_proba(X))
    assert other.privacy_ == model.privacy_
    assert other.epsilon_spent() == model.epsilon_spent()
    with pytest.raises(Refused, match="a copy of a model has no noise"):
        feed(other, X, y, 3, 4)
    assert feed(model, X, y, 3, 4).steps_ == 4
    assert b"vectors" not in pickle.dumps(model)
    assert not hasattr(clone(model), "steps_")


def test_a_forked_process_cannot_go_on(monkeypatch):
    X, y = circle(200)
    model = feed(logistic(), X, y, 0, 1)
    monkeypatch.setattr("privopt.estimators.online_run.os.getpid", lambda: -5)
    with pytest.raises(Refused, match="another process"):
        feed(model, X, y, 1, 2)


# ---------------------------------------------------------------- regret
def test_regret_only_on_public_records():
    X, y = circle(2000)
    X_public, y_public = circle(2000, seed=9)
    model = logistic(n_steps=80, epsilon=4.0)
    with pytest.raises(Refused, match="public records only"):
        model.regret()
    for batch in range(80):
        rows = slice(25 * batch, 25 * batch + 25)
        model.partial_fit(X[rows], y[rows], public=(X_public[rows], y_public[rows]))
    regret = model.regret()
    assert len(regret) == 80
    assert 0 < regret[-1] < 0.7 * regret[4]
    quiet = feed(logistic(n_steps=80, epsilon=4.0), X, y, 0, 80)
    np.testing.assert_array_equal(quiet.coef_, model.coef_)  # evaluation changes nothing


# ---------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"epsilon": 0.0}, "epsilon must be a positive finite number"),
        ({"delta": 0.0}, "a stream needs delta > 0"),
        ({"neighbouring": "add_remove"}, "batches shift"),
        ({"n_steps": 0}, "n_steps must be a positive integer"),
        ({"n_steps": 2.5}, "n_steps must be a positive integer"),
        ({"batch_size": -1}, "batch_size must be a positive integer"),
        ({"max_participations": 0}, "max_participations must be a positive integer"),
        ({"max_participations": None}, "max_participations must be a positive integer"),
        ({"min_separation_steps": 0}, "min_separation_steps must be a positive integer"),
        ({"n_steps": None, "max_participations": 2}, "open-ended stream takes each record once"),
        ({"n_steps": None, "noise": "blt"}, "needs a declared n_steps"),
        ({"noise": "pink"}, "noise must be"),
        ({"radius": 0.0}, "radius must be positive"),
        ({"momentum": 1.0}, r"momentum must lie in \[0, 1\)"),
        ({"data_norm": "private"}, "needs a declared data_norm"),
        ({"data_norm": -1.0}, "data_norm must be positive"),
        ({"batch_size": 10}, "at most batch_size=10 rows, got 25"),
        ({"classes": None}, "classes must be passed on the first call"),
        ({"classes": ["no"]}, "at least two classes|not in classes"),
        ({"nan_policy": "drop"}, "nan_policy must be"),
    ],
)
def test_bad_parameters(how, words, releases):
    X, y = circle(25)
    model = logistic(**how)
    with pytest.raises(ValueError, match=words) as caught:
        model.partial_fit(X, y)
    assert "\n" not in str(caught.value)
    assert releases == []
    assert not [name for name in vars(model) if name.endswith("_")]


def test_bad_batches_leave_the_stream_as_it_was(releases):
    X, y = circle(200)
    model = feed(logistic(), X, y, 0, 2)
    bad = X[:25].copy()
    bad[3, 0] = np.nan
    for batch, labels, words in [
        (bad, y[:25], "NaN"),
        (X[:25, :1], y[:25], "features"),
        (X[:25], y[:20], "same number"),
        (X[:25], np.full(25, "maybe"), "not in classes"),
        (X[:0], y[:0], "minimum of 1 is required"),
    ]:
        with pytest.raises(ValueError, match=words):
            model.partial_fit(batch, labels)
    with pytest.raises(ValueError, match="classes differ"):
        model.partial_fit(X[:25], y[:25], classes=["no", "yes", "perhaps"])
    assert len(releases) == model.steps_ == 2
    assert feed(model, X, y, 2, 3).steps_ == 3


def test_classes_at_the_first_call():
    X, y = circle(100)
    model = logistic(classes=None)
    model.partial_fit(X[:50], y[:50], classes=["yes", "no"]).partial_fit(X[50:], y[50:])
    assert model.classes_.tolist() == ["no", "yes"]
    read = logistic(classes=None).fit(X, y)
    assert any("list of classes was read" in text for text in read.privacy_.assumptions)


def test_a_whole_pass_must_fit_the_horizon():
    X, y = circle(100)
    with pytest.raises(ValueError, match="10 steps, more than n_steps=5"):
        logistic(n_steps=5, batch_size=10).fit(X, y)


def test_secure_noise_is_private_and_fresh():
    X, y = circle(100)
    one, two = (feed(logistic(random_state=None), X, y, 0, 2) for _ in range(2))
    assert one.privacy_.private
    assert not np.array_equal(one.coef_, two.coef_)
    assert Budget(2.0, 1e-6).epsilon >= one.epsilon_spent()
