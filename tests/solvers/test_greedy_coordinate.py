"""Coordinate methods: their scores' reach, their noise, exact privacy, and where they get."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize_scalar

from privopt import Budget, Problem, solve
from privopt.audit import hostile_pairs, record, replay
from privopt.audit.replay import in_units
from privopt.facts import Facts
from privopt.geometry import Box, L1Ball, Separable, WholeSpace
from privopt.losses import Logistic, PhaseRetrieval, Squared
from privopt.mechanisms.greedy_scores import GreedyScores
from privopt.noise import SilentSource
from privopt.oracle import Oracle
from privopt.privacy import Accountant, spend
from privopt.privacy.budget import NEIGHBOURING
from privopt.privacy.kinds import BoundedRange, GaussianKind, Pure
from privopt.solvers import Plan, declare, execute, row_bounds, solver_named

SOLVER = solver_named("greedy_coordinate")
RULES = ["gs-s", "gs-r", "gs-q"]
PENALTIES = {
    "none": Separable(),
    "l1": Separable(l1=0.7),
    "l2": Separable(l2=1.3),
    "box": Separable(low=-0.5, high=1.0),
    "all": Separable(0.4, 0.9, -1.0, 0.5),
}
PROBLEM = Problem(Logistic(), WholeSpace(), column_bounds=1.0)


# Whole slopes and public steps: the algorithm without what data-free defaults add.
PLAIN = {"slope_clip": 1.0, "step_factor": 1.0, "curvature_share": 0.0}


def make_plan(problem=PROBLEM, n=50, p=3, budget=None, name="greedy_coordinate", **choices):
    budget, solver = budget or Budget(1.0, 1e-6), solver_named(name)
    facts = Facts(problem, n, problem.dimension(p), budget.neighbouring)
    return Plan(solver, facts, budget, solver.settings(facts, budget, **choices))


def silent_run(plan, X, y):
    source, problem = SilentSource(), plan.facts.problem
    oracle = Oracle.over(
        X,
        y,
        neighbouring="zero_out",
        bounds=row_bounds(plan),
        source=source,
        classification=problem.loss.classification,
    )
    (theta,), _ = execute(plan, [oracle], source)
    return theta


# ------------------------------------------------------------ the penalty
@pytest.mark.parametrize("name", PENALTIES)
def test_prox_and_slopes_of_the_penalty(name):
    """Against a one-dimensional search, and against one-sided difference quotients."""
    penalty, rng = PENALTIES[name], np.random.default_rng(0)
    low, high = max(float(penalty.low), -9.0), min(float(penalty.high), 9.0)
    for x, step in zip(3 * rng.normal(size=20), rng.uniform(0.1, 2, size=20), strict=True):

        def objective(z, x=x, step=step):
            return (z - x) ** 2 / (2 * step) + float(penalty.value(z))

        best = minimize_scalar(objective, bounds=(low, high), options={"xatol": 1e-10})
        found = float(penalty.prox(x, step))
        assert low <= found <= high
        assert objective(found) <= objective(best.x) + 1e-9
    for theta, g in itertools.product([low, 0.0, 0.3, high], [-2.0, -0.5, 0.1, 0.6, 3.0]):
        slopes = []
        for sign in (1.0, -1.0):
            h = sign * 1e-7
            if penalty.low <= theta + h <= penalty.high:
                change = g * h + float(penalty.value(theta + h) - penalty.value(theta))
                slopes.append(change / abs(h))
        expected = max(0.0, -min(slopes))
        assert penalty.slope_distance(theta, g) == pytest.approx(expected, abs=1e-5)


def test_penalties_that_mean_nothing_are_refused():
    for wrong in ({"l1": -1.0}, {"l2": math.nan}, {"low": 1.0, "high": 0.0}):
        with pytest.raises(ValueError, match=r"penalties|box needs"):
            Separable(**wrong)
    with pytest.raises(ValueError, match="does not split"):
        Separable.over(L1Ball(1.0), 0.0, 0.0)


# ------------------------------------------------------------ the scores
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", PENALTIES)
def test_scores_move_no_further_than_declared(rule, name):
    """1/sqrt(M_j) each; random pairs stay below it, and close pairs reach it."""
    rng, penalty, p = np.random.default_rng(1), PENALTIES[name], 40
    smoothness = rng.uniform(0.2, 5.0, size=p)
    at = np.clip(rng.normal(size=p) * rng.integers(0, 2, size=p), penalty.low, penalty.high)
    scores = GreedyScores(rule, at, smoothness, penalty)
    steepest = np.zeros(p)
    for _ in range(300):
        one = 4 * rng.normal(size=p)
        other = one + rng.normal(size=p) * 10.0 ** rng.uniform(-3, 1)
        moved = np.abs(scores.apply(one) - scores.apply(other))
        steepest = np.maximum(steepest, moved / np.abs(one - other))
    assert (steepest <= (1 + 1e-6) / np.sqrt(smoothness)).all()
    if penalty.l2 == 0 or rule == "gs-s":  # a ridge makes the best step shorter
        assert steepest.max() >= 0.95 / np.sqrt(smoothness[np.argmax(steepest)])
    radius = rng.uniform(0.1, 1.0, size=p)
    each = np.sort(radius / np.sqrt(smoothness))
    assert scores.stretch(radius) == pytest.approx(each[-1] + each[-2])


@pytest.mark.parametrize("rule", RULES)
def test_all_rules_agree_without_a_penalty(rule):
    g, smoothness = np.array([1.0, -6.0, 0.5]), np.array([1.0, 4.0, 0.25])
    found = GreedyScores(rule, np.zeros(3), smoothness, Separable()).apply(g)
    np.testing.assert_allclose(found, [1.0, 3.0, 1.0])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", ["none", "l1", "l2", "both"])
def test_scores_of_zero_coefficients_are_those_of_the_definition(rule, name):
    penalty = PENALTIES.get(name, Separable(l1=0.7, l2=1.3))
    rng = np.random.default_rng(2)
    g, smoothness = 2 * rng.normal(size=50), rng.uniform(0.2, 5.0, size=50)
    at = rng.normal(size=50) * (rng.random(50) < 0.3)
    scores = GreedyScores(rule, at, smoothness, penalty)
    np.testing.assert_allclose(scores.apply(g), scores._scores(slice(None), g), atol=1e-12)
    assert (g == 2 * np.random.default_rng(2).normal(size=50)).all()  # the sealed value is whole


def test_the_decrease_itself_is_no_score():
    """Q_j = g_j^2 / (2 M_j) moves without bound: its root is what gs-q takes."""
    smooth = np.ones(1)
    score = GreedyScores("gs-q", np.zeros(1), smooth, Separable())
    far = [float(score.apply(np.array([g]))[0]) for g in (1e3, 1e3 + 1)]
    assert far[1] - far[0] == pytest.approx(1.0)
    assert far[1] ** 2 / 2 - far[0] ** 2 / 2 > 1000


# ------------------------------------------------------------ noise and privacy
def hostile(relation, p=2):
    X, y = np.zeros((4, p)), np.ones(4)
    X[3] = np.resize([9.0, 0.0], p)
    if relation == "add_remove":
        return (X, y), (X[:3], y[:3])
    X2 = X.copy()
    X2[3] = np.resize([0.0, 9.0], p) if relation == "replace_one" else np.nan
    return (X, y), (X2, y)


@pytest.mark.parametrize("relation", NEIGHBOURING)
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_the_releases_of_one_step(relation, noise):
    """A choice of range a c 2/sqrt(n M) and a coordinate of reach a c B, as the events say."""
    budget = Budget(1.0, 1e-6, relation)
    plan = make_plan(n=4, p=2, budget=budget, n_iter=1, noise=noise)

    def run(X, y):
        return solve(
            PROBLEM,
            X,
            y,
            budget=budget,
            solver="greedy_coordinate",
            random_state=0,
            n_public=4,
            n_iter=1,
            noise=noise,
        ).theta

    choice, update, *rest = record(run, hostile(relation)[0])[1].releases
    clip = plan.settings.slope_clip
    assert clip == 0.5  # logistic slopes at the start
    twice = 2 if relation == "replace_one" else 1
    assert choice.sensitivity.radius == pytest.approx(twice * clip * 2 / math.sqrt(4 * 0.25))
    assert update.sensitivity.radius == pytest.approx(twice * clip)
    m, share = plan.settings.noise_multiplier, plan.settings.share
    if noise == "gaussian":
        assert choice.event.kinds == (BoundedRange(1 / (m / (2 * math.sqrt(share)))),)
        (squares,), curvature = rest, plan.settings.curvature_share
        assert squares.sensitivity.radius == 1.0  # of squares in [0, 1], whatever the relation
        for release, part in ((update, 1 - share - curvature), (squares, curvature)):
            assert isinstance(release.event.kinds[0], GaussianKind)
            assert release.event.kinds[0].mu == pytest.approx(math.sqrt(part) / m)
    else:
        assert rest == []
        assert choice.event.kinds == (Pure(1 / (m / 2)),)
        assert update.event.kinds == (Pure(1 / m),)


@pytest.mark.parametrize("relation", NEIGHBOURING)
@pytest.mark.parametrize(("noise", "delta"), [("gaussian", 1e-5), ("laplace", 1e-5), ("pure", 0.0)])
def test_penalties_withstand_replay(relation, noise, delta):
    """With every penalty and rule, the sealed scores move within their range."""
    problem = Problem(Squared(residual_clip=1.0), Box(-0.3, 0.4), column_bounds=1.0, l2=0.1)
    for rule in RULES:

        def run(X, y, rule=rule):
            found = solve(
                problem,
                X,
                y,
                budget=Budget(1.0, delta, relation),
                solver="greedy_coordinate",
                random_state=0,
                n_public=60,
                n_iter=3,
                rule=rule,
                noise=noise,
                l1=0.02,
            )
            return found.theta, found.certificate.to_json()

        pairs = hostile_pairs(relation, classification=False)
        run(*pairs[0].first)
        assert {pair.name: found for pair in pairs[::4] if (found := replay(run, pair))} == {}


@pytest.mark.parametrize("relation", NEIGHBOURING)
def test_the_choice_on_its_worst_neighbours(relation):
    """Exact log-odds of the first choice: within eta, and more than half of it (at the start all
    scores are absolute values, which a single record cannot push apart in both directions unless
    another record's pull is there to cancel)."""
    budget = Budget(1.0, 1e-6, relation)
    plan = make_plan(n=4, p=2, budget=budget, n_iter=1)
    laws = []
    for X, y in hostile(relation):
        seen = []

        def hook(mechanism, payload, sensitivity, event, run, seen=seen):
            seen.append(payload / (mechanism.multiplier * sensitivity.radius))
            return 0 if len(seen) == 1 else np.zeros(1)

        from privopt.mechanisms import Gate

        source = SilentSource()
        oracle = Oracle.over(X, y, neighbouring=relation, bounds=row_bounds(plan), source=source)
        SOLVER.run(oracle, Gate(source, hook=hook), PROBLEM, plan.settings)
        laws.append(seen[0] - np.logaddexp.reduce(seen[0]))
    eta = 2 * math.sqrt(plan.settings.share) / plan.settings.noise_multiplier
    assert np.ptp(laws[0] - laws[1]) <= eta * (1 + 1e-12)
    assert np.ptp(laws[0] - laws[1]) >= 0.2 * eta


@pytest.mark.parametrize("steps", [1, 8, 64])
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_the_budget_is_spent_and_not_overspent(steps, noise):
    budget = Budget(1.0, 1e-6)
    plan = make_plan(budget=budget, n_iter=steps, noise=noise)
    found = Accountant("zero_out").epsilon(spend(declare(plan)), 1e-6)
    assert 0.985 <= found <= 1 + 1e-9
    quiet = replace(
        plan,
        settings=replace(plan.settings, noise_multiplier=plan.settings.noise_multiplier / 2),
    )
    assert Accountant("zero_out").epsilon(spend(declare(quiet)), 1e-6) > 1.7


def test_printed_laplace_scale_is_honest_only_by_slack():
    """The paper's epsilon' = epsilon / (4 sqrt(T log(1/delta))), choice and update each with noise
    Delta/epsilon': the choice is 2 epsilon'-DP, and the total stays below epsilon by slack."""
    steps, delta = 16, 1e-6
    each = 1 / (4 * math.sqrt(steps * math.log(1 / delta)))
    plan = make_plan(budget=Budget(1.0, delta), n_iter=steps, noise="laplace")
    printed = replace(plan, settings=replace(plan.settings, noise_multiplier=1 / each))
    log = declare(printed)
    found = sorted({event.kinds[0].pure("zero_out") for event in log})
    assert found == pytest.approx([each, 2 * each])
    assert 0.3 < Accountant("zero_out").epsilon(spend(log), delta) < 1.0
    assert plan.settings.noise_multiplier < 1 / each


def _noise_of(release):
    return float(release.result[0] - in_units(release.payload, release.sensitivity)[0])


@pytest.mark.statistical
def test_variance_of_an_update():
    """(a c B)^2 T / (2 rho share) of a sum; 800 releases, 20 %."""
    budget, steps = Budget(1.0, 1e-6, "replace_one"), 4
    plan = make_plan(n=30, p=1, budget=budget, n_iter=steps)
    X, y = np.ones((30, 1)), np.ones(30)
    from privopt.privacy.profiles import concentrated_rho

    noise, squares = [], []
    for seed in range(200):

        def run(X, y, seed=seed):
            return solve(
                PROBLEM,
                X,
                y,
                budget=budget,
                solver="greedy_coordinate",
                random_state=seed,
                n_iter=steps,
            ).theta

        tape = record(run, (X, y))[1]
        noise += [_noise_of(release) for release in tape.releases[1::3]]
        squares += [_noise_of(release) for release in tape.releases[2::3]]
    rho = concentrated_rho(1.0, 1e-6)
    # a = 2 and c = 1/2; squares move by 1 under every relation
    assert np.var(noise) == pytest.approx(steps / (2 * rho * 0.25), rel=0.2)
    assert np.var(squares) == pytest.approx(steps / (2 * rho * 0.05), rel=0.2)
    assert plan.settings.n_iter == steps


# ------------------------------------------------------------ where they get
def exact_greedy(X, y, steps, penalty, factor=1.0):
    """Greedy coordinate descent on the mean, written out."""
    n, p = X.shape
    theta, smooth = np.zeros(p), np.full(p, 0.25)
    for _ in range(steps):
        g = -(y / (1 + np.exp(y * (X @ theta)))) @ X / n
        gains = np.zeros(p)
        for j in range(p):
            new = float(penalty.prox(theta[j] - g[j] / smooth[j], 1 / smooth[j]))
            d = new - theta[j]
            gains[j] = -g[j] * d - smooth[j] / 2 * d * d
            gains[j] -= float(penalty.value(new) - penalty.value(theta[j]))
        j = int(np.argmax(gains))
        theta[j] = float(penalty.prox(theta[j] - factor * g[j] / smooth[j], factor / smooth[j]))
    return theta


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.0), (0.02, 0.1)])
@pytest.mark.parametrize("domain", [WholeSpace(), Box(-0.2, 0.5)], ids=repr)
def test_without_noise_it_is_exact_greedy_descent(sparse, l1, l2, domain):
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, size=(80, 6)) * (rng.random((80, 6)) < 0.6)
    y = np.where(rng.random(80) < 1 / (1 + np.exp(-4 * X[:, 0] + 2 * X[:, 3])), 1.0, -1.0)
    problem = replace(PROBLEM, l2=l2, domain=domain)
    plan = make_plan(problem, 80, 6, n_iter=25, l1=l1, discrete_noise=False, **PLAIN)
    found = silent_run(plan, sp.csr_array(X) if sparse else X, y)
    expected = exact_greedy(X, y, 25, Separable.over(domain, l1, l2))
    np.testing.assert_allclose(found, expected, atol=1e-10)
    if l1:
        assert 0 < np.count_nonzero(found) < 6
    assert domain.contains(found)


