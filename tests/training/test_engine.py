"""Clipped sums against a loop over batches of one."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from privopt.privacy import Refused
from privopt.torch.clip import SOFTENING, Clip
from privopt.torch.engine import Engine, Layer, Part
from privopt.torch.pieces import Outer, Rows
from privopt.torch.probe import probe
from privopt.torch.rounding import MARGIN, margin
from privopt.torch.units import edges_of

from .models import MODELS, Gru, clipped, cross_entropy, loop, made, random_model

COUNT = 6  # as many as there are positions in some models: a trap for those who guess dimensions


def engine_for(model, x, norm=1.0, kind="flat"):
    engine = Engine(model, Clip(norm, kind))
    probe(engine, x, {})
    return engine


def total_of(engine, x, y, loss=cross_entropy):
    return engine.clipped_sum(loss, x, {}, (y,), len(y))


def bound(norm, dtype):
    return norm / (1 + MARGIN[dtype])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_equals_a_loop(name, dtype, tolerance):
    model, x, y = made(name, COUNT, dtype)
    rows = loop(model, cross_entropy, x, y)
    norm = float(rows.norm(dim=1).median())  # some are clipped, some are not
    found = total_of(engine_for(model, x, norm), x, y)
    expected = clipped(rows, bound(norm, dtype))
    # Norms from factors are rounded up by no more than the slack.
    assert (found - expected).norm() <= (tolerance + 4e-5 * (dtype == torch.float32)) * norm * COUNT


@pytest.mark.parametrize("name", MODELS)
def test_unclipped_gradients_are_those_of_training(name):
    """With a huge bound the sum is what autograd returns for the summed loss."""
    model, x, y = made(name, COUNT)
    found = total_of(engine_for(model, x, 1e6), x, y)
    parameters = [p for p in model.parameters() if p.requires_grad]
    gradients = torch.autograd.grad(cross_entropy(model(*x), y).sum(), parameters)
    torch.testing.assert_close(found, torch.cat([g.flatten() for g in gradients]))


@pytest.mark.parametrize("seed", range(12))
def test_random_models(seed):
    model, x, y = random_model(seed)
    model, x = model.double(), (x.double(),)
    rows = loop(model, cross_entropy, x, y)
    found = total_of(engine_for(model, x, 0.7), x, y)
    assert (found - clipped(rows, bound(0.7, torch.float64))).norm() < 1e-10


@pytest.mark.parametrize("name", ["conv2d", "tied", "bare parameter", "transformer layer"])
def test_automatic_clipping(name):
    model, x, y = made(name, COUNT)
    rows = loop(model, cross_entropy, x, y)
    found = total_of(engine_for(model, x, 2.0, "automatic"), x, y)
    factors = bound(2.0, torch.float64) / (rows.norm(dim=1) + SOFTENING)
    torch.testing.assert_close(found, (rows * factors[:, None]).sum(0))


@pytest.mark.parametrize("name", ["linear", "conv2d", "tied"])
def test_per_layer_clipping(name):
    """Each layer to norm/sqrt(K); layers that share a parameter are one layer."""
    model, x, y = made(name, COUNT)
    engine = engine_for(model, x, 0.1, "per_layer")
    rows = loop(model, cross_entropy, x, y)
    sizes = [sum(p.numel() for p in unit.parameters()) for unit in engine.units]
    if name == "tied":  # embeddings and last layer are one, and come first
        sizes = [sizes[0], sizes[1]]
    each = bound(0.1, torch.float64) / math.sqrt(len(sizes))
    expected = torch.cat([clipped(part, each) for part in rows.split(sizes, 1)])
    torch.testing.assert_close(total_of(engine, x, y), expected)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["flat", "per_layer", "automatic"])
def test_nobody_moves_the_sum_further_than_the_bound(name, kind):
    """Alone in a batch, each example's contribution is within the sensitivity."""
    model, x, y = made(name, 4)
    engine = engine_for(model, x, 0.5, kind)

    def steep(out, y):
        return 1e4 * cross_entropy(out, y)

    for i in range(len(y)):
        one = tuple(part[i : i + 1] for part in x)
        moved = total_of(engine, one, y[i : i + 1], steep).norm()
        assert moved <= 0.5
        assert moved > 0.49 or kind == "per_layer"


