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
from privopt.privacy.kinds import Gaussian
from privopt.torch import batches, by_example, clip, make_private, probe
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
    return make_private(model, optimizer, loader, epsilon=1.0, delta=1e-5, epochs=2)


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


# ---------------------------------------------------------------- bugs
def models() -> Iterator[Mutant]:
    def mutant(name: str, check: Check, *patch: Any) -> Mutant:
        return Mutant(f"torch: {name}", (patch,), check, "refusal")

    run, other = probe._run, probe._with_other

    def evaluated(engine: Engine, made: Any) -> Any:
        engine.model.eval()
        return run(engine, made)

    yield mutant(
        "a model is tried in evaluation only",
        model_refused(lambda m, h: h - h.mean(0).detach() if m.training else h),
        *(probe, "_run", evaluated),
    )
    yield mutant(
        "a model is tried with another first row only",
        model_refused(lambda m, h: h + F.pad(h.detach()[1:], (0, 0, 0, 1))),
        *(probe, "_with_other", lambda row: other(0) if row == 0 else lambda x: x),
    )
    yield mutant(
        "gradients that are mixed on the way back are not seen",
        model_refused(_hooked),
        *(probe, "_check_backward", lambda engine, made: None),
    )
    yield mutant(
        "a new buffer in the place of another is not seen",
        model_refused(_replaced),
        *(probe, "_same_buffer", lambda now, then, value, version: now._version == version),
    )
    yield mutant(
        "a model that remembers examples is taken",
        model_refused(_remembered),
        *(probe, "_unlike", lambda a, b: False),
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
        *(batches, "_check_once", lambda data: None),
    )
    yield mutant(
        "a collate function that mixes records is taken",
        refused(lambda: next(iter(private(Rows(), collate_fn=_mixed).loader))),
        *(batches, "check_collate", lambda collate, data: None),
    )
    yield mutant(
        "epsilon at a delta that is no number is printed too small",
        refused(lambda: Accountant().epsilon(charge_of(Gaussian(1.0, 1.0)), math.nan)),
        *(accountant, "_check_numbers", lambda epsilon=0.0, delta=0.0: None),
    )
    yield mutant("a clip norm whose square underflows", smallest_clip, clip, "SMALLEST", 0.0)
