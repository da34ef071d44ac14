"""Accuracy against epsilon on MNIST and Fashion-MNIST, with every kind of noise.

The network of 26 thousand parameters, clip norm 1, momentum 0.9, delta 1e-5, as in the comparison
of Kairouz et al. (2021). Each run goes through ``make_private``. Correlated noise is scored at the
average of the last fifth of its iterates, independent noise at the last.

The learning rate follows from public numbers and one constant: the standard deviation by which the
noise of a whole run moves one weight, rate x plan.error x clip norm / (batch x (1 - momentum)).
That constant is chosen beforehand, once for all kinds of noise and all epsilons: the best of three
on the *other* data set, which plays the public one. Nothing about the scored data set enters the
choice, so there is nothing to pay for.

    PRIVOPT_DATA=... python -m benchmarks.reproduce [--device cuda] [--workers 8] [--batch 250]

Runs that are in the file of results already are not repeated.
"""

from __future__ import annotations

import argparse
import json
import math
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
from torch.utils.data import DataLoader, TensorDataset

SETS = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}
EPSILONS = (1.2, 3.0, 7.0)
DELTA, MOMENTUM, CLIP, EPOCHS = 1e-5, 0.9, 1.0, 20
TUNING, TUNED_BATCH = 100, 1000  # seed and batch of the runs that choose how far noise may move
SHIFTS = (0.04, 0.08, 0.16)
METHODS = {  # noise and batches
    "DP-SGD": ("independent", "poisson"),
    "banded, amplified": ("banded", "poisson"),
    "banded": ("banded", "fixed"),
    "BLT": ("blt", "fixed"),
    "Honaker": ("honaker", "fixed"),
    "DP-SGD, not amplified": ("independent", "fixed"),
}


@dataclass(frozen=True)
class Job:
    """One model to be trained."""

    data: str
    method: str
    epsilon: float
    batch: int
    shift: float
    seed: int


@dataclass(frozen=True)
class Run:
    """One trained model, with its test accuracy in percent."""

    job: Job
    rate: float
    last: float
    averaged: float
    seconds: float
    spent: float

    @property
    def scored(self) -> float:
        return self.last if METHODS[self.job.method][0] == "independent" else self.averaged


def best_shift(runs: Iterable[Run]) -> float:
    """Where the error rate is least, as a mean of logarithms over all methods and epsilons."""
    rates: dict[float, list[float]] = {}
    for run in runs:
        rates.setdefault(run.job.shift, []).append(math.log(100 - run.scored))
    return min(rates, key=lambda shift: statistics.mean(rates[shift]))


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


@cache
def network(device: str) -> torch.nn.Module:
    from benchmarks.torch_speed import cnn28

    return cnn28().to(device)


LAST: dict[tuple[int, str], object] = {}
"""The last run with batches of a kind: what it has compiled is used again while it is alive."""


def train(job: Job, device: str, records: int) -> Run:
    from benchmarks.torch_speed import cnn28
    from privopt.torch import make_private

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    noise, batches = METHODS[job.method]
    x, y, x_test, y_test = load(job.data, device)
    torch.manual_seed(job.seed)
    start = time.perf_counter()
    model = network(device)
    model.load_state_dict(cnn28().state_dict())
    optimizer = torch.optim.SGD(model.parameters(), 1.0, MOMENTUM)
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
        device_noise=True,  # accuracy is the same, and nothing of this is released
    )
    rate = job.shift * (1 - MOMENTUM) * job.batch / (private.plan.error * CLIP)
    optimizer.param_groups[0]["lr"] = rate
    for _ in range(EPOCHS):
        for xs, ys in private.loader:
            private.step(loss, xs, targets=ys)

    def accuracy(model: torch.nn.Module) -> float:
        with torch.no_grad():
            return 100 * float((model(x_test).argmax(1) == y_test).float().mean())

    scores = accuracy(model), accuracy(private.averaged())
    LAST[(job.batch, batches)] = private
    seconds, spent = time.perf_counter() - start, private.epsilon_spent()
    return Run(job, rate, *scores, seconds, spent)


# ---------------------------------------------------------------- results
def read(file: Path) -> dict[Job, Run]:
    if not file.exists():
        return {}
    found = json.loads(file.read_text())
    runs = [Run(**{**entry, "job": Job(**entry["job"])}) for entry in found]
    return {run.job: run for run in runs}


def spread(runs: Iterable[Run], *cell: object) -> tuple[float, float, float] | None:
    """Mean and standard deviation over seeds, for a data set, a method, an epsilon and a batch."""
    mine = [run for run in runs if run.job.seed != TUNING]
    mine = [r for r in mine if (r.job.data, r.job.method, r.job.epsilon, r.job.batch) == cell]
    scores = [run.scored for run in mine]
    if len(scores) < 2:
        return None
    return statistics.mean(scores), statistics.stdev(scores), mine[0].rate


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
                    text = "{:.2f} +- {:.2f} ({:.3f})".format(*found)
                line += f"{text:>26s}"
            yield line


def plot(runs: Iterable[Run], batch: int, file: Path) -> None:
    """Accuracy against epsilon, one panel for each data set."""
    import matplotlib.pyplot as plt

    runs = list(runs)
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    for axis, data in zip(axes, SETS, strict=True):
        for method in METHODS:
            points = []
            for epsilon in EPSILONS:
                found = spread(runs, data, method, epsilon, batch)
                if found is not None:
                    points.append((epsilon, *found[:2]))
            if points:
                axis.errorbar(*zip(*points, strict=True), marker="o", capsize=3, label=method)
        axis.set(xscale="log", xlabel="epsilon", ylabel="test accuracy, %", title=SETS[data])
        axis.set_xticks(EPSILONS, [f"{e:g}" for e in EPSILONS])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
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
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/reproduce.json"))
    chosen = parser.parse_args()
    runs = read(chosen.out)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    cells = [(m, e) for e in chosen.epsilons for m in chosen.methods]
    tuning = {
        data: [Job(data, *cell, TUNED_BATCH, s, TUNING) for cell in cells for s in SHIFTS]
        for data in SETS
    }
    with ProcessPoolExecutor(chosen.workers, get_context("spawn")) as pool:

        def finish(jobs: Iterable[Job]) -> None:
            missing = [job for job in jobs if job not in runs]
            waiting = [pool.submit(train, job, chosen.device, chosen.records) for job in missing]
            for number, done in enumerate(as_completed(waiting), 1):
                runs[done.result().job] = done.result()
                if number % 10 == 0 or number == len(missing):
                    chosen.out.write_text(json.dumps([asdict(r) for r in runs.values()], indent=1))
                    print(f"{number} of {len(missing)} models", flush=True)

        finish(job for jobs in tuning.values() for job in jobs)
        scored = []
        for data, other in zip(SETS, reversed(SETS), strict=True):
            shift = best_shift([runs[job] for job in tuning[other]])
            print(f"{data}: noise may move a weight by {shift}, the best on {other}")
            scored += [
                Job(data, *cell, chosen.batch, shift, s)
                for cell in cells
                for s in range(chosen.seeds)
            ]
        finish(scored)
    print("\n".join(table(runs.values(), chosen.batch)))
    print("\nmean and standard deviation over seeds; in brackets the learning rate")
    plot(runs.values(), chosen.batch, chosen.out.with_name(f"reproduce-{chosen.batch}.png"))


if __name__ == "__main__":
    main()
