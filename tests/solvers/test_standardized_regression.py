"""Standardised regression: its account, the joint clip, its refusals, its audit.

The audit is seeded and states its false-alarm rate.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.linear_model import Ridge as RidgeOfScikitLearn

from privopt import Budget, Problem
from privopt.audit import Tape
from privopt.facts import Facts
from privopt.geometry import L2Ball
from privopt.losses import (
    Absolute,
    Gamma,
    Huber,
    Logistic,
    Poisson,
    SmoothedQuantile,
    Squared,
)
from privopt.losses.squared import width_for
from privopt.mechanisms import Gate, on_grid
from privopt.mechanisms import Gaussian as Noise
from privopt.mechanisms import objective_perturbation as perturbation
from privopt.mechanisms.standardizer import norm_bound
from privopt.noise import SeededSource, SilentSource
from privopt.oracle import LabelMoments, Oracle, RowBounds, RowMap
from privopt.privacy import Accountant, charge_of
from privopt.privacy.budget import NEIGHBOURING
from privopt.privacy.kinds import GaussianKind, ObjectiveGaussian, Pure
from privopt.solvers import Plan, catalogue, declare, row_bounds

from .formulas import gdp_mu
from .test_standardized_objective import gaussian_ratio, halved, lower_bound

SOLVER = catalogue()["standardized_regression"]
PROBLEM = Problem(Squared(residual_clip=0.5), intercept=1 / 3, column_bounds=1.0)
every_relation = pytest.mark.parametrize("relation", NEIGHBOURING)


def make_plan(
    epsilon=1.0, delta=1e-6, relation="zero_out", n=1000, features=3, problem=PROBLEM, **choices
):
    facts = Facts(problem, n, features + 1, relation)
    budget = Budget(epsilon, delta, relation)
    return Plan(SOLVER, facts, budget, SOLVER.settings(facts, budget, **choices))


def oracle_for(plan, X, y):
    return Oracle.over(
        X,
        y,
        neighbouring=plan.budget.neighbouring,
        bounds=row_bounds(plan),
        source=SeededSource(0),
        classification=False,
    )


def table(n, seed=0):
    rng = np.random.default_rng(seed)
    X = np.clip(rng.normal(0.2, [0.5, 0.3, 0.05], size=(n, 3)), -1, 1)
    y = 0.3 + 0.2 * X[:, 0] - 0.3 * X[:, 1] + 2 * X[:, 2] - 0.4 + 0.1 * rng.standard_normal(n)
    return X, np.clip(y, -1, 1)


# ------------------------------------------------------------ the account
@every_relation
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_the_certificate_holds_every_release(relation, epsilon):
    plan = make_plan(epsilon, 1e-6, relation)
    kinds = [kind for event in declare(plan) for kind in event.kinds]
    norms, moments, labels, objective, output = kinds
    mu = gdp_mu(epsilon, 1e-6)
    for kind, share in ((norms, 0.02), (moments, 0.10), (labels, 0.05), (output, 0.01)):
        assert isinstance(kind, GaussianKind)
        assert kind.mu == pytest.approx(mu * math.sqrt(share), rel=1e-6)
    assert isinstance(objective, ObjectiveGaussian)
    assert not objective.one_signed  # residuals change sign: the folded tail is counted
    charge = sum((charge_of(kind) for kind in kinds), Counter())
    found = Accountant(relation).epsilon(charge, 1e-6)
    assert 0.98 * epsilon <= found <= epsilon * (1 + 1e-9)
    for index in range(5):
        rest = [kind for place, kind in enumerate(kinds) if place != index]
        less = sum((charge_of(kind) for kind in rest), Counter())
        assert Accountant(relation).epsilon(less, 1e-6) < found


@every_relation
def test_the_pure_variant_adds_up_to_epsilon(relation):
    kinds = [kind for event in declare(make_plan(0.7, 0.0, relation)) for kind in event.kinds]
    assert all(isinstance(kind, Pure) for kind in kinds)
    shares = [kind.epsilon / 0.7 for kind in kinds[:3]]
    assert shares == pytest.approx([0.04, 0.12, 0.08])
    assert sum(kind.epsilon for kind in kinds) == pytest.approx(0.7, rel=1e-9)
    assert sum(kind.epsilon for kind in kinds) <= 0.7


@pytest.mark.parametrize(
    "loss",
    [
        Squared(residual_clip=0.5, declared=False),
        Squared(residual_clip=0.5),
        Huber(0.2),
        SmoothedQuantile(0.9, 0.1),
        Poisson(),
        Gamma(),
    ],
    ids=repr,
)
def test_the_last_release_is_the_same_pair_whatever_was_released_before(loss):
    """Noise is in units of the Lipschitz constant, and the smoothness does not depend on labels."""
    problem = Problem(loss, intercept=1.0, column_bounds=1.0)
    plan = make_plan(1.0, 1e-6, n=300, problem=problem)
    seen = set()
    for seed, spread in itertools.product(range(4), (0.0, 0.01, 1.0)):
        X, y = table(300, seed)
        tape = Tape()
        gate = Gate(SeededSource(seed), hook=tape)
        SOLVER.run_all([oracle_for(plan, X, spread * y)], gate, problem, plan.settings)
        last = tape.releases[-1]
        typical = loss.typical(plan.settings.plenty).loss
        assert last.sensitivity.facts.smoothness == typical.smoothness
        assert 0 < last.sensitivity.facts.lipschitz < math.inf
        seen.add(last.event.kinds)
    assert seen == {declare(plan)[-1].kinds}


# ------------------------------------------------------------ moments of labels
def contribution(y):
    y = min(max(y, -1.0), 1.0)
    return np.array([y, y * y])


def test_label_moments_move_by_no_more_than_they_say():
    values = np.linspace(-1.5, 1.5, 301)
    points = np.array([contribution(y) for y in values])
    assert np.linalg.norm(points, axis=1).max() == pytest.approx(LabelMoments().radius())
    gaps = np.linalg.norm(points[:, None] - points[None, :], axis=2)
    assert gaps.max() == pytest.approx(LabelMoments().diameter())


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_label_moments_are_sums_of_clipped_labels(form):
    y = np.array([0.5, -3.0, 0.25, 1e300, np.nan, -0.5])
    X = np.ones((6, 2))
    X[5, 0] = np.nan  # an empty record
    oracle = Oracle.over(
        form(X),
        y,
        neighbouring="zero_out",
        bounds=RowBounds(math.inf, 1.0),
        source=SilentSource(),
        classification=False,
    )
    found = Gate(SilentSource()).release(Noise(1.0), oracle.everything().ask(LabelMoments()))
    np.testing.assert_allclose(found, [0.75, 0.25 + 1 + 0.0625 + 1])


# ------------------------------------------------------------ the joint clip
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, lambda X: X.astype(np.float32)])
def test_rows_and_labels_are_shortened_together(form):
    """Every derivative is that of the loss of (s v / c, s (y - m)), by hand."""
    X, y = table(60)
    X = form(X)
    dense = np.asarray(X.todense() if sp.issparse(X) else X, dtype=float)
    row_map = RowMap(
        np.array([0.1, 0.0, 0.2]), np.array([2.0, 3.0, 10.0]), 1.0, 1.8, label_centre=0.15
    )
    oracle = Oracle.over(
        X,
        y,
        neighbouring="zero_out",
        bounds=RowBounds(math.inf, 1.0),
        source=SilentSource(),
        classification=False,
    ).mapped(row_map)
    V = np.column_stack([(dense - row_map.centre) * row_map.scale, np.ones(60)])
    short = row_map.clip_norm / np.maximum(np.linalg.norm(V, axis=1), row_map.clip_norm)
    Z, t = V * (short / row_map.clip_norm)[:, None], (y - 0.15) * short
    assert 5 < (short < 1).sum() < 60
    assert np.linalg.norm(Z, axis=1).max() <= 1 + 1e-12
    loss, theta = Huber(0.3), np.array([0.2, -0.4, 0.3, 0.1])
    from privopt.oracle.sealed import KEY

    objective = oracle.everything().function(loss).open(KEY)
    assert objective.value(theta) == pytest.approx(loss.value(Z @ theta, t).sum(), rel=1e-6)
    np.testing.assert_allclose(
        objective.gradient(theta), loss.slope(Z @ theta, t) @ Z, rtol=1e-5, atol=1e-6
    )
    H = (Z * loss.curvature(Z @ theta, t)[:, None]).T @ Z
    np.testing.assert_allclose(objective.hessian(theta), H, rtol=1e-5, atol=1e-6)
    product = objective.hessian_product(objective.curvatures(theta), theta)
    np.testing.assert_allclose(product, H @ theta, rtol=1e-5, atol=1e-6)


def test_shortening_biases_nothing():
    """An exact line is found exactly, however hard records are clipped."""
    rng = np.random.default_rng(2)
    X = np.clip(rng.standard_cauchy((4000, 3)) * 0.1, -1, 1)
    y = 0.1 + X @ [0.3, -0.2, 0.1]
    problem = Problem(Squared(residual_clip=1.0), intercept=1.0, column_bounds=1.0)
    plan = make_plan(1e4, 1e-6, n=4000, problem=problem, clip=0.2)
    gate = Gate(SeededSource(0))
    (theta,) = SOLVER.run_all([oracle_for(plan, X, y)], gate, problem, plan.settings).thetas
    np.testing.assert_allclose(theta, [0.3, -0.2, 0.1, 0.1], atol=2e-3)


@pytest.mark.parametrize(
    "loss", [Squared(residual_clip=0.5), Huber(0.05), SmoothedQuantile(0.8, 0.05)]
)
def test_without_noise_it_is_the_minimiser_it_states(loss):
    X, y = table(2000)
    problem = Problem(loss, intercept=1.0, column_bounds=1.0)
    plan = make_plan(1e5, 1e-6, n=2000, problem=problem)
    tape = Tape()
    answer = SOLVER.run_all(
        [oracle_for(plan, X, y)], Gate(SeededSource(0), hook=tape), problem, plan.settings
    )
    objective = tape.releases[-1].payload
    lam = tape.releases[-1].mechanism.pull

    def value(t):
        return objective.value(t) + t @ (lam * t) / 2

    found = tape.releases[-1].result
    best = minimize(value, found, jac=lambda t: objective.gradient(t) + lam * t, tol=1e-10)
    assert value(found) - best.fun < 1e-3 * abs(value(np.zeros(4)) - best.fun)
    assert not answer.clipped  # the model takes rows as they are
    assert answer.data_norm == math.inf
    theta = answer.thetas[0]
    residuals = X @ theta[:3] + theta[3] - y
    if isinstance(loss, SmoothedQuantile):
        assert (residuals > 0).mean() == pytest.approx(0.8, abs=0.05)
    else:
        assert residuals.std() < 0.12


# ------------------------------------------------------------ settings and refusals
def test_every_setting_is_public():
    """The same for every data set; the loss and its noise follow from n mu / p."""
    settings = make_plan().settings
    assert settings == make_plan().settings
    mu = gdp_mu(1.0, 1e-6)
    assert settings.plenty == pytest.approx(1000 * mu / 4, rel=1e-6)
    halved = make_plan(relation="replace_one").settings
    assert halved.plenty == pytest.approx(settings.plenty / 2, rel=1e-6)
    pure = make_plan(1.0, 0.0).settings
    assert pure.plenty == pytest.approx(1000 * 1.0 / math.sqrt(4) / 4)


def last_release(plan, X, y):
    """The released minimiser, its loss, its mechanism's penalty and the answer."""
    tape = Tape()
    gate = Gate(SeededSource(0), hook=tape)
    answer = SOLVER.run_all([oracle_for(plan, X, y)], gate, plan.facts.problem, plan.settings)
    return tape.releases[-1], answer


