"""What it costs to look whether examples meet: a training with the checks over one without.

CPU time of whole trainings through the loader, first step and made-up inputs included, by turns.

    python -m benchmarks.torch_checks [--models cnn28 tf] [--steps 400]
"""

from __future__ import annotations

import argparse
import statistics
import time
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.torch_speed import MODELS
from privopt.torch import make_private
from privopt.torch.private import PrivateTraining
from privopt.torch.watch import Watch

EPOCHS = 20


def loss(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output, target, reduction="none")


def seconds(name: str, steps: int) -> float:
    build, shape, (_, batch) = MODELS[name]
    torch.manual_seed(0)
    model = build(False)
    count = batch * steps // EPOCHS
    x = torch.randn(count, *((32, 128) if name == "tf" else shape))
    private = make_private(
        model,
        torch.optim.SGD(model.parameters(), 1e-3),
        DataLoader(TensorDataset(x, torch.randint(0, 10, (count,))), batch),
        epsilon=8.0,
        delta=1e-5,
        epochs=EPOCHS,
        noise="independent",
        batches="fixed",
    )
    start = time.process_time()
    for _ in range(EPOCHS):
        for rows, target in private.loader:
            private.step(loss, rows, targets=target)
    return time.process_time() - start


def without(name: str, steps: int) -> float:
    with (
        patch.object(Watch, "look", lambda self, *given: None),
        patch.object(PrivateTraining, "_probe", lambda self, *given: None),
    ):
        return seconds(name, steps)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", nargs="*", default=["cnn28", "tf"], choices=list(MODELS))
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    for name in chosen.models:
        pairs = [
            (seconds(name, chosen.steps), without(name, chosen.steps)) for _ in range(chosen.rounds)
        ]
        ratios = [one / other for one, other in pairs]
        print(f"{name:6s} {chosen.steps} steps: {statistics.median(ratios) - 1:.1%} more", ratios)


if __name__ == "__main__":
    main()
