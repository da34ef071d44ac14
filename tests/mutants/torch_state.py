"""Planted bugs around the training of torch models: what models keep, who is who, who goes on."""

from __future__ import annotations

import math
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import privopt
from privopt.ledger import legs
from privopt.noise import SeededSource
from privopt.privacy import Budget, Refused
from privopt.privacy.accountant import charge_of
from privopt.privacy.kinds import GaussianKind
from privopt.privacy.spend import Spend
from privopt.torch import batches, curve, fingerprints, make_private, passes, states
from privopt.torch.belongings import Belongings, Holder

from .mutant import Check, Mutant


# ---------------------------------------------------------------- checks
class Remembers(nn.Module):
    """Adds up what it sees in one of three places."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place, self.layer, self.runs = place, nn.Linear(4, 2), 0
        if place == "frozen":
            self.mean = nn.Parameter(torch.zeros(4), requires_grad=False)
        self.last: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.place == "frozen":
            self.mean.data.mul_(0.9).add_(x.detach().mean(0))
        else:
            self.last = x.detach().sum(0)
        return self.layer(x)


def _begun(model: nn.Module, records: Any = None, **choices: Any) -> Any:
    torch.manual_seed(0)
    if records is None:
        records = TensorDataset(torch.randn(12, 4), torch.arange(12) % 2)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)
    loader = DataLoader(records, batch_size=6)
    choices = {"epsilon": 1.0, "delta": 1e-5, "epochs": 2, "noise": "independent"} | choices
    return make_private(model, optimizer, loader, **choices)


def _stepped(private: Any) -> None:
    for x, y in private.loader:
        private.step(lambda o, t: F.cross_entropy(o, t, reduction="none"), x, targets=y)


def leaves_with(place: str) -> Check:
    def check() -> str | None:
        model = Remembers(place)
        before = repr((getattr(model, "mean", None), model.last))
        with suppress(Refused):
            _stepped(_begun(model))
        after = repr((getattr(model, "mean", None), model.last))
        return None if after == before else "what the model has seen leaves with it"

    return check


class Turned(Dataset[Any]):
    """Records by number."""

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = numbers
        self.base = torch.randn(12, 4, generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, place: int) -> Any:
        return self.base[self.numbers[place]], self.numbers[place] % 2


def repeats() -> str | None:
    try:
        _begun(nn.Linear(4, 2), Turned([*range(12), *range(12)]))
    except ValueError:
        return None
    return "a record pays once for two places"


def copies_pay() -> str | None:
    """All copies of a record in one step, and what is declared of it."""
    private = _begun(
        nn.Linear(4, 2),
        Turned([*range(12), *range(12)]),
        repeats=2,
        batches="fixed",
        clip_norm=0.01,
    )
    engine, x = private._engine, torch.ones(2, 4)

    def loss(out: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(out, torch.ones(2, dtype=torch.long), reduction="none")

    moved = float(engine.clipped_sum(loss, (x,), {}, (), 2).norm())
    few = private._sums.sensitivity(0).radius < moved * (1 - 1e-6)
    return "two copies move a step by more than its sensitivity" if few else None


def copies_are_drawn() -> str | None:
    schedule = batches.PoissonBatches(40, 40, 8, 1, SeededSource(0), 2)
    rate = schedule.sampling.rate
    return None if rate >= 1 - 0.8**2 else "one of two copies is drawn more often than declared"


def same_people() -> str | None:
    first = _begun(nn.Linear(4, 2), Turned([*range(12)]), batches="fixed")
    _stepped(first)
    try:
        other = _begun(nn.Linear(4, 2), Turned([*range(6, 12), *range(6)]), batches="fixed")
        other.load_state_dict(first.state_dict())
    except Refused:
        return None
    return "a run goes on with others in the places of its records"


class Again(IterableDataset[Any]):
    """A pass in which each record comes twice."""

    def __iter__(self) -> Iterator[Any]:
        return (Turned([0] * 12)[0] if i < 2 else Turned([*range(12)])[i] for i in range(12))


def passes_once() -> str | None:
    try:
        _stepped(_begun(nn.Linear(4, 2), Again(), n_public=12))
    except Refused:
        return None
    return "a record comes twice in a pass"


def legs_are_charged() -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        ledger = privopt.Ledger.create(Path(folder) / "l.db", epsilon=1e3, delta=0.1, dataset="d")
        account, budget = ledger.dataset("d"), Budget(1.0, 1e-6)
        cost = Spend({(): charge_of(GaussianKind(0.1, 0.1))})
        mark = account.reserve(cost, budget, touched=True).mark
        taken = []
        for start in (0, 4, 2):
            name, again = legs.take(account, mark, range(start, 6), lambda: cost, budget, "t")
            taken.append(again)
            if start == 0:
                legs.hand_over(account, mark, name, 4)
        return None if taken == [False, False, True] else "steps are taken twice and paid once"


def curve_is_bounded() -> str | None:
    made = curve.LossCurve(2.0, 0.5, 10.0, 1)
    for loss in (0.0, 2.0, 50.0, -50.0, math.inf, math.nan):
        for size in (0.0, 0.5):
            moved = made.joined(torch.tensor([size, 0.0]), torch.tensor([loss])).norm()
            if not float(moved) <= made.joint(0.5) * (1 + 1e-6):
                return "a loss moves the release by more than its sensitivity"
    return None


def files_are_secret() -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "private.pt"
        states.write_secret({"noise": 1}, file)
        return None if stat.S_IMODE(file.stat().st_mode) == 0o600 else "others read the state"


# ---------------------------------------------------------------- bugs
def state() -> Iterator[Mutant]:
    def mutant(name: str, check: Check, by: str, *patches: tuple[Any, str, Any]) -> Mutant:
        return Mutant(f"torch: {name}", patches, check, by)

    yield mutant(
        "statistics in a frozen parameter leave without noise",
        leaves_with("frozen"),
        "state",
        (Belongings, "kept", lambda self, look=None: nullcontext()),
    )
    yield mutant(
        "an attribute keeps what it was set to by the examples",
        leaves_with("attribute"),
        "state",
        (Holder, "put_back", lambda self: None),
    )
    yield mutant(
        "a record in two places is not noticed",
        repeats,
        "people",
        (fingerprints.Fingerprints, "copies", lambda self: 1),
    )
    yield mutant(
        "copies of a record pay for one of them",
        copies_pay,
        "people",
        (batches.FixedOrder, "parts", property(lambda self: 1, lambda self, parts: None)),
    )
    yield mutant(
        "copies of a record are sampled at the rate of one of them",
        copies_are_drawn,
        "people",
        (batches, "rate_of_some", lambda rate, repeats: rate),
    )
    yield mutant(
        "digests that look at the place and not at the record",
        repeats,
        "people",
        (fingerprints, "digest_of", _by_chance),
    )
    yield mutant(
        "a run goes on with other records",
        same_people,
        "people",
        (fingerprints.Roster, "load", lambda self, state: True),
    )
    yield mutant(
        "a digest of the records in any order",
        same_people,
        "people",
        (fingerprints.Fingerprints, "digest", property(_in_any_order)),
    )
    yield mutant(
        "a record that comes again in a pass is taken again",
        passes_once,
        "people",
        (passes.PassLoader, "_check_once", lambda self, items, seen: None),
    )
    yield mutant(
        "a state is gone on from twice and paid for once",
        legs_are_charged,
        "legs",
        (legs, "_entered", lambda account, mark: iter(())),
    )
    yield mutant(
        "steps that were handed over are nobody's, also those before",
        legs_are_charged,
        "legs",
        (legs, "_common", lambda one, other: one == other),
    )
    yield mutant(
        "a loss enters the curve uncut",
        curve_is_bounded,
        "curve",
        (curve.LossCurve, "joined", _uncut),
    )
    yield mutant(
        "the curve is not in the sensitivity",
        curve_is_bounded,
        "curve",
        (curve.LossCurve, "joint", lambda self, clip_norm: clip_norm),
    )
    yield mutant(
        "a state that everybody can read",
        files_are_secret,
        "files",
        (states, "write_secret", _openly),
    )


def _by_chance(item: Any, key: bytes) -> bytes:
    return os.urandom(16)


def _in_any_order(self: Any) -> str:
    return repr(sorted(self._found)) if self.key else ""


def _uncut(self: Any, gradient: torch.Tensor, losses: Any) -> torch.Tensor:
    return torch.cat([gradient, (torch.nan_to_num(losses).sum() * self._weight).reshape(1)])


def _openly(state: Any, path: Any) -> None:
    torch.save(state, path)
    os.chmod(path, 0o644)
