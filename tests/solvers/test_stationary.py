"""Stationary points: independent implementations, exact charges, the index, replay, refusals."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from scipy import stats

from privopt import Budget, Problem, Refused, solve
from privopt.audit import hostile_pairs, noise_p_value, record, replay
from privopt.facts import Facts
from privopt.geometry import Box, L1Ball, L2Ball, LpBall, Simplex
from privopt.losses import Absolute, Huber, PhaseRetrieval, TukeyBiweight, Welsch
from privopt.mechanisms import Gate
from privopt.noise import SilentSource
from privopt.oracle import Oracle
from privopt.privacy import Accountant, spend
from privopt.solvers import Plan, catalogue, declare
from privopt.solvers.proximal_guided import phase_sizes

BOTH = ("stationary_frank_wolfe", "proximal_guided")
BUDGET = Budget(1.0, 1e-5)


def make_plan(name, problem, budget, n, p, **choices):
    solver = catalogue()[name]
    facts = Facts(problem, n, problem.dimension(p), budget.neighbouring)
    return Plan(solver, facts, budget, solver.settings(facts, budget, **choices))


def silent(plan, X, y):
    """A run without noise, every record in its place."""
    source = SilentSource()
    oracle = Oracle.over(
        X,
        y,
        neighbouring=plan.budget.neighbouring,
        bounds=plan.solver.row_bounds(plan.facts.problem),
        source=source,
        classification=False,
    )
    return plan.solver.run(oracle, Gate(source), plan.facts.problem, plan.settings)


def sample(n, p, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = X @ np.full(p, 0.8 / math.sqrt(p)) + 0.1 * rng.standard_normal(n)
    far = rng.random(n) < 0.2
    y[far] = 2 * rng.standard_normal(far.sum())
    return X, y


def gradient(problem, X, y, theta):
    return X.T @ problem.loss.slope(X @ theta, y) / len(y) + problem.l2 * theta


def gap(problem, X, y, theta):
    g = gradient(problem, X, y, theta)
    return float(g @ (theta - problem.domain.linear_minimiser(g)))


# ---------------------------------------------------------------- Frank-Wolfe, against a plain one
@pytest.mark.parametrize("domain", [L1Ball(1.0), LpBall(1.5, 1.0), L2Ball(1.0), Box(-0.5, 1.0)])
def test_without_noise_it_is_frank_wolfe(domain):
    X, y = sample(300, 4)
    problem = Problem(Welsch(0.7), domain, l2=0.05)
    plan = make_plan(BOTH[0], problem, BUDGET, 300, 4, n_iter=60, iterate=37)
    theta, gaps = domain.centre(4), []
    path = [theta]
    for _ in range(60):
        gaps.append(gap(problem, X, y, theta))
        best = domain.linear_minimiser(gradient(problem, X, y, theta))
        theta = (1 - plan.settings.step) * theta + plan.settings.step * best
        path.append(theta)
    np.testing.assert_allclose(silent(plan, X, y), path[37], atol=1e-10)
    last = replace(plan, settings=replace(plan.settings, iterate=60))
    np.testing.assert_allclose(silent(last, X, y), path[60], atol=1e-10)
    assert np.mean(gaps) <= plan.settings.bound


def test_one_pass_without_noise_is_the_recursive_estimate(monkeypatch):
    monkeypatch.setattr(Oracle, "shuffled", lambda self: self)
    X, y = sample(40, 3)
    for domain in (L1Ball(1.0), L2Ball(1.0)):
        problem = Problem(TukeyBiweight(1.5), domain)
        plan = make_plan(
            BOTH[0], problem, BUDGET, 40, 3, one_pass=True, n_iter=5, step=0.3, iterate=4
        )
        s = plan.settings
        assert (s.first, s.batch_size) == (20, 5)
        theta, before, estimate, done = np.zeros(3), None, None, 20
        for t in range(4):
            if t == 0:
                estimate = gradient(problem, X[:20], y[:20], theta)
            else:
                part = X[done : done + 5], y[done : done + 5]
                change = problem.loss.slope(part[0] @ theta, part[1])
                change -= 0.7 * problem.loss.slope(part[0] @ before, part[1])
                assert np.abs(change).max() <= s.difference_clip  # a smooth loss never notices
                estimate, done = 0.7 * estimate + part[0].T @ change / 5, done + 5
            before = theta
            theta = 0.7 * theta + 0.3 * domain.linear_minimiser(estimate)
        np.testing.assert_allclose(silent(plan, X, y), theta, atol=1e-10)


@pytest.mark.parametrize("domain", [L1Ball(1.0), L2Ball(1.0)])
@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_the_decaying_loss_of_a_record_in_one_pass(domain, relation):
    """Every cell's charge term by term: a series with the decay since its entry."""
    problem, a = Problem(Welsch(1.0), domain), 2 if relation == "replace_one" else 1
    plan = make_plan(
        BOTH[0], problem, Budget(1.0, 1e-5, relation), 40, 3, one_pass=True, n_iter=6, step=0.2
    )
    s, steep = plan.settings, 1 / math.sqrt(2 * math.e)
    change = min(1.8 * steep, 0.2 * steep + 0.8 * 0.2 * 2.0)  # rows of norm 1, diameter 2
    assert s.difference_clip == pytest.approx(change)
    charges = spend(declare(plan)).leaves()
    assert len(charges) == 6
    for cell, charge in charges.items():
        ((step, count),) = charge.items()
        (kind,) = step.kinds
        moved = a * (steep / 20 if cell == (0,) else change / 4)
        series = sum(0.8 ** (2 * later) for later in range(6 - cell[0]))
        square = series * (moved / s.noise_multiplier) ** 2
        paid = kind.mu**2 if isinstance(domain, L2Ball) else 8 * kind.rho
        assert count * paid == pytest.approx(square, rel=1e-9)
    spent = Accountant(relation).epsilon(spend(declare(plan)), 1e-5)
    assert spent == pytest.approx(1.0, rel=0.02)


