"""Scenarios of training in several processes: ``python -m tests.training.ranks FOLDER``.

Each process writes what it has seen to ``FOLDER/SCENARIO/RANK.pt``; ``test_processes`` reads it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import privopt
from privopt.noise import SilentSource, Source
from privopt.torch import make_private
from privopt.torch import noise as noise_module
from privopt.torch.processes import Processes

RUNS: dict[str, dict[str, Any]] = {
    name: {"noise": name}
    for name in ("independent", "banded", "blt", "honaker", "tree", "sqrt_toeplitz")
} | {
    "banded": {"noise": "banded", "batches": "fixed"},  # with several bands
    "cut": {"noise": "banded", "microbatch": 2},
    "compiled": {"noise": "blt", "compile": "eager"},
    "silent": {"noise": "blt", "random_state": "silent"},
}
KEPT = ("independent", "banded", "blt", "honaker")
SCENARIOS = [
    *(("same", 2), ("uneven", 3), ("crowded", 4), ("variance", 2), ("variance", 4)),
    *(("covariance", 2), ("shares", 2), ("refused", 2), ("without_0", 2), ("without_1", 2)),
    *(("halfway", 2), ("saved", 2), ("resumed", 2), ("resumed", 3), ("mixed", 2)),
]
LEDGER = {"epsilon": 3.0, "delta": 3e-5, "composition": "basic"}


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output, target, reduction="none")


def training(model: nn.Module | None = None, records: Any = None, **choices: Any) -> Any:
    if model is None:
        model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    if records is None:
        made = torch.Generator().manual_seed(0)
        x = torch.randn(61, 4, generator=made).double()
        records = TensorDataset(x, torch.randint(0, 3, (61,), generator=made))
    optimizer = torch.optim.SGD(model.parameters(), choices.pop("lr", 0.5), momentum=0.5)
    loader = DataLoader(records, batch_size=choices.pop("batch_size", 10))
    choices = {"epsilon": 2.0, "delta": 1e-5, "epochs": 2, "random_state": 0} | choices
    if choices["random_state"] == "silent":
        choices["random_state"] = SilentSource()
    return make_private(model, optimizer, loader, **choices)


def run(private: Any, epochs: int = 2) -> Any:
    for _ in range(epochs):
        for x, y in private.loader:
            private.step(loss, x, targets=y)
    return private


def weights(private: Any) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in private.model.parameters()])


def refusal(action: Any) -> str:
    try:
        action()
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"
    return "nothing"


class _Owner(Source):
    """The noise that a seed gives to one of several processes, written down once more."""

    def __init__(self, seed: int, rank: int) -> None:
        self._noise = np.random.Generator(
            np.random.Philox(np.random.SeedSequence(seed, spawn_key=(rank, 0)).spawn(2)[0])
        )

    @property
    def noise(self) -> np.random.Generator:
        return self._noise


@contextmanager
def drawing_as(count: int, seed: int = 0) -> Iterator[None]:
    """One process that draws the noise of ``count``: each share from the source of its owner."""
    honest = noise_module.gaussian_like
    sources = [_Owner(seed, rank) for rank in range(count)]

    def draw(source: Any, std: float, like: torch.Tensor) -> torch.Tensor:
        if not std or isinstance(source._source, SilentSource):
            return honest(source, std, like)
        ends = [len(like) * rank // count for rank in range(count + 1)]
        pieces = zip(sources, ends, ends[1:], strict=False)
        return torch.cat([honest(one, std, like[start:stop]) for one, start, stop in pieces])

    with patch.object(noise_module, "gaussian_like", draw):
        yield


# ---------------------------------------------------------------- scenarios
def same(rank: int, folder: Path) -> Any:
    """Runs of every noise, from a start that process 0 decides."""
    return {name: outcome(rank, **choices) for name, choices in RUNS.items()}


def uneven(rank: int, folder: Path) -> Any:
    """Three processes, which divide neither a batch nor the 43 parameters."""
    return {name: outcome(rank, **RUNS[name]) for name in ("independent", "blt")}


def crowded(rank: int, folder: Path) -> Any:
    """Four processes for two parameters: two of them own nothing."""
    return {name: outcome(rank, tiny=True, **RUNS[name]) for name in ("independent", "honaker")}


def outcome(rank: int, tiny: bool = False, **choices: Any) -> Any:
    torch.manual_seed(rank)
    if tiny:
        x = torch.linspace(-1, 1, 61).double()[:, None]
        choices["records"] = TensorDataset(x, torch.zeros(61, dtype=torch.int64))
        choices["model"] = Two().double()
    private = run(training(clip_norm=0.3, **choices))
    return weights(private), private.epsilon_spent()


class Two(nn.Module):
    """Two parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.line(x)
        return torch.cat([out, -out], 1)


