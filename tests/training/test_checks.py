"""Models that break the guarantee are named, without a look at data."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from privopt.privacy import Refused
from privopt.torch import objections, repaired
from privopt.torch.checks import check_model
from privopt.torch.clip import Clip
from privopt.torch.engine import Engine
from privopt.torch.probe import probe

from .models import CLASSES, MixesExamples, clipped, cross_entropy, loop, made
from .runs import training


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (nn.BatchNorm1d(8), ["layer '1' (BatchNorm1d)", "nn.GroupNorm(2, 8)", "repaired"]),
        (nn.BatchNorm2d(64), ["BatchNorm2d", "nn.GroupNorm(32, 64)"]),
        (nn.SyncBatchNorm(6), ["SyncBatchNorm", "mixes"]),
        (nn.InstanceNorm1d(4, track_running_stats=True), ["statistics", "track_running_stats"]),
        (nn.Embedding(3, 2, max_norm=1.0), ["drop max_norm"]),
        (nn.Embedding(3, 2, scale_grad_by_freq=True), ["drop scale_grad_by_freq"]),
        (torch.compile(nn.Linear(2, 2), backend="eager"), ["before torch.compile"]),
        (nn.Linear(8, 2, dtype=torch.complex64), ["complex numbers", "two real parameters"]),
        (nn.LazyLinear(3), ["LazyLinear", "has no shape yet"]),
        (nn.DataParallel(nn.Linear(8, 2)), ["DataParallel", "give the module inside it"]),
        (type("Cut", (nn.Linear, type("FSDPModule", (), {})), {})(8, 2), ["the whole model"]),
    ],
)
def test_layers_are_named_with_a_way_out(layer, words):
    model = nn.Sequential(nn.Linear(2, 8), layer)
    (found,) = objections(model)
    assert all(word in found for word in words)
    with pytest.raises(Refused, match=r"layer '1'"):
        check_model(model)


def test_ordinary_layers_pass():
    for name in ("conv2d", "attention", "recurrent", "norms"):
        assert objections(made(name, 2)[0]) == []


def test_repaired():
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.InstanceNorm2d(8, track_running_stats=True)
    )
    new = repaired(model)
    assert objections(new) == []
    assert isinstance(new[1], nn.GroupNorm)
    assert objections(model)  # the original is as it was
    assert new(torch.randn(2, 1, 5, 5)).shape == (2, 8, 3, 3)
    assert isinstance(repaired(nn.BatchNorm1d(12)), nn.GroupNorm)
    assert repaired(nn.BatchNorm1d(4).double()).weight.dtype == torch.float64


def test_mixed_examples_are_found_on_made_up_inputs():
    engine = Engine(MixesExamples(), Clip(1.0))
    with pytest.raises(Refused, match="layer 'two' sees other examples"):
        probe(engine, (torch.zeros(4, 4),), {})


def test_mixing_after_the_last_layer():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Linear(4, 3)

        def forward(self, x):
            return self.one(x).softmax(0)

    with pytest.raises(Refused, match="the output sees other examples"):
        probe(Engine(Last(), Clip(1.0)), (torch.zeros(4, 4),), {})


def test_statistics_of_examples_are_found_and_put_back():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Linear(4, 3)
            self.register_buffer("mean", torch.zeros(4))

        def forward(self, x):
            if self.training:
                self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
            return self.one(x - self.mean)

    model = Counts()
    with pytest.raises(Refused, match="buffer 'mean' changes when the model runs"):
        probe(Engine(model, Clip(1.0)), (torch.ones(4, 4),), {})
    assert torch.equal(model.mean, torch.zeros(4))
    assert model.training


def test_the_probe_never_sees_values():
    """Inputs of NaN, and none at all, settle the model like any others."""
    model, _, _ = made("attention", 2)
    engine = Engine(model, Clip(1.0))
    probe(engine, (torch.zeros(0, 6, dtype=torch.int64),), {})
    assert [type(unit).__name__ for unit in engine.units] == ["Layer"] * 6
    assert [unit.shared for unit in engine.units] == [False, True, False, False, False, False]
    model, _, _ = made("conv2d", 2)
    engine = Engine(model, Clip(1.0))
    probe(engine, (torch.full((2, 2, 9, 9), torch.nan).double(),), {})
    assert [type(unit).__name__ for unit in engine.units] == ["Layer"] * 4


# ------------------------------------------------------------ layers without a rule
class Around(nn.Module):
    """A layer that wants its arguments in its own way, and a linear one behind it."""

    def __init__(self, layer, width, call):
        super().__init__()
        self.layer, self.last, self.call = layer, nn.Linear(width, CLASSES), call

    def forward(self, x):
        return self.last(self.call(self.layer, x))


OTHERS = {
    "lstm": (nn.LSTM(4, 3, 2, batch_first=True, bidirectional=True), 6, lambda f, x: f(x)[0][:, 0]),
    "lstm, time first": (nn.LSTM(4, 3), 3, lambda f, x: f(x.transpose(0, 1))[0][-1]),
    "rnn cell": (nn.RNNCell(4, 3), 3, lambda f, x: f(x[:, 0])),
    "attention": (
        nn.MultiheadAttention(4, 2, batch_first=True),
        4,
        lambda f, x: f(x, x, x)[0].mean(1),
    ),
    "decoder": (
        nn.TransformerDecoderLayer(4, 2, 8, 0.0, batch_first=True),
        4,
        lambda f, x: f(x, x + 1).mean(1),
    ),
    "bilinear": (nn.Bilinear(4, 4, 3), 3, lambda f, x: f(x[:, 0], x[:, 1])),
    "bag": (nn.EmbeddingBag(9, 3), 3, lambda f, x: f(x[:, :, 0].mul(2).long().clamp(0, 8))),
    "weight norm": (weight_norm(nn.Linear(4, 3)), 3, lambda f, x: f(x[:, 0])),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_layers_without_a_rule_equal_a_loop(name):
    """Recurrent layers, attention as one layer, reparametrised weights: slower, and as exact."""
    torch.manual_seed(0)
    layer, width, call = OTHERS[name]
    model = Around(layer, width, call).double()
    x, y = torch.randn(5, 3, 4).double(), torch.randint(0, CLASSES, (5,))
    engine = Engine(model, Clip(0.3))
    probe(engine, (x,), {})
    assert any(type(unit).__name__ == "Part" for unit in engine.units)
    total = engine.clipped_sum(cross_entropy, (x,), {}, (y,), 5)
    expected = clipped(loop(model, cross_entropy, (x,), y), 0.3 / (1 + 1e-9))
    torch.testing.assert_close(total, expected, rtol=0, atol=1e-12)


def test_a_power_iteration_is_refused():
    """Spectral normalisation changes a buffer whenever it runs."""
    model = nn.Sequential(spectral_norm(nn.Linear(4, 3)))
    with pytest.raises(Refused, match="_u' changes when the model runs"):
        probe(Engine(model, Clip(1.0)), (torch.zeros(2, 4),), {})


@pytest.mark.parametrize("trained", [False, True])
def test_statistics_that_do_not_change_are_no_mixing(trained):
    """A pretrained model keeps its batch normalisation in evaluation mode; put back into training
    it is refused at the next step, which costs nothing."""
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(5)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    model = nn.Sequential(nn.Linear(4, 5), norm, nn.Linear(5, CLASSES)).double()
    norm.eval().requires_grad_(trained)
    assert objections(model) == []
    assert isinstance(repaired(model)[1], nn.BatchNorm1d)
    x, y = torch.randn(6, 4).double(), torch.randint(0, CLASSES, (6,))
    engine = Engine(model, Clip(0.3))
    probe(engine, (x,), {})
    found = engine.clipped_sum(cross_entropy, (x,), {}, (y,), 6)
    expected = clipped(loop(model, cross_entropy, (x,), y), 0.3 / (1 + 1e-9))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    private = training(model)
    batches = iter(private.loader)
    rows, target = next(batches)
    private.step(cross_entropy, rows, targets=target)
    spent, mean = private.epsilon_spent(), norm.running_mean.clone()
    model.train()
    rows, target = next(batches)
    with pytest.raises(Refused, match="changes when the model runs"):
        private.step(cross_entropy, rows, targets=target)
    assert (private.epsilon_spent(), private.steps_done) == (spent, 1)
    assert torch.equal(mean, norm.running_mean)
    norm.eval()
    private.step(cross_entropy, rows, targets=target)
    assert private.steps_done == 2
