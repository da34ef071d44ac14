"""Losses of the whole vector theta: medians, means, directions, and those of somebody else."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

from privopt import Budget, Problem, plan, solve
from privopt.facts import Facts
from privopt.geometry import L2Ball, WholeSpace
from privopt.losses import (
    EuclideanDistance,
    GuardedVector,
    Linear,
    RoundedDistance,
    SquaredDistance,
    VectorLoss,
)
from privopt.noise import SeededSource
from privopt.oracle import ClippedVectorGradient, Oracle, RowBounds, VectorObjective
from privopt.oracle.oracle import make_rows
from privopt.oracle.sealed import KEY
from privopt.privacy.profiles import gaussian_mu
from privopt.solvers import catalogue

OWN = [EuclideanDistance(), RoundedDistance(0.3), SquaredDistance(), Linear()]
GD, OBJ = catalogue()["noisy_gd"], catalogue()["objective_perturbation"]


def rows(n=40, p=3, seed=0, far=0.1):
    """Rows in the unit ball, a few of them far from the others."""
    rng = np.random.default_rng(seed)
    X = 0.1 * rng.standard_normal((n, p)) + 0.2 / math.sqrt(p)
    away = rng.random(n) < far
    X[away] = -0.9 / math.sqrt(p)
    return X / np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]


# ---------------------------------------------------------------- the losses
@pytest.mark.parametrize("loss", OWN, ids=repr)
def test_gradients_hessians_and_constants_are_those_of_the_value(loss):
    rng = np.random.default_rng(1)
    X, y, steps = rng.standard_normal((50, 4)), np.zeros(50), 1e-6 * np.eye(4)
    for _ in range(5):
        theta = rng.standard_normal(4)
        slopes = [(loss.value(theta + h, X, y) - loss.value(theta - h, X, y)) / 2e-6 for h in steps]
        gradient = loss.gradient(theta, X, y)
        np.testing.assert_allclose(np.transpose(slopes), gradient, atol=1e-7)
        far, size = np.linalg.norm(theta), np.linalg.norm(X, axis=1).max()
        assert np.linalg.norm(gradient, axis=1).max() <= loss.lipschitz_on(size, far) + 1e-12
        if hasattr(loss, "hessian"):
            bends = [
                (loss.gradient(theta + h, X, y) - loss.gradient(theta - h, X, y)).sum(0) / 2e-6
                for h in steps
            ]
            np.testing.assert_allclose(loss.hessian(theta, X, y), bends, atol=1e-3)
            assert np.linalg.eigvalsh(loss.hessian(theta, X[:1], y[:1])).max() <= (
                loss.smoothness + 1e-9
            )


@pytest.mark.parametrize("width", [0.01, 0.5])
def test_a_rounded_distance_is_within_half_its_width(width):
    X, theta = rows(200), np.full(3, 0.1)
    apart = EuclideanDistance().value(theta, X, np.zeros(200))
    near = EuclideanDistance().rounded(width).value(theta, X, np.zeros(200))
    assert (near <= apart).all()
    assert (apart - near <= EuclideanDistance.bias * width + 1e-15).all()


# ---------------------------------------------------------------- what a record can move
def asked(query, X, resolution=None, relation="zero_out", at=None):
    oracle = Oracle.over(
        X,
        np.zeros(X.shape[0]),
        neighbouring=relation,
        bounds=RowBounds(1.0),
        source=SeededSource(0),
        classification=False,
    )
    sealed = oracle.everything().ask(query, at, resolution=resolution)
    return sealed.open(KEY), sealed.sensitivity


@pytest.mark.parametrize("loss", OWN, ids=repr)
@pytest.mark.parametrize("resolution", [None, 2.0**20])
def test_no_record_moves_the_sum_beyond_the_clip(loss, resolution):
    """Also one of NaN, one beyond all bounds, and one that sits on the kink."""
    X, at, clip = rows(), np.array([0.3, -0.2, 0.5]), 0.7
    query = ClippedVectorGradient(loss, clip)
    for other in (np.full(3, np.nan), np.full(3, 1e200), at, -at, np.zeros(3)):
        Y = X.copy()
        Y[7] = other
        for relation, most in (("zero_out", clip), ("replace_one", 2 * clip)):
            Z = X.copy()
            if relation == "zero_out":
                Z[7] = np.nan
            (one, sensitivity), (two, _) = (
                asked(query, rows_, resolution, relation, at) for rows_ in (Y, Z)
            )
            moved = float(np.linalg.norm((one - two).astype(float)))
            moved *= 1.0 if resolution is None else sensitivity.grid.step
            assert sensitivity.radius == most
            assert moved <= most * (1 + (1e-12 if resolution is None else 0.0))


def test_integers_are_the_sum_and_do_not_depend_on_places():
    X, at = rows(500), np.array([0.3, -0.2, 0.5])
    query = ClippedVectorGradient(EuclideanDistance(), 1.0)
    plain, _ = asked(query, X, None, at=at)
    counts, sensitivity = asked(query, X, 2.0**24, at=at)
    np.testing.assert_allclose(counts * sensitivity.grid.step, plain, atol=1e-4)
    order = np.random.default_rng(0).permutation(500)
    again, _ = asked(query, X[order], 2.0**24, at=at)
    assert (counts == again).all()
    sparse, _ = asked(query, sp.csr_array(X), 2.0**24, at=at)
    assert (counts == sparse).all()


def test_an_empty_record_adds_nothing():
    """Not the gradient at a row of zeros."""
    X = rows()
    Y = np.vstack([X, np.full((5, 3), np.nan)])
    query = ClippedVectorGradient(EuclideanDistance(), 1.0)
    at = np.array([0.3, -0.2, 0.5])
    np.testing.assert_allclose(asked(query, X, at=at)[0], asked(query, Y, at=at)[0], rtol=1e-12)


# ---------------------------------------------------------------- solvers
def test_one_step_is_the_optimal_noisy_mean():
    """Its law in closed form: the mean of the rows with noise of r/(n mu) in each coordinate."""
    n, p, delta = 200, 3, 1e-6
    X, problem, budget = rows(n, p), Problem(SquaredDistance(), WholeSpace()), Budget(1.0, delta)
    mu = gaussian_mu(1.0, delta)
    runs = [
        solve(problem, X, np.zeros(n), budget=budget, solver="noisy_gd", random_state=s)
        for s in range(300)
    ]
    settings = runs[0].plan.settings
    assert (settings.rule, settings.n_iter) == ("one_step", 1)
    assert settings.bound == pytest.approx(p / (2 * n**2 * mu**2), rel=1e-9)
    noise = np.array([run.theta for run in runs]) - X.mean(axis=0)
    # 900 normal numbers: their variance is within a fifth but for 5 sigma.
    assert np.mean(noise**2) == pytest.approx(1 / (n * mu) ** 2, rel=0.24)
    pure = GD.settings(Facts(problem, n, p, "zero_out"), Budget(1.0))
    assert pure.bound >= p * (p + 1) / (2 * n**2)
    assert pure.bound == pytest.approx(p * (p + 1) / (2 * n**2), rel=0.2)


def test_a_mean_outside_of_its_domain():
    n, problem = 400, Problem(SquaredDistance(), L2Ball(0.2), l2=0.1)
    X = rows(n) + 0.3
    run = solve(
        problem, X, np.zeros(n), budget=Budget(4.0, 1e-5), solver="noisy_gd", random_state=0
    )
    clipped = X / np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
    best = problem.domain.project(clipped.mean(axis=0) / 1.1)
    assert np.linalg.norm(run.theta - best) < 0.05
    assert problem.domain.contains(run.theta)


@pytest.mark.statistical
@pytest.mark.parametrize(("delta", "most"), [(1e-6, 2e-5), (0.0, 4e-3)])
def test_the_median_is_found_where_outliers_pull_the_mean_away(delta, most):
    n = 2000
    X = rows(n, 5, far=0.1)
    loss = EuclideanDistance()

    def risk(theta):
        return float(loss.value(theta, X, np.zeros(n)).mean())

    best = minimize(risk, np.median(X, axis=0), tol=1e-12).fun
    problem = Problem(loss, L2Ball(1.0))
    runs = [
        solve(problem, X, np.zeros(n), budget=Budget(1.0, delta), random_state=seed)
        for seed in range(3)
    ]
    excess = np.mean([risk(run.theta) for run in runs]) - best
    assert excess <= most
    assert excess <= runs[0].plan.settings.bound
    assert risk(X.mean(axis=0)) - best > 10 * excess * (delta > 0)


def test_the_determinant_counts_all_directions():
    """An objective of vectors bends in p directions: its price is p log(1 + beta/lambda)."""
    p = 4
    facts = Facts(Problem(RoundedDistance(0.5), L2Ball(1.0)), 1000, p, "zero_out")
    found = OBJ.settings(facts, Budget(1.0))
    price = p * math.log1p(2.0 / found.regularisation)
    assert 1 / found.noise_multiplier + price == pytest.approx(0.99, rel=1e-6)
    assert OBJ.settings(facts, Budget(1.0, 1e-6)).noise == "pure"
    with pytest.raises(ValueError, match="for one margin"):
        OBJ.settings(facts, Budget(1.0, 1e-6), noise="gaussian")


def test_the_density_of_a_median_in_two_dimensions_uses_the_whole_epsilon():
    """The density of noise at the gradient times the determinant of the Hessian, with and without
    a record whose tip is beside a slope of all others."""
    facts = Facts(Problem(EuclideanDistance(), L2Ball(3.0)), 41, 2, "zero_out")
    found = OBJ.settings(facts, Budget(1.0))
    loss, lam, scale = RoundedDistance(found.rounded), found.regularisation, found.noise_multiplier
    worst, grid = 0.0, found.rounded * np.linspace(-1.2, 1.2, 49)
    for side in (-1e3, 1e3):
        X = np.vstack([np.full((40, 2), [side, 0.0]), np.zeros((1, 2))])
        for theta in itertools.product(grid, grid):
            at, logs = np.array(theta), []
            for some in (X, X[:40]):
                y = np.zeros(len(some))
                slope = loss.gradient(at, some, y).sum(0) + lam * at
                bend = loss.hessian(at, some, y) + lam * np.eye(2)
                logs.append(-np.linalg.norm(slope) / scale + math.log(np.linalg.det(bend)))
            worst = max(worst, abs(logs[0] - logs[1]))
    assert 0.9 < worst <= 0.99


@pytest.mark.slow
def test_who_takes_them_and_who_says_no():
    facts = Facts(Problem(EuclideanDistance(), L2Ball(1.0)), 500, 3, "zero_out")
    budget = Budget(1.0, 1e-6)
    taken = {name for name, one in catalogue().items() if one.refuse(facts, budget) is None}
    assert {"noisy_gd", "noisy_sgd", "objective_perturbation"} <= taken
    assert "frank_wolfe" not in taken
    sentence = catalogue()["output_perturbation"].refuse(facts, Budget(1.0))
    assert "one of the whole vector" in sentence
    ranking = plan(facts.problem, n=500, p=3, budget=budget)
    assert {one.name for one in ranking.plans} == taken
    with pytest.raises(ValueError, match="intercept=0"):
        Problem(EuclideanDistance(), intercept=1.0)


# ---------------------------------------------------------------- of somebody else's
@dataclass(frozen=True)
class Cubes(VectorLoss):
    """sum of |theta_j - x_j|^1.5: not smooth at 0, which it says."""

    seen: ClassVar[list[int]] = []

    def value(self, theta, X, y):
        self.seen.append(len(X))
        return (np.abs(theta - X) ** 1.5).sum(axis=1)

    def gradient(self, theta, X, y):
        self.seen.append(len(X))
        apart = theta - X
        return 1.5 * np.sqrt(np.abs(apart)) * np.sign(apart)

    def lipschitz_on(self, size, far):
        return 1.5 * math.sqrt(size + far) * 2

    @property
    def smoothness(self):
        return math.inf


def test_a_loss_of_ones_own_sees_one_record_at_a_time():
    X, problem = rows(30), Problem(Cubes(), L2Ball(1.0))
    assert isinstance(problem.loss, GuardedVector)
    Cubes.seen.clear()
    run = solve(
        problem, X, np.zeros(30), budget=Budget(1.0, 1e-5), solver="noisy_gd", random_state=0
    )
    assert set(Cubes.seen) == {1}
    assert any("Cubes remembers no record" in text for text in run.certificate.assumptions)
    facts = Facts(problem, 30, 3, "zero_out")
    assert "solver=" in OBJ.refuse(facts, Budget(1.0))


@dataclass(frozen=True)
class Liar(Cubes):
    """States a smoothness that it does not have."""

    @property
    def smoothness(self):
        return 0.01


def test_a_smoothness_that_points_contradict_is_refused():
    with pytest.raises(ValueError, match=r"Liar states a smoothness of 0.01"):
        Facts(Problem(Liar(), L2Ball(1.0)), 30, 3, "zero_out")


def test_the_enclosure_holds_the_sum():
    X, loss = rows(3000, 4), RoundedDistance(0.05)
    payload = VectorObjective(make_rows(X, np.zeros(3000), RowBounds(1.0), False), loss)
    head, tail = np.full(4, 0.1), np.full(4, 1e-18)
    found = payload.enclosed(head, tail)
    sizes = [math.sqrt(math.fsum(float(v) ** 2 for v in 0.1 - x)) for x in X]
    exact = [
        math.fsum((0.1 - float(x[j])) / max(r, 0.05) for x, r in zip(X, sizes, strict=True))
        for j in range(4)
    ]
    assert np.linalg.norm(found.value - exact) <= found.error < 1e-8


class Failing(Cubes):
    """Fails on one record, and answers in another shape of a second."""

    def gradient(self, theta, X, y):
        if X[0, 0] == 0.123:
            raise ValueError(f"what is {X[0]}?")
        return super().gradient(theta, X, y) if X[0, 0] != 0.456 else np.ones((2, 2))


def test_a_record_on_which_a_loss_of_ones_own_fails_counts_as_zero():
    """A refusal would tell that this record is there."""
    X = rows(30)
    X[3, 0], X[7, 0] = 0.123, 0.456
    loss = GuardedVector(Failing())
    found = loss.gradient(np.ones(3), X, np.zeros(30))
    wanted = GuardedVector(Cubes()).gradient(np.ones(3), X, np.zeros(30))
    wanted[[3, 7]] = 0.0
    np.testing.assert_array_equal(found, wanted)
