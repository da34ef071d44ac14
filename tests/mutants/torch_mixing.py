"""Planted bugs in what keeps the records of a batch apart, and in what looks whether they meet."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, TensorDataset

from privopt.privacy import Refused
from privopt.torch import (
    apart,
    batches,
    collation,
    engine,
    exchange,
    given,
    gradients,
    lengths,
    make_private,
    probe,
    watch,
)
from privopt.torch.contents import Contents
from privopt.torch.private import PrivateTraining
from privopt.torch.reachable import Reachable
from privopt.torch.watch import Watch

from .mutant import Check, Mutant

Loss = Callable[..., Tensor]


def run(model: nn.Module | None = None, data: Any = None, **choices: Any) -> PrivateTraining:
    torch.manual_seed(0)
    model = nn.Linear(4, 3) if model is None else model
    x, y = torch.randn(30, 4), torch.randint(0, 3, (30,))
    loader = DataLoader(data or TensorDataset(x, y), 10, collate_fn=choices.pop("collate", None))
    return make_private(
        *(model, torch.optim.SGD(model.parameters(), 0.1), loader),
        **{"epsilon": 2.0, "delta": 1e-5, "epochs": 2, "batches": "fixed"} | choices,
    )


def plain(out: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(out, y, reduction="none")


def together(out: Tensor, y: Tensor) -> Tensor:
    return plain(out - out.mean(0), y)


def refused(act: Callable[[], object]) -> Check:
    def check() -> str | None:
        try:
            act()
        except Refused:
            return None
        return "it is not refused"

    return check


def steps(*losses: Loss, closed: bool = False, **choices: Any) -> Check:
    """One step with each loss, the last of which mixes."""

    def act() -> None:
        private = run(**choices)
        for loss, (x, y) in zip(losses, private.loader, strict=False):
            if closed:
                private.step(lambda out, loss=loss, y=y: loss(out, y), x)
            else:
                private.step(loss, x, targets=y)

    return refused(act)


def model_steps(between: Callable[[nn.Module, Tensor], Tensor]) -> Check:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, 5), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.two(between(self, self.one(x)))

    def act() -> None:
        torch.manual_seed(0)
        private = run(Model())
        x, y = next(iter(private.loader))
        private.step(plain, x, targets=y)

    return refused(act)


def switched(mix: bool) -> Loss:
    return lambda out, y: together(out, y) if mix else plain(out, y)


def detached(out: Tensor, y: Tensor) -> Tensor:
    found = plain(out, y)
    return found * (found / found.sum()).detach()


def _by_coin(model: nn.Module, h: Tensor) -> Tensor:
    return h if random.random() > 0.1 else 0.7 * h + 0.3 * h.roll(1, 0)


def _by_place(model: nn.Module, h: Tensor) -> Tensor:
    seats = torch.arange(len(h)) < len(h) // 2
    return torch.where(seats[:, None], 3 * h, h)


class Sentences(Dataset[Any]):
    def __len__(self) -> int:
        return 30

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return torch.full((3 + i % 4, 4), float(i)), i % 3


class Gathered(Sentences):
    def __getitems__(self, places: list[int]) -> list[tuple[Tensor, int]]:
        rows = [self[i] for i in places]
        padded = pad_sequence([x for x, _ in rows], batch_first=True)
        return [(x, y) for x, (_, y) in zip(padded, rows, strict=True)]


def _longest(examples: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
    x = pad_sequence([x for x, _ in examples], batch_first=True)
    return x, torch.tensor([y for _, y in examples])


def sentences(data: Dataset[Any], collate: Any = None) -> Check:
    def act() -> None:
        private = run(data=data, collate=collate)
        x, y = next(iter(private.loader))
        private.step(lambda out, y: plain(out.mean(1), y), x, targets=y)

    return refused(act)


def _cut_in_the_loop() -> None:
    private = run(data=TensorDataset(torch.randn(30, 6, 4), torch.randint(0, 3, (30,))))
    for number, (x, y) in enumerate(private.loader):
        private.step(lambda out, y: plain(out.mean(1), y), x[:, : 6 - number], targets=y)


def _twice() -> None:
    private = run()
    for x, y in private.loader:
        private.backward(plain, x, targets=y)


class Remembering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.Linear(4, 3), torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        out = self.inner(x) + self.last
        self.last = x.detach().sum()
        return out


def _alone(loss: Callable[[Tensor], Loss], model: Any = None, change: Any = None) -> Check:
    def act() -> None:
        private = run(None if model is None else model(), examples="apart")
        x, y = next(iter(private.loader))
        private.step(loss(y), x if change is None else change(x), targets=y)

    return refused(act)


class Switched(nn.Module):
    """Centres its rows from some step on."""

    on = False

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x - x.mean(0) if self.on else x)


def _switches(**choices: Any) -> Check:
    def act() -> None:
        private = run(Switched(), **choices)
        for x, y in private.loader:
            private.step(plain, x, targets=y)
            private.model.on = True

    return refused(act)


class Pooled(nn.Module):
    """A mean over positions, padding included."""

    def __init__(self, at: int = 0) -> None:
        super().__init__()
        self.layer, self.at = nn.Linear(1, 3, bias=False), at

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer(torch.tanh(x[..., None] + 1)).mean(1)
        return out - out.mean(0) if x.shape[1] == self.at else out


def longest_of_all() -> str | None:
    """A long record in the place of a short one, and what the others give."""
    torch.manual_seed(0)
    x = (torch.randn(30, 8) - 4) * (torch.arange(8) < 3)
    other, y, sums = x.clone(), torch.zeros(30, dtype=torch.long), list[Tensor]()
    other[0] = torch.randn(8)
    for rows in (x, other):
        torch.manual_seed(1)
        private = run(Pooled(), TensorDataset(rows, y), lengths=(4, 8), clip_norm=1e-3, epochs=1)
        private.loader.waiting = 30
        private._release = lambda total: sums.append(total.clone())  # type: ignore[method-assign]
        private.backward(plain, rows, targets=y)
    moved = float((sums[0] - sums[1]).norm()) / 1e-3
    return "a long record moves the gradients of others" if moved > 2 else None


def a_length_mixes() -> None:
    private = run(
        Pooled(8), TensorDataset(torch.randn(30, 8), torch.arange(30) % 3), lengths=(4, 8)
    )
    private._watch_over = Unseeing()  # type: ignore[assignment]
    x, y = next(iter(private.loader))
    private.step(plain, x, targets=y)


class Unseeing(Watch):
    """Of the checks, those on made-up inputs alone."""

    def __init__(self) -> None: ...

    def manner(self) -> int:
        return 0

    def look(self, *given: Any) -> None:
        return None


def mixing() -> Iterator[Mutant]:
    def mutant(name: str, check: Check, *patches: tuple[Any, str, Any]) -> Mutant:
        return Mutant(f"torch: {name}", patches, check, "refusal")

    blind = (Watch, "look", lambda self, *given: None)
    unseen = (engine, "check_exchanged", lambda *given: None)
    yield mutant(
        "a loss is looked at once for its code, and is taken when it mixes later",
        steps(switched(False), switched(True)),
        (Reachable, "_function", lambda self, function: (function.__code__,)),
        *((watch, "WHOLE", 1e-300), (watch, "PART", 0.0)),  # nor found by chance
    )
    for way, choices in (("", {}), (", compiled,", {"compile": "eager"})):
        yield mutant(
            f"a model{way} that mixes from its second step on is compared with nothing, and taken",
            _switches(**choices),
            (Contents, "untouched", lambda self: True),
            *((watch, "WHOLE", 1e-300), (watch, "WHOLE_COMPILED", 1e-300), (watch, "PART", 0.0)),
        )
    yield mutant(
        "a loss that weighs by the batch, with its targets in a closure, is taken",
        steps(detached, closed=True),
        *(blind, unseen),
    )
    yield mutant(
        "a model that mixes by a coin is tried once and is taken",
        model_steps(_by_coin),
        *(blind, (probe, "LUCKY", 1)),
    )
    yield mutant(
        "a model that counts the rows of a batch is taken",
        model_steps(_by_place),
        *(blind, (probe, "_check_left_out", lambda *given: None)),
    )
    yield mutant(
        "a model that mixes batches of one size is taken on a real one",
        model_steps(lambda m, h: h - h.mean(0) if len(h) == 10 else h),
        blind,
    )
    yield mutant(
        "records are exchanged for themselves, and a model that mixes them is taken",
        model_steps(lambda m, h: h - h.mean(0) if len(h) == 10 else h),
        (exchange.Exchange, "put", lambda self, x: x),
        (exchange.Exchange, "left", lambda self, x: self.put(x)),
        (exchange, "_first", lambda chosen: chosen.staying),
    )
    whole = (collation.Collate, "__call__", lambda self, examples: self._collate(examples))
    yield mutant(
        "a batch padded to its longest record is taken",
        sentences(Sentences(), _longest),
        *(whole, (collation.Collate, "check", lambda self: None)),
    )
    yield mutant(
        "records of a batch are run at the length of the longest of them",
        longest_of_all,
        (lengths.Lengths, "_own", _of_the_longest(lengths.Lengths._own)),
    )
    yield mutant(
        "one of the declared lengths is tried, and a model that mixes at another is taken",
        refused(a_length_mixes),
        (lengths.Lengths, "cut", _first_alone(lengths.Lengths.cut)),
    )
    yield mutant(
        "a data set that pads records to the longest of several is taken",
        sentences(Gathered()),
        *((batches, "Records", lambda data: data), _without_first()),
    )
    yield mutant(
        "batches of other shapes are taken",
        refused(_cut_in_the_loop),
        (given.Given, "_check_shapes", lambda self, spec, rows: None),
    )
    yield mutant(
        "a second gradient in the place of an unused one is taken",
        refused(_twice),
        (gradients.Gradients, "check_used", lambda self: None),
    )
    yield mutant(
        "apart, a loss that holds the batch is taken",
        _alone(lambda y: lambda out, t: plain(out, t) * y.float().mean()),
        (apart, "check_sight", lambda reached: None),
    )
    yield mutant(
        "apart, rows that are centred by the batch are taken",
        _alone(lambda y: plain, change=lambda x: x - x.mean(0)),
        (given.Given, "_compare", lambda self, rows, loaded: None),
    )
    yield mutant(
        "apart, a model that remembers an example is taken",
        _alone(lambda y: plain, Remembering),
        (Reachable, "untouched", lambda self: True),
    )


def _of_the_longest(own: Any) -> Any:
    def wrong(self: Any, tensors: list[Tensor]) -> Tensor:
        found = own(self, tensors)
        return torch.full_like(found, int(found.amax()))

    return wrong


def _first_alone(cut: Any) -> Any:
    return lambda self, given, length: cut(self, given, self.all[0] if len(given) == 2 else length)


def _without_first() -> tuple[Any, str, Any]:
    """Whatever the shape of the first record is."""
    return collation, "_check_alike", lambda row, first: None
