"""What the model is: accuracy, certificate, classes, clipping, seeds."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.optimize import minimize

from privopt import Budget, Certificate, LogisticRegression, Problem, solve
from privopt.losses import Logistic
from privopt.privacy import Accountant
from privopt.privacy.budget import NEIGHBOURING


# ---------------------------------------------------------------- accuracy
@pytest.mark.statistical
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_accuracy_on_an_easy_problem(delta):
    """Seeded; the separable problem leaves no room for bad luck at this n."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((4000, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = X @ [3.0, 1.0, 0.0] > 0
    model = LogisticRegression(epsilon=1.0, delta=delta, random_state=0).fit(X[:2000], y[:2000])
    assert model.score(X[2000:], y[2000:]) > 0.93
    noise = LogisticRegression(epsilon=1e-4, delta=0.0, random_state=0).fit(X[:2000], y[:2000])
    assert noise.score(X[2000:], y[2000:]) < 0.93


def test_a_generous_budget_gives_the_regularised_optimum(two):
    """At epsilon 30 what is left is the minimiser of loss + lambda/2 ||theta||^2."""
    X, y = (np.concatenate([values] * 20) for values in two)
    model = LogisticRegression(30.0, solver="objective_perturbation", random_state=0).fit(X, y)
    signs = np.where(y == "yes", 1.0, -1.0)
    full = np.column_stack([X, np.full(6000, 1 / 3)])
    lam = model.plan_.settings.regularisation

    def objective(w):
        return np.logaddexp(0, -signs * (full @ w)).sum() + lam / 2 * w @ w

    best = minimize(objective, np.zeros(4), method="BFGS", options={"gtol": 1e-8}).x
    found = np.append(model.coef_[0], model.intercept_[0] * 3)
    assert objective(found) - objective(best) < 0.01 * objective(best)
    np.testing.assert_allclose(found, best, rtol=0.1, atol=0.1)


def test_probabilities(two, three):
    for X, y in (two, three):
        model = LogisticRegression(5.0, random_state=0).fit(X, y)
        proba = model.predict_proba(X)
        assert proba.shape == (len(X), len(model.classes_))
        assert (proba >= 0).all()
        np.testing.assert_allclose(proba.sum(axis=1), 1.0)
        np.testing.assert_array_equal(model.classes_[proba.argmax(axis=1)], model.predict(X))
        np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), proba)
    scores = LogisticRegression(5.0, random_state=0).fit(*two).decision_function(two[0])
    proba = LogisticRegression(5.0, random_state=0).fit(*two).predict_proba(two[0])
    np.testing.assert_allclose(proba[:, 1], 1 / (1 + np.exp(-scores)))


def test_it_is_the_solution_of_the_problem_it_states(two):
    """The estimator is ``solve`` on the same problem, with the intercept's column scaled back."""
    X, y = two
    model = LogisticRegression(0.8, 1e-6, data_norm=0.6, random_state=9).fit(X, y)
    problem = Problem(Logistic(), data_norm=0.6, intercept=0.2)
    signs = np.where(y == "yes", 1.0, -1.0)
    result = solve(problem, X, signs, budget=Budget(0.8, 1e-6), random_state=9)
    np.testing.assert_allclose(model.coef_[0], result.theta[:3], rtol=1e-12)
    assert model.intercept_[0] == pytest.approx(result.theta[3] * 0.2, rel=1e-12)
    assert model.plan_.name == result.plan.name


def test_without_intercept(two):
    X, y = two
    model = LogisticRegression(fit_intercept=False, random_state=0).fit(X, y)
    assert model.intercept_.tolist() == [0.0]
    assert model.plan_.facts.p == 3
    np.testing.assert_array_equal(model.decision_function(X), -model.decision_function(-X))


# ---------------------------------------------------------------- clipping
def test_long_rows_predict_as_their_scaled_version(two):
    X, y = two
    model = LogisticRegression(data_norm=0.5, random_state=0).fit(X, y)
    scaled = X * np.minimum(1, 0.5 / np.linalg.norm(X, axis=1))[:, None]
    assert not np.allclose(scaled, X)
    np.testing.assert_allclose(model.decision_function(X), model.decision_function(scaled))
    np.testing.assert_allclose(
        LogisticRegression(data_norm=0.5, random_state=0).fit(scaled, y).coef_, model.coef_
    )
    short = 0.5 * scaled
    assert not np.allclose(model.decision_function(short), model.decision_function(scaled))


@pytest.mark.parametrize("factor", [1e3, 1e160, 1e300])
def test_huge_rows_keep_their_direction(two, factor):
    """A row whose square overflows predicts as the row of the same direction does."""
    X, y = two
    model = LogisticRegression(random_state=0).fit(X, y)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    np.testing.assert_allclose(
        model.decision_function(factor * unit), model.decision_function(unit), rtol=1e-9
    )


# ---------------------------------------------------------------- classes
@pytest.mark.parametrize(
    "names", [["no", "yes"], [0, 1], [-1, 1], [3.0, 7.0], [False, True], ["zebra", "ant"]]
)
def test_labels_of_any_kind(two, names):
    """The larger label, in sorted order, is the positive one."""
    X, y = two
    y = np.where(y == "yes", names[1], names[0])
    model = LogisticRegression(20.0, random_state=0).fit(X, y)
    assert model.classes_.tolist() == sorted(names)
    assert set(model.predict(X).tolist()) <= set(names)
    assert model.score(X, y) > 0.9
    assert (model.decision_function(X) > 0).tolist() == (model.predict(X) == max(names)).tolist()


