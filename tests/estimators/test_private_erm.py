"""Any problem as an estimator: the contract of scikit-learn, and the answers of ``solve``."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone, is_classifier, is_regressor

from privopt import Budget, PrivateERM, Problem, Refused, solve
from privopt.audit import hostile_pairs, replay
from privopt.geometry import L1Ball, L2Ball, Simplex
from privopt.losses import Hinge, Huber, Logistic, Quantile, Squared
from privopt.privacy.budget import NEIGHBOURING
from tests.covering import each_check
from tests.estimators.every import NUMBER, THREE, TWO, X


@each_check(
    PrivateERM(Problem(Logistic(), intercept=0.3)),
    PrivateERM(Problem(Squared(residual_clip=1.0)), delta=1e-6, nan_policy="empty"),
)
def test_checks_of_scikit_learn(estimator, check):
    """No check is expected to fail."""
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "delta", "solver"),
    [
        (Problem(Logistic(), L2Ball(2.0), intercept=0.5), 1e-3, "noisy_gd"),
        (Problem(Huber(0.3), L1Ball(1.0), column_bounds=0.4), 1e-3, "frank_wolfe"),
        (Problem(Quantile(0.8), L2Ball(1.0), data_norm=0.7), 1e-3, "auto"),
        (Problem(Huber(0.3), Simplex()), 0.0, "auto"),
    ],
)
def test_the_answer_is_that_of_solve(problem, delta, solver):
    two = problem.loss.classification
    y = np.where(TWO == "yes", 1.0, -1.0) if two else NUMBER
    result = solve(problem, X, y, budget=Budget(2.0, delta), solver=solver, random_state=3)
    model = PrivateERM(problem, 2.0, delta, solver=solver, random_state=3)
    model.fit(X, TWO if two else NUMBER)
    theta = np.append(
        model.coef_, model.intercept_ / problem.intercept if problem.intercept else []
    )
    np.testing.assert_allclose(theta, result.theta, rtol=1e-12)
    assert model.privacy_.epsilon == result.certificate.epsilon
    assert model.plan_.name == result.plan.name


def test_a_classifier_or_a_regression_as_the_loss_says():
    classifier, regression = (PrivateERM(Problem(loss)) for loss in (Logistic(), Huber(0.1)))
    assert is_classifier(classifier)
    assert is_regressor(regression)
    assert hasattr(classifier, "predict_proba")
    assert not hasattr(PrivateERM(Problem(Hinge())), "predict_proba")
    assert not hasattr(regression, "decision_function")
    many = clone(classifier).set_params(epsilon=50.0, random_state=0).fit(X, THREE)
    assert many.coef_.shape == (3, 3)
    np.testing.assert_allclose(many.predict_proba(X).sum(axis=1), 1.0)
    assert many.score(X, THREE) > 0.5


def test_rows_and_entries_are_clipped_as_in_fit():
    problem = Problem(Huber(0.3), L1Ball(1.0), column_bounds=0.4)
    model = PrivateERM(problem, 5.0, 1e-3, solver="frank_wolfe", random_state=0).fit(X, NUMBER)
    far = np.array([[9.0, -9.0, 0.1]])
    near = np.clip(far, -0.4, 0.4)
    np.testing.assert_allclose(model.predict(far), model.predict(near))
    np.testing.assert_allclose(model.predict(sp.csr_array(far)), model.predict(near))
    ball = PrivateERM(Problem(Huber(0.3), data_norm=0.5), 5.0, random_state=0).fit(X, NUMBER)
    np.testing.assert_allclose(ball.predict(4 * far), ball.predict(far * 0.5 / np.linalg.norm(far)))


def test_settings_of_a_named_solver():
    problem = Problem(Logistic(), L2Ball(2.0))
    model = PrivateERM(problem, 1.0, 1e-3, solver="noisy_gd", settings={"n_iter": 7})
    assert model.fit(X, TWO).privacy_.releases == 7
    with pytest.raises(ValueError, match="only for a named solver"):
        PrivateERM(problem, 1.0, settings={"n_iter": 7}).fit(X, TWO)


def test_bad_problems_get_one_sentence():
    with pytest.raises(ValueError, match=r"problem must be a privopt\.Problem"):
        PrivateERM().fit(X, TWO)
    with pytest.raises(Refused):
        PrivateERM(Problem(Squared())).fit(X, NUMBER)
    with pytest.raises(ValueError, match="y must hold real numbers"):
        PrivateERM(Problem(Huber(0.2))).fit(X, TWO)


@pytest.mark.slow
@pytest.mark.parametrize("relation", NEIGHBOURING)
def test_replay_on_hostile_neighbours_finds_nothing(relation):
    problem = Problem(Logistic(), L2Ball(3.0), intercept=0.3)

    def run(X, y):
        broken = ~np.isfinite(y)
        X, y = np.where(broken[:, None], np.nan, X), np.where(broken, 1.0, np.sign(y))
        model = PrivateERM(
            problem,
            1.0,
            1e-5,
            neighbouring=relation,
            n_public=63,
            classes=[-1, 1],
            nan_policy="empty",
            random_state=0,
        ).fit(X, np.where(y > 0, 1, -1))
        return model.coef_, model.intercept_, model.privacy_.to_json()

    pairs = hostile_pairs(relation)[::2]
    assert {pair.name: found for pair in pairs if (found := replay(run, pair))} == {}
