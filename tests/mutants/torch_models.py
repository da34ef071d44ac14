"""Planted bugs in what private training refuses: models, batches and loops that are not private."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, TensorDataset, default_collate

from privopt.privacy import Accountant, Refused, accountant, charge_of
from privopt.privacy.kinds import GaussianKind
from privopt.torch import batches, by_example, clip, make_private, probe, rounding, seen
from privopt.torch import engine as engine_module
from privopt.torch.clip import Clip
from privopt.torch.engine import Engine
from privopt.torch.private import PrivateTraining

from .mutant import Check, Mutant

X = torch.linspace(-1, 2, 32).reshape(8, 4)


# ---------------------------------------------------------------- checks
class Between(nn.Module):
    def __init__(self, between: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.one, self.two, self.between = nn.Linear(4, 5), nn.Linear(5, 3), between
        self.register_buffer("mean", torch.zeros(5))

    def forward(self, x: Any) -> Tensor:
        h = self.one(x if isinstance(x, Tensor) else torch.as_tensor(x[0]))
        return self.two(self.between(self, h))


def refused(action: Callable[[], object]) -> Check:
    def check() -> str | None:
        try:
            action()
        except (Refused, ValueError):
            return None
        return "it is not refused"

    return check


def model_refused(between: Callable[[Any, Tensor], Tensor], given: Any = X) -> Check:
    def action() -> None:
        torch.manual_seed(0)
        probe.probe(Engine(Between(between), Clip(1.0)), (given,), {})

    return refused(action)


def _replaced(model: Any, h: Tensor) -> Tensor:
    model.mean = h.detach().mean(0)
    return h


def _remembered(model: Any, h: Tensor) -> Tensor:
    before, model.state = getattr(model, "state", None), h.detach()
    return h if before is None or len(before) != len(h) else h + before


def _hooked(model: Any, h: Tensor) -> Tensor:
    if h.requires_grad:
        h.register_hook(lambda g: g / g.norm())
    return h


class Rows(Dataset[Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> Tensor:
        return X[i]


ROWS = Rows()


def private(data: Any = None, **choices: Any) -> PrivateTraining:
    model = nn.Linear(4, 3)
    loader = DataLoader(data or TensorDataset(X), batch_size=8, **choices)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    choices = {"epsilon": 1.0, "delta": 1e-5, "epochs": 2, "equal_records": "people"}
    return make_private(model, optimizer, loader, **choices)


def _ordinary() -> None:
    run = private()
    (x,) = next(iter(run.loader))
    run.model(x).sum().backward()
    run.optimizer.step()


def _mixed(examples: list[Tensor]) -> Tensor:
    batch = default_collate(examples)
    return batch + batch.roll(1, 0)


def smallest_clip() -> str | None:
    try:
        engine = Engine(nn.Linear(4, 1, bias=False), Clip(1e-25))
    except ValueError:
        return None
    x = torch.full((1, 4), 1e-12)
    found = engine.clipped_sum(lambda out: 1e-12 * out[:, 0], (x,), {}, (), 1)
    return None if found.double().norm() <= 1e-25 else "nothing is clipped"


def loss_refused(loss: Callable[[Tensor, Tensor], Tensor]) -> Check:
    def action() -> None:
        torch.manual_seed(0)
        engine = Engine(nn.Linear(4, 3), Clip(1.0))
        engine.clipped_sum(loss, (X,), {}, (torch.arange(8) % 3,), 8)

    return refused(action)


def _sees_its_pair(out: Tensor, y: Tensor) -> Tensor:
    pair = out.unflatten(0, (-1, 2)).flip(1).flatten(0, 1)  # half a batch has whole pairs
    return F.cross_entropy(out, y, reduction="none") + pair.square().sum(1)


def _over_the_batch(out: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(out, y, reduction="none") / (y > 0).sum()


def _penalty() -> None:
    linear = nn.Linear(4, 3)
    engine = Engine(linear, Clip(1.0))
    engine.clipped_sum(
        lambda out: out.square().sum(1) + linear.weight.square().sum(), (X,), {}, (), 8
    )


def large_sums() -> str | None:
    """One record more at the end of many that point the same way."""
    linear = nn.Linear(1, 1, bias=False)
    engine = Engine(linear, Clip(1.0))
    engine.crowd = 300_000
    x = torch.ones(300_000, 1) * torch.linspace(1.5, 2.5, 300_000)[:, None]
    loss = lambda out: out[:, 0]  # noqa: E731
    moved = [engine.clipped_sum(loss, (x[k:],), {}, (), 300_000 - k).double() for k in (0, 1)]
    room = engine.clip.norm * 300_000 * 2.0**-24
    bound = 1.0 / (1 + engine.margin("cpu"))
    if float((moved[0] - moved[1]).abs()) > 1:
        return "one record moves the sum by more than the clip norm"
    return None if bound + room <= 1 else "no room for the rounding of a large sum"


# ---------------------------------------------------------------- bugs
def models() -> Iterator[Mutant]:
    def mutant(name: str, check: Check, *patch: Any, also: tuple[Any, ...] = ()) -> Mutant:
        return Mutant(f"torch: {name}", (patch, *also), check, "refusal")

    def blind(owner: Any, name: str) -> tuple[Any, str, Any]:
        return owner, name, lambda *given: None

    run, other = probe.run, probe.with_other

    def evaluated(engine: Engine, made: Any, seed: int = 0) -> Any:
        engine.model.eval()
        return run(engine, made, seed)

    yield mutant(
        "a model is tried in evaluation only",
        model_refused(lambda m, h: h - h.mean(0).detach() if m.training else h),
        *(probe, "run", evaluated),
    )
    yield mutant(
        "a model is tried with another first row only",
        model_refused(lambda m, h: h + F.pad(h.detach()[1:], (0, 0, 0, 1))),
        *(probe, "with_other", lambda row, turn=0: other(0) if row == 0 else lambda x: x),
        also=(blind(probe, "_check_left_out"),),
    )
    yield mutant(
        "gradients that are mixed on the way back are not seen",
        model_refused(_hooked),
        *(probe, "_check_backward", lambda *given: False),
    )
    yield mutant(
        "a new buffer in the place of another is not seen",
        model_refused(_replaced),
        *(seen, "_same_buffer", lambda now, then, value, version: now._version == version),
    )
    yield mutant(
        "a model that remembers examples is taken",
        model_refused(_remembered),
        *(probe, "unlike", lambda a, b, wider=1: False),
    )
    yield mutant(
        "an object that holds a batch is taken",
        model_refused(lambda m, h: h, [X.numpy()]),
        *(by_example, "_check_given", lambda args, kwargs: None),
    )
    yield mutant(
        "gradients without noise reach the optimizer",
        refused(_ordinary),
        *(PrivateTraining, "_guard", lambda self: None),
    )
    yield mutant(
        "a record in two places of a data set is taken",
        refused(lambda: private(ConcatDataset([ROWS, ROWS]))),
        *(batches, "_check_once", lambda data, repeats: None),
    )
    yield mutant(
        "a collate function that mixes records is taken",
        refused(lambda: next(iter(private(Rows(), collate_fn=_mixed).loader))),
        *(batches, "check_collate", lambda collate, data: None),
    )
    yield mutant(
        "epsilon at a delta that is no number is printed too small",
        refused(lambda: Accountant().epsilon(charge_of(GaussianKind(1.0, 1.0)), math.nan)),
        *(accountant, "_check_numbers", lambda epsilon=0.0, delta=0.0: None),
    )
    yield mutant(
        "a loss that sees the outputs of others is taken",
        loss_refused(_sees_its_pair),
        *blind(engine_module, "check_rows"),
        also=(blind(engine_module, "check_exchanged"),),
    )
    yield mutant(
        "a loss that sees the batch without a gradient is taken",
        loss_refused(_over_the_batch),
        *blind(engine_module, "check_half"),
        also=(blind(engine_module, "check_exchanged"),),
    )
    yield mutant(
        "a penalty on weights is dropped",
        refused(_penalty),
        *(engine_module, "uses_by_itself", lambda losses, edges, trained: False),
    )
    yield mutant(
        "sums of many examples are rounded for nothing",
        large_sums,
        *(engine_module, "margin", lambda dtype, half, device, crowd: rounding.MARGIN[dtype]),
    )
    yield mutant("a clip norm whose square underflows", smallest_clip, clip, "SMALLEST", 0.0)
