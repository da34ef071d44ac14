"""Correlated noise as it is drawn: its covariance, and attacks on short streams.

Coordinates of one vector are independent runs of one stream. Seeded; a false alarm has probability
below 1e-6 in each test.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from privopt.audit import Claim
from privopt.audit.neighbours import Pair
from privopt.audit.statistical import attack, judge
from privopt.mechanisms import HOOK, CorrelatedGaussian, Gate
from privopt.noise import SeededSource, gaussian
from privopt.oracle import CountRecords, Oracle, RowBounds
from privopt.privacy import Budget, Certificate
from privopt.privacy.amplified import cyclic_multiplier
from privopt.privacy.certificate import RUN
from privopt.privacy.factorizations import (
    BLT,
    Banded,
    DenseOptimal,
    FullHonaker,
    Honaker,
    Independent,
    Restarts,
    SquareRoot,
    Tree,
)
from privopt.privacy.participation import Participation
from privopt.privacy.profiles import gaussian_mu
from privopt.privacy.spend import spend

pytestmark = pytest.mark.statistical
STEPS = 16
RULE = Participation.epochs(4, 4)
DELTA = 1e-5
KINDS = [
    Independent(STEPS),
    Tree(STEPS),
    Honaker(STEPS),
    FullHonaker(STEPS),
    SquareRoot(STEPS),
    Banded.for_rule(STEPS, RULE),
    BLT.optimised(STEPS, RULE, 3),
    DenseOptimal(STEPS, 4),
    Restarts(STEPS, 6),
    Restarts(STEPS, 6, completion=True),
]
IDS = [f"{f.name}-{i}" for i, f in enumerate(KINDS)]


def draws(factorization, runs, seed):
    """Noise of all steps, one run in each column."""
    source, stream = SeededSource(seed), factorization.stream()
    return np.array(
        [stream.next(lambda: gaussian(source, 1.0, runs)) for _ in range(factorization.steps)]
    )


def deviation(factorization, sums):
    """Largest deviation of the covariance of running sums from the declared one, in standard
    errors; the declared one follows from the encoder."""
    inverse = np.linalg.inv(factorization.encode(np.eye(STEPS)))
    decoder = np.cumsum(inverse, axis=0)
    covariance = decoder @ decoder.T
    scale = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)) + covariance**2)
    found = sums @ sums.T / sums.shape[1]
    return float(np.max(np.abs(found - covariance) / scale) * math.sqrt(sums.shape[1]))


@pytest.mark.parametrize("factorization", KINDS, ids=IDS)
def test_the_stream_has_the_declared_covariance(factorization):
    sums = np.cumsum(draws(factorization, 200_000, 1), axis=0)
    assert deviation(factorization, sums) < 6.5


@pytest.mark.parametrize("factorization", KINDS[1:], ids=IDS[1:])
def test_a_draw_used_twice_is_seen(factorization):
    """In a tree: a node used twice."""
    source, stream, kept = SeededSource(3), factorization.stream(), []

    def draw():
        kept.append(gaussian(source, 1.0, 200_000) if len(kept) != 9 else kept[8])
        return kept[-1].copy()

    noise = np.array([stream.next(draw) for _ in range(STEPS)])
    assert deviation(factorization, np.cumsum(noise, axis=0)) > 10


@pytest.mark.parametrize("kind", [Tree, Honaker])
def test_a_level_without_noise_is_seen(kind, monkeypatch):
    factorization = kind(STEPS)
    declared = kind(STEPS)
    monkeypatch.setattr(
        kind, "scale", lambda self, height, honest=kind.scale: honest(self, height) * (height != 2)
    )
    noise = draws(factorization, 200_000, 4)
    monkeypatch.undo()
    assert deviation(declared, np.cumsum(noise, axis=0)) > 10


# ---------------------------------------------------------------- attacks
def attacked(factorization, sigma, runs, seed):
    """Scores of the best linear attack, with the worst record of the rule and without it."""
    patterns = RULE.orders(STEPS) or []
    worst = patterns[int(np.argmax(factorization.losses_squared(patterns)))]
    moved = np.zeros((STEPS, 1))
    moved[list(worst)] = 1.0
    encoder = factorization.encode(np.eye(STEPS))
    weights = (encoder.T @ encoder @ moved).T
    sides = [sigma * draws(factorization, runs, seed + side) for side in (0, 1)]
    return (weights @ (sides[0] + moved)).ravel(), (weights @ sides[1]).ravel()


@pytest.mark.parametrize("factorization", KINDS, ids=IDS)
def test_an_attack_on_sixteen_steps_meets_the_certified_epsilon(factorization):
    mu = gaussian_mu(4.0, DELTA)
    sigma = math.sqrt(factorization.sensitivity_squared(RULE)) / mu
    scores = attacked(factorization, sigma, 300_000, 5)
    found = judge(*scores, Claim.gaussian(mu, DELTA), confidence=1 - 1e-6)
    assert not found.refuted
    assert found.lower_bound <= found.certified
    # With completion the account also pays for the root, which the release hides behind a step.
    completed = isinstance(factorization, Restarts) and factorization.completion
    assert found.ratio > (0.85 if completed else 0.95)


@pytest.mark.parametrize("factorization", [Tree(STEPS), Honaker(STEPS, "nodes")], ids=IDS[1:3])
def test_one_level_too_few_is_refuted(factorization):
    single = Participation.single_pass()
    mu = gaussian_mu(4.0, DELTA)
    squared = Tree(STEPS).sensitivity_squared(single)
    assert squared == 5
    sigma = math.sqrt(squared - 1) / mu
    moved = np.zeros((STEPS, 1))
    moved[0] = 1.0
    encoder = Tree(STEPS).encode(np.eye(STEPS))
    weights = (encoder.T @ encoder @ moved).T
    sides = [sigma * draws(Tree(STEPS), 100_000, seed) for seed in (7, 8)]
    scores = (weights @ (sides[0] + moved)).ravel(), (weights @ sides[1]).ravel()
    found = judge(*scores, Claim.gaussian(mu, DELTA), confidence=1 - 1e-6)
    assert found.refuted
    assert found.lower_bound > 4.0


# ---------------------------------------------------------------- through the gate
ONE = (np.ones((1, 1)), np.ones(1))
NONE = (np.full((1, 1), np.nan), np.full(1, np.nan))
PAIR = Pair("one record", ONE, NONE, (0,), (0,))


def streaming(factorization, sigma, parts=None, rate=1.0):
    """Counts the one record in every step, or in its part's turns."""

    def run(X, y, source):
        oracle = Oracle.over(X, y, neighbouring="zero_out", bounds=RowBounds(1.0), source=source)
        gate, mechanism = Gate(source, hook=HOOK.get()), CorrelatedGaussian(factorization, sigma)
        groups = [oracle] if parts is None else oracle.cyclic(parts)
        for step in range(factorization.steps):
            group = groups[step % len(groups)]
            view = group.everything() if rate == 1.0 else group.poisson(rate)
            gate.release(mechanism, view.ask(CountRecords()))
        return gate.log

    return run


