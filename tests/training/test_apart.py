"""Examples apart: gradients that equal a loop, by rules of layers where there are some."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from privopt import Refused
from privopt.torch.apart import _of_one
from privopt.torch.tapped import Outline

from .models import (
    Adapter,
    Attention,
    BareParameter,
    Functional,
    PlacesWithoutRow,
    Recurrent,
    Tied,
    TimeFirst,
    TwoInputs,
    clipped,
    cross_entropy,
    loop,
)
from .runs import training


class Mixed(nn.Module):
    """Layers with a rule, a part without one, random numbers, a normalisation of channels."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(6, 4, 2, padding=1), nn.GroupNorm(2, 4)
        self.scale, self.out = BareParameter(), nn.Linear(3, 3)

    def forward(self, x):
        return self.out(self.scale(self.norm(self.conv(x)).mean(2)))


class Words(nn.Embedding):
    """A table with a forward of its own, for which there is no rule."""

    def forward(self, x):
        return 0.1 * super().forward(x)


class TiedParts(nn.Module):
    """One weight in two parts without a rule and in a layer with one; it says little as a table."""

    def __init__(self):
        super().__init__()
        self.table, self.again, self.last = Words(40, 5), Words(40, 5), nn.Linear(5, 40, bias=False)
        self.again.weight = self.last.weight = self.table.weight

    def forward(self, x):
        return self.last(self.table(x) + self.again(x.flip(1)).tanh()).mean(1)


MODELS = {
    TiedParts: None,
    Recurrent: (6, 4),
    Adapter: (6,),
    TimeFirst: (6, 4),
    Mixed: (6, 4),
    BareParameter: (4,),
    Tied: None,
    Attention: None,
    Functional: None,
    PlacesWithoutRow: None,
}
BY_RULES = {*MODELS} - {Functional}


def rows(kind, count=16):
    torch.manual_seed(0)
    shape = MODELS[kind]
    x = torch.randint(0, 3, (count, 5)) if shape is None else torch.randn(count, *shape).double()
    return x, torch.randint(0, 3, (count,))


@pytest.mark.parametrize("kind", MODELS)
def test_gradients_equal_a_loop(kind):
    """A weight that is used behind its layer's back is noticed on made-up inputs."""
    x, y = rows(kind)
    model = kind().double()
    private = training(model, TensorDataset(x, y), examples="apart", clip_norm=0.1)
    found = private._apart.clipped_sum(cross_entropy, (x,), {}, (y,), len(x))
    right = clipped(loop(model, cross_entropy, (x,), y), 0.1 * (1 - 1e-9))
    torch.testing.assert_close(found, right, rtol=1e-6, atol=1e-9)
    assert ("" not in private.run_by_example) is (kind in BY_RULES)


def test_several_inputs_and_microbatches():
    torch.manual_seed(0)
    model, x, z = TwoInputs().double(), torch.randn(12, 4).double(), torch.randn(12, 4).double()
    y = torch.randint(0, 3, (12,))
    private = training(model, TensorDataset(x, z, y), examples="apart", clip_norm=0.1)
    found = private._apart.clipped_sum(cross_entropy, (x, z), {}, (y,), 12)
    right = clipped(loop(model, cross_entropy, (x, z), y), 0.1 * (1 - 1e-9))
    torch.testing.assert_close(found, right, rtol=1e-6, atol=1e-9)
    assert private.run_by_example == ("other",)


def test_a_rule_that_is_wrong_moves_no_more_than_the_clip():
    """What one record moves does not rest on the trial on made-up inputs."""
    x, y = rows(Functional)
    model = Functional().double()
    private = training(model, TensorDataset(x, y), examples="apart", clip_norm=0.1)
    apart = private._apart

    def untried(given):
        one = _of_one(model, cross_entropy, given)
        first = [given[0][0][0], given[2][0][0]]
        return Outline.of(apart._units, {}, lambda: one(dict(apart._trained), first))

    apart._tried = untried
    whole = apart.clipped_sum(cross_entropy, (x,), {}, (y,), len(x))
    assert private.run_by_example == ()
    right = clipped(loop(model, cross_entropy, (x,), y), 0.1)
    assert not torch.allclose(whole, right, rtol=1e-3)
    for i in range(len(x)):
        rest = [j for j in range(len(x)) if j != i]
        few = apart.clipped_sum(cross_entropy, (x[rest],), {}, (y[rest],), len(rest))
        assert (whole - few).norm() <= 0.1 * (1 + 1e-9)


def test_layers_that_are_called_in_another_way_are_looked_at_again():
    """A flag of the model, between two steps."""

    class Switched(Recurrent):
        twice = False

        def forward(self, x):
            return super().forward(torch.cat([x, x], 1) if self.twice else x)

    x, y = rows(Recurrent)
    model = Switched().double()
    private = training(model, TensorDataset(x, y), examples="apart", clip_norm=0.1)
    for twice in (False, True):
        model.twice = twice
        found = private._apart.clipped_sum(cross_entropy, (x,), {}, (y,), len(x))
        right = clipped(loop(model, cross_entropy, (x,), y), 0.1 * (1 - 1e-9))
        torch.testing.assert_close(found, right, rtol=1e-6, atol=1e-9)
        assert private.run_by_example == ()


@pytest.mark.parametrize("examples", ["checked", "apart"])
@pytest.mark.parametrize("kind", [nn.Linear, BareParameter])
def test_a_penalty_on_weights_inside_the_loss_is_refused(kind, examples):
    """Apart, it would have been left out without a word."""
    model = nn.Linear(4, 3) if kind is nn.Linear else kind()

    def penalised(out, y):
        return cross_entropy(out, y) + 0.3 * next(model.parameters()).square().sum()

    def about_it(out, y):  # its size and its numbers are constants
        weight = next(model.parameters())
        return cross_entropy(out, y) * weight.shape[0] + weight.detach().mean() * 0

    x, y = torch.randn(6, 4), torch.arange(6) % 3
    private = training(model, TensorDataset(x, y), batch_size=6, examples=examples)
    rows, targets = next(iter(private.loader))
    with pytest.raises(Refused, match="weight_decay"):
        private.step(penalised, rows, targets=targets)
    private.step(about_it, rows, targets=targets)
    assert private.steps_done == 1
