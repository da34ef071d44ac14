"""Convolutions without patches against convolutions with them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from privopt.torch import convolutions
from privopt.torch.clip import Clip
from privopt.torch.convolutions import Convolved, padded, products, weight_gradients
from privopt.torch.rounding import COARSE_SLACK, MARGIN, SLACK, margin, slack

from .models import clipped, cross_entropy, loop, made, random_model
from .test_engine import COUNT, bound, engine_for, total_of

LAYERS = {
    "same": nn.Conv2d(3, 5, 3, padding=1),
    "strides": nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(0, 1)),
    "dilated": nn.Conv2d(4, 3, 2, dilation=(2, 1), padding=2, padding_mode="circular"),
    "points": nn.Conv2d(3, 2, 1),
}


def piece(name, count=4, side=6):
    torch.manual_seed(0)
    layer = LAYERS[name].double()
    x = torch.randn(count, layer.in_channels, side, side, dtype=torch.float64)
    return Convolved(layer, padded(layer, x), torch.randn_like(layer(x)))


@pytest.mark.parametrize("name", LAYERS)
def test_norms_and_sums_are_those_of_the_gradients(name):
    found = piece(name)
    rows = found.dense()
    torch.testing.assert_close(rows, weight_gradients(found.layer, found.inputs, found.outputs))
    exact = rows.square().sum(1)
    norms = found.squared_norms()
    assert (norms >= exact).all()
    torch.testing.assert_close(norms, exact, rtol=1e-9, atol=0)
    weights = torch.linspace(-1, 1, len(rows), dtype=torch.float64)
    torch.testing.assert_close(found.weighted_sum(weights), weights @ rows)
    dropped = torch.tensor([False, True, False, False])
    found.inputs[1], found.outputs[1] = torch.nan, torch.inf
    kept = found.without(dropped)
    torch.testing.assert_close(kept.weighted_sum(torch.ones_like(weights)), rows[~dropped].sum(0))


@pytest.mark.parametrize("name", LAYERS)
def test_products_in_parts_are_products(name, monkeypatch):
    monkeypatch.setattr(convolutions, "A_FEW", 3)
    found = piece(name, count=8)
    g = found.outputs.reshape(8, 1, found.layer.out_channels, -1)
    torch.testing.assert_close(products(found.layer, found.inputs, g), found.dense())


@pytest.fixture
def without_patches(monkeypatch):
    """As on an accelerator, wherever there is one group and two dimensions."""
    monkeypatch.setattr(
        convolutions, "cheaper", lambda layer, x, g: layer.groups == 1 and len(layer.stride) == 2
    )


@pytest.mark.parametrize("name", ["conv2d", "conv2d, wide and small", "conv2d, large map"])
def test_the_engine_without_patches_equals_a_loop(name, without_patches):
    model, x, y = made(name, COUNT)
    rows = loop(model, cross_entropy, x, y)
    norm = float(rows.norm(dim=1).median())
    found = total_of(engine_for(model, x, norm), x, y)
    assert (found - clipped(rows, bound(norm, torch.float64))).norm() <= 1e-9 * norm * COUNT


@pytest.mark.parametrize("seed", range(4))
def test_random_models_without_patches(seed, without_patches):
    model, x, y = random_model(seed)
    model, x = model.double(), (x.double(),)
    found = total_of(engine_for(model, x, 0.7), x, y)
    expected = clipped(loop(model, cross_entropy, x, y), bound(0.7, torch.float64))
    assert (found - expected).norm() < 1e-9


def test_a_layer_that_is_used_again(without_patches):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.out = nn.Conv2d(2, 2, 3, padding=1), nn.Linear(32, 3)

        def forward(self, x):
            return self.out(self.layer(torch.tanh(self.layer(x))).flatten(1))

    torch.manual_seed(0)
    model, x = Twice().double(), (torch.randn(5, 2, 4, 4, dtype=torch.float64),)
    y = torch.tensor([0, 1, 2, 0, 1])
    found = total_of(engine_for(model, x, 0.3), x, y)
    expected = clipped(loop(model, cross_entropy, x, y), bound(0.3, torch.float64))
    assert (found - expected).norm() < 1e-9


@pytest.mark.parametrize("size", [1.0, 1e4, 1e8])
def test_a_norm_lost_in_rounding_is_not_a_way_around_the_clip(size):
    """Output gradients that cancel over equal patches: only rounding is left of the products."""
    torch.manual_seed(2)
    layer = nn.Conv2d(8, 6, 1, bias=False)
    x = size * torch.randn(40, 8, 1, 1).expand(40, 8, 1, 2).contiguous()
    g = torch.randn(40, 6, 1, 2)
    g[..., 1] = -g[..., 0] * (1 + 1e-6 * torch.randn(40, 1, 1))
    factors = Clip(1.0).factors(Convolved(layer, x, g).squared_norms(), 1, MARGIN[torch.float32])
    exact = Convolved(layer.double(), x.double(), g.double()).dense().norm(dim=1)
    assert (factors.double() * exact).max() <= 1.0


def test_convolutions_of_an_accelerator_may_round_to_tf32(monkeypatch):
    """Their own switch is on unless somebody turns it off, whatever that of products says."""
    monkeypatch.setattr("privopt.torch.rounding.coarse", lambda: False)
    monkeypatch.setattr("privopt.torch.rounding.coarse_convolutions", lambda: True)
    assert slack(torch.float32, convolved=True) == COARSE_SLACK
    assert slack(torch.float32) == SLACK[torch.float32]
    assert slack(torch.float64, convolved=True) == SLACK[torch.float64]
    assert margin(torch.float32, False, "cuda") == 1e-2
    assert margin(torch.float32, False, "cpu") == 1e-3
    monkeypatch.setattr("privopt.torch.rounding.coarse_convolutions", lambda: False)
    assert margin(torch.float32, False, "cuda") == 1e-3
