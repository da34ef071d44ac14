"""What it costs to look whether examples meet, as a share of a training without that.

Whole trainings through the loader, first step and made-up inputs included: CPU time on a processor;
on an accelerator the time that passes, warm. Checks are timed inside one training: two trainings
differ by more on a machine that others use. A check that gives a step its sum costs what it takes
beyond an ordinary sum.

    python -m benchmarks.torch_checks [--models cnn28 tf] [--steps 400] [--device cuda] [--compile]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.torch_speed import MODELS, clock
from privopt.torch import make_private
from privopt.torch.private import PrivateTraining
from privopt.torch.rehearsals import Rehearsals
from privopt.torch.watch import Watch

EPOCHS = 20


def loss(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output, target, reduction="none")


def seconds(name: str, steps: int, device: str = "cpu", compiled: bool = False) -> float:
    build, shape, batches = MODELS[name]
    torch.manual_seed(0)
    big = device == "cuda"
    model, batch = build(big).to(device), batches[0 if big else 1]
    count = batch * (steps // EPOCHS)
    x = torch.randn(count, *((32, 128) if name == "tf" and not big else shape), device=device)
    private = make_private(
        model,
        torch.optim.SGD(model.parameters(), 1e-3),
        DataLoader(TensorDataset(x, torch.randint(0, 10, (count,), device=device)), batch),
        epsilon=8.0,
        delta=1e-5,
        epochs=EPOCHS,
        noise="independent",
        batches="fixed",
        compile=compiled,
        device_noise=big,
    )
    start = clock(device)
    for _ in range(EPOCHS):
        for rows, target in private.loader:
            private.step(loss, rows, targets=target)
    return clock(device) - start


def share(name: str, steps: int, device: str, compiled: bool) -> float:
    """Of the time of a training that goes to checks, over the rest of it."""
    spent: dict[str, list[float]] = {"look": [], "given": [], "check": [], "_clipped_sum": []}

    def timed(act: Callable[..., Any], own: str) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            start = clock(device)
            found = act(*given)
            key = "given" if own == "look" and found is not None else own
            spent[key].append(clock(device) - start)
            return found

        return run

    looks = patch.object(Watch, "look", timed(Watch.look, "look"))
    tries = patch.object(Rehearsals, "check", timed(Rehearsals.check, "check"))
    sums = patch.object(
        PrivateTraining, "_clipped_sum", timed(PrivateTraining._clipped_sum, "_clipped_sum")
    )
    with looks, tries, sums:
        whole = seconds(name, steps, device, compiled)
    one = statistics.median(spent["_clipped_sum"] or [0.0])
    checks = sum(map(sum, (spent["look"], spent["given"], spent["check"])))
    checks -= one * len(spent["given"])
    return checks / (whole - checks)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", nargs="*", default=["cnn28", "tf"], choices=list(MODELS))
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compile", action="store_true")
    chosen = parser.parse_args()
    given = chosen.steps, chosen.device, chosen.compile
    if chosen.device == "cpu":
        torch.set_num_threads(1)
    for name in chosen.models:
        seconds(name, 40, *given[1:])  # warm
        found = [share(name, *given) for _ in range(chosen.rounds)]
        each = " ".join(f"{x:.1%}" for x in found)
        print(f"{name:6s} {chosen.steps} steps: {statistics.median(found):.1%} more ({each})")


if __name__ == "__main__":
    main()
