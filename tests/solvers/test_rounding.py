"""Kinks rounded off over a public width: the width, the bound, and the exact law of one number."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from privopt import Budget, Problem, solve
from privopt.facts import Facts
from privopt.geometry import Box, L1Ball, L2Ball
from privopt.losses import Absolute, Hinge, Huber, Logistic, Loss, Quantile, Smoothed, met
from privopt.solvers import catalogue
from privopt.solvers.families import rounding
from privopt.solvers.families.rounding import RoundingSolver, rounded_facts

OBJ = catalogue()["objective_perturbation"]
NAMES = sorted(name for name, one in catalogue().items() if isinstance(one, RoundingSolver))
LOSSES = [(Hinge(), 1.0), (Absolute(), 2.0), (Quantile(0.9), 1.0)]


def facts(loss: Loss, n=10_000, p=10, relation="zero_out", **more) -> Facts:
    return Facts(Problem(loss, L2Ball(5.0), **more), n, p, relation)


@pytest.mark.parametrize(("loss", "jump"), LOSSES)
@pytest.mark.parametrize(("n", "p", "l2"), [(10_000, 10, 0.0), (500, 3, 0.0), (10_000, 10, 0.01)])
@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_the_bound_is_the_closed_form(monkeypatch, loss, jump, n, p, l2, relation):
    """With the bias in full: R sqrt(2 A(c)), or A(c)/Lambda, at the best price c of the
    determinant, which is a search over another variable than the width."""
    monkeypatch.setattr(rounding, "WEIGHT", 1.0)
    given = facts(loss, n, p, relation, l2=l2)
    moved = (2 if relation == "replace_one" else 1) * loss.lipschitz
    epsilon = 0.99  # a hundredth pays for the minimiser's tolerance

    def price(c: float) -> float:
        noise = p * (p + 1) * (moved / (epsilon - c)) ** 2 / 2
        return noise + n * jump**2 / (8 * math.expm1(c))

    best = minimize_scalar(price, bounds=(1e-6, epsilon - 1e-6), method="bounded").fun
    lam = max(n * l2, math.sqrt(2 * best) / 5.0)
    want = (best / lam + (lam - n * l2) * 12.5) / n
    assert OBJ.settings(given, Budget(1.0, 0.0, relation)).bound == pytest.approx(want, rel=1e-3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("loss", [Hinge(), Absolute(), Quantile(0.9)], ids=repr)
def test_the_width_is_the_best_and_its_bias_is_in_the_bound(name, loss):
    solver, budget = catalogue()[name], Budget(1.0, 1e-6)
    domain = Box(-1.0, 1.0) if "coordinate" in name else L1Ball(2.0)
    given = Facts(Problem(loss, domain, column_bounds=1.0), 3000, 4, "zero_out")
    assert solver.refuse(given, budget) is None
    found = solver.settings(given, budget)
    assert found.rounded > 0
    smooth = solver.smooth_settings(rounded_facts(given, found.rounded), budget)
    bias = Smoothed(loss, found.rounded).excess
    assert found.bound == pytest.approx(smooth.bound + bias, rel=1e-12)

    def weighed(width: float) -> float:
        bound = solver.settings(given, budget, rounded=width).bound
        return bound - (1 - rounding.WEIGHT) * Smoothed(loss, width).excess

    at = weighed(found.rounded)
    assert at <= weighed(found.rounded / 1.5) * (1 + 1e-9)
    assert at <= weighed(found.rounded * 1.5) * (1 + 1e-9)


@pytest.mark.parametrize(("loss", "jump"), LOSSES)
@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_exact_law_of_one_number(loss, jump, epsilon):
    """The density of the minimiser is that of the noise at its gradient, times the curvature. The
    worst pair has the record's parabola alone, beside a slope of the others; sup |log ratio| must
    be the whole epsilon, and was the determinant forgotten it would be far above."""
    given = replace(facts(loss, n=100), p=1)
    found = OBJ.settings(given, Budget(epsilon))
    smooth, lam = Smoothed(loss, found.rounded), found.regularisation
    scale = found.noise_multiplier * loss.lipschitz
    y = np.ones(1)
    kink = float(loss.pieces(y)[0][0])
    at = kink + found.rounded * np.linspace(-1.5, 1.5, 20_001)
    own, bend = smooth.slope(at, y), smooth.curvature(at, y)

    def log_density(scale: float, slope: np.ndarray, curvature: np.ndarray) -> np.ndarray:
        return -np.abs(slope) / scale + np.log(curvature)

    def worst(scale: float) -> float:
        gaps = []
        for others in (-20.0, -3.0, 3.0, 20.0):  # records far from their own kinks
            rest = others + lam * at
            with_it = log_density(scale, rest + own, bend + lam)
            gaps.append(np.abs(with_it - log_density(scale, rest, lam + 0.0 * at)).max())
        return float(max(gaps))

    assert 0.98 * 0.99 * epsilon <= worst(scale) <= 0.99 * epsilon * (1 + 1e-6)
    assert worst(loss.lipschitz / (0.99 * epsilon)) > 1.3 * epsilon


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_width_stays_when_the_data_move(delta):
    X, y = np.eye(4)[np.arange(40) % 4], np.where(np.arange(40) % 3, 1.0, -1.0)
    runs = [
        solve(
            Problem(Hinge(), L2Ball(2.0)),
            data,
            labels,
            budget=Budget(1.0, delta),
            solver="objective_perturbation",
            random_state=0,
        )
        for data, labels in [(X, y), (-1e9 * X, y), (np.full((40, 4), np.nan), -y)]
    ]
    widths = [run.certificate.settings["rounded"] for run in runs]
    assert widths[0] == widths[1] == widths[2] == runs[0].plan.settings.rounded > 0


def test_a_width_by_hand_and_widths_that_mean_nothing():
    assert OBJ.settings(facts(Hinge()), Budget(1.0), rounded=0.25).rounded == 0.25
    with pytest.raises(ValueError, match="positive finite width"):
        OBJ.settings(facts(Hinge()), Budget(1.0), rounded=-1.0)
    with pytest.raises(ValueError, match="rounded is for a loss with a kink, not for Logistic"):
        OBJ.settings(facts(Logistic()), Budget(1.0), rounded=0.1)
    assert "rounded" not in OBJ.settings(facts(Huber(1.0)), Budget(1.0)).public()


@dataclass(frozen=True)
class TwoSlopes(Hinge):
    """A hinge that rises three times as fast for one of the classes."""

    def value(self, z, y):
        return (2.0 - y) * super().value(z, y)

    def slope(self, z, y):
        return (2.0 - y) * super().slope(z, y)

    def pieces(self, y):
        kink, below, above = super().pieces(y)
        return kink, (2.0 - y) * below, (2.0 - y) * above

    @property
    def lipschitz(self):
        return 3.0


def test_a_loss_of_ones_own_is_rounded_for_its_steepest_class():
    """Smoothness that holds for one label alone would be a hole: it pays for the determinant."""
    loss = met(TwoSlopes())
    assert Smoothed(loss, 0.5).jump == pytest.approx(3.0)
    z, y = np.linspace(-3, 3, 601), -np.ones(601)
    rounded = met(Smoothed(loss, 0.5))
    steepest = np.abs(np.diff(rounded.slope(z, y)) / np.diff(z)).max()
    assert steepest == pytest.approx(rounded.smoothness, rel=1e-6)
    rows, labels = np.eye(2)[np.arange(30) % 2], np.where(np.arange(30) % 3, 1.0, -1.0)
    found = solve(
        Problem(TwoSlopes(), L2Ball(1.0)),
        rows,
        labels,
        budget=Budget(1.0),
        solver="objective_perturbation",
        random_state=0,
    )
    assert any("TwoSlopes" in text for text in found.certificate.assumptions)