def test_a_declared_clip_is_honoured_and_a_default_one_grows():
    """In units of the labels; the whole range is the most a residual can be."""
    X, y = table(2000)
    for declared in (0.01, 0.3, 5.0):
        problem = Problem(Squared(residual_clip=declared), intercept=1.0, column_bounds=1.0)
        for epsilon in (0.1, 1.0, 100.0):
            plan = make_plan(epsilon, 1e-6, n=2000, problem=problem)
            found, _ = last_release(plan, X, y)
            assert found.payload.loss == Huber(min(declared, 2.0))
    default = Squared(residual_clip=0.5, declared=False)
    problem = Problem(default, intercept=1.0, column_bounds=1.0)
    widths = []
    for epsilon in (1.0, 100.0, 1e4):
        plan = make_plan(epsilon, 1e-6, n=2000, problem=problem)
        widths.append(last_release(plan, X, y)[0].payload.loss.width)
    assert widths == sorted(widths)
    assert widths[-1] > 8 * y.std()  # wide enough to cut nothing


def test_skewed_labels_get_a_wider_loss():
    """A mean near the end of the labels says that few records far away hold it."""
    wide, narrow = width_for(-0.95, 0.2, 500.0), width_for(0.0, 0.2, 500.0)
    assert wide > 4 * narrow
    assert width_for(-0.95, 0.2, 20.0) == 1.0  # little is affordable
    assert width_for(-1.0, 0.2, 1e4) <= 1e4 / 32


