"""Accuracy against epsilon on MNIST and Fashion-MNIST, with every kind of noise.

The network of 26 thousand parameters, batches of 1000, clip norm 1, momentum 0.9, delta 1e-5, as in
the comparison of Kairouz et al. (2021). Each run goes through ``make_private``. Correlated noise is
scored at the average of the last fifth of its iterates, independent noise at the last.

The learning rate is chosen beforehand: the best of a grid on the other data set, which plays the
public one. Nothing about the scored data set enters the choice, so there is nothing to pay for.

    PRIVOPT_DATA=... python benchmarks/reproduce.py [--device cuda] [--workers 8] [--seeds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

SETS = ("mnist", "fashion_mnist")
EPSILONS = (1.2, 3.0, 7.0)
DELTA, MOMENTUM, CLIP = 1e-5, 0.9, 1.0
# name: noise, batches, learning rates that are tried, twice as large above epsilon 2
METHODS: dict[str, tuple[str, str, tuple[float, ...]]] = {
    "DP-SGD": ("independent", "poisson", (0.1, 0.2, 0.4)),
    "DP-SGD, not amplified": ("independent", "fixed", (0.025, 0.05, 0.1)),
    "Honaker": ("honaker", "fixed", (0.05, 0.1, 0.2)),
    "BLT": ("blt", "fixed", (0.1, 0.2, 0.4)),
    "banded": ("banded", "fixed", (0.1, 0.2, 0.4)),
    "banded, amplified": ("banded", "poisson", (0.1, 0.2, 0.4)),
}


@dataclass(frozen=True)
class Run:
    """One trained model."""

    data: str
    method: str
    epsilon: float
    rate: float
    seed: int
    last: float
    averaged: float
    seconds: float
    spent: float

    @property
    def scored(self) -> float:
        return self.last if METHODS[self.method][0] == "independent" else self.averaged


@cache
def load(name: str, device: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    with np.load(Path(os.environ["PRIVOPT_DATA"]) / name / f"{name}.npz") as file:
        arrays = [torch.from_numpy(file[k]) for k in ("x_train", "y_train", "x_test", "y_test")]
    x, y, x_test, y_test = (array.to(device) for array in arrays)

    def images(x: Tensor) -> Tensor:
        return (x[:, None].float() / 255 - 0.5) / 0.5  # a public scaling

    return images(x), y.long(), images(x_test), y_test.long()


def train(
    data: str, method: str, epsilon: float, rate: float, seed: int, device: str, sizes: Any
) -> Run:
    from benchmarks.torch_speed import cnn28
    from privopt.torch import make_private

    batch, epochs, records = sizes
    noise, batches, _ = METHODS[method]
    x, y, x_test, y_test = load(data, device)
    torch.manual_seed(seed)
    start = time.perf_counter()
    model = cnn28().to(device)
    order = torch.randperm(len(x))[: records or len(x)].to(device)
    private = make_private(
        model,
        torch.optim.SGD(model.parameters(), rate, MOMENTUM),
        DataLoader(TensorDataset(x[order], y[order]), batch),
        epsilon=epsilon,
        delta=DELTA,
        epochs=epochs,
        clip_norm=CLIP,
        noise=noise,
        batches=batches,
    )

    def loss(output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output, target, reduction="none")

    for _ in range(epochs):
        for xs, ys in private.loader:
            private.step(loss, xs, targets=ys)

    def accuracy(model: torch.nn.Module) -> float:
        with torch.no_grad():
            return 100 * float((model(x_test).argmax(1) == y_test).float().mean())

    scores = accuracy(model), accuracy(private.averaged())
    seconds, spent = time.perf_counter() - start, private.epsilon_spent()
    return Run(data, method, epsilon, rate, seed, *scores, seconds, spent)


def cell(method: str, epsilon: float, seeds: int, device: str, sizes: Any) -> list[Run]:
    """Both data sets: the grid on each, then the other's best rate with fresh seeds."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    grid = METHODS[method][2]
    grid = tuple(rate * (1 if epsilon < 2 else 2) for rate in grid)
    tried = {
        data: [train(data, method, epsilon, rate, 100, device, sizes) for rate in grid]
        for data in SETS
    }
    found: list[Run] = []
    for data, other in zip(SETS, reversed(SETS), strict=True):
        rate = max(tried[other], key=lambda run: run.scored).rate
        found += [train(data, method, epsilon, rate, s, device, sizes) for s in range(seeds)]
    return found


def table(runs: list[Run]) -> Iterator[str]:
    for data in SETS:
        yield f"\n{data:24s}" + "".join(f"{'epsilon ' + str(e):>22s}" for e in EPSILONS)
        for method in METHODS:
            cells = []
            for epsilon in EPSILONS:
                mine = [r for r in runs if (r.data, r.method, r.epsilon) == (data, method, epsilon)]
                if not mine:
                    cells.append(f"{'-':>22s}")
                    continue
                scores = [run.scored for run in mine]
                spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
                text = f"{statistics.mean(scores):.2f} +- {spread:.2f} ({mine[0].rate:g})"
                cells.append(f"{text:>22s}")
            yield f"{method:24s}" + "".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--records", type=int, default=0, help="fewer, for a trial")
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/reproduce.json"))
    chosen = parser.parse_args()
    sizes = chosen.batch, chosen.epochs, chosen.records
    runs: list[Run] = []
    with ProcessPoolExecutor(chosen.workers, get_context("spawn")) as pool:
        waiting = [
            pool.submit(cell, method, epsilon, chosen.seeds, chosen.device, sizes)
            for epsilon in EPSILONS
            for method in chosen.methods
        ]
        for done in as_completed(waiting):
            runs += done.result()
            chosen.out.parent.mkdir(parents=True, exist_ok=True)
            chosen.out.write_text(json.dumps([asdict(run) for run in runs], indent=1))
            print(f"{len(runs)} models", flush=True)
    print("\n".join(table(runs)))
    print("\nmean and standard deviation over seeds; in brackets the learning rate")


if __name__ == "__main__":
    main()
