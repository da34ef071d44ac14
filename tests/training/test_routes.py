"""Every supported layer on every route: compiled, in half precision, cut, and with neighbours."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

from privopt.audit import hostile_pairs, replay
from privopt.torch.clip import Clip
from privopt.torch.compiled import CompiledSum
from privopt.torch.engine import Engine
from privopt.torch.probe import probe

from .models import MODELS, clipped, cross_entropy, loop, made
from .runs import RELATIONS, training, weights

COUNT, BOUND = 6, 0.4


def engine_for(name, dtype, kind="flat"):
    model, x, y = made(name, COUNT, dtype)
    engine = Engine(model, Clip(BOUND, kind))
    probe(engine, x, {})
    return engine, x, y


SLOW = {"recurrent", "transformer layer", "two inputs"}
"""To trace, not to run; a step of theirs is that of "bare parameter"."""


@pytest.mark.parametrize("name", sorted(MODELS.keys() - SLOW))
def test_a_compiled_step_equals_a_loop(name):
    """Filled up with rows that do not count."""
    engine, x, y = engine_for(name, torch.float32)
    found = CompiledSum(engine, COUNT + 2, "eager").clipped_sum(cross_entropy, x, {}, (y,), COUNT)
    expected = clipped(loop(engine.model, cross_entropy, x, y), BOUND / (1 + 1e-3))
    assert (found - expected).norm() <= 1e-5 * expected.norm()


@pytest.mark.parametrize(
    "name", sorted(MODELS.keys() - {"two inputs"})
)  # torch has no such product
@pytest.mark.filterwarnings("ignore:Mismatch dtype")
def test_in_half_precision_nobody_moves_the_sum_further(name):
    """Sums under autocast stay close to those of single precision, and the bound holds."""
    engine, x, y = engine_for(name, torch.float32)
    full = engine.clipped_sum(cross_entropy, x, {}, (y,), COUNT)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = engine.clipped_sum(cross_entropy, x, {}, (y,), COUNT)
        assert (half - full).norm() <= 0.05 * full.norm()
        for i in range(COUNT):
            rest = torch.arange(COUNT) != i
            few = tuple(t[rest] for t in x), {}, (y[rest],), COUNT - 1
            assert (half - engine.clipped_sum(cross_entropy, *few)).norm() <= BOUND


@pytest.mark.parametrize("name", ["conv2d", "attention"])
def test_half_precision_is_compiled(name):
    engine, x, y = engine_for(name, torch.float32)
    filled = CompiledSum(engine, COUNT + 1, "eager")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = engine.clipped_sum(cross_entropy, x, {}, (y,), COUNT)
        found = filled.clipped_sum(cross_entropy, x, {}, (y,), COUNT)
    assert (found - expected).norm() <= 0.01 * expected.norm()


@pytest.mark.parametrize("name", ["conv2d", "norms", "bare parameter"])
def test_a_compiled_step_without_what_is_not_finite(name):
    engine, x, y = engine_for(name, torch.float32)
    filled = CompiledSum(engine, COUNT, "eager")
    for poison in (math.nan, math.inf, 1e38):
        x[0][1] = poison
        expected = engine.clipped_sum(cross_entropy, x, {}, (y,), COUNT)
        found = filled.clipped_sum(cross_entropy, x, {}, (y,), COUNT)
        assert torch.isfinite(expected).all()
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("name", "kind"), [("conv2d", "per_layer"), ("tied", "automatic")])
def test_kinds_of_clipping_are_compiled(name, kind):
    engine, x, y = engine_for(name, torch.float64, kind)
    expected = engine.clipped_sum(cross_entropy, x, {}, (y,), COUNT)
    found = CompiledSum(engine, COUNT + 1, "eager").clipped_sum(cross_entropy, x, {}, (y,), COUNT)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("relation", "microbatch", "compiled"),
    [(r, 5, False) for r in RELATIONS] + [("replace_one", None, "eager")],
)
def test_replay_of_cut_and_compiled_steps(relation, microbatch, compiled):
    def fit(X, y):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(X.shape[1], 3), nn.Tanh(), nn.Linear(3, 1)).double()
        private = training(
            model,
            TensorDataset(torch.from_numpy(X), torch.from_numpy(y)),
            batch_size=min(16, 63 if relation == "add_remove" else len(X)),
            epochs=1,
            noise="independent",
            neighbouring=relation,
            n_public=63 if relation == "add_remove" else None,
            microbatch=microbatch,
            compile=compiled,
        )
        for x, t in private.loader:
            private.step(lambda out, t: F.softplus(-out[:, 0] * t), x, targets=t)
        return weights(model).numpy(), private.certificate().to_json()

    for pair in hostile_pairs(relation)[:: 8 if compiled else 2]:
        assert replay(fit, pair) == [], pair.name
