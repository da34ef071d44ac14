"""Properties that every solver has, filled by the catalogue: adding a solver adds its tests."""

from __future__ import annotations

import pickle
from importlib import import_module

import numpy as np
import pytest
from scipy.optimize import minimize

from privopt import Budget, Problem, Refused, solve
from privopt.audit import hostile_pairs, noise_p_value, record, replay
from privopt.facts import Facts
from privopt.geometry import L2Ball
from privopt.losses import Logistic
from privopt.mechanisms import same_event
from privopt.noise import SeededSource, SilentSource
from privopt.oracle import Oracle
from privopt.privacy import Accountant, Certificate, spend
from privopt.privacy.budget import NEIGHBOURING
from privopt.solvers import catalogue, declare, execute, row_bounds
from tests.covering import ALL

from .cases import (
    PROBLEMS,
    applies,
    few_cases,
    first_problem,
    make_plan,
    public_run,
    sample,
)

CASES = few_cases()
# Solvers of several classes at once are tested in tests/solvers/test_joint_softmax.py.
NAMES = sorted(name for name, solver in catalogue().items() if not solver.joint)


@pytest.mark.parametrize(("name", "problem", "relation", "delta"), CASES)
def test_replay_on_hostile_neighbours(name, problem, relation, delta):
    """On every hostile pair: same calls, same public arguments, movements within the
    sensitivity. Problems of a solver under the same budget share the pairs among them."""
    task = PROBLEMS[problem]
    run = public_run(name, task, Budget(1.0, delta, relation))
    pairs = hostile_pairs(relation, classification=task.loss.classification)
    assert len(pairs) >= 20
    alike = [case[1] for case in CASES if (case[0], *case[2:]) == (name, relation, delta)]
    share = 1 if ALL else min(len(alike), 4)
    pairs = pairs[alike.index(problem) % share :: share]
    found = {pair.name: findings for pair in pairs if (findings := replay(run, pair))}
    assert found == {}


@pytest.mark.parametrize(("name", "problem", "relation", "delta"), CASES)
def test_declared_events_equal_the_transcript(name, problem, relation, delta):
    """The dry run on no data releases exactly what the run releases, within the budget."""
    task = PROBLEMS[problem]
    budget = Budget(0.7, delta, relation)
    plan = make_plan(name, task, budget, n=50, p=3)
    X, y = sample(50, 3, classification=task.loss.classification)
    source = SeededSource(1)
    oracle = Oracle.over(
        X,
        y,
        neighbouring=relation,
        bounds=row_bounds(plan),
        source=source,
        classification=task.loss.classification,
    )
    declared = declare(plan)
    log = []
    from privopt.mechanisms import Gate

    gate = Gate(source, guard=log.append)
    plan.solver.run(oracle, gate, task, plan.settings)
    assert len(declared) == len(log) > 0
    assert all(same_event(a, b) for a, b in zip(declared, log, strict=True))
    epsilon = Accountant(relation).epsilon(spend(declared), delta)
    assert epsilon <= budget.epsilon * (1 + 1e-9)
    # The budget is used, not wasted.
    assert epsilon >= 0.98 * budget.epsilon