def test_a_ridge_is_on_the_columns_as_given():
    """Against the minimiser of the ridge's own objective, with next to no noise."""
    X, y = table(3000)
    for alpha, units in ((300.0, None), (300.0, (2.0, 1.0, 0.1))):
        problem = Problem(
            Squared(residual_clip=2.0),
            intercept=1.0,
            column_bounds=1.0,
            l2=alpha / 3000,
            units=units,
        )
        plan = make_plan(1e5, 1e-6, n=3000, problem=problem, clip=50.0)
        theta = last_release(plan, X, y)[1].thetas[0]
        scale = np.ones(3) if units is None else np.array(units)
        best = RidgeOfScikitLearn(alpha=alpha).fit(X * scale, y)
        np.testing.assert_allclose(theta[:3], best.coef_ * scale, rtol=0.01, atol=1e-3)


def test_weights_leave_the_width_of_huber_alone():
    """Residuals of long rows are cut where those of short ones are."""
    X, y = table(500)
    problem = Problem(Huber(0.05), intercept=1.0, column_bounds=1.0)
    plan = make_plan(1.0, 1e-6, n=500, problem=problem)
    objective = last_release(plan, X, y)[0].payload
    assert objective.rows._map.shortening == 0
    assert objective.loss == Huber(0.05)


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        (Problem(Huber(1.0), intercept=1.0), "needs declared column bounds"),
        (Problem(Huber(1.0), column_bounds=1.0), "needs an intercept"),
        (Problem(Logistic(), intercept=1.0, column_bounds=1.0), "not for Logistic"),
        (Problem(Absolute(), intercept=1.0, column_bounds=1.0), "not for Absolute"),
        (Problem(Squared(), intercept=1.0, column_bounds=1.0), "Squared is not: use"),
        (Problem(Huber(1.0), L2Ball(5.0), intercept=1.0, column_bounds=1.0), "whole space"),
    ],
)
def test_refusals_are_one_sentence(problem, sentence):
    said = SOLVER.refuse(Facts(problem, 100, 3, "zero_out"), Budget(1.0, 1e-6))
    assert said is not None
    assert sentence in said
    assert said.endswith(".")


