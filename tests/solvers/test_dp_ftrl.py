"""DP-FTRL: equivalences with gradient methods, closed forms, regret, settings."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from privopt import Budget, Problem, Refused, solve
from privopt.audit import record
from privopt.audit.replay import in_units
from privopt.facts import Facts
from privopt.geometry import Box, L1Ball, L2Ball, Simplex, WholeSpace
from privopt.losses import Logistic, Squared
from privopt.noise import SeededSource
from privopt.oracle import Oracle
from privopt.privacy.factorizations import named
from privopt.privacy.participation import Participation
from privopt.privacy.profiles import gaussian_mu
from privopt.solvers import Plan, execute, row_bounds
from privopt.solvers.dp_ftrl import SOLVER
from privopt.solvers.families.leaders import Leader, Task

STEPS, P = 40, 5


@pytest.fixture
def gradients():
    """Gradients with noise a_t, as a gate releases them: any vectors will do."""
    return np.random.default_rng(0).standard_normal((STEPS, P))


def follow(leader, gradients):
    found = [leader.iterate()]
    for gradient in gradients:
        leader.take(gradient)
        found.append(leader.iterate())
    return np.array(found)


# ---------------------------------------------------------------- equivalences
def test_plain_is_gradient_descent(gradients):
    start, eta = np.arange(P) / 10, 0.05
    theta = [start]
    for gradient in gradients:
        theta.append(theta[-1] - eta * gradient)
    found = follow(Leader(WholeSpace(), start, 1 / eta), gradients)
    np.testing.assert_allclose(found, theta, atol=1e-12)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_momentum_is_the_heavy_ball(gradients, momentum):
    """DP-FTRLM with lambda is heavy-ball with step (1 - momentum)/lambda."""
    start, lam = np.ones(P), 7.0
    theta, velocity = [start], np.zeros(P)
    for gradient in gradients:
        velocity = momentum * velocity + gradient
        theta.append(theta[-1] - (1 - momentum) / lam * velocity)
    found = follow(Leader(WholeSpace(), start, lam, momentum), gradients)
    np.testing.assert_allclose(found, theta, atol=1e-12)


def test_nesterov_is_nesterov(gradients):
    """As PyTorch has it: v <- m v + g, theta <- theta - eta (g + m v)."""
    start, lam, momentum = np.zeros(P), 3.0, 0.8
    theta, velocity = [start], np.zeros(P)
    for gradient in gradients:
        velocity = momentum * velocity + gradient
        theta.append(theta[-1] - (1 - momentum) / lam * (gradient + momentum * velocity))
    leader = Leader(WholeSpace(), start, lam, momentum, nesterov=True)
    np.testing.assert_allclose(follow(leader, gradients), theta, atol=1e-12)


def test_the_noise_of_the_sums_is_that_of_the_increments():
    """b_t - b_(t-1) in every step is b_t in the sum: two ways to the same iterates."""
    noise = named("honaker", STEPS, Participation.single_pass()).stream()
    rng = np.random.default_rng(1)
    increments = np.array([noise.next(lambda: rng.standard_normal(P)) for _ in range(STEPS)])
    sums = np.cumsum(increments, axis=0)
    gradients = rng.standard_normal((STEPS, P))
    found = follow(Leader(L2Ball(0.4), np.zeros(P), 5.0), gradients + increments)
    totals = np.cumsum(gradients, axis=0) + sums
    expected = [np.zeros(P)] + [L2Ball(0.4).project(-total / 5.0) for total in totals]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_a_run_is_gradient_descent_on_what_was_released():
    """Through the gate: unconstrained, one block a step, the iterates are those of SGD."""
    rng = np.random.default_rng(2)
    X, y = rng.standard_normal((60, 3)), rng.choice([-1.0, 1.0], 60)
    problem, budget = Problem(Logistic()), Budget(2.0, 1e-5)

    def run(X, y):
        return solve(
            problem,
            X,
            y,
            budget=budget,
            solver="dp_ftrl",
            random_state=0,
            batch_size=6,
            epochs=2,
            average="last",
            order="given",
        )

    result, tape = record(run, (X, y))
    settings = result.plan.settings
    theta = np.zeros(3)
    assert len(tape.releases) == 20
    for step, release in enumerate(tape.releases):
        block = slice(6 * (step % 10), 6 * (step % 10) + 6)
        rows = X[block] / np.maximum(np.linalg.norm(X[block], axis=1, keepdims=True), 1)
        slopes = -y[block] / (1 + np.exp(y[block] * (rows @ theta)))
        sums = in_units(release.payload, release.sensitivity)  # integers, cut off a step a record
        np.testing.assert_allclose(sums, slopes @ rows, atol=6 * release.sensitivity.grid.step)
        theta = theta - release.result / 6 / settings.regularisation
    np.testing.assert_allclose(result.theta, theta, atol=1e-12)


# ---------------------------------------------------------------- closed forms
@pytest.mark.parametrize(
    "domain", [WholeSpace(), L2Ball(0.7), Box(-0.3, 0.5), L1Ball(0.9), L2Ball(0.7, [0.0] * P)]
)
@pytest.mark.parametrize("ridge", [0.0, 0.6])
def test_penalties_in_closed_form(gradients, domain, ridge):
    """The iterate beats every nearby and random point of the domain on the stated objective."""
    leader = Leader(domain, domain.centre(P), 2.0, 0.5, l1=0.03, ridge=ridge)
    rng, centre = np.random.default_rng(3), domain.centre(P)
    for t, gradient in enumerate(gradients[:12], start=1):
        leader.take(gradient)
        theta, direction = leader.iterate(), leader._direction()

        def value(w, direction=direction, t=t, centre=centre):
            penalty = 0.03 * np.abs(w).sum() + ridge / 2 * w @ w
            return direction @ w + t * penalty + 2.0 / 2 * (w - centre) @ (w - centre)

        for scale in (1e-4, 1e-2, 1.0):
            for way in rng.standard_normal((30, P)):
                assert value(theta) <= value(domain.project(theta + scale * way)) + 1e-12


def test_sparse_iterates_are_truly_sparse():
    """Coordinates without signal are exactly zero in most iterates, those with signal are not."""
    rng = np.random.default_rng(4)
    signal = np.zeros(30)
    signal[:3] = [1.0, -1.0, 0.7]
    leader = Leader(L2Ball(5.0), np.zeros(30), 20.0, l1=0.2)
    for _ in range(400):
        leader.take(signal + rng.standard_normal(30))
    theta = leader.iterate()
    assert np.flatnonzero(theta).tolist() == [0, 1, 2]
    assert (np.sign(theta[:3]) == -np.sign(signal[:3])).all()


def test_a_sparse_model_through_the_gate():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((4000, 20)) / math.sqrt(20)
    y = np.sign(X[:, 0] - X[:, 1] + 0.1 * rng.standard_normal(4000))
    how = {"solver": "dp_ftrl", "random_state": 0, "l1": 0.02}
    theta = solve(Problem(Logistic(), L2Ball(5.0)), X, y, budget=Budget(8.0, 1e-5), **how).theta
    assert theta[0] > 0 > theta[1]
    assert (theta[2:] == 0).mean() > 0.8


def test_penalty_on_another_domain_is_refused():
    for domain in (Simplex(1.0), L2Ball(1.0, [1.0, 0.0])):
        with pytest.raises(ValueError, match="closed form"):
            Leader(domain, domain.centre(2), 1.0, l1=0.1)


# ---------------------------------------------------------------- regret
def expected_bound(n, p, sigma, norms, slope=1.0, radius=1.0):
    """radius sqrt((L^2 + 2 L b) / n), b the mean norm of the noise: the theorem, written anew."""
    noise = slope * sigma * math.sqrt(p) * np.concatenate([[0.0], norms[:-1]])
    return radius * math.sqrt((slope**2 + 2 * slope * noise.mean()) / n)


@pytest.mark.statistical
@pytest.mark.parametrize(("n", "p", "epsilon"), [(500, 4, 2.0), (2000, 20, 4.0), (3000, 2, 0.5)])
def test_regret_on_linear_losses_is_below_the_bound(n, p, epsilon):
    """Independent linear losses, worst comparator in the ball; about half of the bound."""
    problem = Problem(Logistic(), L2Ball(1.0))
    budget = Budget(epsilon, 1e-6)
    facts = Facts(problem, n, p, "zero_out")
    noise = named("honaker", n, Participation.single_pass())
    sigma = math.sqrt(noise.sensitivity_squared(Participation())) / gaussian_mu(epsilon, 1e-6)
    task = Task(facts, budget, 1, 1.0, 0.0, 0.0)
    norms = sigma * noise.row_norms()
    lam = task.best(n, norms)
    bound = expected_bound(n, p, sigma, noise.row_norms())
    assert task.regret(n, norms, lam) == pytest.approx(bound, rel=1e-9)
    found = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        vectors = rng.standard_normal((n, p))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors[:, 0] = 0.3 * np.abs(vectors[:, 0]) + 0.1  # a comparator that pays
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1)
        stream, leader, total = noise.stream(), Leader(L2Ball(1.0), np.zeros(p), lam), 0.0
        for vector in vectors:
            total += vector @ leader.iterate()
            leader.take(vector + sigma * stream.next(lambda rng=rng: rng.standard_normal(p)))
        found.append((total + np.linalg.norm(vectors.sum(axis=0))) / n)
    assert 0.05 * bound < np.mean(found) < 0.8 * bound
    assert max(found) < bound


def test_an_adversary_who_sees_the_model_stays_below_the_bound():
    """Each loss points away from the model in force: the worst that linear losses can do."""
    n, p, sigma = 1000, 3, 4.0
    noise = named("honaker", n, Participation.single_pass())
    norms = sigma * noise.row_norms()
    facts = Facts(Problem(Logistic(), L2Ball(1.0)), n, p, "zero_out")
    task = Task(facts, Budget(1.0, 1e-6), 1, 1.0, 0.0, 0.0)
    lam = task.best(n, norms)
    found = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        stream, leader, total, sums = noise.stream(), Leader(L2Ball(1.0), np.zeros(p), lam), 0.0, 0
        for _ in range(n):
            theta = leader.iterate()
            vector = theta / max(np.linalg.norm(theta), 1e-12)
            total, sums = total + vector @ theta, sums + vector
            leader.take(vector + sigma * stream.next(lambda rng=rng: rng.standard_normal(p)))
        found.append((total + np.linalg.norm(sums)) / n)
    assert 0.02 < np.mean(found) < task.regret(n, norms, lam)


@pytest.mark.parametrize("l2", [0.0, 0.05])
def test_lambda_minimises_the_regret(l2):
    facts = Facts(Problem(Logistic(), L2Ball(2.0), l2=l2), 1000, 4, "zero_out")
    task = Task(facts, Budget(1.0, 1e-6), 1, 1.0, 0.0, 0.0)
    norms = np.full(200, 9.0)
    best = task.best(200, norms)
    least = minimize(lambda v: task.regret(200, norms, math.exp(v[0])), [math.log(best)]).fun
    assert task.regret(200, norms, best) <= least * (1.01 if l2 else 1 + 1e-9)


# ---------------------------------------------------------------- settings
FACTS = Facts(Problem(Logistic(), L2Ball(3.0)), 600, 4, "zero_out")
BUDGET = Budget(1.0, 1e-6)


@pytest.mark.parametrize("noise", ["independent", "tree", "honaker", "sqrt_toeplitz", "banded"])
@pytest.mark.parametrize("epochs", [1, 4])
def test_the_budget_is_one_gaussian_of_all_epochs(noise, epochs):
    """mu = sens/multiplier, by the dense encoder: also for several passes over the same blocks."""
    settings = SOLVER.settings(FACTS, BUDGET, epochs=epochs, batch_size=50, noise=noise)
    factorization = named(noise, 12 * epochs, Participation.epochs(epochs, 12))
    C = factorization.encode(np.eye(12 * epochs))
    gram = C.T @ C
    loss = max(
        gram[np.ix_(range(j, 12 * epochs, 12), range(j, 12 * epochs, 12))].sum() for j in range(12)
    )
    mu = gaussian_mu(1.0, 1e-6)
    assert settings.noise_multiplier == pytest.approx(math.sqrt(loss) / mu, rel=1e-9)


def test_several_models_and_the_default_noise():
    one = SOLVER.settings(FACTS, BUDGET)
    four = SOLVER.settings(replace(FACTS, repeats=4), BUDGET, batch_size=600 // one.steps_per_epoch)
    assert one.noise == "blt"
    assert four.noise_multiplier == pytest.approx(2 * one.noise_multiplier, rel=0.05)


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"epochs": 0}, "epochs must be positive"),
        ({"batch_size": 0}, "batch_size must lie between 1 and 600"),
        ({"batch_size": 601}, "batch_size must lie between 1 and 600"),
        ({"order": "sorted"}, "order must be shuffled or given"),
        ({"momentum": 1.0}, r"momentum must lie in \[0, 1\)"),
        ({"l1": -0.1}, "l1 must be non-negative"),
        ({"regularisation": 0.0}, "regularisation must be positive"),
        ({"average": "first"}, "average must be suffix, uniform or last"),
        ({"noise": "pink"}, "noise must be"),
    ],
)
def test_bad_settings(choices, words):
    with pytest.raises(ValueError, match=words):
        SOLVER.settings(FACTS, BUDGET, **choices)


def test_refusals():
    shifted = replace(FACTS, neighbouring="add_remove")
    assert "places shift" in SOLVER.refuse(shifted, Budget(1.0, 1e-6, "add_remove"))
    assert "delta > 0" in SOLVER.refuse(FACTS, Budget(1.0))
    steep = replace(FACTS, problem=Problem(Squared(), L2Ball(1.0)))
    assert "dp_ftrl_least_squares" in SOLVER.refuse(steep, BUDGET)
    with pytest.raises(Refused, match="places shift"):
        solve(
            FACTS.problem,
            np.ones((4, 2)),
            np.ones(4),
            budget=Budget(1.0, 1e-6, "add_remove"),
            n_public=4,
            solver="dp_ftrl",
        )


@pytest.mark.statistical
def test_bounds_of_momentum_and_of_several_epochs_hold():
    """The same data, every variant: mean excess below the stated bound."""
    rng = np.random.default_rng(6)
    X = rng.standard_normal((1200, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.where(rng.random(1200) < 1 / (1 + np.exp(-X @ [2.0, -1.0, 1.0])), 1.0, -1.0)
    problem = Problem(Logistic(), L2Ball(3.0), l2=0.02)

    def risk(w):
        return np.logaddexp(0, -y * (X @ w)).mean() + 0.01 * w @ w

    best = minimize(risk, np.zeros(3)).fun
    for choices in (
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True},
        {"epochs": 8},
        {"epochs": 8, "momentum": 0.5, "average": "uniform"},
        {"average": "uniform", "order": "given"},
    ):
        runs = [
            solve(
                problem,
                X,
                y,
                budget=Budget(4.0, 1e-6, "replace_one"),
                solver="dp_ftrl",
                random_state=seed,
                **choices,
            )
            for seed in range(3)
        ]
        excess = np.mean([risk(run.theta) - best for run in runs])
        assert -1e-9 < excess < runs[0].plan.settings.bound
        assert runs[0].certificate.epsilon == pytest.approx(4.0, rel=1e-6)


def test_an_order_shared_by_several_models():
    """One oracle, two labellings: a secret order is drawn once, so records keep their blocks."""
    rng = np.random.default_rng(7)
    X, y = rng.standard_normal((30, 2)), rng.choice([-1.0, 1.0], 30)
    facts = Facts(FACTS.problem, 30, 2, "zero_out", repeats=2)
    plan = Plan(SOLVER, facts, BUDGET, SOLVER.settings(facts, BUDGET, batch_size=5, epochs=2))
    source = SeededSource(0)
    first = Oracle.over(X, y, neighbouring="zero_out", bounds=row_bounds(plan), source=source)
    _, certificate = execute(plan, [first, first.labelled(-y)], source)
    assert certificate.epsilon == pytest.approx(1.0, rel=1e-6)
    assert certificate.cells == 6


# ---------------------------------------------------------------- trees that start anew
@pytest.mark.parametrize("noise", ["tree", "honaker"])
@pytest.mark.parametrize("completion", [False, True])
def test_restarts_are_charged_by_the_noise_of_all_trees(noise, completion):
    """mu^2 of a record in block j of every pass is 1' (cov of the steps' noise)^-1 1, written down
    from the noise itself: one stream driven by each fresh number alone."""
    facts = Facts(Problem(Logistic(), L2Ball(1.0)), 60, 2, "zero_out")
    budget, epochs, blocks = Budget(1.0, 1e-6), 3, 5
    settings = SOLVER.settings(
        facts, budget, noise=noise, epochs=epochs, batch_size=12, restart_every=1,
        completion=completion,
    )  # fmt: skip
    steps, drawn = epochs * blocks, epochs * blocks + (epochs - 1 if completion else 0)
    columns = []
    for fresh in range(drawn):
        count = iter(range(drawn))
        stream = settings.factorization.stream()
        draw = lambda count=count, fresh=fresh: np.array([float(next(count) == fresh)])  # noqa: E731
        columns.append([float(stream.next(draw)[0]) for _ in range(steps)])
    noise_of = np.array(columns).T
    inverse = np.linalg.inv(noise_of @ noise_of.T)
    worst = 0.0
    for block in range(blocks):
        pattern = np.zeros(steps)
        pattern[block::blocks] = 1.0
        worst = max(worst, float(pattern @ inverse @ pattern))
    found = settings.noise_multiplier * gaussian_mu(1.0, 1e-6) / math.sqrt(worst)
    # A root that was completed is charged as if it were seen alone; the next step hides it.
    assert 1 - 1e-9 <= found <= (1.25 if completion else 1 + 1e-9)
    assert not settings.discrete_noise


def test_restarts_run_and_are_certified():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(400, 3))
    y = np.where(X[:, 0] + 0.2 * rng.normal(size=400) > 0, 1.0, -1.0)
    problem = Problem(Logistic(), L2Ball(3.0))
    how = {"solver": "dp_ftrl", "epochs": 3, "batch_size": 50, "noise": "tree", "random_state": 0}
    found = solve(problem, X, y, budget=Budget(8.0, 1e-6), restart_every=1, completion=True, **how)
    assert found.certificate.releases == 24
    assert found.plan.settings.completion
    one = solve(problem, X, y, budget=Budget(8.0, 1e-6), **how)
    assert found.plan.settings.noise_multiplier != one.plan.settings.noise_multiplier
    assert found.theta[0] > 0.3


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"completion": True}, "give restart_every"),
        ({"restart_every": 1, "noise": "blt"}, 'noise="tree" or noise="honaker"'),
        ({"restart_every": 0, "noise": "tree"}, "positive"),
        (
            {"restart_every": 1, "noise": "tree", "discrete_noise": True},
            "discrete_noise=True needs",
        ),
    ],
)
def test_restarts_that_are_refused(how, words):
    facts = Facts(Problem(Logistic(), L2Ball(1.0)), 60, 2, "zero_out")
    with pytest.raises(ValueError, match=words):
        SOLVER.settings(facts, Budget(1.0, 1e-6), epochs=2, batch_size=12, **how)
