"""The loss of several records together: exact small cases, each attained or dominated."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from privopt.privacy import Accountant, Event, Log, Refused, Sampling, spend
from privopt.privacy.accountant import charge_of
from privopt.privacy.budget import NEIGHBOURING
from privopt.privacy.groups import grouped, of_group
from privopt.privacy.kinds import (
    BoundedRange,
    Concentrated,
    GaussianKind,
    ObjectiveGaussian,
    Pure,
    SampledGaussian,
)
from privopt.privacy.profiles import gaussian_epsilon
from privopt.privacy.sampled_groups import SampledGroupGaussian

DELTA = 1e-5


def epsilon(*kinds, relation="zero_out", delta=DELTA):
    return Accountant(relation).epsilon(charge_of(*kinds), delta)


@pytest.mark.parametrize("size", [2, 3, 7])
def test_noise_on_a_sum_moves_by_the_sum(size):
    """k records, each at its sensitivity and all in one direction, shift the mean k times as
    far."""
    assert epsilon(of_group(GaussianKind(0.3, 0.3), size)) == gaussian_epsilon(0.3 * size, DELTA)
    assert epsilon(of_group(Pure(0.2), size), delta=0.0) == pytest.approx(0.2 * size)
    # A Gaussian is mu^2/2-zCDP, and its k-fold shift (k mu)^2/2-zCDP.
    assert of_group(Concentrated(0.3**2 / 2), size).rho == pytest.approx((0.3 * size) ** 2 / 2)


def test_a_choice_by_exact_enumeration():
    """Three scores, three users' rows, each score moved by 0 or 1 per row: all cases."""
    eta, size = 0.7, 3
    moves = list(itertools.product((0.0, 1.0), repeat=3))
    widest = 0.0
    for rows in itertools.combinations_with_replacement(moves, size):
        odds = eta * np.sum(rows, axis=0)  # log-odds of the choices move by this, up to a constant
        widest = max(widest, float(np.ptp(odds)))
    assert of_group(BoundedRange(eta), size).eta == pytest.approx(widest)


@pytest.mark.parametrize("relation", NEIGHBOURING)
@pytest.mark.parametrize("size", [2, 4])
def test_objective_perturbation_of_equal_rows(size, relation):
    """k equal rows are one record with k times the loss: k L and k beta, in one direction."""
    mu, ratio = 0.15, 0.02
    one = ObjectiveGaussian(mu, math.log1p(ratio), one_signed=True)
    merged = ObjectiveGaussian(size * mu, math.log1p(size * ratio), one_signed=True)
    found = epsilon(of_group(one, size), relation=relation)
    assert found >= epsilon(merged, relation=relation)
    assert found <= 2.5 * epsilon(merged, relation=relation)  # what a span of k dimensions costs


@pytest.mark.parametrize("size", [2, 3])
def test_objective_perturbation_of_orthogonal_rows(size):
    """Orthogonal rows of one user, alone: coordinates are independent, one record in each."""
    one = ObjectiveGaussian(0.3, math.log1p(0.05), one_signed=True)
    exact = Accountant("zero_out").epsilon(charge_of(one, count=size), DELTA)
    assert epsilon(of_group(one, size)) >= exact


def test_the_determinant_of_several_rows():
    """(1 + beta/lambda)^k bounds det(H + M)/det(H), and orthogonal rows attain it."""
    rng = np.random.default_rng(0)
    beta, lam, size = 0.25, 0.5, 3
    for _ in range(50):
        rows = rng.standard_normal((size, 5))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        other = rng.standard_normal((5, 5))
        H = lam * np.eye(5) + other @ other.T * rng.choice([0.0, 0.1])
        gain = np.linalg.slogdet(H + beta * rows.T @ rows)[1] - np.linalg.slogdet(H)[1]
        assert gain <= size * math.log1p(beta / lam) * (1 + 1e-12)
    H = lam * np.eye(5)
    gain = np.linalg.slogdet(H + beta * np.diag([1, 1, 1, 0, 0]))[1] - np.linalg.slogdet(H)[1]
    assert gain == pytest.approx(size * math.log1p(beta / lam))


def test_spend_of_a_group():
    log = Log()
    log.append(Event("g", (GaussianKind(0.2, 0.2), Pure(0.1))))
    log.append(Event("g", (GaussianKind(0.2, 0.2), Pure(0.1))))
    ((cell, charge),) = grouped(spend(log), 3).frontier()
    (step,) = charge
    assert cell == ()
    assert charge == Counter({step: 2})
    assert step.kinds == (GaussianKind(3 * 0.2, 3 * 0.2), Pure(3 * 0.1))
    assert grouped(spend(log), 1) == spend(log)


def test_spend_of_a_group_in_sampled_batches_and_in_parts():
    log = Log()
    sampled = Sampling(0.1)
    for view in (1, 2):  # two questions to each of two batches
        for mu in (0.3, 0.4):
            kinds = (GaussianKind(2 * mu, mu),)
            log.append(Event("g", kinds, ((view,),), view=view, sampling=sampled))
    found = grouped(spend(log), 3, kept_together=True)
    together = SampledGroupGaussian(0.1, pytest.approx(3 * 0.5), 3)
    for _, charge in found.frontier():  # each user is in one part
        ((step, count),) = charge.items()
        assert (step.sampling.full, count, step.kinds) == (True, 1, (together,))


def test_what_has_no_theorem_is_refused():
    sampled, parts = Log(), Log()
    sampled.append(Event("g", (Pure(0.2),), sampling=Sampling(0.1)))
    fixed = Event("g", (GaussianKind(0.2, 0.2),), sampling=Sampling(0.1, fixed_size=True))
    parts.append(Event("g", (GaussianKind(0.2, 0.2),), cells=((0,),)))
    for log in (sampled, [fixed]):
        with pytest.raises(Refused, match="several rows of one user in this sampled batch"):
            grouped(spend(log), 2)
    with pytest.raises(Refused, match="may lie in several parts of the data"):
        grouped(spend(parts), 2)
    with pytest.raises(Refused, match="not known for sampled_gaussian"):
        of_group(SampledGaussian(0.1, 1.0), 2)