# ------------------------------------------------------------ the audit, end to end
OTHERS = np.array([0.1, -0.2, 0.3, 0.05, -0.1])
OTHER_LABELS = np.array([-0.2, -0.4, -0.1, -0.3, -0.2])
RECORD, LABEL = 1.0, 1.0  # at the bound of its column and of the labels


class Attack:
    """The log-likelihood ratio of everything that was released, record present to record empty.

    All but the output noise is exact, so it is nearly the best test there is.
    """

    def __init__(self, epsilon, delta, **choices):
        self.plan = make_plan(epsilon, delta, n=6, features=1, **choices)

    def run(self, present, count, seed):
        X, y = np.append(OTHERS, RECORD)[:, None], np.append(OTHER_LABELS, LABEL)
        if not present:
            X[-1], y[-1] = np.nan, np.nan
        oracle = oracle_for(self.plan, X, y)
        scores = np.empty(count)
        for index in range(count):
            tape = Tape()
            gate = Gate(SeededSource(seed + index), hook=tape)
            SOLVER.run_all([oracle], gate, PROBLEM, self.plan.settings)
            scores[index] = self.score(tape.releases)
        return scores

    def score(self, releases):
        s = self.plan.settings
        counts, sums, labels, theta = (release.result for release in releases)
        edges = np.geomspace(0.01, 1.0, 64)
        bound = norm_bound(edges, counts, 0.9, 6, s.norm_multiplier)
        place = np.zeros(64)
        place[63] = 1.0
        histogram = np.bincount(np.searchsorted(edges, np.abs(OTHERS)), minlength=64)
        squares = np.minimum(OTHERS**2 / bound**2, 1.0)
        moments = np.array([np.clip(OTHERS / bound, -1, 1).sum(), squares.sum()])
        ratio = gaussian_ratio(counts, histogram, place, s.norm_multiplier)
        ratio += gaussian_ratio(sums, moments, np.ones(2), s.moment_multiplier * math.sqrt(2))
        rest = np.array([OTHER_LABELS.sum(), (OTHER_LABELS**2).sum()])
        ratio += gaussian_ratio(labels, rest, np.ones(2), s.label_multiplier * math.sqrt(2))
        # The last: the noise that each data set needs to explain theta, and the determinants.
        objective, loss = releases[-1].payload, releases[-1].payload.loss
        row_map = objective.rows._map
        X, y = np.append(OTHERS, RECORD)[:, None], np.append(OTHER_LABELS, LABEL)
        V = np.column_stack([(X - row_map.centre) * row_map.scale, np.full(6, row_map.column)])
        short = row_map.clip_norm / np.maximum(np.linalg.norm(V, axis=1), row_map.clip_norm)
        V *= (short / row_map.clip_norm)[:, None]
        t = (y - row_map.label_centre) * short
        slopes, curvatures = loss.slope(V @ theta, t), loss.curvature(V @ theta, t)
        pull, sigma = releases[-1].mechanism.pull, loss.lipschitz * s.noise_multiplier
        for sign, keep in ((1, slice(None)), (-1, slice(0, 5))):
            b = V[keep].T @ slopes[keep] + pull * theta
            H = V[keep].T @ (curvatures[keep, None] * V[keep]) + np.diag(pull)
            ratio += sign * (math.log(np.linalg.det(H)) - b @ b / (2 * sigma**2))
        return ratio