@pytest.mark.parametrize("name", ["greedy_coordinate", "coordinate_descent"])
def test_without_noise_it_solves_the_lasso(name):
    """To the optimality conditions of the l1-penalised problem on a box."""
    rng = np.random.default_rng(4)
    X = rng.uniform(-1, 1, size=(200, 5))
    y = np.clip(X @ [0.9, -0.6, 0.0, 0.0, 0.2] + 0.1 * rng.normal(size=200), -2, 2)
    problem = Problem(Squared(residual_clip=10.0), Box(-0.5, 0.5), column_bounds=1.0)
    plan = make_plan(problem, 200, 5, name=name, n_iter=600, l1=0.02)
    theta = silent_run(plan, X, y)
    g = X.T @ (X @ theta - y) / 200
    penalty = Separable(0.02, 0.0, -0.5, 0.5)
    assert penalty.slope_distance(np.where(np.abs(theta) < 1e-9, 0, theta), g).max() < 1e-3
    assert theta[0] == pytest.approx(0.5, abs=1e-6)


@pytest.mark.statistical
def test_greedy_beats_random_where_few_coefficients_matter():
    """5-sparse logistic regression, p = 200: relative gap, mean of 3 runs."""
    rng = np.random.default_rng(5)
    n, p = 2000, 200
    X = np.clip(rng.normal(size=(n, p)), -2, 2) / 2
    theta = np.zeros(p)
    theta[:5] = [4, -4, 3, -3, 3]
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-X @ theta)), 1.0, -1.0)
    budget = Budget(1.0, 1 / n**2)

    def risk(w):
        return float(np.logaddexp(0, -y * (X @ w)).mean())

    good = risk(theta)

    def gap(name, **choices):
        found = [
            solve(PROBLEM, X, y, budget=budget, solver=name, random_state=s, **choices).theta
            for s in range(3)
        ]
        return (np.mean([risk(w) for w in found]) - good) / (math.log(2) - good)

    greedy = gap("greedy_coordinate", n_iter=12, step_factor=4.0, slope_clip=0.5)
    assert greedy < 0.55
    assert greedy < 0.75 * gap("coordinate_descent", n_iter=200, step_factor=4.0, slope_clip=0.5)