# ---------------------------------------------------------------- proximal guidance
def test_one_round_of_the_proximal_method_by_hand(monkeypatch):
    """Two rounds of two phases of three steps in l2, written out in primal variables."""
    monkeypatch.setattr(Oracle, "shuffled", lambda self: self)
    X, y = sample(40, 3)
    problem = Problem(TukeyBiweight(1.5), L2Ball(0.6), l2=0.02)
    plan = make_plan(BOTH[1], problem, BUDGET, 40, 3, rounds=2, phases=2, n_iter=3, iterate=2)
    rho = 0.8
    assert plan.settings.weak_convexity == pytest.approx(rho)
    assert phase_sizes(plan.settings.batch_size, 2) == [15, 5]
    theta, done = np.zeros(3), 0
    for _ in range(2):
        around = theta
        for kappa, size in ((rho, 15), (4 * rho, 5)):
            start, part = theta, slice(done, done + size)
            for t in range(3):
                s = 2 / (kappa * (t + 4))
                s = s / (1 - s * rho)
                g = gradient(problem, X[part], y[part], theta)
                # argmin of s (<g, u> + rho |u - around|^2 + (kappa - rho)/2 |u - start|^2)
                #   + |u - theta|^2 / 2
                u = theta + s * (2 * rho * around + (kappa - rho) * start - g)
                u /= 1 + s * (rho + kappa)
                theta = u * min(1.0, 0.6 / np.linalg.norm(u))
            done += size
    np.testing.assert_allclose(silent(plan, X, y), theta, atol=1e-10)


@pytest.mark.parametrize("loss", [Welsch(0.7), PhaseRetrieval(1.0)])
def test_a_long_round_finds_its_proximal_point(loss):
    """One round of many steps: within the distance that the proof gives of the exact minimiser."""
    X, y = sample(200, 2)
    problem, rho = Problem(loss, L2Ball(1.0), intercept=0.5), loss.weak_convexity * 1.25
    plan = make_plan(BOTH[1], problem, BUDGET, 200, 2, rounds=1, n_iter=4000, iterate=1)
    found, full = silent(plan, X, y), np.column_stack([X, np.full(200, 0.5)])

    def objective(theta):
        return np.mean(loss.value(full @ theta, y)) + rho * float(theta @ theta)

    rng, best = np.random.default_rng(0), found
    for scale in (0.3, 0.1, 0.03, 0.01, 0.003, 0.001):
        for _ in range(300):
            near = problem.domain.project(best + scale * rng.standard_normal(3))
            best = near if objective(near) < objective(best) else best
    steep = loss.lipschitz * math.sqrt(1.25)
    proved = (20 * 2 * (steep / (2 * rho)) ** 2 + 5 * 4000 * (2 * steep / rho) ** 2) / 4004 / 4005
    assert np.sum((found - best) ** 2) / 2 <= proved
    assert np.linalg.norm(found - best) < 0.02


def test_every_record_is_in_one_phase():
    for batch in (2, 3, 17, 64, 1000):
        for phases in range(1, batch.bit_length()):
            sizes = phase_sizes(batch, phases)
            assert len(sizes) == phases
            assert min(sizes) >= 1
            assert sum(sizes) == batch
    plan = make_plan(BOTH[1], Problem(Welsch(), L2Ball(1.0)), BUDGET, 60, 3, rounds=4, phases=3)
    charges = spend(declare(plan)).leaves()
    assert sorted(charges) == [(cell,) for cell in range(12)]
    mu = 1 / plan.settings.noise_multiplier
    for charge in charges.values():
        assert sum(charge.values()) == plan.settings.n_iter
        assert {kind.mu for step in charge for kind in step.kinds} == {mu}


# ---------------------------------------------------------------- the index
@pytest.mark.parametrize("name", BOTH)
def test_the_index_is_public_and_uniform(name):
    """It is part of the settings, made before any data; 2,000 seeds fill all places alike."""
    problem = Problem(Welsch(), L2Ball(1.0))
    steps = {"n_iter": 5} if name == BOTH[0] else {"rounds": 5}
    drawn = [
        make_plan(name, problem, BUDGET, 60, 2, seed=seed, **steps).settings.iterate
        for seed in range(2000)
    ]
    assert stats.chisquare(np.bincount(drawn, minlength=5)).pvalue > 1e-6
    assert set(drawn) == set(range(5))
    X, y = sample(60, 2)
    for rows in (X, -X, 0 * X):
        found = solve(problem, rows, y, budget=BUDGET, solver=name, seed=3, **steps)
        assert found.certificate.settings["iterate"] == drawn[3]


