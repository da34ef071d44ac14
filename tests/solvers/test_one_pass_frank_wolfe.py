"""One-pass Frank-Wolfe: sensitivities by exact enumeration and by replay, nodes, accounting."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from privopt import Budget, Problem, Refused, solve
from privopt.audit import hostile_pairs, replay
from privopt.facts import Facts
from privopt.geometry import L1Ball, L2Ball, LpBall, Simplex
from privopt.losses import Huber, Logistic, Squared, Welsch
from privopt.mechanisms import Gate
from privopt.noise import SeededSource, SilentSource
from privopt.oracle import (
    CoordinateClippedGradient,
    GradientDifference,
    Oracle,
    RowBounds,
    RunningSum,
)
from privopt.oracle.sealed import KEY
from privopt.privacy import Accountant, spend
from privopt.privacy.kinds import BoundedRange, Concentrated
from privopt.solvers import Plan, catalogue, declare
from privopt.solvers.families.trees import largest_batch, leaves

from .choices import exact_law

ALL = ("tree_sfw", "poly_sfw", "variance_reduced_sfw")


def make_plan(name, problem, budget, n, p, **choices):
    solver = catalogue()[name]
    facts = Facts(problem, n, p, budget.neighbouring)
    return Plan(solver, facts, budget, solver.settings(facts, budget, **choices))


def oracle_of(plan, X, y, source):
    return Oracle.over(
        X,
        y,
        neighbouring=plan.budget.neighbouring,
        bounds=plan.solver.row_bounds(plan.facts.problem),
        source=source,
        classification=plan.facts.problem.loss.classification,
    )


# ---------------------------------------------------------------- the tree itself
@pytest.mark.parametrize("phases", [1, 2, 3, 5])
def test_the_tree_by_recursion(phases):
    """Against the definition: a recursion over left and right children, depth first."""
    batch = 64
    expected, counter = [], [0]

    def visit(phase, depth, start, fresh):
        if depth == phase:
            size, at, entered = fresh
            step = 2 / (counter[0] + 2)
            expected.append((phase, at, size, entered, step))
            counter[0] += 1
            return
        visit(phase, depth + 1, start, fresh)
        now = counter[0]
        kept = math.prod(1 - 2 / (k + 2) for k in range(start, now))
        visit(phase, depth + 1, now, (batch // 2 ** (depth + 1), depth + 1, 1 - kept))

    for phase in range(1, phases + 1):
        visit(phase, 0, counter[0], (batch, 0, 1.0))
    found = leaves(phases, batch)
    assert len(found) == len(expected) == 2 ** (phases + 1) - 2
    for leaf, (phase, depth, size, share, step) in zip(found, expected, strict=True):
        assert (leaf.phase, leaf.depth, leaf.size) == (phase, depth, size)
        assert leaf.share == pytest.approx(share, abs=1e-12)
        assert leaf.step == step
    # A node serves the leaves until the next node of its depth or above begins.
    for index, leaf in enumerate(found):
        later = [k for k in range(index + 1, len(found)) if found[k].depth <= leaf.depth]
        assert leaf.uses == (later[0] if later else len(found)) - index


@pytest.mark.parametrize("n", [3, 10, 101, 4096])
def test_every_record_is_in_one_node(n):
    for phases in range(1, 8):
        batch = largest_batch(n, phases)
        if batch:
            sizes = [leaf.size for leaf in leaves(phases, batch)]
            assert min(sizes) >= 1
            assert sum(sizes) <= n


def test_parts_are_disjoint_and_cut_once():
    source = SilentSource()
    X = np.arange(10.0)[:, None]
    oracle = Oracle.over(
        X, np.ones(10), neighbouring="zero_out", bounds=RowBounds(100.0), source=source
    )
    parts = oracle.parts([3, 1, 4])
    assert [part._rows._X.ravel().tolist() for part in parts] == [[0, 1, 2], [3], [4, 5, 6, 7]]
    assert [part._cell for part in parts] == [(0,), (1,), (2,)]
    with pytest.raises(Refused, match="already cut"):
        oracle.parts([2, 2])
    with pytest.raises(ValueError, match="at least one"):
        oracle.parts([2, 0])
    other = Oracle.over(
        X, np.ones(10), neighbouring="add_remove", bounds=RowBounds(100.0), source=source
    )
    with pytest.raises(Refused, match="shift"):
        other.parts([3, 3])


# ---------------------------------------------------------------- the sensitivity of a difference
def test_exact_enumeration_of_one_tree_phase(monkeypatch):
    """All 16 paths of one phase in the plane, for one replaced record of the right child.

    The exact Renyi divergence is at most what the certificate charges the record's node, and well
    above a quarter of it, which half of the sensitivity would give: replacing a record moves a
    difference of gradients by two records' differences, min(2 L0, L1 * movement) each.
    """
    monkeypatch.setattr(Oracle, "shuffled", lambda self: self)
    problem = Problem(Huber(0.5), L1Ball(1.0), column_bounds=1.0)
    plan = make_plan("tree_sfw", problem, Budget(1.0, 1e-5, "replace_one"), 60, 2, phases=1)
    assert plan.settings.batch_size == 40
    # The root pulls towards (1, 0). From there ten records of the right child change their slope
    # from -1/2 to 1/2 and take that back, so that the second choice hangs on the last one, whose
    # difference is (1, 1) or (1, -1). The others (label 1.5) do not change their slope.
    up, down = [1.0, 1.0], [1.0, -1.0]
    X = np.array([up, down] * 20 + [up, down] * 4 + [[1.0, 0.0]] + [up] * 10 + [up])
    y = np.array([0.5] * 49 + [1.5] * 10 + [0.5])
    X_other = X.copy()
    X_other[-1] = down
    reached = 0.0
    for multiplier in (1.0, 2.0, 4.0, 8.0):
        loud = replace(plan, settings=replace(plan.settings, noise_multiplier=multiplier))
        (step,) = spend(declare(loud)).leaves()[(1,)]
        (kind,) = step.kinds
        assert isinstance(kind, Concentrated)
        one, other = exact_law(loud, X, y, 2, 4), exact_law(loud, X_other, y, 2, 4)
        assert one.sum() == pytest.approx(1.0)
        for alpha in (1.01, 2.0, 8.0, 32.0):
            terms = alpha * np.log(one) + (1 - alpha) * np.log(other)
            divergence = float(np.logaddexp.reduce(terms)) / (alpha - 1)
            assert divergence <= alpha * kind.rho * (1 + 1e-9)
            reached = max(reached, divergence / (alpha * kind.rho))
    assert reached > 1.5 * 0.25


@pytest.mark.parametrize("name", ["tree_sfw", "poly_sfw", "stationary_frank_wolfe"])
@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_neighbouring_streams_with_one_transcript(name, relation, monkeypatch):
    """Every record in turn is changed: the estimates move by no more than the path's radius for its
    cell, with its decay, not at all before its entry, and by over 0.3 of it somewhere."""
    monkeypatch.setattr(Oracle, "shuffled", lambda self: self)
    # Both losses are steepest at a residual of 1/2.
    loss = Welsch(math.sqrt(0.5)) if name == "stationary_frank_wolfe" else Huber(0.5)
    problem = Problem(loss, L1Ball(1.0), column_bounds=1.0)
    choices = {
        "tree_sfw": {"phases": 3},
        "poly_sfw": {"batch_size": 3, "step": 0.3},
        "stationary_frank_wolfe": {"one_pass": True, "n_iter": 11, "step": 0.3},
    }[name]
    plan = make_plan(name, problem, Budget(1.0, 1e-5, relation), 60, 2, **choices)
    # Loud noise makes the iterate jump between vertices.
    plan = replace(plan, settings=replace(plan.settings, noise_multiplier=1e3))
    rng = np.random.default_rng(0)
    X, y = rng.choice([-1.0, 1.0], size=(60, 2)), rng.choice([-0.5, 0.5], size=60)

    def run(X, y, answers=None):
        seen = []

        def hook(mechanism, payload, sensitivity, event, run):
            seen.append((payload.copy(), sensitivity))
            if answers is None:
                chosen.append(run())
                return chosen[-1]
            return answers[len(seen) - 1]

        chosen: list[int] = []
        source = SeededSource(4)
        gate = Gate(source, hook=hook)
        plan.solver.run(oracle_of(plan, X, y, source), gate, problem, plan.settings)
        return seen, chosen

    base, chosen = run(X, y)
    tight, first = {}, {}
    for record in range(60):
        changed = [(np.full(2, np.nan), 0.0)]
        if relation == "replace_one":
            corners = [[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]
            changed = [(np.array(x), label) for x in corners for label in (-0.5, 0.5)]
        for x, label in changed:
            X_other, y_other = X.copy(), y.copy()
            X_other[record], y_other[record] = x, label
            other, _ = run(X_other, y_other, chosen)
            entered = None
            for (one, sensitivity), (two, _) in zip(base, other, strict=True):
                path, step = sensitivity.running_sum.path, sensitivity.running_sum.step
                moved = float(np.ptp(one - two))
                if moved == 0.0:
                    continue
                if entered is None:
                    entered = path.cells[step]
                    assert first.setdefault(record, entered) == entered
                place = path.cells.index(entered)  # the cell is part of this sum
                decay = math.exp(path.log_decay[step] - path.log_decay[place])
                allowed = sensitivity.radius * path.radii[place] * decay
                assert moved <= allowed * (1 + 1e-9)
                kind = "first" if entered == (0,) else "later"
                tight[kind] = max(tight.get(kind, 0.0), moved / allowed)
    assert tight["first"] > 0.3
    assert tight["later"] > 0.3


@dataclass(frozen=True)
class Rough(Huber):
    """A loss that claims to be a hundred times smoother than it is.

    Of margin and label apart, so that no table holds it to that.
    """

    def slope(self, z, y):  # type: ignore[no-untyped-def]
        return super().slope(z, 1.5 * y)

    @property
    def smoothness(self):
        return 0.01


@pytest.mark.parametrize("name", ALL)
def test_privacy_does_not_rest_on_smoothness(name):
    relation, short = "replace_one", {"batch_size": 5} if name == "poly_sfw" else {"phases": 3}
    problem = Problem(Rough(0.5), L1Ball(2.0), column_bounds=1.0)
    budget = Budget(1.0, 1e-5, relation)

    def fit(X, y):
        found = solve(problem, X, y, budget=budget, solver=name, random_state=0, **short)
        return found.theta

    pairs = hostile_pairs(relation, classification=False)
    assert {pair.name: found for pair in pairs if (found := replay(fit, pair))} == {}


def test_a_difference_of_gradients_by_hand():
    rng = np.random.default_rng(1)
    X, y = rng.uniform(-1, 1, size=(30, 3)), rng.normal(size=30)
    X[4] = np.nan
    bounds = RowBounds(math.inf, 0.5, 1.0)
    oracle = Oracle.over(
        X,
        y,
        neighbouring="zero_out",
        bounds=bounds,
        source=SilentSource(),
        classification=False,
    )
    gradient = CoordinateClippedGradient(Huber(0.7), 0.6, bounds, 4)
    now, before = rng.normal(size=4), rng.normal(size=4)
    query = GradientDifference(gradient, before, 0.8, 0.3)
    found = oracle.everything().ask(query, now)
    assert found.sensitivity.radius == pytest.approx(0.3)
    rows = np.column_stack([X, np.full(30, 0.5)])
    expected = np.zeros(4)
    for row, label in zip(rows, y, strict=True):
        if np.isfinite(row).all():
            slopes = [
                np.clip(np.clip(row @ w - label, -0.7, 0.7), -0.6, 0.6) for w in (now, before)
            ]
            expected += np.clip(slopes[0] - 0.8 * slopes[1], -0.3, 0.3) * row
    np.testing.assert_allclose(found.open(KEY), expected, atol=1e-12)
    for bad in ((1.5, 0.3), (0.5, 0.0), (0.5, math.inf)):
        with pytest.raises(ValueError, match="clip"):
            GradientDifference(gradient, before, *bad)


# ---------------------------------------------------------------- accounting
@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_the_decaying_loss_of_a_record(relation):
    """Each cell's charge is the sum over later choices of range^2 / (8 scale^2), term by term."""
    problem = Problem(Squared(residual_clip=2.0), L1Ball(1.5), column_bounds=0.5)
    plan = make_plan("poly_sfw", problem, Budget(1.0, 1e-5, relation), 40, 3, batch_size=2)
    s, a = plan.settings, 2 if relation == "replace_one" else 1
    # c = 2, B = 1/2, smoothness 1, margin = B * 3; the clip of a difference of slopes.
    change = min((2 - s.step) * 2, s.step * 2 + (1 - s.step) * s.step * 1.5)
    assert s.difference_clip == pytest.approx(change)
    charges = spend(declare(plan)).leaves()
    assert len(charges) == 11
    for cell, charge in charges.items():
        (step,) = charge
        (kind,) = step.kinds
        k = cell[0]
        moved = a * 0.5 * (2 / 20 if k == 0 else change / 2)
        scale = s.noise_multiplier  # both range and noise carry the l1 diameter
        rho = sum((moved * (1 - s.step) ** (t - k)) ** 2 / (8 * scale**2) for t in range(k, 11))
        assert kind.rho == pytest.approx(rho, rel=1e-9)
    worst = max(next(iter(c)).kinds[0].rho for c in charges.values())
    assert Accountant(relation).epsilon(spend(declare(plan)), 1e-5) == pytest.approx(1.0, rel=0.01)
    assert worst == max(next(iter(charges[cell])).kinds[0].rho for cell in ((0,), (1,)))