# ------------------------------------------------------------ refusals
def test_refusals_are_sentences():
    for name in ("greedy_coordinate", "coordinate_descent"):
        solver = solver_named(name)

        def refused(problem, solver=solver):
            return solver.refuse(Facts(problem, 10, 3, "zero_out"), Budget(1.0))

        assert "Box or WholeSpace" in refused(Problem(Logistic(), L1Ball(1.0)))
        assert "smooth" in refused(Problem(PhaseRetrieval(0.5)))
        assert "Lipschitz" in refused(Problem(Squared()))
        wrong = [{"n_iter": 0}, {"slope_clip": -1.0}, {"step_factor": 0.0}, {"l1": -1.0}]
        for choice in wrong:
            with pytest.raises(ValueError, match="must be"):
                make_plan(name=name, **choice)
    for choice in ({"rule": "best"}, {"share": 1.0}, {"noise": "loud"}):
        with pytest.raises(ValueError, match="must"):
            make_plan(**choice)
    with pytest.raises(ValueError, match="delta=0"):
        make_plan(budget=Budget(1.0), noise="gaussian")


@pytest.mark.statistical
@pytest.mark.parametrize(("factor", "found"), [(1.0, False), (0.5, True)])
def test_choices_with_half_the_noise_are_found(monkeypatch, factor, found):
    """One choice out of four coordinates says little, 480 of them enough. False alarm: 1e-4."""
    from privopt.audit import noise_p_value
    from privopt.mechanisms import selection

    scale = selection._scale
    monkeypatch.setattr(selection, "_scale", lambda m, sensitivity: factor * scale(m, sensitivity))
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(150, 4))
    y = np.where(rng.random(150) < 1 / (1 + np.exp(-X @ [4.0, -3.0, 1.0, 0.0])), 1.0, -1.0)
    tapes = []
    for seed in range(120):

        def run(X, y, seed=seed):
            budget = Budget(1.0, 1e-5)
            return solve(
                PROBLEM,
                X,
                y,
                budget=budget,
                solver="greedy_coordinate",
                random_state=seed,
                n_iter=4,
            ).theta

        tapes.append(record(run, (X, y))[1])
    p = noise_p_value(tapes)
    assert (p < 1e-6) if found else (p > 1e-4)