@pytest.mark.statistical
@pytest.mark.parametrize(("name", "problem", "relation", "delta"), CASES)
def test_noise_follows_the_declared_law(name, problem, relation, delta):
    """Halving the noise, or dropping a factor of the sensitivity, fails. False alarm: 1e-6 each."""
    task = PROBLEMS[problem]
    X, y = sample(catalogue()[name].specimen.records, 4, classification=task.loss.classification)
    tapes = []
    for seed in range(40):
        run = public_run(name, task, Budget(1.0, delta, relation), seed=seed)
        tapes.append(record(run, (X, y))[1])
    assert noise_p_value(tapes) > 1e-6


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("problem", ["logistic", "logistic, intercept, ridge", "huber"])
def test_without_noise_it_reaches_the_optimum(name, problem):
    """With silent noise and a generous budget a solver solves the problem."""
    task = PROBLEMS[problem]
    n, p = 400, 3
    X, y = sample(n, p, classification=task.loss.classification)
    budget = Budget(50.0, 1e-3)
    if not applies(name, task, budget, n, p):
        pytest.skip(f"{name} refuses this problem")
    solver = catalogue()[name]
    facts = Facts(task, n, task.dimension(p), "zero_out")
    plan = make_plan(name, task, budget, n, p)
    plan = type(plan)(solver, facts, budget, solver.settings(facts, budget))
    source = SilentSource()
    oracle = Oracle.over(
        X,
        y,
        neighbouring="zero_out",
        bounds=row_bounds(plan),
        source=source,
        classification=task.loss.classification,
    )
    (theta,), _ = execute(plan, [oracle], source)
    full = np.column_stack([X, np.full(n, task.intercept)]) if task.intercept else X

    def risk(w):
        return float(np.mean(task.loss.value(full @ w, y))) + task.l2 / 2 * float(w @ w)

    def slope(w):
        return task.loss.slope(full @ w, y) @ full / n + task.l2 * w

    best = minimize(risk, np.zeros(full.shape[1]), jac=slope, method="BFGS", tol=1e-9)
    reached = risk(theta) - risk(task.domain.project(best.x))
    share = catalogue()[name].specimen.left
    assert reached <= share * (risk(np.zeros(full.shape[1])) - best.fun)


@pytest.mark.statistical
@pytest.mark.parametrize("name", NAMES)
def test_error_falls_with_data_and_with_epsilon(name):
    """Ten times the records, or the budget, at least halves the mean excess risk."""
    task = Problem(Logistic(), L2Ball(5.0))
    if not applies(name, task, Budget(0.3, 1e-6), 5000, 4):
        pytest.skip(f"{name} refuses as many records")

    def excess(n, epsilon):
        X, y = sample(n, 4, seed=3)
        best = minimize(
            lambda w: np.logaddexp(0, -y * (X @ w)).mean(), np.zeros(4), method="BFGS"
        ).fun
        budget = Budget(epsilon, 1e-6)
        found = []
        for seed in range(10):
            plan = make_plan(name, task, budget, n, 4, **catalogue()[name].specimen.enough)
            source = SeededSource(seed)
            oracle = Oracle.over(
                X, y, neighbouring="zero_out", bounds=row_bounds(plan), source=source
            )
            (theta,), _ = execute(plan, [oracle], source)
            found.append(np.logaddexp(0, -y * (X @ theta)).mean() - best)
        return np.mean(found)

    few = excess(500, 0.3)
    assert excess(5000, 0.3) < few / 2
    assert excess(500, 3.0) < few / 2


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("wish", [None, False])
def test_a_certificate_says_in_words_what_is_in_floating_point(name, delta, wish):
    """Absence of a field is no warning: what is not in exact integers is named in the text."""
    solver, budget = catalogue()[name], Budget(1.0, delta)
    problem = first_problem(name, budget)
    if not applies(name, problem, budget, n=3 if name == "exponential_sampling" else 60, p=2):
        pytest.skip(f"{name} refuses this problem")
    n = 3 if name == "exponential_sampling" else 60
    X, y = sample(n, 2)
    certificate = solve(
        problem,
        X,
        y,
        budget=budget,
        solver=name,
        random_state=0,
        discrete_noise="auto" if wish is None else wish,
        **catalogue()[name].specimen.short,
    ).certificate
    exact = 0 if certificate.numerics is None else certificate.numerics["exact_releases"]
    text = str(certificate)
    assert ("low-order bits are not covered" in text) == (exact < certificate.releases)
    if wish is False:
        assert exact == 0 or not solver.has_discrete_noise
    elif name in ALL_EXACT or (delta and name in WITH_DELTA):
        assert exact == certificate.releases


ALL_EXACT = {
    "bolt_on_sgd",
    "dp_ftrl",
    "dp_ftrl_least_squares",
    "noisy_gd",
    "noisy_sgd",
    "objective_perturbation",
    "one_point_sgd",
    "output_perturbation",
    "phased_localization",
}
"""Solvers whose first problem is hardened in every release, with delta and, where they take that,
without."""
WITH_DELTA = {"mirror_descent", "phased_mirror_descent", "proximal_guided"}
"""Solvers that are with Gaussian noise alone."""


