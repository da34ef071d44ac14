"""A data set that holds each record up to k times: what its copies spend together."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.stats import binom, norm
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset

from privopt.noise import SeededSource
from privopt.torch import make_private
from privopt.torch.batches import PoissonBatches, rate_of_some

X, Y = torch.arange(60.0).reshape(15, 4).sin(), torch.arange(15) % 2


class Twice(Dataset):
    """A class of the user's own: each record several times."""

    def __init__(self, times):
        self.times = times

    def __len__(self):
        return 15 * self.times

    def __getitem__(self, index):
        return X[index % 15], Y[index % 15]


def run(data, **choices):
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    return make_private(
        *(model, torch.optim.SGD(model.parameters(), 0.1), DataLoader(data, 5)),
        **{"epsilon": 2.0, "delta": 1e-5, "epochs": 2, "random_state": 0} | choices,
    )


def loss(out, y):
    return F.cross_entropy(out, y, reduction="none")


def trained(private):
    while not private.finished:
        for x, y in private.loader:
            private.step(loss, x, targets=y)
    return private.certificate()


def beyond(epsilon, ratio, p, q):
    """Hockey-stick divergence of two densities on a grid."""
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum() * ratio)


@pytest.mark.parametrize("repeats", [1, 2, 5])
@pytest.mark.parametrize("rate", [0.02, 0.3, 0.9])
def test_copies_spend_at_most_what_is_declared(repeats, rate):
    """Exactly, in one dimension: the mixture that copies make, against the declared Gaussian."""
    sigma, grid = 2.0 * repeats, np.linspace(-60, 80, 28_001)
    step = grid[1] - grid[0]
    nobody = norm.pdf(grid, 0, sigma)
    counts = range(repeats + 1)
    copies = sum(binom.pmf(j, repeats, rate) * norm.pdf(grid, j, sigma) for j in counts)

    def sampled(rate, size):
        return (1 - rate) * nobody + rate * norm.pdf(grid, size, sigma)

    declared = sampled(rate_of_some(rate, repeats), repeats)
    for epsilon in (0.0, 0.05, 0.2, 0.5, 1.0):
        for one, other in ((copies, nobody), (nobody, copies)):
            truth = beyond(epsilon, step, one, other)
            bound = [declared if x is copies else nobody for x in (one, other)]
            assert truth <= beyond(epsilon, step, *bound) + 1e-12
    if repeats > 1:  # what one copy spends would not do
        truth = beyond(0.05, step, copies, nobody)
        assert truth > beyond(0.05, step, sampled(rate, 1), nobody)
        assert rate > 0.5 or truth > beyond(
            0.05, step, sampled(rate_of_some(rate, repeats), 1), nobody
        )


def test_the_rate_is_that_of_some_copy():
    assert rate_of_some(0.3, 1) == 0.3
    assert rate_of_some(0.3, 2) == pytest.approx(0.51)
    assert rate_of_some(1e-9, 3) == pytest.approx(3e-9)
    assert rate_of_some(1.0, 4) == 1.0
    schedule = PoissonBatches(400, 400, 40, 1, SeededSource(0), 3)
    assert schedule.sampling.rate == pytest.approx(1 - 0.9**3)
    drawn = [len(schedule.draw(step)) for step in range(200)]
    assert np.mean(drawn) == pytest.approx(40, rel=0.05)  # each copy has a coin of its own


@pytest.mark.parametrize("choices", [{"batches": "fixed"}, {"noise": "independent"}])
def test_the_noise_is_that_of_all_copies(choices):
    plain = run(Twice(1), **{"noise_multiplier": 1.0, "epsilon": None} | choices)
    twice = run(Twice(2), repeats=2, **{"noise_multiplier": 1.0, "epsilon": None} | choices)
    assert twice.noise_std == pytest.approx(2 * plain.noise_std)
    sensitivity = twice._sums.sensitivity(0)
    assert sensitivity.radius == pytest.approx(2 * twice._engine.clip.norm)
    assert twice._engine.clip.norm == plain._engine.clip.norm == 1.0
    certificate = trained(twice)
    assert certificate.epsilon <= twice.budget.epsilon * (1 + 1e-6)
    assert certificate.settings["repeats"] == 2


def test_copies_of_a_loss_count_with_their_gradients():
    private = run(Twice(3), repeats=3, loss_curve=4.0)
    assert private._sums.sensitivity(0).radius == pytest.approx(3 * math.hypot(1.0, 0.1))


def test_more_copies_than_declared_are_refused():
    for data, most in ((Twice(3), 2), (TensorDataset(X.repeat(3, 1), Y.repeat(3)), 2)):
        with pytest.raises(ValueError, match="more than 2 times"):
            run(data, repeats=most)
    with pytest.raises(ValueError, match="declare repeats="):
        run(Twice(2))
    run(Twice(3), repeats=3)
    chained = ConcatDataset([Twice(1), Subset(Twice(1), range(9))])
    run(chained, repeats=2)
    one = TensorDataset(X, Y)
    with pytest.raises(ValueError, match="more than 2 times"):
        run(ConcatDataset([one, one, one]), repeats=2)


def test_what_is_not_accounted_is_refused():
    with pytest.raises(ValueError, match="positive integer"):
        run(Twice(2), repeats=0)
    for choices in ({"batches": "allocated"}, {"noise": "banded", "batches": "poisson"}):
        with pytest.raises(ValueError, match="not accounted"):
            run(Twice(2), repeats=2, **choices)
    with pytest.raises(ValueError, match="copies of one record"):
        run(Twice(2), repeats=2, equal_records="people")
    with pytest.raises(ValueError, match="not beside user_ids"):
        run(Twice(2), repeats=2, user_ids=list(range(30)), rows_per_user=1)


def test_what_nobody_has_looked_at_is_an_assumption():
    private = run(Twice(4), repeats=2, equal_records="unchecked", batches="fixed")
    assert any("more than 2 times (not checked)" in text for text in private._assumptions)


def test_a_neighbour_without_all_copies_moves_a_step_by_no_more():
    """All copies of one record, emptied, in one batch."""
    sums = []
    for empty in (False, True):
        x, y = X.repeat(2, 1).clone(), Y.repeat(2)
        if empty:
            x[[3, 18]] = math.nan
        private = run(TensorDataset(x, y), repeats=2, batches="fixed", clip_norm=0.01)
        private._schedule.steps_per_epoch = 1  # everybody in one step
        rows, targets = next(iter(private.loader))
        private._release = lambda total: sums.append(total.clone())
        private.backward(loss, rows, targets=targets)
    moved = float((sums[0] - sums[1]).norm())
    assert 1.9 * 0.01 < moved <= 2 * 0.01 * (1 + 1e-6)
