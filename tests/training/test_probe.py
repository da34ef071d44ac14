"""Models that mix examples in ways that are hard to see, or remember them."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

from privopt.privacy import Refused
from privopt.torch.clip import Clip
from privopt.torch.engine import Engine
from privopt.torch.probe import probe

from .models import clipped, cross_entropy, loop
from .runs import training

X = torch.randn(8, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])


class Between(nn.Module):
    """Two layers and a function in between."""

    def __init__(self, between):
        super().__init__()
        self.one, self.two, self.between = nn.Linear(4, 5), nn.Linear(5, 3), between
        self.register_buffer("mean", torch.zeros(5))
        self.state = None

    def forward(self, x):
        return self.two(self.between(self, self.one(x)))


def made(between):
    torch.manual_seed(0)
    return Between(between).double()


class DividedByAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g / g.norm()


def _hooked(model, h):
    if h.requires_grad:
        h.register_hook(lambda g: g / g.norm())
    return torch.tanh(h)


def _replaced(model, h):
    model.mean = 0.9 * model.mean + 0.1 * h.detach().mean(0)
    return torch.tanh(h)


def _remembered(model, h):
    before = 0 if model.state is None or len(model.state) != len(h) else model.state
    model.state = h.detach()
    return torch.tanh(h + before)


def _straight_through(model, h):
    return torch.tanh(h + 5 * (h.mean(0) - h.mean(0).detach()))


MIXERS = {
    "in training only": (lambda m, h: h - h.mean(0) if m.training else h, "layer 'two' sees other"),
    "without a gradient": (lambda m, h: h / h.detach().norm(), "layer 'two' sees other"),
    "the next row": (lambda m, h: h + torch.cat([h[1:], 0 * h[:1]]), "layer 'two' sees other"),
    "the row before": (lambda m, h: h + torch.cat([0 * h[:1], h[:-1]]), "layer 'two' sees other"),
    "backward, by a hook": (_hooked, "gradient at layer 'one' depends"),
    "backward, by a function": (lambda m, h: DividedByAll.apply(h), "gradient at layer 'one'"),
    "backward, values are right": (_straight_through, "gradient at layer 'one' depends"),
    "a buffer that is replaced": (_replaced, "buffer 'mean' changes"),
    "a state": (_remembered, "another output for the same"),
}


@pytest.mark.parametrize("name", MIXERS)
def test_mixed_examples_are_refused(name):
    between, words = MIXERS[name]
    model = made(between)
    with pytest.raises(Refused, match=words):
        probe(Engine(model, Clip(1.0)), (X,), {})
    assert torch.equal(model.mean, torch.zeros(5, dtype=torch.float64))


def test_an_input_that_made_up_rows_do_not_suit():
    """A table of one row: the made-up change is out of range."""
    model = nn.Sequential(nn.Embedding(1, 4), nn.Flatten(), nn.Linear(8, 3))
    engine = Engine(model, Clip(1.0))
    probe(engine, (torch.zeros(2, 2, dtype=torch.int64),), {})
    assert [type(unit).__name__ for unit in engine.units] == ["Part"]


class Box:
    """Examples in an object that torch cannot cut."""

    def __init__(self, x):
        self.x = x


@pytest.mark.parametrize("pack", [Box, lambda x: x.numpy(), lambda x: list(map(str, x[:, 0]))])
def test_objects_that_hold_a_batch_are_refused(pack):
    """Every example would see all of them."""
    model = made(lambda m, h: torch.tanh(h))
    unpack = model.forward
    model.forward = lambda given: unpack(X)
    with pytest.raises(Refused, match="must be a tensor with one row for each"):
        probe(Engine(model, Clip(1.0)), (pack(X),), {})


def test_settings_are_no_examples():
    model = nn.LSTM(4, 3, batch_first=True).double()
    model.forward = lambda x, scale, name=None, f=model.forward: f(x * scale)[0][:, -1]
    engine = Engine(model, Clip(0.3))
    engine.run_example_by_example()
    x = X[:, None]
    total = engine.clipped_sum(cross_entropy, (x, 2.0), {"name": "a"}, (Y,), 8)
    model.forward = lambda x, f=model.forward: f(x, 2.0)
    rows = loop(model, cross_entropy, (x,), Y)
    torch.testing.assert_close(total, clipped(rows, 0.3 / (1 + 1e-9)), rtol=0, atol=1e-12)


@dataclass
class Output:
    logits: torch.Tensor


def test_an_output_without_tensors_is_refused():
    model = made(lambda m, h: torch.tanh(h))
    plain = model.forward
    model.forward = lambda x: Output(plain(x))
    with pytest.raises(Refused, match="holds no tensor that torch finds"):
        probe(Engine(model, Clip(1.0)), (X,), {})


SEPARATE = {
    "dropout": lambda m, h: F.dropout(torch.tanh(h), 0.5, m.training),
    "dropout in evaluation too": lambda m, h: F.dropout(torch.tanh(h), 0.5),
    "noise of its own": lambda m, h: h + torch.randn_like(h),
    "luck of Python": lambda m, h: h * (1 + random.random()),
    "luck of NumPy": lambda m, h: h * (1 + np.random.uniform()),  # noqa: NPY002
}


@pytest.mark.parametrize("name", SEPARATE)
def test_random_numbers_are_no_mixing(name):
    """Rules stay in force, the gradients are those of batches of one, the user's luck is his."""
    engine = Engine(made(SEPARATE[name]), Clip(1.0))

    def random_numbers():
        return float(torch.rand(())), random.random(), np.random.uniform()  # noqa: NPY002

    def seed():
        torch.manual_seed(5)
        random.seed(5)
        np.random.seed(5)  # noqa: NPY002

    seed()
    expected = random_numbers()
    seed()
    probe(engine, (X,), {})
    assert random_numbers() == expected
    assert [type(unit).__name__ for unit in engine.units] == ["Layer", "Layer"]


def test_a_layer_that_computes_something_else_in_training():
    """Its weight is used in another way than the rule knows: the model runs example by example."""

    def doubled(x):
        weight = layer.weight * (2 if layer.training else 1)
        return F.linear(x, weight, layer.bias)

    model = made(lambda m, h: torch.tanh(h))
    layer = model.one
    layer.forward = doubled
    engine = Engine(model, Clip(0.3))
    probe(engine, (X,), {})
    total = engine.clipped_sum(cross_entropy, (X,), {}, (Y,), 8)
    expected = clipped(loop(model, cross_entropy, (X,), Y), 0.3 / (1 + 1e-9))
    torch.testing.assert_close(total, expected, rtol=0, atol=1e-12)


def test_a_table_that_is_made_again_is_no_statistic():
    def positions(model, h):
        model.mean = torch.zeros(5, dtype=torch.float64)
        return torch.tanh(h + model.mean)

    engine = Engine(made(positions), Clip(1.0))
    probe(engine, (X,), {})
    assert [type(unit).__name__ for unit in engine.units] == ["Layer", "Layer"]


def test_records_of_one_class_alone_refuse_nothing():
    """Long sequences with one label: that a step is refused would tell of the labels."""

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells, self.out = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 2)

        def forward(self, x):
            return self.out(self.cells(x)[0][:, -1])

    torch.manual_seed(0)
    records = TensorDataset(torch.randn(512, 400, 8), torch.zeros(512, dtype=torch.long))
    private = training(Last(), records, batch_size=512, epochs=1, batches="fixed")
    rows, targets = next(iter(private.loader))
    private.step(cross_entropy, rows, targets=targets)
    assert private.steps_done == 1
