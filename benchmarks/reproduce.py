"""Accuracy against epsilon on MNIST and Fashion-MNIST, with every kind of noise.

The network of 26 thousand parameters, clip norm 1, momentum 0.9, delta 1e-5, as in the comparison
of Kairouz et al. (2021). Each run goes through ``make_private``. Correlated noise is scored at the
average of the last fifth of its iterates, independent noise at the last.

The learning rate and whether it stays or falls to zero in a straight line are chosen beforehand:
the best on the other data set, which plays the public one. Nothing about the scored data set
enters the choice, so there is nothing to pay for.

    PRIVOPT_DATA=... python -m benchmarks.reproduce [--device cuda] [--workers 8] [--batch 250]

Runs that are in the file of results already are not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset

SETS = ("mnist", "fashion_mnist")
EPSILONS = (1.2, 3.0, 7.0)
DELTA, MOMENTUM, CLIP, EPOCHS = 1e-5, 0.9, 1.0, 20
TUNING = 100  # the seed of runs that choose a learning rate
# name: noise, batches, learning rates for batches of 1000 and epsilon below 2
METHODS: dict[str, tuple[str, str, tuple[float, ...]]] = {
    "DP-SGD": ("independent", "poisson", (0.1, 0.2, 0.4)),
    "banded, amplified": ("banded", "poisson", (0.1, 0.2, 0.4)),
    "banded": ("banded", "fixed", (0.1, 0.2, 0.4)),
    "BLT": ("blt", "fixed", (0.1, 0.2, 0.4)),
    "Honaker": ("honaker", "fixed", (0.05, 0.1, 0.2)),
    "DP-SGD, not amplified": ("independent", "fixed", (0.025, 0.05, 0.1)),
}


@dataclass(frozen=True)
class Job:
    """One model to be trained."""

    data: str
    method: str
    epsilon: float
    batch: int
    rate: float
    falls: bool
    seed: int


@dataclass(frozen=True)
class Run:
    """One trained model, with its test accuracy in percent."""

    job: Job
    last: float
    averaged: float
    seconds: float
    spent: float

    @property
    def scored(self) -> float:
        return self.last if METHODS[self.job.method][0] == "independent" else self.averaged


def candidates(data: str, method: str, epsilon: float, batch: int) -> list[Job]:
    """Learning rates that stay, and twice as large ones that fall: as long a way for both."""
    scale = batch / 1000 * (1 if epsilon < 2 else 2)
    return [
        Job(data, method, epsilon, batch, rate * scale * (2 if falls else 1), falls, TUNING)
        for rate in METHODS[method][2]
        for falls in (False, True)
    ]


def scoring(tuned: Iterable[Run], seeds: int) -> Iterator[Job]:
    """The other data set's choice, with fresh seeds."""
    cells: dict[tuple[str, str, float, int], list[Run]] = {}
    for run in tuned:
        job = run.job
        cells.setdefault((job.data, job.method, job.epsilon, job.batch), []).append(run)
    for (data, *rest), runs in cells.items():
        best = max(runs, key=lambda run: run.scored).job
        (other,) = (name for name in SETS if name != data)
        for seed in range(seeds):
            yield Job(other, *rest, best.rate, best.falls, seed)  # type: ignore[arg-type]