def variance(rank: int, folder: Path) -> Any:
    """Updates of a model whose gradient is zero, with secure noise."""
    model = nn.Linear(40_000, 1, bias=False)
    records = TensorDataset(torch.zeros(16, 40_000), torch.zeros(16))
    choices = {"batch_size": 4, "epochs": 1, "noise": "independent", "random_state": None}
    private = training(model, records, clip_norm=0.7, lr=1.0, **choices)
    private.optimizer.param_groups[0]["momentum"] = 0.0
    updates = []
    for x, y in private.loader:
        before = weights(private)
        private.step(lambda out, _: out[:, 0] * 0, x, targets=y)
        updates.append(weights(private) - before)
    return torch.stack(updates), private.noise_std / 4, private.steps_done


def covariance(rank: int, folder: Path) -> Any:
    """Noise of all steps on a gradient that is zero, and the matrix that correlates it."""
    model = nn.Linear(20_001, 1, bias=False)
    records = TensorDataset(torch.zeros(12, 20_001), torch.zeros(12))
    found = {}
    for noise in ("banded", "blt"):
        choices = RUNS[noise] | {"batch_size": 4, "random_state": None}
        private = training(model, records, lr=1.0, **choices)
        steps = []
        for _ in range(2):
            for x, y in private.loader:
                private.step(lambda out, _: out[:, 0] * 0, x, targets=y)
                steps.append(model.weight.grad[0] * 4)
        encoder = private.plan.factorization.encode(np.eye(len(steps)))
        found[noise] = torch.stack(steps), encoder, private.noise_std
    return found


def shares(rank: int, folder: Path) -> Any:
    """Who is in whose part of a batch."""
    records = TensorDataset(torch.zeros(40, 4).double(), torch.zeros(40, dtype=torch.int64))
    choices = {"epochs": 60, "noise": "independent", "epsilon": 50.0, "random_state": None}
    private = training(None, records, batch_size=6, **choices)
    steps = [torch.from_numpy(private.loader._members(t)) for t in range(private.steps)]
    return steps, private.settings()["rate"]


def without_0(rank: int, folder: Path) -> Any:
    return killed(rank, victim=0)


def without_1(rank: int, folder: Path) -> Any:
    return killed(rank, victim=1)


def killed(rank: int, victim: int) -> Any:
    """One of the processes dies in the second step."""
    private = training(noise="independent")
    batches = iter(private.loader)
    x, y = next(batches)
    private.step(loss, x, targets=y)
    x, y = next(batches)
    before = weights(private)
    if rank == victim:
        os._exit(0)
    said = refusal(lambda: private.step(loss, x, targets=y))
    return said, torch.equal(before, weights(private)), private.steps_done


def halfway(rank: int, folder: Path) -> Any:
    """One of the processes dies after it has drawn its noise, before it tells the others."""
    private = training(noise="blt")
    x, y = next(iter(private.loader))
    before = weights(private)
    gather = Processes.gather if rank == 0 else lambda *_: os._exit(0)
    with patch.object(Processes, "gather", gather):
        said = refusal(lambda: private.step(loss, x, targets=y))
    unmoved = torch.equal(before, weights(private)) and private.steps_done == 1
    return said, unmoved, len(private._run.log), private.epsilon_spent()


def refused(rank: int, folder: Path) -> Any:
    """What goes wrong in one process stops all of them, and training can go on."""
    found = {"clip": refusal(lambda: training(clip_norm=1.0 + rank))}
    found["seed"] = refusal(lambda: training(random_state=None if rank else 0))
    wrapped = DistributedDataParallel(nn.Linear(4, 3).double())
    found["wrapped"] = refusal(lambda: training(wrapped))
    private = training(noise="blt", random_state=1)
    x, y = next(iter(private.loader))
    before = weights(private)
    broken = training(private.model, noise="independent")
    with patch.object(noise_module, "gaussian_like", noise_module.gaussian_like if rank else None):
        inputs, targets = next(iter(broken.loader))
        found["noise"] = refusal(lambda: broken.step(loss, inputs, targets=targets))
    mean = (lambda out, t: loss(out, t).mean()) if rank else loss
    found["loss"] = refusal(lambda: private.step(mean, x, targets=y))
    found["unharmed"] = torch.equal(before, weights(private)), private.epsilon_spent()
    run(private, 1)
    found["steps"] = private.steps_done
    if rank == 0:
        privopt.Ledger.create(folder / "ledger.db", dataset="d", **LEDGER)
    dist.barrier()
    choices = {"ledger": folder / "ledger.db", "dataset": "d", "random_state": None}
    paid = run(training(**choices))
    found["paid"] = paid.certificate().ledger is not None
    found["short"] = refusal(lambda: run(training(**choices)))
    return found


