"""How fast the clipped full-batch gradient reads its data, beside X @ w and beside Opacus."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.made_data import logistic_data
from benchmarks.measure import CLOCKS, Figure, by_turns, console, number, ratio, report
from privopt.losses import Logistic
from privopt.noise import SeededSource
from privopt.oracle import ClippedGradient, Oracle, RowBounds
from privopt.oracle.dense import DenseRows

N, P, CLIP = 1_000_000, 50, 1.0
REPEATS = 21
LEAST_SHARE = {"float64": 0.75, "float32": 0.65}
BATCHES = (256, 512, 1024, 4096, 16384, 32768)
LEAST_TIMES = 20
THREADS = (2, 1)
OPACUS_EXAMPLES = 1 << 17  # examples per timed call: enough to average over, whatever the batch


def main() -> None:
    figures: list[Figure] = []
    X64, y, theta = logistic_data(N, P)
    for name in ("float64", "float32"):
        figures += bandwidth(name, X64.astype(name, copy=False), y, theta)
    figures += against_opacus(X64.astype("float32"), y, theta)
    report("gradient_speed", f"Clipped logistic gradient, n={N:,}, p={P}", figures)


def bandwidth(name: str, X: np.ndarray, y: np.ndarray, theta: np.ndarray) -> list[Figure]:
    """Share of the read bandwidth of X @ w that the gradient reaches."""
    bounds = RowBounds(1.0)
    query = ClippedGradient(Logistic(), CLIP)
    view = Oracle.over(
        X, y, neighbouring="zero_out", bounds=bounds, source=SeededSource(0)
    ).everything()
    rows = DenseRows.build(X, y, bounds)
    check_gradient(rows, X, y, theta, query)
    w = theta.astype(X.dtype)
    took = by_turns({"read": lambda: X @ w, "ask": lambda: view.ask(query, theta)}, REPEATS)
    read, ask = took["read"], took["ask"]
    figures: list[Figure] = []
    for clock in CLOCKS:
        what = f"{name}: share of the bandwidth of X @ w, {clock}"
        figures.append(ratio(what, read.of(clock), ask.of(clock), LEAST_SHARE[name], ">="))
        what = f"{name}: the same, least times"  # nearer to what an idle machine would show
        figures.append(Figure(f"{what}, {clock}", min(read.of(clock)) / min(ask.of(clock))))
    gigabytes = X.nbytes / 1e9
    return [
        Figure(f"{name}: X @ w, CPU", read.cpu * 1e3, unit="ms"),
        Figure(f"{name}: gradient, CPU", ask.cpu * 1e3, unit="ms"),
        Figure(f"{name}: X @ w, wall", gigabytes / read.wall, unit="GB/s"),
        Figure(f"{name}: gradient, wall", gigabytes / ask.wall, unit="GB/s"),
        *figures,
    ]


def check_gradient(
    rows: DenseRows, X: np.ndarray, y: np.ndarray, theta: np.ndarray, query: ClippedGradient
) -> None:
    """The timed sum is the right one: compare with per-example gradients on a few records."""
    few = 2000
    part = X[:few].astype(float)
    gradients = (0.5 * (np.tanh(0.5 * (part @ theta)) - y[:few]))[:, None] * part
    norms = np.linalg.norm(gradients, axis=1)
    wanted = (gradients * np.minimum(1.0, CLIP / norms)[:, None]).sum(axis=0)
    found = query.total(rows.part(0, few), theta)
    assert np.allclose(found, wanted, rtol=1e-4, atol=1e-3), "the gradient is wrong"


def against_opacus(X: np.ndarray, y: np.ndarray, theta: np.ndarray) -> list[Figure]:
    """Examples per second beside Opacus's hooks, for each of several batch sizes.

    With two threads of torch and with one: on a busy machine one is faster, and then it is the
    fair peer. The larger the batch, the less Opacus's own overhead counts; what is left in the end
    is memory traffic, and the last figure says how far X @ w alone, which only reads, gets ahead.
    """
    try:
        import opacus
    except ImportError:
        console.print("Opacus is not installed: install privopt[bench] to compare with it.")
        return []
    view = Oracle.over(
        X, y, neighbouring="zero_out", bounds=RowBounds(1.0), source=SeededSource(0)
    ).everything()
    query = ClippedGradient(Logistic(), CLIP)
    w = theta.astype(X.dtype)
    calls: dict[Any, Callable[[], object]] = {
        "privopt": lambda: view.ask(query, theta),
        "X @ w": lambda: X @ w,
    }
    peers = list(product(THREADS, BATCHES))
    for threads, batch in peers:
        calls[threads, batch] = opacus_gradients(X, y, batch, threads)
    took = by_turns(calls, 7)
    speed = {
        clock: {
            key: (OPACUS_EXAMPLES if key in peers else N) / statistics.median(took[key].of(clock))
            for key in took
        }
        for clock in CLOCKS
    }
    table = Table(title="Million examples per second, float32", title_justify="left")
    for heading in ("", "batch", *CLOCKS):
        table.add_column(heading, justify="right")
    for key in took:
        names = (f"Opacus {opacus.__version__}, threads: {key[0]}", str(key[1]))
        table.add_row(
            *(names if key in peers else (key, "all")),
            *(number(speed[clock][key] / 1e6) for clock in CLOCKS),
        )
    console.print(table)
    figures: list[Figure] = []
    for clock in CLOCKS:
        for batch in BATCHES:
            best = max(speed[clock][threads, batch] for threads in THREADS)
            what = f"times Opacus, batch {batch}, best threads, {clock}"
            figures.append(Figure(what, speed[clock]["privopt"] / best, LEAST_TIMES, ">="))
        best = max(speed[clock][key] for key in peers)
        what = f"X @ w alone, times Opacus at its best, {clock}"
        figures.append(Figure(what, speed[clock]["X @ w"] / best))
    return figures


def opacus_gradients(
    X: np.ndarray, y: np.ndarray, batch: int, threads: int
) -> Callable[[], object]:
    """A pass over batches sliced beforehand: per-example gradients, clip, sum. No noise, no step.

    Leaving noise and step out favours Opacus: they are no part of a clipped gradient.
    """
    import torch
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    model = GradSampleModule(torch.nn.Linear(P, 1, bias=False))
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.0),
        noise_multiplier=0.0,
        max_grad_norm=CLIP,
        expected_batch_size=batch,
    )
    loss = torch.nn.BCEWithLogitsLoss(reduction="mean")
    data = torch.from_numpy(X[:OPACUS_EXAMPLES])
    labels = torch.from_numpy((y[:OPACUS_EXAMPLES] > 0).astype("float32"))[:, None]
    batches = list(zip(data.split(batch), labels.split(batch), strict=True))

    def run() -> None:
        torch.set_num_threads(threads)
        for rows, marks in batches:
            optimizer.zero_grad(set_to_none=True)
            loss(model(rows), marks).backward()
            optimizer.clip_and_accumulate()

    return run


if __name__ == "__main__":
    main()
