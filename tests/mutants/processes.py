"""Planted bugs in what several processes of one training run do together."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from privopt.noise import SeededSource, SilentSource, Source
from privopt.privacy import Refused
from privopt.torch import states as states_module
from privopt.torch.processes import Processes
from privopt.torch.states import joined
from tests.training import ranks

from .mutant import Check, Mutant


# ---------------------------------------------------------------- checks
def one_run() -> str | None:
    """Two processes, and one that draws the noise of both."""
    with ranks.drawing_as(2):
        expected, _ = ranks.outcome(0, noise="blt")
    with tempfile.TemporaryDirectory() as folder:
        found = ranks.spread(2, partial(ranks.outcome, noise="blt"), Path(folder))
    if len(found) != 2:
        return "a process has died"
    off = max(float((weights - expected).abs().max()) for weights, _ in found)
    return f"a model is off by {off:.2g}" if off > 1e-9 else None


def goes_on() -> str | None:
    """Three shares of one stream, cut anew for another owner; and shares of two streams."""
    numbers = torch.arange(10.0)
    kept = [_state(rank, numbers[a:b], a) for rank, (a, b) in enumerate([(0, 3), (3, 6), (6, 10)])]
    (found,) = joined(kept, slice(4, 8))["noise"]["noise"]["vectors"]
    if not torch.equal(found, numbers[4:8]):
        return "a coordinate goes on with the past of another"
    try:
        joined([kept[0], kept[1] | {"leg": "another"}], slice(0, 6))
    except Refused:
        return None
    return "states of two runs are taken for one"


def _state(rank: int, vector: torch.Tensor, start: int) -> dict[str, Any]:
    facts = dict.fromkeys(states_module.NEEDED, "one") | {"private": True, "process": rank}
    noise = {"noise": {"step": 1, "vectors": [vector]}}
    return facts | {"share": [start, start + len(vector)], "noise": noise}


# ---------------------------------------------------------------- bugs
def processes() -> Iterator[Mutant]:
    def mutant(name: str, place: str, bug: Any, owner: Any = Processes) -> Mutant:
        return Mutant(f"processes: {name}", ((owner, place, bug),), one_run, "one run")

    yield mutant("noise on all shares from all of them", "gather", _noise_everywhere)
    yield mutant("noise before the sums are added up", "collect", _noise_in_each_sum)
    yield mutant("all of them draw the same noise", "of_process", _the_same, SeededSource)
    yield mutant("a share without noise", "source", _one_is_silent)
    yield mutant("the last coordinates belong to nobody", "shares", _rest_forgotten)
    yield mutant("shares that overlap", "shares", _overlapping)
    yield mutant("only the owner's own sum counts", "collect", lambda self, total: self.own(total))
    yield mutant("the whole batch everywhere", "deal", lambda self, t, draw: self.told(draw()))
    yield mutant("models that differ", "align", lambda self, model: None)

    def resumed(name: str, place: str, bug: Any) -> Mutant:
        check: Check = goes_on
        return Mutant(f"processes resumed: {name}", ((states_module, place, bug),), check, "states")

    yield resumed("noise of any run is taken", "COMMON", ("settings",))
    yield resumed("noise of another share is taken twice", "_cut", _from_the_start)


def _noise_everywhere(self: Processes, noisy: torch.Tensor, size: int) -> torch.Tensor:
    whole = GATHER(self, noisy, size)
    return whole + torch.randn(size, dtype=whole.dtype)


def _noise_in_each_sum(self: Processes, total: torch.Tensor) -> torch.Tensor:
    total += torch.randn(len(total), dtype=total.dtype)
    return COLLECT(self, total)


def _the_same(self: SeededSource, rank: int) -> SeededSource:
    return self


def _one_is_silent(self: Processes, source: Source) -> Source:
    return SilentSource() if self.rank else SOURCE(self, source)


def _rest_forgotten(self: Processes, size: int) -> list[slice]:
    each = size // self.count
    return [slice(rank * each, (rank + 1) * each) for rank in range(self.count)]


def _overlapping(self: Processes, size: int) -> list[slice]:
    found = SHARES(self, size)
    return [found[0], *(slice(share.start - 1, share.stop) for share in found[1:])]


def _from_the_start(states: list[dict[str, Any]], own: slice) -> dict[str, Any]:
    return CUT(states, slice(0, own.stop - own.start))


COLLECT, GATHER, SHARES = Processes.collect, Processes.gather, Processes.shares
SOURCE, CUT = Processes.source, states_module._cut