def saved(rank: int, folder: Path) -> Any:
    """Half a run of every noise; each process saves its own state, and process 0 all of them."""
    sizes = {}
    for name in KEPT:
        torch.manual_seed(rank)
        private = run(training(random_state=1, **RUNS[name]), 1)
        torch.save(private.state_dict(), folder / f"{name}-of-{rank}")
        states = private.state_dicts()
        if rank == 0:
            torch.save([private.model.state_dict(), states], folder / f"{name}-of-all")
        kept = private.state_dict()["noise"]
        sizes[name] = {len(v) for v in kept["noise"]["vectors"]} if kept else set()
        assert len(states) == (0 if rank else 2)
    return sizes


def went_on(folder: Path, rank: int | None, noise: str, seed: Any = 2) -> Any:
    """From the state of one of the processes that have saved theirs, or from all."""
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    parameters, states = torch.load(folder.parent / "saved2" / f"{noise}-of-all")
    model.load_state_dict(parameters)
    private = training(model, random_state=seed, **RUNS[noise])
    if rank is not None:
        states = torch.load(folder.parent / "saved2" / f"{noise}-of-{rank}")
    private.load_state_dict(states)
    return private


def resumed(rank: int, folder: Path) -> Any:
    """The other half, from own states where there are as many processes, and from all states."""
    found = {}
    for noise in KEPT:
        for whose in (None, rank) if dist.get_world_size() == 2 else (None,):
            private = run(went_on(folder, whose, noise), 1)
            result = weights(private), private.epsilon_spent(), private.steps_done
            found[noise, "all" if whose is None else "own"] = result
    return found


def mixed(rank: int, folder: Path) -> Any:
    """States that are not those of one run and of this process."""
    found = {"other": refusal(lambda: went_on(folder, 1 - rank, "blt"))}
    found["first"] = refusal(lambda: went_on(folder, 0, "blt"))
    found["last"] = refusal(lambda: went_on(folder, 1, "independent"))
    dist.barrier()
    legs, grads = [], []
    for _ in range(2):
        private = went_on(folder, None, "blt", seed=None)
        x, y = next(iter(private.loader))
        private.step(loss, x, targets=y)
        legs.append(private.state_dict())
        grads.append(torch.cat([p.grad.flatten() for p in private.model.parameters()]))
    found["fresh"] = grads[0] - grads[1], private.noise_std / private.expected_batch_size
    private = training(private.model, noise="blt", random_state=None)
    private.load_state_dict(legs[rank])
    x, y = next(iter(private.loader))
    found["legs"] = refusal(lambda: private.step(loss, x, targets=y))
    found["unmoved"] = private.steps_done, len(private._run.log)
    behind = training(noise="blt", random_state=2)
    if rank == 0:
        behind.load_state_dict(torch.load(folder.parent / "saved2" / "blt-of-0"))
    found["behind"] = refusal(lambda: run(behind))
    return found


def main(folder: Path) -> None:
    training(noise="independent")  # what is imported and planned is so once
    for scenario, count in SCENARIOS:
        place = folder / f"{scenario}{count}"
        place.mkdir(parents=True)
        spread(count, partial(globals()[scenario], folder=place), place)


def spread(count: int, action: Callable[[int], Any], folder: Path) -> list[Any]:
    """What an action returns in each of several processes, those that live to its end."""
    forked([partial(worker, action, rank, count, folder) for rank in range(count)])
    files = sorted(folder.glob("*.pt"))
    return [torch.load(file, weights_only=False) for file in files]


def forked(actions: list[Callable[[], None]]) -> int:
    """Each action in a process of its own, all at once; how many of them fail."""
    workers = [multiprocessing.get_context("fork").Process(target=action) for action in actions]
    for one in workers:
        one.start()
    for one in workers:
        one.join(150)
        if one.is_alive():
            one.kill()
    return sum(one.exitcode != 0 for one in workers)


def worker(action: Callable[[int], Any], rank: int, count: int, folder: Path) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    meeting, timeout = f"file://{folder}/meeting", timedelta(seconds=120)
    dist.init_process_group("gloo", meeting, timeout, count, rank)
    torch.save(action(rank), folder / f"{rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
