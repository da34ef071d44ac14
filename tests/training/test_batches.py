"""Who is in a batch: the rates the accountant uses, and nothing drawn twice or skipped."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)

from privopt.noise import SecureSource, SeededSource
from privopt.privacy import ROOT, Refused
from privopt.torch.batches import FixedOrder, PoissonBatches, PrivateLoader, check_loader
from privopt.torch.processes import Processes

DATA = TensorDataset(torch.arange(50).float()[:, None], torch.arange(50))


@pytest.mark.statistical
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("kind", ["tensors", "dictionaries"])
def test_every_record_is_given_at_the_accountants_rate(groups, kind):
    """What the loader hands out, chi-square over records and over pairs of neighbours: false
    alarms below 1e-6. A record is there in its own group's steps alone."""
    draws = 6_000 if kind == "tensors" else 1_500
    schedule = PoissonBatches(50, 50, 5, groups, SeededSource(3))
    rate = groups * 5 / 50
    assert schedule.sampling.rate == rate
    assert schedule.cells(7) == ((ROOT,) if groups == 1 else ((1,),))
    data = DATA if kind == "tensors" else Pairs()
    loader = PrivateLoader(DataLoader(data, batch_size=5), schedule, draws, Processes())
    dealt = schedule.state()
    hits, pairs, step = np.zeros(50), 0, 0
    for _ in range(draws // 10):
        for batch in loader:
            chosen = np.asarray(batch[1] if kind == "tensors" else batch["y"])
            assert (dealt[chosen] == step % groups).all()
            hits[chosen] += 1
            pairs += np.isin(chosen + 1, chosen).sum()
            loader.stepped()
            step += 1
    turns = draws / groups
    score = np.sum((hits - turns * rate) ** 2) / (turns * rate * (1 - rate))
    assert 5e-7 < stats.chi2.sf(score, 50) < 1 - 5e-7
    both = turns * rate**2 * np.sum(dealt[1:] == dealt[:-1])
    assert abs(pairs - both) < 6 * np.sqrt(2 * both)


@pytest.mark.statistical
def test_groups_take_turns():
    schedule = PoissonBatches(3000, 3000, 100, 4, SeededSource(0))
    assert schedule.sampling.rate == 400 / 3000
    assert [schedule.cells(t) for t in range(5)] == [((0,),), ((1,),), ((2,),), ((3,),), ((0,),)]
    dealt = schedule.state()
    counts = np.bincount(dealt, minlength=4)
    assert stats.chisquare(counts).pvalue > 1e-7
    sizes = []
    for step in range(400):
        chosen = schedule.draw(step)
        assert (dealt[chosen] == step % 4).all()
        sizes.append(len(chosen))
    assert abs(np.mean(sizes) - 100) < 6 * 10 / np.sqrt(400)


def test_a_fixed_order_is_a_partition_that_comes_back():
    schedule = FixedOrder(53, 10, SeededSource(0))
    assert schedule.steps_per_epoch == 6
    assert schedule.expected_batch_size == 53 / 6
    epoch = [schedule.draw(step) for step in range(6)]
    assert sorted(np.concatenate(epoch)) == list(range(53))
    assert {len(part) for part in epoch} == {8, 9}
    assert all(np.array_equal(schedule.draw(t + 6), epoch[t]) for t in range(6))
    assert schedule.cells(8) == ((2,),)
    assert not np.array_equal(np.concatenate(epoch), np.arange(53))


def test_secure_schedules_differ():
    one, other = (FixedOrder(1000, 10, SecureSource()).state() for _ in range(2))
    assert not np.array_equal(one, other)


# ------------------------------------------------------------ the loader
def private(loader, steps=20, batch_size=5, source=None):
    schedule = PoissonBatches(50, 50, batch_size, 1, source or SeededSource(0))
    return PrivateLoader(loader, schedule, steps, Processes())


class Pairs(Dataset):
    """A data set of another kind, with a dictionary for each record."""

    def __len__(self):
        return 50

    def __getitem__(self, i):
        return {"x": torch.full((2,), float(i)), "y": i}


@pytest.mark.parametrize("data", [DATA, Pairs()])
def test_an_epoch_of_batches(data):
    loader = private(DataLoader(data, batch_size=5))
    assert len(loader) == 10
    for _ in range(2):
        seen = 0
        for batch in loader:
            x, y = batch if data is DATA else (batch["x"], batch["y"])
            assert loader.waiting == len(x)
            assert torch.equal(x[:, 0].long(), y)
            loader.stepped()
            seen += 1
        assert seen == 10
    with pytest.raises(Refused, match="all 20 steps of the budget are used"):
        next(iter(loader))


def test_a_batch_that_was_looked_at_comes_again():
    loader = private(DataLoader(DATA, batch_size=5))
    first = next(iter(loader))
    again = iter(loader)
    assert torch.equal(next(again)[0], first[0])
    loader.stepped()
    next(again)
    with pytest.raises(Refused, match="each batch is stepped once"):
        next(again)


def test_empty_batches_keep_their_shape():
    for data in (DATA, Pairs()):
        schedule = PoissonBatches(50, 10**6, 1, 1, SeededSource(0))
        loader = PrivateLoader(DataLoader(data, batch_size=1), schedule, 30, Processes())
        for _ in range(30):
            batch = next(iter(loader))
            x = batch[0] if data is DATA else batch["x"]
            assert x.shape == (0, 1 if data is DATA else 2)
            assert loader.waiting == 0
            loader.stepped()


def test_loaders_of_others_are_refused():
    class Endless(IterableDataset):
        def __iter__(self):
            yield 1

    weighted = WeightedRandomSampler(torch.ones(50), 50)
    for loader, words in [
        (DATA, "must be a torch DataLoader"),
        (DataLoader(Endless(), batch_size=2), "needs a length"),
        (DataLoader(DATA, batch_size=None), "needs a batch_size"),
        (DataLoader(DATA, batch_size=5, sampler=weighted), "sampler would be replaced"),
        (DataLoader(Subset(DATA, [0, 1, 0]), batch_size=2), "more than once"),
        (DataLoader(Subset(Subset(DATA, [3, -47]), [0, 1]), batch_size=2), "more than once"),
        (DataLoader(ConcatDataset([DATA, DATA]), batch_size=2), "more than once"),
        (DataLoader(ConcatDataset([DATA, Subset(DATA, [7])]), batch_size=2), "more than once"),
    ]:
        with pytest.raises(ValueError, match=words):
            check_loader(loader)
    check_loader(DataLoader(DATA, batch_size=5, shuffle=True))
    apart = ConcatDataset([Subset(DATA, torch.arange(20)), Subset(DATA, range(20, 40))])
    check_loader(DataLoader(Subset(apart, [0, 39]), batch_size=2))


def _mixed(examples):
    batch = default_collate(examples)
    share = torch.rand(())
    return {"x": share * batch["x"] + (1 - share) * batch["x"].roll(1, 0), "y": batch["y"]}


def _masked(examples):
    """Random in each row, as collators of language models are, and it changes its arguments."""
    x = torch.stack([example.pop("x") for example in examples])
    return {"x": x * (torch.rand(x.shape) < 0.5), "y": default_collate(examples)["y"]}


def _centred(examples):
    batch = default_collate(examples)
    return {"x": batch["x"] - batch["x"].mean(0), "y": batch["y"]}


@pytest.mark.parametrize("collate", [_mixed, _centred, _masked])
def test_records_that_are_mixed_when_they_are_put_together(collate):
    loader = private(DataLoader(Pairs(), batch_size=10, collate_fn=collate))
    if collate is _masked:
        assert len(next(iter(loader))["x"]) == loader.waiting
        return
    with pytest.raises(Refused, match="collate_fn mixes"):
        next(iter(loader))
    assert loader.done == 0


def test_states_of_other_data_are_refused():
    for schedule in (
        PoissonBatches(9, 9, 3, 2, SeededSource(0)),
        FixedOrder(9, 3, SeededSource(0)),
    ):
        schedule.load(schedule.state().copy())
        for wrong in (np.zeros(8), np.full(9, 9), np.full(9, -1)):
            with pytest.raises(Refused, match="another data set"):
                schedule.load(wrong)
    with pytest.raises(Refused, match="not an order"):
        schedule.load(np.zeros(9))
