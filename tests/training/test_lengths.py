"""Records of several declared lengths: each at its own, whatever the others of its batch are."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from privopt import Refused
from privopt.torch import make_private

LENGTHS = (4, 8, 16)


class Pooled(nn.Module):
    """Sees padding: it pools without a mask. Padded to their longest, records would meet here."""

    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(20, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.out(self.words(x).mean(1).tanh())


class Long(nn.Module):
    """Mixes at one of the lengths alone."""

    def __init__(self, at):
        super().__init__()
        self.one, self.at = Pooled(), at

    def forward(self, x):
        out = self.one(x)
        return out - out.mean(0) if x.shape[1] == self.at else out


class LastState(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.cells, self.out = nn.Embedding(20, 6), nn.LSTM(6, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.out(self.cells(self.words(x).transpose(0, 1))[0][-1])


def loss(out, y):
    return F.cross_entropy(out, y, reduction="none")


def sentences(count=24, seed=0):
    torch.manual_seed(seed)
    x = torch.randint(1, 20, (count, 16))
    own = torch.tensor([2, 3, 4, 5, 7, 8, 9, 16]).repeat(count // 8)
    return torch.where(torch.arange(16) < own[:, None], x, 0), own, torch.randint(0, 3, (count,))


def run(model, x, y, batch=None, **choices):
    private = make_private(
        *(model, torch.optim.SGD(model.parameters(), 0.1)),
        DataLoader(TensorDataset(x, y), batch or len(x)),
        **{"epsilon": 2.0, "delta": 1e-5, "epochs": 2, "batches": "fixed", "clip_norm": 0.5}
        | {"lengths": LENGTHS, "random_state": 0}
        | choices,
    )
    sums = []
    release = private._release
    private._release = lambda total: sums.append(total.clone()) or release(total)
    return private, sums


def bucket(own):
    """The shortest length that holds a row and one of its padding."""
    return next(length for length in LENGTHS if min(own + 1, 16) <= length)


def alone(model, x, own, y, clip):
    """Each record by itself, at its own length."""
    rows = []
    for row, size, label in zip(x, own.tolist(), y, strict=True):
        value = loss(model(row[None, : bucket(size)]), label[None])[0]
        found = torch.autograd.grad(value, list(model.parameters()))
        gradient = torch.cat([g.flatten() for g in found])
        rows.append(gradient * min(1.0, clip * (1 - 1e-3) / float(gradient.norm())))
    return torch.stack(rows)


@pytest.mark.parametrize("examples", ["checked", "apart"])
@pytest.mark.parametrize("kind", [Pooled, LastState])
@pytest.mark.parametrize("microbatch", [None, 5])
def test_the_sum_is_that_of_records_alone(kind, examples, microbatch):
    x, own, y = sentences()
    model = kind()
    private, sums = run(model, x, y, examples=examples, microbatch=microbatch)
    right = alone(model, x, own, y, 0.5).sum(0)
    rows, targets = next(iter(private.loader))
    private.step(loss, rows, targets=targets)
    assert torch.allclose(sums[0], right, rtol=1e-4, atol=2e-3)


def test_one_long_record_moves_nobody_else():
    """Padded to their longest, the others' gradients would change."""
    x, own, y = sentences()
    short = own <= 4
    x, own, y = x[short].repeat(4, 1), own[short].repeat(4), y[short].repeat(4)
    kept, clip, others = Pooled().state_dict(), 0.5, []
    other = x.clone()
    other[0] = torch.randint(1, 20, (16,))
    longer = own.clone()
    longer[0] = 16
    for rows, size in ((x, own), (other, longer)):
        private, sums = run(model := Pooled(), rows, y)
        model.load_state_dict(kept)
        given, targets = next(iter(private.loader))
        private.backward(loss, given, targets=targets)
        each = alone(model, rows, size, y, clip)
        others.append(sums[0] - each[0])
    assert torch.allclose(*others, rtol=1e-3, atol=2e-3)


