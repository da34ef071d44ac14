"""Compiled steps: the numbers of the engine, traced once, and nothing kept that has changed."""

from __future__ import annotations

import gc
import math

import pytest
import torch
from torch import nn

from privopt import Refused
from privopt.torch.compiled import KNOWN, CompiledSum

from .models import cross_entropy
from .runs import data, net, run, training, weights


@pytest.mark.parametrize("microbatch", [None, 4])
def test_a_compiled_step_is_the_same_step(microbatch):
    """Filled up, cut and traced: the numbers of the engine. Traced once for all batches."""
    ends = []
    for compiled in (False, "eager"):
        private = training(
            random_state=3, noise="blt", compile=compiled, microbatch=microbatch, clip_norm=0.3
        )
        run(private, 2)
        ends.append(weights(private.model))
        assert private._compiled is None or len(private._compiled._graphs) == 1
    torch.testing.assert_close(*ends)


def test_a_sum_that_began_before_the_checks_is_the_same_sum(monkeypatch):
    """And one that began with another graph than the right one is dropped."""
    ends, begun = [], []
    real = CompiledSum.begin

    def begin(self, *given):
        real(self, *given)
        begun.append(self._begun is not None)

    for way in (begin, lambda self, *given: None):
        monkeypatch.setattr(CompiledSum, "begin", way)
        private = training(random_state=3, compile="eager", clip_norm=0.3)
        private.model.append(nn.Identity())
        for number, (x, y) in enumerate(private.loader):
            if number == 3:
                private.model[1] = nn.ReLU()
            scale = 2.0 if number > 4 else 1.0
            private.step(lambda out, y, scale=scale: scale * cross_entropy(out, y), x, targets=y)
        ends.append(weights(private.model))
    assert len(begun) >= 5
    assert all(begun)
    torch.testing.assert_close(*ends)


def test_a_sum_that_began_is_not_taken_for_other_rows():
    private = training(random_state=3, compile="eager", clip_norm=0.3)
    run(private)
    compiled, (x, y) = private._compiled, next(iter(private.loader))
    right = compiled.clipped_sum(cross_entropy, (x,), {}, (y,), len(x)).clone()
    compiled.begin(((2 * x,), {}, (y,)), len(x))
    found = compiled.clipped_sum(cross_entropy, (x,), {}, (y,), len(x))
    assert torch.equal(found, right)


def test_a_compiled_step_drops_what_is_not_finite():
    dataset = data()
    dataset.tensors[0][::3] = math.nan
    ends = []
    for compiled in (False, "eager"):
        private = training(None, dataset, random_state=3, compile=compiled)
        run(private)
        ends.append(weights(private.model))
    assert torch.isfinite(ends[0]).all()
    torch.testing.assert_close(*ends)


def test_a_compiled_step_refuses_tensors_from_outside():
    """They would be those of the first batch in every later step."""
    private = training(compile="eager")
    x, y = next(iter(private.loader))
    outside = torch.ones(1, 3, dtype=torch.float64)
    with pytest.raises(Refused, match="sees only what it is given"):
        private.step(lambda out, y: cross_entropy(out * outside, y), x, targets=y)
    with pytest.raises(ValueError, match="need targets"):
        private.step(lambda out: cross_entropy(out, y), x)
    assert private.steps_done == 0


def test_a_replaced_module_or_buffer_is_traced_anew():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.tensor([1.0], dtype=torch.float64))

        def forward(self, x):
            return x * self.scale

    ends = []
    for compiled in (False, "eager"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), Scaled(), nn.Linear(5, 3)).double()
        private = training(model, random_state=3, compile=compiled)
        batches = iter(private.loader)
        for change in (None, "module", "buffer", "mode"):
            if change == "module":
                model[1] = nn.ReLU()
            elif change == "buffer":
                model[2].scale = torch.tensor([0.2], dtype=torch.float64)
            elif change == "mode":
                model.eval()
            x, y = next(batches)
            private.step(cross_entropy, x, targets=y)
        ends.append(weights(model))
    torch.testing.assert_close(*ends)


def test_a_second_run_of_a_model_is_not_compiled_again(monkeypatch):
    """For as long as the first is alive, and only with the same clip, size and layers."""
    traced = []
    honest = CompiledSum._traced
    monkeypatch.setattr(
        CompiledSum, "_traced", lambda self, *a: traced.append(self) or honest(self, *a)
    )
    model = net()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    ends, runs = [], []
    for choices in ({}, {}, {"clip_norm": 0.1}, {"batch_size": 30}, {"clipping": "automatic"}):
        model.load_state_dict(before)
        runs.append(training(model, compile="eager", random_state=3, **choices))
        run(runs[-1])
        ends.append(weights(model))
        alone = training(random_state=3, **choices)
        run(alone)
        torch.testing.assert_close(weights(alone.model), ends[-1])
    assert len(traced) == 4
    model[0].bias.requires_grad_(False)
    runs.append(training(model, compile="eager"))
    run(runs[-1])
    assert len(traced) == 5
    del runs
    traced.clear()
    gc.collect()
    assert len(KNOWN[model]) == 0


def test_gradients_do_not_lie_where_the_next_sum_is_written(monkeypatch):
    """A replayed graph has one place for its results: sums without noise must not show up there."""
    honest, place = CompiledSum._traced, []

    def replayed(self, *arguments):
        graph = honest(self, *arguments)

        def call(*rows):
            found, lost = graph(*rows)
            place.extend([found] if not place else [])
            return place[0].copy_(found), lost

        return call

    monkeypatch.setattr(CompiledSum, "_traced", replayed)
    private = training(compile="eager")
    release, looked = private._release, []

    def watched(total):
        now = [p.grad for p in private.model.parameters()]
        looked.append(before is None or all(map(torch.equal, before, now)))
        release(total)

    private._release = watched
    before = None
    for x, y in private.loader:
        private.step(cross_entropy, x, targets=y)
        before = [p.grad.clone() for p in private.model.parameters()]
    assert len(looked) == 6
    assert all(looked)