# ------------------------------------------------------------ private lengths of steps
def test_a_step_uses_released_squares():
    """Without noise: the sum of squares and two declared standard deviations on top; the estimate
    of a column that is chosen again is the mean of its releases."""
    from privopt.mechanisms.coordinate_steps import ColumnSquares

    rng = np.random.default_rng(6)
    X = rng.uniform(-0.3, 0.3, size=(4000, 2))
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    plan = make_plan(n=4000, p=2, budget=Budget(50.0, 1e-6), n_iter=1, step_factor=1.0)
    theta = silent_run(plan, X, y)
    settings = plan.settings
    spread = settings.noise_multiplier / math.sqrt(settings.curvature_share)
    g = -0.5 * y @ X[:, 0]
    assert theta[0] == pytest.approx(-g / (0.25 * (X[:, 0] @ X[:, 0] + 2 * spread)))
    assert theta[1] == 0
    public = silent_run(
        replace(plan, settings=make_plan(n=4000, p=2, n_iter=1, **PLAIN).settings), X, y
    )
    assert theta[0] > 5 * public[0]
    squares = ColumnSquares(np.array([1.0, 0.5]), 100, 3.0)
    assert squares.learn(0, 10.0) == pytest.approx(16.0)
    assert squares.learn(0, 20.0) == pytest.approx(15.0 + 6.0 / math.sqrt(2))
    assert squares.learn(1, -50.0) == pytest.approx(2 * 3.0 * 0.25)
    assert squares.learn(1, 1e9) == pytest.approx(100 * 0.25)