def test_a_node_pays_for_the_leaves_it_serves():
    problem = Problem(Logistic(), Simplex(1.0))
    plan = make_plan("tree_sfw", problem, Budget(1.0, 1e-5), 200, 3, phases=3)
    schedule = leaves(3, plan.settings.batch_size)
    charges = spend(declare(plan)).leaves()
    assert len(charges) == len(schedule) == 14
    for index, leaf in enumerate(schedule):
        charge = charges[(index,)]
        assert sum(charge.values()) == leaf.uses
        total = sum(step.kinds[0].rho * count for step, count in charge.items())
        slope = min(2.0, 0.25 * leaf.share * plan.settings.margin) if leaf.depth else 1.0
        moved = slope * plan.settings.batch_size / leaf.size
        assert total == pytest.approx(
            leaf.uses * (moved / plan.settings.noise_multiplier) ** 2 / 8, rel=1e-9
        )


def test_every_node_of_the_l_p_tree_is_released_once():
    problem = Problem(Logistic(), LpBall(1.5, 1.0))
    plan = make_plan("variance_reduced_sfw", problem, Budget(1.0, 1e-5), 300, 3, phases=4)
    log = declare(plan)
    assert [event.cells for event in log] == [((index,),) for index in range(30)]
    assert all(sum(charge.values()) == 1 for charge in spend(log).leaves().values())
    assert {event.kinds[0].mu for event in log} == {1 / plan.settings.noise_multiplier}


