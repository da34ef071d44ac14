"""Batches: the whole claimed curve clears Poisson sampling and refutes a shuffle that is accounted
as Poisson, which the point (epsilon, delta) does not.

Batches of a shuffle have a fixed size, so that whoever is not in a batch is replaced by somebody
else: with gradients of -1 all others give the record away twice (Chua et al., 2024; Annamalai et
al., 2026). Batches of one record show it best.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp

from privopt.audit.bounds import Claim
from privopt.audit.mechanisms import FAR, SATURATED, diagonal, side_by_side
from privopt.audit.statistical import judge
from privopt.mechanisms import HOOK, Gate, Gaussian
from privopt.noise import SeededSource
from privopt.oracle import ClippedGradient, Oracle, RowBounds
from privopt.oracle.sampling import GeometricSkips
from privopt.privacy import Budget, Certificate
from privopt.privacy.certificate import RUN
from privopt.privacy.spend import spend

pytestmark = pytest.mark.statistical
DELTA = 1e-5
SURE = 1 - 1e-6
"""False alarm of each audit: 1e-6."""
SETTINGS = [(10, 0.5), (10, 0.3), (100, 0.5), (100, 0.3)]
"""Batches of a pass, and their noise multiplier."""


def one_pass(steps, multiplier):
    """Each record in each of so many batches with rate 1/steps, the sums released with noise."""
    query = ClippedGradient(SATURATED.loss, 1.0)

    def run(X, y, source):
        oracle = Oracle.over(
            X,
            y,
            neighbouring="zero_out",
            bounds=RowBounds(1.0),
            source=source,
            classification=False,
        )
        gate = Gate(source, hook=HOOK.get())
        for _ in range(steps):
            gate.release(Gaussian(multiplier), oracle.poisson(1 / steps).ask(query))
        return gate.log

    return run


def crowd(steps):
    """In each coordinate one record, or an empty one, and steps - 1 others against it."""

    def data(side, runs):
        column = np.tile(np.arange(runs), steps)
        X = sp.csr_array((np.ones(runs * steps), (np.arange(runs * steps), column)))
        y = np.full(runs * steps, FAR)  # a gradient of -1
        y[:runs] = math.nan if side else -FAR
        return X, y

    return data


def given_away(multiplier):
    """Log-likelihood ratio of +1 against 0 in one batch of a shuffle, -1 in all others."""

    def score(releases, one, other):
        seen = (np.array([release.result for release in releases]) + 1) / multiplier
        first, second = (seen * s / multiplier - (s / multiplier) ** 2 / 2 for s in (2.0, 1.0))
        return logsumexp(first, axis=0) - logsumexp(second, axis=0)

    return score


def shuffled(steps):
    """A pass in a random order: each of a coordinate's records is alone in one batch of it."""

    def choose(self, count, rate, view):
        if (view - 1) % steps == 0:
            mixed = self._source.coins.random((steps, count // steps)).argsort(axis=0)
            self._orders[-1] = mixed.ravel()
        return np.flatnonzero(self._orders[-1] == (view - 1) % steps)

    return choose


def claimed(run):
    log = run(*diagonal(0, 1), SeededSource(0))
    budget = Budget(1e3, DELTA)
    return Claim.of(Certificate.of_run(RUN, log, spend(log), budget, solver="test", private=False))


def attacked(sample, claim, runs):
    scores = (sample(side, runs, SeededSource(side)) for side in (0, 1))
    return judge(*scores, claim, confidence=SURE)


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "multiplier"), SETTINGS)
def test_poisson_is_cleared_and_a_shuffle_is_refuted(steps, multiplier, monkeypatch):
    run = one_pass(steps, multiplier)
    claim = claimed(run)
    assert claim.family == "curve"
    honest = attacked(side_by_side(run, diagonal), claim, 4000)
    assert not honest.refuted
    assert honest.ratio > 0.4
    against_all = side_by_side(run, crowd(steps), given_away(multiplier))
    assert not attacked(against_all, claim, 400).refuted
    monkeypatch.setattr(GeometricSkips, "choose", shuffled(steps))
    broken = attacked(against_all, claim, 400)
    assert broken.refuted
    assert broken.point < claim.epsilon  # one point of the curve sees nothing
