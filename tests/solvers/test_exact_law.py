"""The law of a released minimiser in one dimension, exactly, against what its account claims.

theta minimises f(theta) + lambda/2 theta^2 + b theta with b normal, so its density at theta is that
of b = -(f'(theta) + lambda theta), times f''(theta) + lambda. Beside it stand releases of Gaussian
noise, whose part of delta has a closed form for every theta; one integral is left. Nothing is
sampled: a ratio above 1 would refute the account, and one far below 1 would say that the search
found no bad case.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr

from privopt import Budget, Problem
from privopt.facts import Facts
from privopt.losses import Gamma, Huber, Loss, Poisson, Squared
from privopt.privacy import Accountant, charge_of
from privopt.privacy.kinds import GaussianKind, ObjectiveGaussian
from privopt.solvers import catalogue, declare
from privopt.solvers.solver import Plan

SOLVER = catalogue()["standardized_regression"]


@dataclass(frozen=True)
class Law:
    """One release of objective perturbation, others before it, and their account."""

    loss: Loss
    multiplier: float
    regularisation: float
    mu_before: float

    def claimed(self, epsilon: float) -> float:
        """Delta at this epsilon."""
        c = math.log1p(self.loss.smoothness / self.regularisation)
        kinds = (
            ObjectiveGaussian(1 / self.multiplier, c, self.loss.one_signed),
            GaussianKind(self.mu_before, self.mu_before),
        )
        charge = sum((charge_of(kind) for kind in kinds), Counter())
        low, high = 1e-13, 0.9
        for _ in range(40):
            middle = math.sqrt(low * high)
            above = Accountant().epsilon(charge, middle) > epsilon
            low, high = (middle, high) if above else (low, middle)
        return high

    def true(self, epsilon: float, label: float, share: float, stiff: float, away: bool) -> float:
        """Delta of one record with this label, added to (or taken from) records whose losses are
        parabolas of curvature ``stiff`` in all."""
        sigma, pull = self.multiplier * self.loss.lipschitz, self.regularisation + stiff
        reach = (9 * sigma + 2 * self.loss.lipschitz) / pull
        theta = np.linspace(-reach, reach, 20_001)
        y = np.full_like(theta, label)
        slope = share * self.loss.slope(theta / share, y)
        bend = self.loss.curvature(theta / share, y)
        rest, sum_ = pull * theta, pull * theta + slope
        q = np.log(pull) - rest**2 / (2 * sigma**2)
        p = np.log(pull + bend) - sum_**2 / (2 * sigma**2)
        if away:
            p, q = q, p
        norm = math.log(sigma * math.sqrt(2 * math.pi))
        gap = epsilon - (p - q)
        mu = self.mu_before
        tail = ndtr(mu / 2 - gap / mu) - np.exp(np.minimum(gap + log_ndtr(-mu / 2 - gap / mu), 0.0))
        return float(np.trapezoid(np.exp(p - norm) * np.maximum(tail, 0.0), theta))


def worst(law: Law, epsilon: float, labels: np.ndarray, shares: tuple[float, ...]) -> float:
    """The largest delta over labels, shares, other records and both directions."""
    return max(
        law.true(epsilon, label, share, stiff, away)
        for label in labels
        for share in shares
        for stiff in (0.0, law.regularisation)
        for away in (False, True)
    )


@cache
def planned(loss: Loss, epsilon: float, delta: float, n: int = 60) -> Law:
    """The last release of a plan, with the mu of the others."""
    facts = Facts(Problem(loss, intercept=1.0, column_bounds=1.0), n, 2, "zero_out")
    budget = Budget(epsilon, delta)
    plan = Plan(SOLVER, facts, budget, SOLVER.settings(facts, budget))
    kinds = [kind for event in declare(plan) for kind in event.kinds]
    before = math.sqrt(sum(k.mu**2 for k in kinds if isinstance(k, GaussianKind)))
    typical = loss.typical(plan.settings.plenty).loss
    s = plan.settings
    return Law(typical, s.noise_multiplier, s.regularisation, before)


def labels_for(loss: Loss, law: Law) -> np.ndarray:
    if isinstance(loss, (Poisson, Gamma)):
        return np.array([0.0, 0.2, 0.5, 1.0, 1.5, 2.5, 4.0, 8.0])
    spread = law.loss.lipschitz * (1 + 2 * law.multiplier / law.regularisation)
    return np.linspace(-2 * spread, 2 * spread, 13)


CASES = [
    (Squared(residual_clip=0.5, declared=False), (1.0,)),
    (Huber(0.2), (1.0, 0.5, 0.05)),
    (Poisson(), (1.0, 0.5, 0.05)),
    (Gamma(), (1.0, 0.5, 0.05)),
]


@pytest.mark.parametrize(("loss", "shares"), CASES, ids=lambda case: repr(case))
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-2), (1.0, 1e-2), (3.0, 5e-2)])
def test_the_account_is_never_exceeded(loss, shares, epsilon, delta):
    """The search also comes near it, so that it looks in the right place; the account of a steep
    loss is loose, because its determinant is charged in full."""
    law = planned(loss, epsilon, delta)
    found, claimed = worst(law, epsilon, labels_for(loss, law), shares), law.claimed(epsilon)
    assert claimed <= delta * 1.02
    assert 0.02 * claimed < found <= claimed


@pytest.mark.slow
def test_worst_ramps():
    """A Huber loss, alone and composed, over places of its ramp: far above a random neighbour."""
    ratios = []
    for epsilon, multiplier, regularisation, before in (
        (0.5, 2.0, 4.0, 0.3),
        (0.5, 4.0, 20.0, 0.1),
        (0.2, 4.0, 40.0, 0.1),
        (1.0, 1.0, 2.0, 0.3),
        (1.0, 2.0, 50.0, 0.2),
        (3.0, 0.5, 4.0, 0.5),
    ):
        law = Law(Huber(1.0), multiplier, regularisation, before)
        labels = np.linspace(-3.0, 3.0, 25)
        ratios.append(worst(law, epsilon, labels, (1.0,)) / law.claimed(epsilon))
    assert max(ratios) <= 1.0
    assert max(ratios) > 0.5


def test_the_width_cancels():
    """Noise in units of the Lipschitz constant, smoothness 1: the same law for every width."""
    law = Law(Huber(1.0), 2.0, 6.0, 0.3)
    for width in (0.05, 0.3, 2.0):
        other = replace(law, loss=Huber(width))
        for label in (-0.7, 0.0, 0.4):
            one = law.true(0.7, label, 1.0, 3.0, False)
            same = other.true(0.7, label * width, 1.0, 3.0, False)
            assert same == pytest.approx(one, rel=1e-6)


@pytest.mark.parametrize("loss", [Huber(0.2), Poisson(), Gamma()], ids=repr)
def test_a_wrong_constant_would_show(loss):
    """Noise for half of the Lipschitz constant: above the claim."""
    law = planned(loss, 1.0, 1e-2)
    claimed = law.claimed(1.0)
    halved = replace(law, multiplier=law.multiplier / 2)
    assert worst(halved, 1.0, labels_for(loss, law), (1.0,)) > claimed