def test_lanes_that_fork_share_what_they_share():
    """A cell before the fork pays for both branches, a cell after it for its own."""
    source = SilentSource()
    oracle = Oracle.over(
        np.ones((3, 2)), np.ones(3), neighbouring="zero_out", bounds=RowBounds(2.0), source=source
    )
    query = CoordinateClippedGradient(Logistic(), 1.0, oracle.bounds, 2)
    first, second, third = (part.everything().ask(query) for part in oracle.parts([1, 1, 1]))
    with pytest.raises(Refused, match="nothing has entered"):
        RunningSum().value()
    root = RunningSum()
    root.step(1.0, first)
    left, right = root.fork(), root.fork()
    left.step(0.5, second)
    right.step(1.0, third, 3.0)
    values = [running_sum.value() for running_sum in (root, left, right)]
    one = first.open(KEY)
    for value, factor in zip(values, (1.0, 1.5, 4.0), strict=True):
        np.testing.assert_allclose(value.open(KEY), factor * one)
    from privopt.mechanisms import ExponentialMechanism
    from privopt.mechanisms.maps import Spread

    gate = Gate(source)
    for value in values:
        gate.release(ExponentialMechanism(1.0), value.through(Spread()))
    assert all(event.kinds == (BoundedRange(1.0),) for event in gate.log)
    paid = {
        cell: sum(step.kinds[0].rho * count for step, count in charge.items())
        for cell, charge in spend(gate.log).leaves().items()
    }
    unit = 2.0**2 / 8  # entries of a row are at most 2
    assert paid[(0,)] == pytest.approx((1 + 0.25 + 1) * unit)
    assert paid[(1,)] == pytest.approx(unit)
    assert paid[(2,)] == pytest.approx(9 * unit)