@pytest.mark.parametrize("name", NAMES)
def test_catalogue_entry_is_complete(name):
    solver = catalogue()[name]
    module = import_module(f"privopt.solvers.{name}")
    assert solver is module.SOLVER
    assert solver.name == name
    assert solver.summary
    assert "Formal guarantee" in (type(solver).__doc__ or "")
    text = module.__doc__ or ""
    assert "Reference" in text
    assert "ound" in text
    assert pickle.loads(pickle.dumps(solver)).name == name


@pytest.mark.parametrize("name", NAMES)
def test_unknown_setting_is_refused(name):
    budget = Budget(1.0, 1e-5)
    taken = [task for task in PROBLEMS.values() if applies(name, task, budget)]
    task = (taken or [PROBLEMS["logistic"]])[0]
    with pytest.raises(ValueError, match="no setting named 'speed'"):
        catalogue()[name].settings(Facts(task, 10, 2, "zero_out"), budget, speed=11)


@pytest.mark.parametrize("name", NAMES)
def test_refuses_a_loss_that_is_not_lipschitz(name):
    from privopt.losses import Squared

    sentence = catalogue()[name].refuse(Facts(Problem(Squared()), 10, 2, "zero_out"), Budget(1.0))
    assert sentence is not None
    assert "Squared" in sentence
    assert sentence.endswith(".")


@pytest.mark.parametrize(("name", "problem", "relation", "delta"), CASES)
def test_settings_are_public_and_deterministic(name, problem, relation, delta):
    """Settings are JSON values that depend on facts and budget only, and noise grows with less
    budget."""
    task = PROBLEMS[problem]
    plan = make_plan(name, task, Budget(1.0, delta, relation), n=100, p=5)
    again = make_plan(name, task, Budget(1.0, delta, relation), n=100, p=5)
    assert plan.settings == again.settings
    public = plan.settings.public()
    assert all(v is None or isinstance(v, (int, float, str, bool)) for v in public.values())
    tighter = make_plan(name, task, Budget(0.5, delta, relation), n=100, p=5)
    assert tighter.settings.public()["noise_multiplier"] > public["noise_multiplier"]
    assert plan.settings.bound > 0  # infinite where nothing is proved


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("relation", NEIGHBOURING)
def test_several_models_share_one_budget(name, relation):
    """Three models on the same records: one certificate, within the budget, for all of them."""
    budget = Budget(1.0, 1e-5, relation)
    taken = [task for task in PROBLEMS.values() if applies(name, task, budget)]
    if not taken:
        pytest.skip(f"{name} refuses this relation")
    solver = catalogue()[name]
    facts = Facts(taken[0], 30, taken[0].dimension(2), relation, repeats=3)
    from privopt.solvers import Plan

    plan = Plan(
        solver, facts, budget, solver.settings(facts, budget, **catalogue()[name].specimen.short)
    )
    X, y = sample(30, 2)
    source = SeededSource(0)
    first = Oracle.over(X, y, neighbouring=relation, bounds=row_bounds(plan), source=source)
    thetas, certificate = execute(plan, [first, first.labelled(-y), first.labelled(y)], source)
    assert len(thetas) == 3
    assert certificate.releases == len(declare(plan)) >= 3
    assert 0.98 <= certificate.epsilon <= 1 + 1e-9
    assert certificate.verify()
    assert Certificate.from_json(certificate.to_json()) == certificate


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_over_budget_is_refused_before_data_is_touched(name):
    """A solver whose settings do not fit the budget never gets to open a value."""
    from dataclasses import replace

    budget = Budget(1.0, 1e-5)
    plan = make_plan(name, first_problem(name, budget), budget, 30, 2)
    loud = replace(
        plan,
        settings=replace(plan.settings, noise_multiplier=plan.settings.noise_multiplier / 2),
    )
    X, y = sample(30, 2)
    source = SeededSource(0)
    oracle = Oracle.over(X, y, neighbouring="zero_out", bounds=row_bounds(plan), source=source)
    opened = []
    from privopt.mechanisms import HOOK

    token = HOOK.set(lambda *args: opened.append(args))
    try:
        with pytest.raises(Refused, match="more than its budget"):
            execute(loud, [oracle], source)
    finally:
        HOOK.reset(token)
    assert opened == []