def test_padding_is_read_from_all_tensors_of_a_row():
    from privopt.torch.lengths import Lengths

    x = torch.tensor([[5, 5, 5, 5, 0, 0, 0, 0], [1, 2, 3, 4, 4, 4, 4, 4], [7] * 8])
    mask = torch.tensor([[1.0, 1, 1, 1, 1, 1, 0, 0], [1] * 8, [1] * 8])
    lengths = Lengths((2, 4, 7, 8))
    assert lengths._own([x]).tolist() == [5, 4, 1]
    assert lengths._own([x, mask]).tolist() == [7, 4, 1]
    wide = torch.stack([x, x.flip(1)], 2)
    assert lengths._own([wide]).tolist() == [5, 8, 1]


@pytest.mark.parametrize("at", LENGTHS)
def test_mixing_at_one_length_is_refused_before_the_first_step(at):
    x, _, y = sentences()
    private, sums = run(Long(at), x, y)
    rows, targets = next(iter(private.loader))
    with pytest.raises(Refused, match=r"sees other examples|how many examples"):
        private.step(loss, rows, targets=targets)
    assert sums == []
    assert private.epsilon_spent() == 0


@pytest.mark.parametrize("at", [4, 16])
def test_a_loss_that_mixes_at_one_length_is_refused(at):
    def mixing(out, y, x):
        found = loss(out, y)
        return found * found.mean().detach() if x.shape[1] == at else found

    x, _, y = sentences()
    private, sums = run(Pooled(), x, y)
    rows, targets = next(iter(private.loader))
    with pytest.raises(Refused):
        private.step(mixing, rows, targets=(targets, rows))
    assert sums == []


def test_a_length_that_comes_late_is_checked_when_it_comes(monkeypatch):
    """A graph that mixes where a record is long and large: made-up inputs do not show it."""
    from privopt.torch import watch

    monkeypatch.setattr(watch, "WHOLE", 0.0)
    monkeypatch.setattr(watch, "PART", 0.0)

    class Late(Pooled):
        def forward(self, x):
            out = super().forward(x)
            mix = x.shape[1] == 16 and bool((x > 5).any())
            return out - out.mean(0) if mix else out

    x, own, y = sentences()
    order = torch.argsort(own, stable=True)
    private, _ = run(Late(), x[order], y[order], batch=12)
    private._schedule._order = torch.arange(24).numpy()
    steps = iter(private.loader)
    rows, targets = next(steps)
    private.step(loss, rows, targets=targets)  # short ones alone
    rows, targets = next(steps)
    with pytest.raises(Refused, match=r"meet|depends on others"):
        private.step(loss, rows, targets=targets)


def test_what_is_not_there_is_said():
    x, _, y = sentences()
    for bad in ((), (4, 4), (8, 4), (0, 4), 4, (4.0, 8), (True, 8)):
        with pytest.raises(ValueError, match="rising order"):
            run(Pooled(), x, y, lengths=bad)
    for choice in ({"compile": True}, {"views": 2}):
        with pytest.raises(ValueError, match="neither compiled nor"):
            run(Pooled(), x, y, **choice)
    with pytest.raises(ValueError, match="drop it, or user_ids"):
        run(Pooled(), x, y, user_ids=list(range(24)), rows_per_user=1)
    private, _ = run(Pooled(), x, y, lengths=(4, 15))
    rows, targets = next(iter(private.loader))
    with pytest.raises(ValueError, match="second dimension of 15"):
        private.step(loss, rows, targets=targets)
    private, _ = run(Pooled(), x, y)
    rows, targets = next(iter(private.loader))
    with pytest.raises(ValueError, match="need targets"):
        private.step(lambda out: loss(out, targets), rows)


def test_empty_batches_and_the_certificate():
    x, _, y = sentences()
    model = Pooled()
    private = make_private(
        *(model, torch.optim.SGD(model.parameters(), 0.1), DataLoader(TensorDataset(x, y), 1)),
        **{"epsilon": 2.0, "delta": 1e-5, "epochs": 1, "lengths": LENGTHS, "batches": "poisson"},
    )
    for rows, targets in private.loader:
        assert rows.shape[1] == 16
        private.step(loss, rows, targets=targets)
    assert private.certificate().settings["lengths"] == [4, 8, 16]