STIFF = {"regularisation": 40.0}
"""The determinant costs next to nothing, and the record's slope stays at its cap."""


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("epsilon", "choices", "runs", "power"),
    [(1.0, STIFF, 2500, 0.2), (4.0, {}, 1500, 0.25), (4.0, STIFF, 1200, 0.3)],
    ids=["1, stiff", "4", "4, stiff"],
)
def test_the_certificate_is_never_exceeded(epsilon, choices, runs, power):
    """A 95 % lower bound from all releases together: false alarms below 5 %, none on this seed."""
    attack = Attack(epsilon, 0.02, **choices)
    kinds = [kind for event in declare(attack.plan) for kind in event.kinds]
    charge = sum((charge_of(kind) for kind in kinds), Counter())
    certified = Accountant().epsilon(charge, 0.02)
    assert certified <= epsilon * (1 + 1e-9)
    found = lower_bound(attack.run(True, runs, 0), attack.run(False, runs, 10**6), 0.02)
    assert power * epsilon < found <= certified


@pytest.mark.statistical
def test_half_of_the_noise_exceeds_the_certificate(monkeypatch):
    """The same attack on runs that draw half of what they declare: above epsilon."""
    attack = Attack(2.0, 0.02, **STIFF)
    honest = on_grid.discrete_gaussian
    monkeypatch.setattr(on_grid, "discrete_gaussian", lambda *what: honest(*what) // 2)
    monkeypatch.setattr(perturbation, "gaussian", halved(perturbation.gaussian))
    found = lower_bound(attack.run(True, 900, 0), attack.run(False, 900, 10**6), 0.02)
    assert found > 2.0