def test_the_order_of_declared_classes_does_not_matter(two):
    X, y = two
    one = LogisticRegression(classes=["yes", "no"], random_state=0).fit(X, y)
    other = LogisticRegression(classes=np.array(["no", "yes"]), random_state=0).fit(X, y)
    np.testing.assert_array_equal(one.coef_, other.coef_)
    assert one.classes_.tolist() == ["no", "yes"]


def test_classes_read_from_data_are_an_assumption(two):
    X, y = two
    read = LogisticRegression(random_state=0).fit(X, y).privacy_
    assert any("classes was read from y" in text for text in read.assumptions)
    assert "classes was read from y" in str(read)
    assert LogisticRegression(classes=["no", "yes"]).fit(X, y).privacy_.assumptions == ()


def test_a_declared_class_may_be_absent(two):
    X, y = two
    model = LogisticRegression(classes=["maybe", "no", "yes"], random_state=0).fit(X, y)
    assert model.coef_.shape == (3, 3)
    assert model.classes_.tolist() == ["maybe", "no", "yes"]


@pytest.mark.parametrize(
    ("relation", "delta"), [*((relation, 0.0) for relation in NEIGHBOURING), ("zero_out", 1e-5)]
)
def test_three_classes_share_one_certificate(three, relation, delta):
    """One model per class, one epsilon for all of them, checked against a fresh accountant."""
    X, y = three
    model = LogisticRegression(
        3.0,
        delta,
        neighbouring=relation,
        n_public=2000,
        random_state=0,
        solver="objective_perturbation",
    ).fit(X, y)
    privacy = model.privacy_
    assert model.coef_.shape == (3, 2)
    assert model.intercept_.shape == (3,)
    assert model.plan_.facts.repeats == privacy.releases == 3
    assert 0.97 * 3 <= privacy.epsilon <= 3 * (1 + 1e-9)
    ((_, charge),) = privacy.charges
    assert sum(charge.values()) == 3
    accountant = Accountant(relation)
    assert accountant.epsilon(charge, delta) == pytest.approx(privacy.epsilon, rel=1e-9)
    (step,) = charge
    assert accountant.epsilon(type(charge)({step: 1}), delta) < 0.7 * privacy.epsilon
    assert model.score(X, y) > 0.8
    assert model.decision_function(X).shape == (2000, 3)


def test_three_classes_cost_accuracy_not_privacy(three):
    """A third of the budget for each model: its noise is three times that of a single one."""
    X, y = three
    both = LogisticRegression(1.0, solver="objective_perturbation").fit(X, y).plan_.settings
    one = LogisticRegression(1.0, solver="objective_perturbation").fit(X, y == "a").plan_.settings
    assert both.output_multiplier == pytest.approx(3 * one.output_multiplier)
    assert both.noise_multiplier > 2 * one.noise_multiplier


# ---------------------------------------------------------------- seeds and the certificate
def test_a_seed_is_reproducible_and_not_private(two):
    X, y = two
    one, other = (LogisticRegression(random_state=7).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(one.coef_, other.coef_)
    assert not one.privacy_.private
    assert "NOT PRIVATE" in str(one.privacy_)
    assert json.loads(one.privacy_.to_json())["guarantee"]["private"] is False
    assert np.any(one.coef_ != LogisticRegression(random_state=8).fit(X, y).coef_)


def test_without_a_seed_fits_differ_and_are_private(two):
    X, y = two
    one, other = (LogisticRegression().fit(X, y) for _ in range(2))
    assert np.all(one.coef_ != other.coef_)
    assert one.privacy_.private
    assert "NOT PRIVATE" not in str(one.privacy_)
    assert one.privacy_ == other.privacy_


@pytest.mark.parametrize("relation", NEIGHBOURING)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_certificate_states_what_was_asked(two, relation, delta):
    X, y = two
    model = LogisticRegression(0.9, delta, neighbouring=relation, n_public=250).fit(X, y)
    privacy = model.privacy_
    assert (privacy.delta, privacy.neighbouring, privacy.unit) == (delta, relation, "record")
    assert 0.98 * 0.9 <= privacy.epsilon <= 0.9 * (1 + 1e-9)
    assert privacy.solver == model.plan_.name
    assert privacy.settings["n"] == 250
    assert privacy.verify()
    assert Certificate.from_json(privacy.to_json()) == privacy
    if delta:
        assert privacy.epsilon_at(1e-9) >= privacy.epsilon


def test_the_plan_follows_from_public_facts(two):
    """Another data set of the same size has the same plan and the same certificate."""
    X, y = two
    rng = np.random.default_rng(5)
    other = LogisticRegression(random_state=0).fit(rng.random((300, 3)), rng.permutation(y))
    model = LogisticRegression(random_state=0).fit(X, y)
    assert model.plan_.settings == other.plan_.settings
    assert model.privacy_ == other.privacy_


def test_under_add_remove_the_declared_count_is_used(two):
    X, y = two
    one = LogisticRegression(neighbouring="add_remove", n_public=300, random_state=0).fit(X, y)
    other = LogisticRegression(neighbouring="add_remove", n_public=300, random_state=0)
    other.fit(X[:-7], y[:-7])
    assert one.plan_.settings == other.plan_.settings
    assert one.privacy_ == other.privacy_


@pytest.mark.parametrize("solver", ["noisy_gd", "objective_perturbation"])
def test_a_named_solver_is_used(two, solver):
    X, y = two
    model = LogisticRegression(solver=solver, random_state=0).fit(X, y)
    assert model.plan_.name == model.privacy_.solver == solver
