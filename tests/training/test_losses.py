"""Losses that see other examples, or parameters; and a model that changes while it is trained."""

from __future__ import annotations

import itertools
import re
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from privopt import Refused
from privopt.torch.clip import Clip
from privopt.torch.compiled import CompiledSum
from privopt.torch.engine import Engine
from privopt.torch.losses import Same, identity
from privopt.torch.pieces import Outer, Rows, merged, squared_norms
from privopt.torch.probe import probe
from privopt.torch.rounding import MARGIN, margin

from .models import clipped, cross_entropy, loop
from .runs import data, net, run, training, weights


def of_halves(out, y):
    one, other = out.chunk(2)
    gap = (one[: len(other)] - other).square().sum(1)
    return cross_entropy(out, y) + torch.cat([gap, gap])[: len(out)]


def even_sees_odd(out, y):
    found = cross_entropy(out, y)
    gap = (out[0::2][: len(out) // 2] - out[1::2]).square().sum(1)
    return found + F.pad(gap.repeat_interleave(2), (0, len(out) % 2)) * (
        torch.arange(len(out)) % 2 == 0
    )


def by_the_number_of_a_class(out, y):
    return 10 * cross_entropy(out, y) / (y > 0).sum()


def hard_ones(out, y):
    found = cross_entropy(out, y)
    return found * (found >= found.detach().median())


def weighted_by_frequency(out, y):
    return cross_entropy(out, y) / torch.bincount(y, minlength=3)[y]


@pytest.mark.parametrize("compiled", [False, "eager"])
@pytest.mark.parametrize(
    ("loss", "count"),
    [
        (of_halves, 8),
        *itertools.product(
            (even_sees_odd, by_the_number_of_a_class, hard_ones, weighted_by_frequency), (5, 8)
        ),
    ],
)
def test_a_loss_that_sees_other_examples_is_refused(loss, count, compiled):
    torch.manual_seed(count)
    model = net()
    x, y = torch.randn(count, 4).double(), torch.arange(count) % 3
    engine = Engine(model, Clip(1.0))
    sums = CompiledSum(engine, 8, compiled) if compiled else engine
    with pytest.raises(Refused, match="the loss of one example depends on others"):
        sums.clipped_sum(loss, (x,), {}, (y,), count)


def test_every_pair_of_examples_is_told_apart():
    """One example's loss sees one other output, whichever: far beyond eight examples."""
    model = net()
    x, y = torch.randn(70, 4).double(), torch.zeros(70, dtype=torch.int64)
    for one, other in ((0, 69), (3, 67), (8, 16), (1, 65), (64, 0), (33, 41)):

        def loss(out, y, one=one, other=other):
            seen = torch.zeros(len(out)).double()
            seen[one] = 1
            return cross_entropy(out, y) + seen * out[other].square().sum()

        with pytest.raises(Refused, match="depends on others"):
            Engine(model, Clip(1.0)).clipped_sum(loss, (x,), {}, (y,), 70)


def test_a_loss_that_is_exchanged_later_is_looked_at():
    private = training()
    batches = iter(private.loader)
    x, y = next(batches)
    private.step(cross_entropy, x, targets=y)
    x, y = next(batches)
    spent = private.epsilon_spent()
    with pytest.raises(Refused, match="depends on others"):
        private.step(by_the_number_of_a_class, x, targets=y)
    assert (private.steps_done, private.epsilon_spent()) == (1, spent)


@pytest.mark.parametrize(
    "loss",
    [
        lambda out, y: F.cross_entropy(out, y, reduction="none", label_smoothing=0.1),
        lambda out, y: F.cross_entropy(out, y, torch.ones(3).double() * 2, reduction="none"),
        lambda out, y: cross_entropy(F.dropout(out, 0.5), y),
        lambda out, y: cross_entropy(out / out.norm(dim=1, keepdim=True), y),
        lambda out, y: 0 * cross_entropy(out, y),
    ],
)
def test_ordinary_losses_pass(loss):
    private = training()
    run_with(private, loss)
    assert private.steps_done == 6


def run_with(private, loss):
    for x, y in private.loader:
        private.step(loss, x, targets=y)


# ------------------------------------------------------------ parameters in a loss
def test_a_penalty_on_weights_is_refused():
    model = net()
    private = training(model)
    x, y = next(iter(private.loader))
    with pytest.raises(Refused, match="weight_decay"):
        private.step(
            lambda out, y: cross_entropy(out, y) + model[0].weight.square().sum(), x, targets=y
        )
    assert private.epsilon_spent() == 0


def test_a_penalty_on_gradients_is_exact():
    """It differentiates through the layers: the model runs example by example then."""
    model = net()
    x, y = torch.randn(5, 4).double().requires_grad_(), torch.arange(5) % 3

    def loss(out, y, x=x):
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        return cross_entropy(out, y) + slope.square().flatten(1).sum(1)[: len(out)]

    engine = Engine(model, Clip(0.3))
    probe(engine, (x,), {})
    found = engine.clipped_sum(loss, (x,), {}, (y,), 5)
    rows = []
    for i in range(5):
        own = x[i : i + 1].detach().requires_grad_()
        total = loss(model(own), y[i : i + 1], own).sum()
        parts = torch.autograd.grad(total, list(model.parameters()), allow_unused=True)
        pairs = zip(parts, model.parameters(), strict=True)
        rows.append(
            torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in pairs])
        )
    expected = clipped(torch.stack(rows), 0.3 / (1 + 1e-9))
    torch.testing.assert_close(found, expected)


