"""From a problem, data and a budget to an answer: what is public, refused, and equal."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from privopt import Budget, PrivacyWarning, Problem, Refused, solve
from privopt.facts import Facts
from privopt.geometry import L2Ball
from privopt.losses import Huber, Logistic
from privopt.mechanisms import HOOK
from privopt.noise import SeededSource
from privopt.oracle import Oracle
from privopt.planner import choose, public_count
from privopt.solvers import catalogue, execute, row_bounds

PROBLEM = Problem(Logistic(), L2Ball(4.0), intercept=0.5)
NAMES = sorted(catalogue())


def data(n=200, p=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    return X, np.where(X @ np.ones(p) + rng.standard_normal(n) > 0, 1.0, -1.0)


# ---------------------------------------------------------------- the public number of records
@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_rows_are_public_under_relations_that_keep_them(relation):
    assert public_count(120, Budget(1.0, 0.0, relation), None) == 120
    assert public_count(120, Budget(1.0, 0.0, relation), 100) == 100


def test_rows_are_private_under_add_remove():
    budget = Budget(1.0, 0.0, "add_remove")
    assert public_count(120, budget, 100) == 100
    with pytest.raises(ValueError, match="number of rows is private: give n_public") as caught:
        public_count(120, budget, None)
    assert "120" not in str(caught.value)


@pytest.mark.parametrize("declared", [0, -1])
def test_a_declared_count_is_positive(declared):
    with pytest.raises(ValueError, match=f"n_public must be a positive number.*got {declared}"):
        public_count(5, Budget(1.0), declared)


def test_delta_is_compared_with_the_public_count():
    with pytest.warns(PrivacyWarning, match="publishing whole records at random"):
        public_count(10**6, Budget(1.0, 0.02), 100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        public_count(5, Budget(1.0, 0.01), 100)
        public_count(5, Budget(1.0, 0.0), None)


def test_settings_use_the_declared_count():
    X, y = data()
    budget = Budget(1.0, 0.0, "add_remove")
    plans = [
        solve(PROBLEM, X[:m], y[:m], budget=budget, n_public=150, random_state=0).plan
        for m in (200, 199, 20)
    ]
    assert plans[0].facts.n == 150
    assert plans[0].settings == plans[1].settings == plans[2].settings
    with pytest.raises(ValueError, match="give n_public"):
        solve(PROBLEM, X, y, budget=budget)


# ---------------------------------------------------------------- containers
CONTAINERS = {
    "torch": (torch.from_numpy, 1e-8),
    "torch, single precision": (lambda X: torch.from_numpy(X).float(), 1e-3),
    "single precision": (lambda X: X.astype(np.float32), 1e-3),
    "csr": (sp.csr_array, 1e-8),
    "fortran order": (np.asfortranarray, 1e-8),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("loss", [Logistic(), Huber(0.5)], ids=repr)
def test_containers_give_the_same_answer(name, kind, loss):
    X, y = data()
    y = y if loss.classification else X[:, 0]
    convert, tolerance = CONTAINERS[kind]
    task = Problem(loss, L2Ball(4.0), intercept=0.5)
    options = {"budget": Budget(4.0, 1e-6), "solver": name, "random_state": 3}
    if catalogue()[name].refuse(Facts(task, 200, 4, "zero_out"), options["budget"]) is not None:
        pytest.skip(f"{name} refuses this problem")
    expected = solve(task, X, y, **options, **catalogue()[name].specimen.short)
    labels = torch.from_numpy(y) if "torch" in kind else y
    found = solve(task, convert(X), labels, **options, **catalogue()[name].specimen.short)
    assert isinstance(found.theta, np.ndarray)
    assert found.theta.dtype == np.float64
    np.testing.assert_allclose(found.theta, expected.theta, rtol=tolerance, atol=tolerance)
    assert found.certificate == expected.certificate


def test_shapes_are_checked():
    X, y = data()
    for features, labels in [(X[:, 0], y), (X, y[:-1]), (X.tolist(), y)]:
        with pytest.raises(ValueError, match="two-dimensional with one label in y for each row"):
            solve(PROBLEM, features, labels, budget=Budget(1.0))


# ---------------------------------------------------------------- choices
def test_choices_of_a_named_solver():
    X, y = data()
    result = solve(
        PROBLEM,
        X,
        y,
        budget=Budget(1.0, 1e-6),
        solver="noisy_gd",
        random_state=0,
        n_iter=11,
        average="last",
    )
    assert result.certificate.releases == result.plan.settings.n_iter == 11
    assert result.certificate.settings["average"] == "last"
    assert 0.99 <= result.certificate.epsilon <= 1 + 1e-9
    fixed = solve(
        PROBLEM,
        X,
        y,
        budget=Budget(1.0),
        solver="objective_perturbation",
        random_state=0,
        regularisation=3.0,
    )
    assert fixed.certificate.settings["regularisation"] == 3.0


def test_choices_that_cannot_be():
    X, y = data()
    with pytest.raises(ValueError, match='only for a named solver, not for "auto"'):
        solve(PROBLEM, X, y, budget=Budget(1.0), n_iter=5)
    with pytest.raises(ValueError, match="noisy_gd has no setting named 'speed'"):
        solve(PROBLEM, X, y, budget=Budget(1.0), solver="noisy_gd", speed=2)
    with pytest.raises(ValueError, match="unknown solver 'adam'; choose from auto, "):
        solve(PROBLEM, X, y, budget=Budget(1.0), solver="adam")
    with pytest.raises(ValueError, match="random_state must be None"):
        solve(PROBLEM, X, y, budget=Budget(1.0), random_state="today")


def test_auto_is_the_head_of_the_ranking():
    X, y = data()
    result = solve(PROBLEM, X, y, budget=Budget(1.0, 1e-6), random_state=0)
    chosen = choose(Facts(PROBLEM, 200, 4, "zero_out"), Budget(1.0, 1e-6))
    assert (result.plan.name, result.plan.settings) == (chosen.name, chosen.settings)


def test_seeds():
    X, y = data()

    def theta(random_state):
        return solve(PROBLEM, X, y, budget=Budget(1.0), random_state=random_state)

    np.testing.assert_array_equal(theta(1).theta, theta(1).theta)
    assert np.any(theta(1).theta != theta(2).theta)
    assert np.any(theta(None).theta != theta(None).theta)
    assert not theta(1).certificate.private
    assert theta(None).certificate.private


def test_ticks_count_to_the_end():
    X, y = data()
    seen = []
    solve(
        PROBLEM,
        X,
        y,
        budget=Budget(1.0, 1e-6),
        solver="noisy_gd",
        n_iter=5,
        tick=lambda *step: seen.append(step),
    )
    assert seen == [(k, 5) for k in range(1, 6)]


# ---------------------------------------------------------------- over budget
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_tampered_plan_opens_nothing(name, delta):
    """Half the noise, a smaller clip in the claim, another relation, other bounds: each refused."""
    X, y = data()
    facts, budget = Facts(PROBLEM, 200, 4, "zero_out"), Budget(1.0, delta)
    if catalogue()[name].refuse(facts, budget) is not None:
        pytest.skip(f"{name} refuses this problem")
    honest = choose(facts, budget, name, **catalogue()[name].specimen.short)
    quiet = replace(honest.settings, noise_multiplier=honest.settings.noise_multiplier / 2)
    source, opened = SeededSource(0), []

    def oracle(relation="zero_out", bounds=None):
        return Oracle.over(
            X, y, neighbouring=relation, bounds=bounds or row_bounds(honest), source=source
        )

    token = HOOK.set(lambda *args: opened.append(args))
    try:
        with pytest.raises(Refused, match="plans to spend more than its budget"):
            execute(replace(honest, settings=quiet), [oracle()], source)
        with pytest.raises(Refused, match="plans to spend more than its budget"):
            execute(replace(honest, budget=Budget(0.5, delta)), [oracle()], source)
        with pytest.raises(Refused, match="relation or row bounds differ"):
            execute(honest, [oracle("replace_one")], source)
        wider = replace(row_bounds(honest), data_norm=2.0)
        with pytest.raises(Refused, match="relation or row bounds differ"):
            execute(honest, [oracle(bounds=wider)], source)
        with pytest.raises(ValueError, match=r"for 1 oracle\(s\), got 2"):
            execute(honest, [oracle(), oracle()], source)
    finally:
        HOOK.reset(token)
    assert opened == []
    _, certificate = execute(honest, [oracle()], source)
    assert certificate.epsilon <= 1 + 1e-9
