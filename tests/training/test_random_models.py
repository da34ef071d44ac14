"""Random programs of layers that are shared, tied, frozen and used behind their backs."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from privopt.torch.clip import Clip
from privopt.torch.engine import Engine
from privopt.torch.probe import probe

from .models import CLASSES, clipped, cross_entropy, loop

WIDTH, PLACES, COUNT = 6, 3, 5
LAYERS = {
    "linear": lambda: nn.Linear(WIDTH, WIDTH),
    "layer norm": lambda: nn.LayerNorm(WIDTH),
    "rms norm": lambda: nn.RMSNorm(WIDTH),
    "group norm": lambda: nn.GroupNorm(3, PLACES),
    "convolution": lambda: nn.Conv1d(PLACES, PLACES, 3, padding="same"),
    "embedding": lambda: nn.Embedding(5, WIDTH),
    "prelu": nn.PReLU,
    "bilinear": lambda: nn.Bilinear(WIDTH, WIDTH, WIDTH),
    "attention": lambda: nn.MultiheadAttention(WIDTH, 2, batch_first=True),
    "bare": lambda: nn.ParameterList([nn.Parameter(torch.randn(WIDTH))]),
}
AFTER = {
    "tanh": lambda y, h: torch.tanh(y),
    "relu": lambda y, h: F.relu(y, inplace=True),
    "residual": lambda y, h: torch.tanh(y + h),
    "in place": lambda y, h: y.clone().add_(h).sin(),
    "nothing": lambda y, h: y,
}


class Program(nn.Module):
    def __init__(self, seed):
        super().__init__()
        rng = random.Random(seed)
        torch.manual_seed(seed)
        kinds = rng.choices(["linear", *LAYERS], k=rng.randint(2, 5))
        self.layers = nn.ModuleList([LAYERS[kind]() for kind in kinds])
        order = rng.choices(range(len(kinds)), k=rng.randint(2, 6))  # some again, some never
        self.steps = [(kinds[i], i, rng.choice(list(AFTER)), rng.random() < 0.2) for i in order]
        linear = [i for i, kind in enumerate(kinds) if kind == "linear"]
        if len(linear) > 1 and rng.random() < 0.5:
            self.layers[linear[1]].weight = self.layers[linear[0]].weight
        self.layers[0].requires_grad_(rng.random() < 0.7)
        self.out = nn.Linear(WIDTH, CLASSES)

    def forward(self, h):
        for kind, i, after, behind in self.steps:
            layer = self.layers[i]
            if kind == "linear" and behind:
                y = h @ layer.weight
            elif kind == "bilinear":
                y = layer(h, h.flip(1))
            elif kind == "attention":
                y = layer(h, h, h, need_weights=False)[0]
            elif kind == "embedding":
                y = h + layer((3 * h.detach()[..., 0]).long().clamp(0, 4))
            else:
                y = h * layer[0] if kind == "bare" else layer(h)
            h = AFTER[after](y, h)
        return self.out(h.mean(1))


@pytest.mark.parametrize("seed", range(25))
def test_random_programs_equal_a_loop(seed):
    model = Program(seed).double()
    x = 2 * torch.randn(COUNT, PLACES, WIDTH, dtype=torch.float64)
    y = torch.randint(0, CLASSES, (COUNT,))
    engine = Engine(model, Clip(0.3))
    probe(engine, (x,), {})
    total = engine.clipped_sum(cross_entropy, (x,), {}, (y,), COUNT)
    expected = clipped(loop(model, cross_entropy, (x,), y), 0.3 / (1 + 1e-9))
    torch.testing.assert_close(total, expected, rtol=0, atol=1e-11)


def test_the_programs_take_all_ways():
    ways = set()
    for seed in range(25):
        engine = Engine(Program(seed).double(), Clip(0.3))
        probe(engine, (torch.zeros(2, PLACES, WIDTH).double(),), {})
        parts = [unit.name for unit in engine.units if type(unit).__name__ == "Part"]
        ways.add("whole" if parts == [""] else "some" if parts else "none")
    assert ways == {"whole", "some", "none"}