@cache
def load(name: str, device: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    with np.load(Path(os.environ["PRIVOPT_DATA"]) / name / f"{name}.npz") as file:
        arrays = [torch.from_numpy(file[k]) for k in ("x_train", "y_train", "x_test", "y_test")]
    x, y, x_test, y_test = (array.to(device) for array in arrays)

    def images(x: Tensor) -> Tensor:
        return (x[:, None].float() / 255 - 0.5) / 0.5  # a public scaling

    return images(x), y.long(), images(x_test), y_test.long()


def loss(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output, target, reduction="none")


def train(job: Job, device: str, records: int) -> Run:
    from benchmarks.torch_speed import cnn28
    from privopt.torch import make_private

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    noise, batches, _ = METHODS[job.method]
    x, y, x_test, y_test = load(job.data, device)
    torch.manual_seed(job.seed)
    start = time.perf_counter()
    model = cnn28().to(device)
    optimizer = torch.optim.SGD(model.parameters(), job.rate, MOMENTUM)
    few = slice(records or None)
    private = make_private(
        model,
        optimizer,
        DataLoader(TensorDataset(x[few], y[few]), job.batch),
        epsilon=job.epsilon,
        delta=DELTA,
        epochs=EPOCHS,
        clip_norm=CLIP,
        noise=noise,
        batches=batches,
        compile=device == "cuda",
    )
    steps = private.steps
    falling = LambdaLR(optimizer, lambda step: 1 - step / steps if job.falls else 1.0)
    for _ in range(EPOCHS):
        for xs, ys in private.loader:
            private.step(loss, xs, targets=ys)
            falling.step()

    def accuracy(model: torch.nn.Module) -> float:
        with torch.no_grad():
            return 100 * float((model(x_test).argmax(1) == y_test).float().mean())

    scores = accuracy(model), accuracy(private.averaged())
    seconds, spent = time.perf_counter() - start, private.epsilon_spent()
    return Run(job, *scores, seconds, spent)


# ---------------------------------------------------------------- results
def read(file: Path) -> dict[Job, Run]:
    if not file.exists():
        return {}
    found = json.loads(file.read_text())
    runs = [Run(**{**entry, "job": Job(**entry["job"])}) for entry in found]
    return {run.job: run for run in runs}


def spread(runs: Iterable[Run], *cell: object) -> tuple[float, float, Job] | None:
    """Mean and standard deviation over seeds, for a data set, a method, an epsilon and a batch."""
    mine = [run for run in runs if run.job.seed != TUNING]
    mine = [r for r in mine if (r.job.data, r.job.method, r.job.epsilon, r.job.batch) == cell]
    scores = [run.scored for run in mine]
    if len(scores) < 2:
        return None
    return statistics.mean(scores), statistics.stdev(scores), mine[0].job


def table(runs: Iterable[Run], batch: int) -> Iterator[str]:
    runs = list(runs)
    for data in SETS:
        yield f"\n{data:24s}" + "".join(f"{'epsilon ' + str(e):>26s}" for e in EPSILONS)
        for method in METHODS:
            line = f"{method:24s}"
            for epsilon in EPSILONS:
                found = spread(runs, data, method, epsilon, batch)
                text = "-"
                if found is not None:
                    mean, std, job = found
                    text = f"{mean:.2f} +- {std:.2f} ({job.rate:g}{' falls' * job.falls})"
                line += f"{text:>26s}"
            yield line


def plot(runs: Iterable[Run], batch: int, file: Path) -> None:
    """Accuracy against epsilon, one panel for each data set."""
    import matplotlib.pyplot as plt

    runs = list(runs)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for axis, data in zip(axes, SETS, strict=True):
        for method in METHODS:
            points = []
            for epsilon in EPSILONS:
                found = spread(runs, data, method, epsilon, batch)
                if found is not None:
                    points.append((epsilon, *found[:2]))
            if points:
                axis.errorbar(*zip(*points, strict=True), marker="o", capsize=3, label=method)
        axis.set(xscale="log", xlabel="epsilon", ylabel="test accuracy, %", title=data)
        axis.set_xticks(EPSILONS, [f"{e:g}" for e in EPSILONS])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[1].legend()
    figure.suptitle(f"{EPOCHS} epochs, batches of {batch}, delta = {DELTA:g}")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--records", type=int, default=0, help="fewer, for a trial")
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--epsilons", nargs="*", type=float, default=list(EPSILONS))
    parser.add_argument("--tune-only", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/reproduce.json"))
    chosen = parser.parse_args()
    runs = read(chosen.out)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    tuning = [
        job
        for epsilon in chosen.epsilons
        for method in chosen.methods
        for data in SETS
        for job in candidates(data, method, epsilon, chosen.batch)
    ]
    with ProcessPoolExecutor(chosen.workers, get_context("spawn")) as pool:

        def finish(jobs: Iterable[Job]) -> None:
            missing = [job for job in jobs if job not in runs]
            waiting = [pool.submit(train, job, chosen.device, chosen.records) for job in missing]
            for number, done in enumerate(as_completed(waiting), 1):
                runs[done.result().job] = done.result()
                if number % 10 == 0 or number == len(missing):
                    chosen.out.write_text(json.dumps([asdict(r) for r in runs.values()], indent=1))
                    print(f"{number} of {len(missing)} models", flush=True)

        finish(tuning)
        if not chosen.tune_only:
            finish(scoring([runs[job] for job in tuning], chosen.seeds))
    print("\n".join(table(runs.values(), chosen.batch)))
    print("\nmean and standard deviation over seeds; in brackets the learning rate")
    if not chosen.tune_only:
        plot(runs.values(), chosen.batch, chosen.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
