"""What it costs to look whether examples meet: a training with the checks over one without.

CPU time of whole trainings through the loader, first step and made-up inputs included, by turns;
on an accelerator the time that passes, without the compiling of compiled steps.

    python -m benchmarks.torch_checks [--models cnn28 tf] [--steps 400] [--device cuda] [--compile]
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.torch_speed import MODELS, clock
from privopt.torch import make_private
from privopt.torch.private import PrivateTraining
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


def without(name: str, *given: Any) -> float:
    with (
        patch.object(Watch, "look", lambda self, *given: None),
        patch.object(PrivateTraining, "_probe", lambda self, *given: None),
    ):
        return seconds(name, *given)


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
        if chosen.device != "cpu":
            without(name, *given)  # warm, and in inductor's cache
        pairs = [(seconds(name, *given), without(name, *given)) for _ in range(chosen.rounds)]
        ratios = [one / other for one, other in pairs]
        print(f"{name:6s} {chosen.steps} steps: {statistics.median(ratios) - 1:.1%} more", ratios)


if __name__ == "__main__":
    main()