def test_every_route_is_taken():
    """The models above reach the three ways to a norm."""
    x = made("linear on places, few", COUNT)[1]
    g, a = torch.ones(2, 1, 3, 30), torch.ones(2, 1, 3, 40)
    assert not Outer(g, a).direct
    assert Outer(torch.ones(2, 1, 20, 3), torch.ones(2, 1, 20, 2)).direct
    assert not Outer(g[:, :, :1], a[:, :, :1]).direct
    kinds = {name: [type(u) for u in engine_for(*made(name, COUNT)[:2]).units] for name in MODELS}
    assert set(kinds["attention"]) == {Layer}
    # Layers are recorded where the model runs example by example, but for a weight that is used
    # behind its layer's back.
    assert kinds["functional"] == [Part, Layer]
    assert kinds["time first"] == [Part, Layer, Layer]
    assert kinds["places without a row"] == [Part] + 6 * [Layer]
    assert kinds["transformer layer"].count(Part) == 1
    assert kinds["transformer layer"].count(Layer) == 5
    engine = engine_for(Gru().double(), (torch.randn(COUNT, 5, 4).double(),))
    assert [type(u) for u in engine.units] == [Part, Layer]
    assert x[0].shape == (COUNT, 3, 40)


# ------------------------------------------------------------ hostile records
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 1e38])
@pytest.mark.parametrize("name", ["linear", "conv2d", "bare parameter", "norms", "recurrent"])
@pytest.mark.parametrize("kind", ["flat", "per_layer", "automatic"])
def test_a_record_that_is_not_finite_counts_as_zero(name, poison, kind):
    model, x, y = made(name, COUNT, torch.float32)
    engine = engine_for(model, x, 1.0, kind)
    keep = torch.tensor([i for i in range(COUNT) if i != 2])
    expected = total_of(engine, tuple(t[keep] for t in x), y[keep])
    x = tuple(t.clone() for t in x)
    x[0][2] = poison
    found = total_of(engine, x, y)
    if poison == 1e38:  # may be finite after a layer that saturates: then it is clipped
        assert torch.isfinite(found).all()
        assert (found - expected).norm() <= 1.0
    else:
        torch.testing.assert_close(found, expected)


def test_a_loss_that_is_not_finite_counts_as_zero():
    model, x, y = made("linear", COUNT)
    engine = engine_for(model, x)
    weights = torch.ones(COUNT, dtype=torch.float64)
    weights[1] = math.nan
    found = total_of(engine, x, y, lambda out, target: cross_entropy(out, target) * weights)
    keep = torch.tensor([0, 2, 3, 4, 5])
    torch.testing.assert_close(found, total_of(engine, (x[0][keep],), y[keep]))


@pytest.mark.parametrize("size", [1e2, 1e4, 1e6, 1e8])
def test_a_norm_lost_in_rounding_is_not_a_way_around_the_clip(size):
    """Huge terms that cancel: the Gram matrix is rounding, the record still bounded."""
    torch.manual_seed(1)
    a = size * torch.randn(50, 1, 1, 40).expand(50, 1, 2, 40)
    g = torch.randn(50, 1, 2, 30)
    g[:, :, 1] = -g[:, :, 0] * (1 + 1e-6 * torch.randn(50, 1, 1))
    piece = Outer(g, a.contiguous())
    assert not piece.direct
    factors = Clip(1.0).factors(piece.squared_norms(), 1, MARGIN[torch.float32])
    exact = Outer(g.double(), a.double()).dense().norm(dim=1)
    assert (factors.double() * exact).max() <= 1.0
    for i in range(10):
        moved = Outer(g[i : i + 1], a[i : i + 1].contiguous()).weighted_sum(factors[i : i + 1])
        assert moved.norm() <= 1.0
    rows = Rows(torch.zeros(50, 2, dtype=torch.int64), (size * g[:, 0]), 5)
    factors = Clip(1.0).factors(rows.squared_norms(), 1, MARGIN[torch.float32])
    assert (factors[:, None] * rows.dense()).norm(dim=1).max() <= 1.0


@pytest.mark.parametrize("places", [1, 2])
@pytest.mark.parametrize(("small", "large"), [(1e-23, 1e18), (1e-20, 1e17), (1e18, 1e-23)])
def test_squares_that_are_too_small_are_not_a_way_around_the_clip(places, small, large):
    """The square of 1e-23 is nothing in single precision; what 1e18 makes of it is something."""
    torch.manual_seed(0)
    a, g = small * torch.randn(20, 1, places, 40), large * torch.randn(20, 1, places, 30)
    factors = Clip(1e-5).factors(Outer(g, a).squared_norms(), 1, MARGIN[torch.float32])
    exact = Outer(g.double(), a.double()).dense().norm(dim=1)
    assert exact.min() > 1e-5
    assert (factors.double() * exact).max() <= 1e-5


