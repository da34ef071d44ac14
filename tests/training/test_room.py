"""Room for the rounding of large sums, and checkpoints whose layers would be missed."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from privopt.privacy import Refused
from privopt.torch.clip import Clip
from privopt.torch.engine import Engine
from privopt.torch.probe import probe
from privopt.torch.reachable import Reachable

from .models import clipped, cross_entropy, loop
from .runs import data

X, Y = data(8).tensors


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.one, self.two, self.reentrant = nn.Linear(4, 5), nn.Linear(5, 3), reentrant

    def forward(self, x):
        return self.two(checkpoint(self.one, x, use_reentrant=self.reentrant).tanh())


def test_checkpoints():
    """The old kind runs its layers without a history: their gradients would be missing."""
    torch.manual_seed(0)
    model = Checkpointed(False).double()
    engine = Engine(model, Clip(0.3))
    probe(engine, (X,), {})
    total = engine.clipped_sum(cross_entropy, (X,), {}, (Y,), 8)
    expected = clipped(loop(model, cross_entropy, (X,), Y), 0.3 / (1 + 1e-9))
    torch.testing.assert_close(total, expected, rtol=0, atol=1e-12)
    x = X.clone().requires_grad_()
    with pytest.raises(Refused, match="use_reentrant"):
        Engine(Checkpointed(True).double(), Clip(0.3)).clipped(cross_entropy, (x,), {}, (Y,), 8)


def test_large_batches_leave_room_for_the_rounding_of_their_sum():
    """Aligned gradients, whose sum is as long as a sum can be."""
    count = 300_000
    torch.manual_seed(0)
    x = torch.rand(count, 16) + 1.5
    engine = Engine(nn.Linear(16, 1, bias=False), Clip(1.0))
    engine.crowd = count

    def total(rows):
        return engine.clipped_sum(lambda out: out[:, 0], (rows,), {}, (), len(rows)).double()

    whole = total(x)
    for i in (0, 777, count // 2, count - 1):
        assert (whole - total(torch.cat([x[:i], x[i + 1 :]]))).norm() <= 1


def test_a_partial_function_is_known_by_its_code():
    """A new one in every step, with the tensors of its batch, is the same loss."""
    one, other = (functools.partial(cross_entropy, target=y) for y in (Y, Y.clone()))
    assert Reachable(one).mark == Reachable(other).mark != Reachable(cross_entropy).mark
