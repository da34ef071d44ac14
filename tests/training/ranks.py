"""Scenarios of training in several processes: ``python ranks.py FOLDER``.

Each process writes what it has seen to ``FOLDER/SCENARIO/RANK.pt``; ``test_processes`` reads it.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import privopt
from privopt.torch import make_private
from privopt.torch.processes import Processes

RUNS: dict[str, dict[str, Any]] = {
    name: {"noise": name}
    for name in ("independent", "banded", "blt", "honaker", "tree", "sqrt_toeplitz")
} | {"cut": {"noise": "banded", "microbatch": 2}, "compiled": {"noise": "blt", "compile": "eager"}}
SCENARIOS = [
    *(("same", 2), ("uneven", 3), ("planted", 2), ("variance", 2), ("variance", 4)),
    *(("shares", 2), ("refused", 2), ("without_0", 2), ("without_1", 2)),
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


# ---------------------------------------------------------------- scenarios
def same(rank: int, folder: Path) -> Any:
    """Runs of every noise, from a start that process 0 decides."""
    return {name: outcome(rank, **choices) for name, choices in RUNS.items()}


def uneven(rank: int, folder: Path) -> Any:
    """Three processes, which do not divide a batch."""
    return {name: outcome(rank, **RUNS[name]) for name in ("independent", "blt")}


def outcome(rank: int, **choices: Any) -> Any:
    torch.manual_seed(rank)
    private = run(training(clip_norm=0.3, **choices))
    return weights(private), private.epsilon_spent()


def planted(rank: int, folder: Path) -> Any:
    """Runs with a bug in what processes do together."""
    found = {}
    for name, (place, bug) in BUGS.items():
        with patch.object(Processes, place, bug):
            found[name] = outcome(rank, noise="independent")
    return found


def _noise_on_every_rank(self: Processes, total: torch.Tensor) -> None:
    total += torch.randn(total.shape, dtype=total.dtype)
    dist.reduce(total, dst=0)


def _noise_of_my_own(self: Processes, _: Any, payload: Any, *others: Any) -> torch.Tensor:
    noisy = others[-1]()
    dist.broadcast(payload, src=0)
    return noisy


BUGS: dict[str, tuple[str, Any]] = {
    "noise in every process": ("collect", _noise_on_every_rank),
    "others add noise of their own": ("listen", _noise_of_my_own),
    "the whole batch everywhere": ("share", lambda self, t, draw: self.told(draw())),
    "only the first share counts": ("collect", lambda self, total: None),
    "models that differ": ("align", lambda self, model: None),
}


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


def refused(rank: int, folder: Path) -> Any:
    """What goes wrong in one process stops all of them, and training can go on."""
    found = {"clip": refusal(lambda: training(clip_norm=1.0 + rank))}
    found["seed"] = refusal(lambda: training(random_state=None if rank else 0))
    wrapped = DistributedDataParallel(nn.Linear(4, 3).double())
    found["wrapped"] = refusal(lambda: training(wrapped))
    private = training(noise="blt", random_state=1)
    x, y = next(iter(private.loader))
    before = weights(private)
    mean = (lambda out, t: loss(out, t).mean()) if rank else loss
    found["loss"] = refusal(lambda: private.step(mean, x, targets=y))
    found["unharmed"] = torch.equal(before, weights(private)), private.epsilon_spent()
    run(private, 1)
    found["steps"] = private.steps_done
    found["state"] = refusal(private.state_dict)
    if rank == 0:
        torch.save(private.state_dict(), folder / "state.pt")
    dist.barrier()
    resumed = training(private.model, noise="blt", random_state=2)
    resumed.load_state_dict(torch.load(folder / "state.pt"))
    found["resumed"] = resumed.epsilon_spent() == private.epsilon_spent()
    run(resumed, 1)
    found["after"] = resumed.steps_done, resumed.epsilon_spent(), weights(resumed)
    if rank == 0:
        privopt.Ledger.create(folder / "ledger.db", dataset="d", **LEDGER)
    dist.barrier()
    choices = {"ledger": folder / "ledger.db", "dataset": "d", "random_state": None}
    paid = run(training(**choices))
    found["paid"] = paid.certificate().ledger is not None
    found["short"] = refusal(lambda: run(training(**choices)))
    behind = training(noise="blt", random_state=2)
    if rank == 0:
        behind.load_state_dict(torch.load(folder / "state.pt"))
    found["behind"] = refusal(lambda: run(behind))
    return found


def main(folder: Path) -> None:
    context = multiprocessing.get_context("fork")  # what is imported and planned is so once
    training(noise="independent")
    for scenario, count in SCENARIOS:
        place = folder / f"{scenario}{count}"
        place.mkdir(parents=True)
        arguments = [(scenario, rank, count, place) for rank in range(count)]
        workers = [context.Process(target=worker, args=these) for these in arguments]
        for one in workers:
            one.start()
        for one in workers:
            one.join()


def worker(scenario: str, rank: int, count: int, folder: Path) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    meeting, timeout = f"file://{folder}/meeting", timedelta(seconds=120)
    dist.init_process_group("gloo", meeting, timeout, count, rank)
    torch.save(globals()[scenario](rank, folder), folder / f"{rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
