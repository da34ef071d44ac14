"""Several views of an example: one gradient, their mean, and one clip."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import privopt.torch
from privopt.privacy import Refused
from privopt.torch.clip import Clip
from privopt.torch.compiled import CompiledSum
from privopt.torch.engine import Engine
from privopt.torch.probe import probe
from privopt.torch.views import LossOfViews

from .models import clipped, cross_entropy, made

COUNT, VIEWS = 4, 3
KINDS = [
    *("linear", "linear on places, few", "conv2d", "conv2d, large map", "depthwise", "norms"),
    *("embedding", "tied", "called again", "bare parameter", "attention", "functional"),
    *("places without a row", "time first", "two inputs", "recurrent", "prelu, transposed"),
]


def views_of(name):
    """A model, views of examples, one target for each example."""
    model, rows, _ = made(name, COUNT * VIEWS)
    x = tuple(t.unflatten(0, (COUNT, VIEWS)) for t in rows)
    return model, x, torch.randint(0, 3, (COUNT,))


def loop(model, loss, x, y):
    parameters = [p for p in model.parameters() if p.requires_grad]
    rows = []
    for i in range(COUNT):
        value = loss(model(*(t[i] for t in x)), y[i].expand(VIEWS)).mean()
        found = torch.autograd.grad(value, parameters, allow_unused=True)
        pairs = zip(parameters, found, strict=True)
        rows.append(
            torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for p, g in pairs])
        )
    return torch.stack(rows)


@pytest.mark.parametrize("name", KINDS)
def test_views_are_averaged_before_the_clip(name):
    model, x, y = views_of(name)
    rows = loop(model, cross_entropy, x, y)
    norm = float(rows.norm(dim=1).median())
    engine = Engine(model, Clip(norm), VIEWS)
    probe(engine, x, {})
    loss = LossOfViews(VIEWS)(cross_entropy)
    found = engine.clipped_sum(loss, x, {}, (y,), COUNT)
    assert (found - clipped(rows, norm / (1 + 1e-9))).norm() < 1e-9 * norm
    if name in ("linear", "conv2d", "attention"):  # nothing is copied for the sake of views
        assert all(type(unit).__name__ == "Layer" for unit in engine.units)
        compiled = CompiledSum(engine, COUNT + 1, "eager")
        torch.testing.assert_close(compiled.clipped_sum(loss, x, {}, (y,), COUNT), found)


@pytest.mark.parametrize("name", ["linear", "conv2d", "tied", "recurrent"])
def test_the_sensitivity_is_that_of_one_example(name):
    """Whatever the views of one record are, alike or opposite or huge."""
    model, x, y = views_of(name)
    engine = Engine(model, Clip(0.5), VIEWS)
    probe(engine, x, {})
    loss = LossOfViews(VIEWS)(lambda out, y: 1e3 * cross_entropy(out, y))
    total = engine.clipped_sum(loss, x, {}, (y,), COUNT)
    for change in (lambda t: t[:1].expand_as(t), lambda t: -t, lambda t: 1e6 * t):
        other = [t.clone() for t in x]
        for t in other:
            if t.is_floating_point():
                t[1] = change(t[1])
            else:
                t[1] = t[1, :1].expand_as(t[1])
        moved = engine.clipped_sum(loss, tuple(other), {}, (y,), COUNT) - total
        assert moved.norm() <= 1.0 + 1e-9  # one record replaced: the diameter
        alone = engine.clipped_sum(loss, tuple(t[1:2] for t in other), {}, (y[1:2],), 1)
        assert 0.4 < alone.norm() <= 0.5


def mixing(x):
    return x - x.mean(0)


class MixesExamples(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.two(mixing(self.one(x)))


def run_of(views, model=None, **choices):
    torch.manual_seed(0)
    model = model or nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    shape = (64, views, 4) if views > 1 else (64, 4)
    data = TensorDataset(torch.randn(shape), torch.randint(0, 3, (64,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return privopt.torch.make_private(
        *(model, optimizer, DataLoader(data, batch_size=16)),
        **{
            "epsilon": 1.0,
            "delta": 1e-5,
            "epochs": 2,
            "random_state": 0,
            "views": views,
            **choices,
        },
    )


def test_epsilon_and_noise_are_those_of_one_view():
    runs = [run_of(views, microbatch=5) for views in (1, 4)]
    for private in runs:
        for x, y in private.loader:
            private.step(lambda out, y: F.cross_entropy(out, y, reduction="none"), x, targets=y)
    one, four = runs
    assert one.epsilon_spent() == four.epsilon_spent()
    assert one.noise_std == four.noise_std
    assert four.certificate().settings["views"] == 4
    assert isinstance(four.model, nn.Sequential)


def test_refusals():
    private = run_of(4, MixesExamples())
    x, y = next(iter(private.loader))
    with pytest.raises(Refused, match="sees other examples"):
        private.step(cross_entropy, x, targets=y)
    private = run_of(4)
    x, y = next(iter(private.loader))
    with pytest.raises(Refused, match="views of each example"):
        private.step(cross_entropy, x[:, :3], targets=y)
    with pytest.raises(ValueError, match="views must be a positive integer"):
        run_of(0)