def test_default_settings_come_from_public_facts():
    """Slopes of the start while noise prevails, whole slopes after; more budget, more steps."""
    few, many = (make_plan(n=n, p=50, budget=Budget(1.0, 1e-6)).settings for n in (500, 200_000))
    assert (few.slope_clip, many.slope_clip) == (0.5, 1.0)
    assert few.n_iter < many.n_iter
    assert few.step_factor == 1.5
    clipped = Problem(Squared(residual_clip=0.7), WholeSpace(), column_bounds=1.0)
    settings = make_plan(clipped).settings
    assert (settings.slope_clip, settings.step_factor) == (0.7, 1.0)
    assert make_plan(noise="laplace").settings.curvature_share == 0
    steps = [make_plan(n=1000, p=100, budget=Budget(e, 1e-6)).settings.n_iter for e in (0.5, 1, 4)]
    assert steps == sorted(set(steps))
    for wrong in ({"curvature_share": 0.3}, {"curvature_share": -0.1}, {"share": math.nan}):
        with pytest.raises(ValueError, match="must lie"):
            make_plan(**wrong)
    with pytest.raises(ValueError, match="public steps"):
        make_plan(noise="laplace", curvature_share=0.1)


# ------------------------------------------------------------ least squares by their Gram matrix
SQUARES = Problem(Squared(residual_clip=1.5), WholeSpace(), column_bounds=1.0, l2=0.01)