# ------------------------------------------------------------ use
def test_a_changed_input_is_noticed():
    class Changes(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.LayerNorm(4), nn.Linear(4, 3)

        def forward(self, x):
            h = self.one(x)
            out = self.two(h)
            h.add_(1.0)
            return out

    model, x = Changes(), (torch.randn(COUNT, 4),)
    y = torch.zeros(COUNT, dtype=torch.int64)
    with torch.autocast("cpu", dtype=torch.bfloat16):  # autograd keeps a copy, and sees nothing
        with pytest.raises(Refused, match="layer 'two' is changed in place"):
            total_of(Engine(model, Clip(1.0)), x, y)
        engine = engine_for(model, x)
    assert [type(unit) for unit in engine.units] == [Part]  # found on made-up inputs


@pytest.mark.parametrize(
    "loss",
    [
        lambda out, y: cross_entropy(out, y).mean(),
        lambda out, y: out,
        lambda out, y: 1.0,
        lambda out, y: cross_entropy(out, y)[1:],
    ],
)
def test_a_loss_that_is_not_one_per_example_is_refused(loss):
    model, x, y = made("linear", COUNT)
    with pytest.raises(Refused, match="one number for each example"):
        total_of(engine_for(model, x), x, y, loss)


@pytest.mark.parametrize("poison", [0.0, math.nan, math.inf])
def test_a_loss_that_mixes_examples_is_refused(poison):
    """Here each example is compared with the others of its batch."""

    def contrast(out, y):
        return cross_entropy(out @ out.T, torch.arange(len(out)))

    def centred(out, y):
        return cross_entropy(out, y) - cross_entropy(out, y).mean()

    for loss in (contrast, centred):
        model, x, y = made("linear", COUNT)
        with pytest.raises(Refused, match="the loss of one example depends on others"):
            total_of(engine_for(model, x), x, y, loss)
    x[0][1] = x[0][2] = poison  # a record that is not finite makes no loss look like that
    total_of(engine_for(model, x), x, y)


def test_ordinary_use_of_the_model_is_undisturbed():
    model, x, y = made("bare parameter", COUNT)
    before = model(*x)
    engine = engine_for(model, x)
    total_of(engine, x, y)
    assert torch.equal(model(*x), before)
    assert "forward" not in vars(model)
    assert all(not list(edges_of(unit)) for unit in engine.units)
    assert all(p.grad is None for p in model.parameters())


def test_half_precision():
    """Under autocast the sums stay close, and the margin grows."""
    model, x, y = made("linear", COUNT, torch.float32)
    engine = engine_for(model, x, 0.5)
    full = total_of(engine, x, y)
    assert engine.margin("cpu") == 1e-3
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert engine.margin("cpu") == 1e-2
        half = total_of(engine, x, y)
    assert (half - full).norm() < 0.03 * full.norm()
    for i in range(COUNT):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert total_of(engine, (x[0][i : i + 1],), y[i : i + 1]).norm() <= 0.5


@pytest.mark.parametrize("size", [1e2, 1e5, 1e8])
def test_products_that_round_to_tf32(size, monkeypatch):
    """The same attack where factors lose thirteen bits, by a model of that rounding."""

    def short(x):
        return (x.view(torch.int32) + 4096 & ~8191).view(torch.float32)

    monkeypatch.setattr("privopt.torch.rounding.coarse", lambda: True)
    room = margin(torch.float32, False)
    assert room == 1e-2
    torch.manual_seed(1)
    count = 4000
    a = size * torch.randn(count, 1, 1, 40).expand(count, 1, 2, 40).contiguous()
    g = torch.zeros(count, 1, 2, 30)
    g[:, :, 0, 0] = torch.randn(count, 1)
    left = torch.logspace(-4, -1, count)[:, None, None]  # of the terms, after they have cancelled
    g[:, :, 1] = -g[:, :, 0] * (1 + left)
    piece = Outer(short(g), short(a))
    assert not piece.direct
    factors = Clip(1.0).factors(piece.squared_norms(), 1, room)
    scaled = short(g * factors[:, None, None, None])
    moved = Outer(scaled.double(), short(a).double()).dense().norm(dim=1)
    assert moved.max() <= 1.0
    assert margin(torch.float64, False) == MARGIN[torch.float64]


def test_products_in_bfloat16_are_refused(monkeypatch):
    monkeypatch.setattr("torch.get_float32_matmul_precision", lambda: "medium")
    with pytest.raises(Refused, match="too coarse for a clip"):
        margin(torch.float32, False)


def test_frozen_parameters_and_none_at_all():
    model, x, y = made("linear", COUNT)
    model[0].requires_grad_(False)
    rows = loop(model, cross_entropy, x, y)
    torch.testing.assert_close(
        total_of(engine_for(model, x, 0.3), x, y), clipped(rows, bound(0.3, torch.float64))
    )
    with pytest.raises(ValueError, match="no parameter that requires a gradient"):
        Engine(model.requires_grad_(False), Clip(1.0))


@pytest.mark.parametrize(
    ("norm", "kind"),
    [(0.0, "flat"), (math.inf, "flat"), (math.nan, "flat"), (1e-30, "flat"), (1.0, "layers")],
)
def test_bad_clips(norm, kind):
    with pytest.raises(ValueError, match="must be"):
        Clip(norm, kind)