# ---------------------------------------------------------------- neighbours of one pass
@dataclass(frozen=True)
class Rough(Welsch):
    """Claims to be a hundred times smoother than it is.

    Of margin and label apart, so that no table holds it to that.
    """

    def slope(self, z, y):  # type: ignore[no-untyped-def]
        return super().slope(z, 1.5 * y)

    @property
    def smoothness(self):
        return 0.01


@pytest.mark.parametrize("domain", [L1Ball(1.0), L2Ball(1.0)], ids=repr)
@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_one_pass_on_hostile_neighbours(domain, relation):
    problem, budget = Problem(Rough(0.7), domain), Budget(1.0, 1e-5, relation)

    def run(X, y):
        return solve(
            problem,
            X,
            y,
            budget=budget,
            solver=BOTH[0],
            one_pass=True,
            n_iter=6,
            iterate=6,
            random_state=0,
            n_public=60,
        ).theta

    pairs = hostile_pairs(relation, classification=False)
    assert {pair.name: found for pair in pairs if (found := replay(run, pair))} == {}


@pytest.mark.statistical
@pytest.mark.parametrize("domain", [L1Ball(1.0), L2Ball(1.0)], ids=repr)
def test_noise_of_one_pass_follows_its_law(domain):
    """False alarm: 1e-6 each."""
    problem, (X, y) = Problem(Welsch(0.7), domain), sample(60, 3)

    def run(seed):
        def fit(X, y):
            return solve(
                problem,
                X,
                y,
                budget=BUDGET,
                solver=BOTH[0],
                one_pass=True,
                n_iter=6,
                random_state=seed,
            ).theta

        return fit

    tapes = [record(run(seed), (X, y))[1] for seed in range(40)]
    assert noise_p_value(tapes) > 1e-6


# ---------------------------------------------------------------- utility, refusals
def test_private_points_are_nearly_stationary():
    X, y = sample(20_000, 3)
    problem = Problem(Welsch(0.7), L2Ball(1.0))
    start = gap(problem, X, y, np.zeros(3))
    for name, choices in ((BOTH[0], {"n_iter": 100}), (BOTH[1], {})):
        end = solve(
            problem,
            X,
            y,
            budget=Budget(1.0, 1e-6),
            solver=name,
            random_state=0,
            **{**choices, "iterate": 80},
        )
        assert gap(problem, X, y, end.theta) < 0.25 * start


@dataclass(frozen=True)
class Undeclared(Absolute):
    convex: ClassVar[bool] = False


def test_refusals():
    def sentence(name, problem, budget=BUDGET, n=20):
        facts = Facts(problem, n, problem.dimension(3), budget.neighbouring)
        return catalogue()[name].refuse(facts, budget)

    ball = L2Ball(1.0)
    assert "declared weak-convexity constant" in sentence(BOTH[1], Problem(Undeclared(), ball))
    assert "proximal_guided" in sentence(BOTH[0], Problem(PhaseRetrieval(1.0), ball))
    assert "bounded" in sentence(BOTH[0], Problem(Welsch()))
    for domain in (Box(0.0, 1.0), Simplex(1.0), LpBall(3.0, 1.0), L2Ball(1.0, centre=[1, 1, 1])):
        assert "ball around the origin" in sentence(BOTH[1], Problem(Welsch(), domain))
    assert "zero_out" in sentence(BOTH[1], Problem(Welsch(), ball), Budget(1.0, 1e-5, "add_remove"))
    assert "at least 2 records" in sentence(BOTH[1], Problem(Welsch(), ball), n=1)
    for name in BOTH:
        assert "promise more" in sentence(name, Problem(Huber(), ball))
    X, y = np.ones((20, 3)), np.ones(20)
    for name, choices in (
        (BOTH[0], {"n_iter": 0}),
        (BOTH[0], {"step": 1.5}),
        (BOTH[0], {"slope_clip": 0.0}),
        (BOTH[0], {"iterate": 5000}),
        (BOTH[0], {"n_iter": 11, "one_pass": True}),
        (BOTH[1], {"rounds": 11}),
        (BOTH[1], {"phases": 0}),
        (BOTH[1], {"n_iter": 0}),
        (BOTH[1], {"iterate": -1}),
    ):
        with pytest.raises(ValueError, match=next(iter(choices))):
            solve(Problem(Welsch(), ball), X, y, budget=BUDGET, solver=name, **choices)
    for budget, n, words in (
        (Budget(1.0), 20, "delta > 0 in one pass"),
        (Budget(1.0, 1e-5, "add_remove"), 20, "zero_out"),
        (BUDGET, 1, "at least 2 records"),
    ):
        with pytest.raises((ValueError, Refused), match=words):
            make_plan(BOTH[0], Problem(Welsch(), ball), budget, n, 3, one_pass=True)