def squares_data(n=300, p=6, seed=7):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, p))
    return X, np.clip(X @ np.r_[0.4, -0.2, np.zeros(p - 2)] + 0.1 * rng.normal(size=n), -0.5, 0.5)


@pytest.mark.parametrize("sparse", [False, True])
def test_gram_mode_takes_the_same_steps(sparse):
    """Same releases, so the same theta with the same seed, as long as it stays in its room."""
    X, y = squares_data()
    X = sp.csr_array(X) if sparse else X
    found = [
        solve(
            SQUARES,
            X,
            y,
            budget=Budget(8.0, 1e-6),
            solver="greedy_coordinate",
            random_state=0,
            n_iter=12,
            label_bound=bound,
            discrete_noise=False,
        )
        for bound in (0.0, 0.5)
    ]
    np.testing.assert_allclose(found[0].theta, found[1].theta, atol=1e-9)
    assert np.abs(found[0].theta).sum() < 1.0
    assert found[0].certificate.epsilon == found[1].certificate.epsilon


@pytest.mark.parametrize("relation", NEIGHBOURING)
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_gram_mode_withstands_replay(relation, delta):
    def run(X, y):
        found = solve(
            SQUARES,
            X,
            y,
            budget=Budget(1.0, delta, relation),
            solver="greedy_coordinate",
            random_state=0,
            n_public=60,
            n_iter=5,
            step_factor=20.0,  # far: the room is felt
            label_bound=0.5,
        )
        assert np.abs(found.theta).sum() <= 1.0 + 1e-12
        return found.theta, found.certificate.to_json()

    pairs = hostile_pairs(relation, classification=False)
    assert {pair.name: found for pair in pairs[::3] if (found := replay(run, pair))} == {}


def test_gram_mode_refuses_what_it_cannot_bound():
    for problem, bound, match in (
        (PROBLEM, 0.3, "squared loss"),
        (SQUARES, 1.5, "between 0 and"),
        (SQUARES, -1.0, "between 0 and"),
        (SQUARES, math.nan, "between 0 and"),
    ):
        with pytest.raises(ValueError, match=match):
            make_plan(problem, label_bound=bound)
    with pytest.raises(ValueError, match="too large"):
        make_plan(SQUARES, p=20_000, label_bound=0.5)