# ---------------------------------------------------------------- utility, refusals
@pytest.mark.parametrize("name", ALL)
def test_without_noise_one_pass_finds_the_signal(name):
    rng = np.random.default_rng(0)
    n, p = 20_000, 8
    X = rng.choice([-1.0, 1.0], size=(n, p))
    truth = np.zeros(p)
    truth[:2] = 0.5, -0.3
    y = X @ truth + 0.1 * rng.normal(size=n)
    problem = Problem(Huber(1.0), L1Ball(1.0), column_bounds=1.0)
    short = {"poly_sfw": {"batch_size": 20, "step": 0.02}}.get(name, {"phases": 5})
    plan = make_plan(name, problem, Budget(1.0, 1e-6), n, p, **short)
    source = SilentSource()
    theta = plan.solver.run(oracle_of(plan, X, y, source), Gate(source), problem, plan.settings)
    excess = np.sum((theta - truth) ** 2) / 2
    assert excess <= 0.05 * np.sum(truth**2) / 2
    assert excess <= plan.settings.bound


@pytest.mark.parametrize("name", ALL)
def test_refusals(name):
    X, y, budget = np.ones((20, 3)), np.ones(20), Budget(1.0, 1e-5)
    good = Problem(Huber(), L1Ball(1.0))
    for problem, other, sentence in (
        (Problem(Huber(), L2Ball(1.0)), budget, "L1Ball"),
        (good, Budget(1.0), "delta > 0"),
        (good, Budget(1.0, 1e-5, "add_remove"), "zero_out"),
        (Problem(Squared(), L1Ball(1.0)), budget, "Lipschitz"),
    ):
        with pytest.raises(Refused, match=sentence):
            solve(problem, X, y, budget=other, solver=name, n_public=20)
    least = 2 if name == "poly_sfw" else 3
    with pytest.raises(Refused, match=f"at least {least} records"):
        solve(good, X[: least - 1], y[: least - 1], budget=budget, solver=name)
    assert solve(good, X[:least], y[:least], budget=budget, solver=name, random_state=0)
    bad = {"batch_size": 0} if name == "poly_sfw" else {"phases": 9}
    for choices in (bad, {"slope_clip": 0.0}):
        with pytest.raises(ValueError, match=next(iter(choices))):
            solve(good, X, y, budget=budget, solver=name, **choices)