def test_the_auditor_scores_a_stream_as_one_release():
    factorization = Honaker(4)
    run = streaming(factorization, 2.0)
    log = run(*ONE, SeededSource(0))
    certificate = Certificate.of_run(
        RUN, log, spend(log), Budget(50, DELTA), solver="test", private=False
    )
    scores = attack(run, PAIR, runs=700)
    found = judge(*scores, Claim.of(certificate), confidence=1 - 1e-6)
    assert not found.refuted
    mu = math.sqrt(factorization.losses_squared([(0, 1, 2, 3)])[0]) / 2.0
    assert found.mu_certified == pytest.approx(mu)
    # The scores of a likelihood ratio are normal with variance mu^2 and mean mu^2/2.
    assert np.var(scores[0]) == pytest.approx(mu**2, rel=0.3)
    assert np.mean(scores[0]) == pytest.approx(mu**2 / 2, abs=6 * mu / math.sqrt(700))


def test_an_attack_on_banded_noise_over_sampled_groups_stays_below_its_certificate():
    """One record of the first of two groups; which batches held it is secret."""
    factorization, budget, rate = Banded.optimised(8, 2), Budget(3.0, 1e-2), 0.5
    sigma = cyclic_multiplier(budget, 8, 2, rate)
    run = streaming(factorization, sigma, 2, rate)
    log = run(*ONE, SeededSource(0))
    certificate = Certificate.of_run(RUN, log, spend(log), budget, solver="test", private=False)
    assert certificate.epsilon > 0.98 * 3.0
    claim = Claim.of(certificate)
    columns = factorization.encode(np.eye(8))[:, ::2]

    def scores(scale, side, runs=100_000):
        source = SeededSource(20 + side)
        present = source.coins.random((4, runs)) < (rate if side == 0 else 0.0)
        stream = factorization.stream()
        noise = [stream.next(lambda: gaussian(source, scale, runs)) for _ in range(8)]
        noise = np.array(noise)
        noise[::2] += present
        seen = factorization.encode(noise)
        square = np.sum(columns**2, axis=0)[:, None]
        ratios = (columns.T @ seen - square / 2) / scale**2
        return np.sum(np.log1p(rate * np.expm1(ratios)), axis=0)

    found = judge(scores(sigma, 0), scores(sigma, 1), claim, confidence=1 - 1e-6)
    assert not found.refuted
    assert found.ratio > 0.9
    found = judge(*(scores(0.7 * sigma, side) for side in (0, 1)), claim, confidence=1 - 1e-6)
    assert found.refuted
    # The auditor's own score of such a run is finite, and larger with the record.
    first, second = attack(run, PAIR, runs=40)
    assert np.mean(first) > np.mean(second)