# ------------------------------------------------------------ odd input
@pytest.mark.parametrize("name", ["greedy_coordinate", "coordinate_descent"])
@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("sparse", [False, True])
def test_odd_data_is_taken(name, p, sparse):
    """An empty column, rows of zeros, NaN, entries beyond the bounds, one step, one record."""
    X = np.full((5, p), 3.0)
    X[:, 0], X[1], X[2, -1] = 0.0, 0.0, np.nan
    y = np.array([1.0, -1.0, 1.0, 1.0, np.nan])
    for rows in (slice(None), slice(1), slice(0, 0)):
        for n_iter in (1, 3):
            found = solve(
                PROBLEM,
                sp.csr_array(X[rows]) if sparse else X[rows],
                y[rows],
                budget=Budget(1.0, 1e-6),
                solver=name,
                n_public=5,
                random_state=0,
                n_iter=n_iter,
            )
            assert np.isfinite(found.theta).all()
            assert np.count_nonzero(found.theta) <= n_iter


def test_features_outside_their_bounds_are_clipped():
    rng = np.random.default_rng(8)
    X, y = 3 * rng.normal(size=(40, 4)), np.where(rng.random(40) < 0.5, 1.0, -1.0)

    def run(X):
        return solve(
            PROBLEM,
            X,
            y,
            budget=Budget(5.0, 1e-6),
            solver="greedy_coordinate",
            random_state=0,
            n_iter=6,
        ).theta

    np.testing.assert_array_equal(run(X), run(np.clip(X, -1, 1)))


def test_a_single_column_is_chosen_whatever_the_noise():
    X, y = np.ones((50, 1)), np.ones(50)
    runs = [
        solve(
            PROBLEM,
            X,
            y,
            budget=Budget(20.0, 1e-6),
            solver="greedy_coordinate",
            random_state=s,
            n_iter=3,
        )
        for s in range(3)
    ]
    assert all(run.theta[0] > 0 for run in runs)


# ------------------------------------------------------------ figures
def lognormal_data(sigma, seed=2, n=1000, p=100):
    rng = np.random.default_rng(seed)
    X = np.clip(rng.standard_normal((n, p)), -2, 2) / 2
    theta = rng.lognormal(0, sigma, p) * rng.choice([-1, 1], p)
    with np.errstate(over="ignore"):
        return X, np.where(rng.random(n) < 1 / (1 + np.exp(-X @ theta)), 1.0, -1.0)


@pytest.mark.statistical
@pytest.mark.parametrize(("sigma", "most", "printed"), [(1, 0.768, 0.708), (2, 0.46, 0.40)])
def test_defaults_do_as_well_as_tuned_settings(sigma, most, printed):
    """Lognormal coefficients, replace_one, epsilon 1, delta 1/n^2: the relative gap of the
    data-free default, and of the plain algorithm at the best of two settings; mean of 10 runs."""
    from scipy.optimize import minimize

    X, y = lognormal_data(sigma)
    ridge = 1e-3

    def risk(w):
        z = y * (X @ w)
        pull = -(y * 0.5 * (1 - np.tanh(z / 2))) @ X / len(y) + ridge * w
        return np.logaddexp(0, -z).mean() + ridge / 2 * w @ w, pull

    best = minimize(risk, np.zeros(100), jac=True, method="L-BFGS-B").fun
    problem, budget = replace(PROBLEM, l2=ridge), Budget(1.0, 1e-6, "replace_one")

    def gap(**choices):
        found = [
            risk(
                solve(
                    problem,
                    X,
                    y,
                    budget=budget,
                    solver="greedy_coordinate",
                    random_state=s,
                    **choices,
                ).theta
            )[0]
            for s in range(10)
        ]
        return (np.mean(found) - best) / (math.log(2) - best)

    assert gap() <= most
    tuned = {"slope_clip": 0.5, "step_factor": 4.0, "curvature_share": 0.0, "share": 0.8}
    assert min(gap(n_iter=t, **tuned) for t in (4, 8)) == pytest.approx(printed, abs=0.06)
