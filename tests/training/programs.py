"""Random training programs, made from a seed by a grammar: honest ones, and ones that mix records.

A program is a model, a loss and a way to hand them over. A mixing one takes a statistic of the
whole batch at some place (a layer, a hook before or after one, the way back of a function, masks,
the outputs, the losses, the labels, a normaliser that runs on, the collate function, what the model
remembers) and lets it act on every row, always, by a coin, or from some step on: by a flag of an
object, a class, a module, a container, a thread, a variable. An honest one takes the same statistic
of each row.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate

from privopt.torch import make_private

WIDTH, CLASSES, RECORDS = 5, 3, 48

STATISTICS = {
    "mean": lambda h, d: h.mean(d, keepdim=True),
    "sum": lambda h, d: h.sum(d, keepdim=True),
    "largest": lambda h, d: h.amax(d, keepdim=True),
    "smallest": lambda h, d: h.amin(d, keepdim=True),
    "spread": lambda h, d: (h.square().mean(d, keepdim=True) + 0.1).sqrt(),
    "median": lambda h, d: h.median(d, keepdim=True).values,
    "norm": lambda h, d: (h.square().sum(d, keepdim=True) + 0.01).sqrt(),
    "neighbour": lambda h, d: h.roll(1, d),
    "mirror": lambda h, d: h.flip(d),
    "first": lambda h, d: h.narrow(d, 0, 1),
    "softmax": lambda h, d: h.softmax(d) * h.shape[d],
    "rank": lambda h, d: h.argsort(d).argsort(d).to(h.dtype) / h.shape[d],
    "running": lambda h, d: h.cumsum(d),
}
COMBINATIONS = {
    "add": lambda h, s: h + s,
    "subtract": lambda h, s: h - s,
    "multiply": lambda h, s: h * (1 + s.tanh()),
    "divide": lambda h, s: h / (0.2 + s.abs()),
    "gate": lambda h, s: torch.where(h > s, h, 0.3 * h),
    "blend": lambda h, s: 0.6 * h + 0.4 * s,
}
COINS = {
    "python": lambda p: random.random() < p,
    "numpy": lambda p: np.random.uniform() < p,  # noqa: NPY002
    "torch": lambda p: bool(torch.rand(()) < p),
}
SITES = ("hidden", "logits", "losses", "labels", "hook", "backward", "memory", "collate")
SITES += ("before", "function", "mask", "prior", "normaliser")
SWITCHES = ("flag", "class", "global", "container", "thread", "variable", "buffer")
TRIGGERS = ("always", "coin", "training", "count", "large", *SWITCHES)

SETTINGS = {"on": False}
ON = False
LOCAL = threading.local()


@dataclass
class Mixture:
    """One statistic that acts on rows: of the batch (dimension 0), or of each row (1)."""

    seed: int
    mixing: bool
    site: str = ""
    trigger: str = ""
    on: bool = False
    calls: int = 0
    everywhere: ClassVar[bool] = False

    def __post_init__(self) -> None:
        rng = random.Random(self.seed)
        self.site = rng.choice(SITES)
        self.trigger = rng.choice(TRIGGERS)
        if self.site in ("labels", "collate"):
            self.trigger = "always"
        if self.trigger == "large" and not self.mixing:
            self.trigger = "always"  # what one row decides for all of them is mixing
        if self.site == "memory":
            self.trigger = rng.choice(("always", "training"))
        self.statistic = rng.choice(list(STATISTICS))
        self.combination = rng.choice(list(COMBINATIONS))
        self.detached = rng.random() < 0.5
        self.strength = rng.choice((0.5, 1.0, 3.0))
        self.coin, self.share = rng.choice(list(COINS)), rng.choice((0.2, 0.5))
        self.choices, self.buffer = [False], torch.zeros(1)
        self.switch(False)
        variable = False

        def switched() -> bool:
            return {
                "flag": self.on,
                "class": type(self).everywhere,
                "global": ON,
                "container": SETTINGS["on"] or self.choices[-1],
                "thread": LOCAL.on,
                "variable": variable,
                "buffer": bool(self.buffer[0] > 0),
            }[self.trigger]

        def turn(on: bool) -> None:
            nonlocal variable
            variable = on

        self.switched, self.turn = switched, turn

    def switch(self, on: bool) -> None:
        """What a loop does after some steps: whichever flag this program looks at."""
        global ON
        self.on = type(self).everywhere = ON = SETTINGS["on"] = LOCAL.on = on
        self.choices.append(on)
        self.buffer.fill_(float(on))
        if hasattr(self, "turn"):
            self.turn(on)

    def __call__(self, h: torch.Tensor, training: bool = True) -> torch.Tensor:
        if not self._acts(h, training):
            return h
        dim = 0 if self.mixing or h.dim() == 1 else 1
        if h.dim() == 1 and not self.mixing:
            return COMBINATIONS[self.combination](h, self.strength * h.detach().sin())
        if not h.numel():
            return h
        found = self.strength * STATISTICS[self.statistic](h.detach() if self.detached else h, dim)
        return COMBINATIONS[self.combination](h, found)

    def _acts(self, h: torch.Tensor, training: bool) -> bool:
        if self.trigger == "coin":
            return COINS[self.coin](self.share)
        if self.trigger == "training":
            return training
        if self.trigger in SWITCHES:
            return self.switched()
        if self.trigger == "count":
            self.calls += 1
            return self.calls > 40
        if self.trigger == "large":
            return bool(h.detach().abs().max() > 0.3) if h.numel() else False
        return True


class Net(nn.Module):
    """A small model of a random kind, with a place for the mixture."""

    def __init__(self, seed: int, mixture: Mixture) -> None:
        super().__init__()
        rng = random.Random(seed + 1)
        torch.manual_seed(seed)
        self.kind = rng.choice(("plain", "plain", "norm", "dropout", "embedding", "recurrent"))
        if mixture.site == "collate" and self.kind == "embedding":
            self.kind = "plain"
        self.mixture, self.last = mixture, None
        self.table = nn.Embedding(7, 4) if self.kind == "embedding" else None
        self.one = nn.GRU(4, WIDTH, batch_first=True) if self.kind == "recurrent" else None
        self.first = nn.Linear(4, WIDTH) if self.one is None else None
        self.norm = nn.LayerNorm(WIDTH) if self.kind == "norm" else nn.Identity()
        self.drop = nn.Dropout(0.2 if self.kind == "dropout" else 0.0)
        self.act = rng.choice((nn.Tanh(), nn.ReLU(), nn.GELU()))
        self.two = nn.Linear(WIDTH, CLASSES)
        if mixture.site == "before":
            self.two.register_forward_pre_hook(lambda m, args: (self._mixed(args[0]),))
        if mixture.site == "hook":
            self.norm.register_forward_hook(lambda m, args, out: self._mixed(out))  # type: ignore

    def _mixed(self, h: torch.Tensor) -> torch.Tensor:
        return self.mixture(h, self.training)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.table is not None:
            x = self.table(x).mean(1)
        if self.one is not None:
            h = self.one(torch.stack([x, x.flip(1)], 1))[0][:, -1]
        else:
            h = self.first(x)  # type: ignore[misc]
        h = self.drop(self.act(self.norm(h)))
        site = self.mixture.site
        if site == "hidden":
            h = self._mixed(h)
        if site == "memory" and self.mixture.mixing:
            before, self.last = self.last, h.detach()
            h = h if before is None or len(before) != len(h) else h + before
        if site == "backward" and h.requires_grad:
            h.register_hook(self._mixed)
        if site == "function":
            h = _Same.apply(h, self._mixed)
        if site == "mask":  # of dropout, of patches: what is kept follows from the rows
            found = self._mixed(h.detach())
            h = h * (found >= found.mean(-1, keepdim=True)).to(h.dtype)
        out = self.two(h)
        return self._mixed(out) if site == "logits" else out


class _Same(torch.autograd.Function):
    """The same number, and another gradient."""

    @staticmethod
    def forward(ctx: Any, h: torch.Tensor, mixed: Any) -> torch.Tensor:
        ctx.mixed = mixed
        return h.clone()

    @staticmethod
    def backward(ctx: Any, *slopes: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.mixed(slopes[0]), None


@dataclass
class Program:
    """Everything that a script has: model, loss, data, and what it does in each step."""

    seed: int
    mixing: bool
    steps: int = 6
    choices: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = random.Random(self.seed + 2)
        self.mixture = Mixture(self.seed, self.mixing)
        self.model = Net(self.seed, self.mixture)
        self.dtype = rng.choice((torch.float32, torch.float64))
        self.half = not self.mixing and self.model.kind != "recurrent" and rng.random() < 0.2
        if self.half:
            self.dtype = torch.float32
        self.model.to(self.dtype)
        self.delivery = rng.choice(("targets", "closure", "partial", "object", "default"))
        if self.mixture.site == "labels":
            self.delivery = rng.choice(("targets", "partial", "object"))
        self.scale = rng.choice((1.0, 1.0, 1e-3, 100.0))
        self.clip = rng.choice((1.0, 0.1))
        self.equal = not self.mixing and rng.random() < 0.2
        self.smoothing = rng.choice((0.0, 0.1))
        self.scales: list[torch.Tensor] = []
        self.weight = torch.tensor([1.0, 2.0, 0.5], dtype=self.dtype)
        self.microbatch = rng.choice((None, None, 5)) if self.delivery != "closure" else None
        if self.mixture.site in ("losses", "labels", "prior", "normaliser"):
            self.microbatch = None

    def losses(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        found = F.cross_entropy(
            out, y, self.weight.to(out.dtype), reduction="none", label_smoothing=self.smoothing
        )
        site = self.mixture.site
        if site == "losses":
            found = self.mixture(found)
        if site == "labels" and self.mixing:
            share = torch.bincount(y, minlength=CLASSES)[y].to(found.dtype)
            found = found * share if self.mixture.detached else found / share
        if site == "prior":  # labels smoothed towards the shares of classes
            seats = F.one_hot(y, CLASSES).to(out.dtype)
            prior = self.mixture(seats) if self.mixing else seats.mean(1, keepdim=True)
            found = found - 0.3 * (prior * out.log_softmax(1)).sum(1)
        if site == "normaliser":  # of the losses, or of nothing
            size = found.detach() if self.mixing else out.detach().abs().sum(1)
            self.scales.append(self.mixture(size))
            found = found * self.scales.pop().sigmoid()
        return self.scale * found

    def data(self) -> Dataset[Any]:
        return _Rows(self)

    def private(self) -> Any:
        collate = self._collate if self.mixture.site == "collate" else None
        return make_private(
            self.model,
            torch.optim.SGD(self.model.parameters(), 0.05),
            DataLoader(self.data(), batch_size=12, collate_fn=collate),
            epsilon=4.0,
            delta=1e-5,
            epochs=2,
            clip_norm=self.clip * self.scale,
            batches="fixed",
            random_state=self.seed,
            microbatch=self.microbatch,
            **self.choices,
        )

    def _collate(self, examples: list[Any]) -> Any:
        x, y = default_collate(examples)
        return [self.mixture(x), y]

    def arguments(self, x: torch.Tensor, y: torch.Tensor) -> tuple[Any, dict[str, Any]]:
        """The loss in the way this program hands it over, and targets."""
        if self.delivery == "closure":
            return (lambda out: self.losses(out, y)), {}
        if self.delivery == "default":
            return (lambda out, goals, scale=2.0: scale * self.losses(out, goals)), {"targets": y}
        if self.delivery == "partial":
            return partial(_by_partial, self), {"targets": y}
        if self.delivery == "object":
            return _Criterion(self), {"targets": y}
        return self.losses, {"targets": y}


def _by_partial(program: Program, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return program.losses(out, y)


class _Criterion(nn.Module):
    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program, self.calls = program, 0

    def forward(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.program.losses(out, y)


class _Rows(Dataset[Any]):
    def __init__(self, program: Program) -> None:
        made = torch.Generator().manual_seed(program.seed)
        x = torch.randn(RECORDS, 4, generator=made, dtype=torch.float64).to(program.dtype)
        places = torch.randperm(7**4, generator=made)[:RECORDS]  # no record twice
        whole = torch.stack([places // 7**i % 7 for i in range(4)], 1)
        self.x = whole if program.model.table is not None else x
        self.y = torch.randint(0, CLASSES, (RECORDS,), generator=made)
        if program.equal:
            self.y.fill_(1)

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.x[i], self.y[i]