# ------------------------------------------------------------ what changes on the way
class Switched(nn.Module):
    """Mixes examples if it is told to, or while it is evaluated."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 5).double(), nn.Linear(5, 3).double()

    def forward(self, x, mix=False):
        h = self.one(x).tanh()
        return self.two(h - h.mean(0) if mix or not self.training else h)


@pytest.mark.parametrize("way", ["keyword", "mode"])
def test_a_model_is_tried_again_when_it_is_called_in_another_way(way):
    model = Switched()
    private = training(model)
    batches = iter(private.loader)
    x, y = next(batches)
    private.step(cross_entropy, x, targets=y)
    x, y = next(batches)
    spent = private.epsilon_spent()
    keywords = {"mix": True} if way == "keyword" else {}
    model.train(way == "keyword")
    with pytest.raises(Refused, match="mixes"):
        private.step(cross_entropy, x, targets=y, **keywords)
    assert (private.steps_done, private.epsilon_spent()) == (1, spent)


@pytest.mark.parametrize("quietly", [False, True])
def test_a_buffer_that_learns_from_data_alone_is_noticed(quietly):
    """It refuses the made-up inputs, so that only a real batch shows what it does. Batch
    normalisation writes to its statistics without a new version."""

    class Secretive(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 3).double()
            self.register_buffer("seen", torch.zeros(4).double())
            self.register_buffer("spread", torch.ones(4).double())

        def forward(self, x):
            if x.abs().max() <= 1.5:
                raise ValueError("too small to be true")
            if quietly:
                both = torch.cat([x.detach(), x.detach() + 1])
                F.batch_norm(both, self.seen, self.spread, training=True)
            else:
                self.seen += x.detach().sum(0)
            return self.linear(x)

    records = data()
    records.tensors[0].mul_(100)
    private = training(Secretive(), records)
    x, y = next(iter(private.loader))
    with pytest.raises(Refused, match="a buffer changes"):
        private.step(cross_entropy, x, targets=y)
    assert private.epsilon_spent() == 0


# ------------------------------------------------------------ interrupted
@pytest.mark.parametrize("noise", ["independent", "banded", "blt", "tree"])
def test_an_interrupted_step_is_over(noise, monkeypatch):
    """Ctrl-C while noise is drawn: the step is paid for, and the plan still covers the run."""
    private = training(noise=noise)
    for number, (x, y) in enumerate(private.loader):
        if number == 2:
            monkeypatch.setattr(private._processes, "gather", interrupted)
            with pytest.raises(KeyboardInterrupt):
                private.step(cross_entropy, x, targets=y)
            monkeypatch.undo()
        else:
            private.step(cross_entropy, x, targets=y)
    run(private, 2)
    assert private.steps_done == private.steps == len(private._run.log)
    assert private.certificate().epsilon <= 2.0


def interrupted(*_):
    raise KeyboardInterrupt


# ------------------------------------------------------------ parts that cancel
def test_parts_of_different_kinds_cannot_cancel():
    """A table of embeddings that is used as a small weight as well: one record's two parts are
    huge and cancel, and rounding must not carry them around the clip."""
    torch.manual_seed(0)
    size = 1e8
    vectors = size * torch.randn(1, 2, 5)
    table = Rows(torch.tensor([[0, 1]]), vectors, 6)
    outputs = torch.zeros(1, 1, 2, 6)
    outputs[0, 0, 0, 0], outputs[0, 0, 1, 1] = -1, -1
    product = Outer(outputs, vectors[:, None].clone())
    assert product.direct
    pieces = merged([table, product])
    factors = Clip(1.0).factors(squared_norms(pieces), 1, MARGIN[torch.float32])
    others = 0.1 * torch.randn(30)
    moved = sum((piece.weighted_sum(factors) for piece in pieces), others) - others
    assert moved.norm() <= 1


# ------------------------------------------------------------ names
def test_a_loss_is_what_it_computes():
    class Scaled:
        def __init__(self, scale):
            self.scale = scale

        def losses(self, out, y):
            return self.scale * cross_entropy(out, y)

        __call__ = losses

    one, two = Scaled(1.0), Scaled(2.0)
    assert identity(one.losses) == identity(one.losses)
    assert identity(one.losses) != identity(two.losses)
    assert identity(one) == identity(one) != identity(two)

    def made(scale):
        return lambda out, y, *, power=scale: cross_entropy(out, y) ** power

    assert identity(made(1)) == identity(made(1)) != identity(made(2))
    ends = []
    for compiled in (False, "eager"):
        private = training(compile=compiled, clip_norm=100.0)
        for loss, (x, y) in zip([one, two] * 3, private.loader, strict=True):
            private.step(loss.losses, x, targets=y)
        ends.append(weights(private.model))
    torch.testing.assert_close(*ends)


def test_messages_do_not_tell_how_many_were_drawn():
    private = training(noise="independent")
    x, y = next(iter(private.loader))
    steps = [
        lambda: private.step(cross_entropy, x[1:], targets=y),
        lambda: private.step(lambda out, y: cross_entropy(out, y).mean(), x, targets=y),
        lambda: private.step(lambda out, y: cross_entropy(out, y)[1:], x, targets=y),
    ]
    for step in steps:
        with pytest.raises(Refused) as found:
            step()
        assert not re.search(r"\d", str(found.value))


# ------------------------------------------------------------ rounding, checkpoints, functions
def test_large_sums_have_room_for_their_rounding():
    private = training(noise="independent", batches="fixed", batch_size=60)
    engine = private._engine
    assert engine.crowd == 60
    small = engine.margin("cpu")
    engine.crowd = 300_000
    assert engine.margin("cpu") == pytest.approx(small + (300_000 - 60) * 2.0**-52, rel=1e-12)
    assert margin(torch.float32, False, "cpu", 300_000) > 1e-3 + 0.0358 - 1e-4


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.filterwarnings("ignore:.*use_reentrant")
def test_checkpoints_with_a_history_are_exact_and_others_refused(reentrant):
    class Saved(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.inner = nn.Linear(4, 5), nn.Sequential(nn.Linear(5, 5), nn.Tanh())
            self.last = nn.Linear(5, 3)
            self.double()

        def forward(self, x):
            h = self.first(x)
            return self.last(checkpoint(self.inner, h, use_reentrant=reentrant))

    torch.manual_seed(0)
    model = Saved()
    x, y = torch.randn(5, 4).double(), torch.arange(5) % 3
    engine = Engine(model, Clip(0.3))
    if reentrant:
        with pytest.raises(Refused, match="use_reentrant"):
            engine.clipped_sum(cross_entropy, (x,), {}, (y,), 5)
        return
    probe(engine, (x,), {})
    found = engine.clipped_sum(cross_entropy, (x,), {}, (y,), 5)
    expected = clipped(loop(model, cross_entropy, (x,), y), 0.3 / (1 + 1e-9))
    torch.testing.assert_close(found, expected)


def test_a_loss_that_is_made_anew_in_each_step_is_looked_at_once():
    """Nothing of a batch is kept with it."""
    private = training()
    for x, y in private.loader:
        private.step(partial(cross_entropy, target=y), x)
    for x, y in private.loader:
        private.step(lambda out: cross_entropy(out, y), x)  # noqa: B023
    names = private._engine.known
    assert len(names) <= 3  # these two, and that of the rehearsal
    assert not any(isinstance(name, Same) for name in names)


def test_half_precision_is_no_mixing():
    """Gradients so small that a factor of two is not exact in them, or as large as can be."""
    torch.manual_seed(0)
    model = net(dtype=torch.float32)
    x, y = torch.randn(8, 4), torch.arange(8) % 3
    for dtype, scale in ((torch.float16, 1e-6), (torch.float16, 3e4), (torch.bfloat16, 1e-20)):
        with torch.autocast("cpu", dtype=dtype):
            Engine(model, Clip(1.0)).clipped_sum(
                lambda out, y, scale=scale: scale * cross_entropy(out, y), (x,), {}, (y,), 8
            )


@pytest.mark.parametrize("compiled", [False, "eager"])
@pytest.mark.parametrize(
    "loss",
    [
        lambda out, y: torch.zeros(len(y)),
        lambda out, y: out.argmax(1).double(),
        lambda out, y: cross_entropy(out.detach(), y),
    ],
)
def test_a_loss_without_a_gradient_is_refused(loss, compiled):
    private = training(compile=compiled)
    x, y = next(iter(private.loader))
    with pytest.raises(Refused, match="has no gradient"):
        private.step(loss, x, targets=y)
    assert private.epsilon_spent() == 0
