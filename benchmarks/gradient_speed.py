"""How fast the clipped full-batch gradient reads its data, beside X @ w and beside Opacus."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np

from benchmarks.made_data import logistic_data
from benchmarks.measure import Figure, Seconds, by_turns, console, report
from privopt.losses import Logistic
from privopt.noise import SeededSource
from privopt.oracle import ClippedGradient, Oracle, RowBounds
from privopt.oracle.dense import DenseRows

N, P, CLIP = 1_000_000, 50, 1.0
REPEATS = 21
LEAST_SHARE = {"float64": 0.75, "float32": 0.65}
BATCHES = (512, 1024, 2048, 4096, 8192)
OPACUS_EXAMPLES = 1 << 18  # examples per timed call: enough to average over, whatever the batch


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
    took = by_turns(
        {
            "read": lambda: X @ w,
            "oracle": lambda: view.ask(query, theta),
            "rows": lambda: query.total(rows, theta),
        },
        REPEATS,
    )
    gigabytes = X.nbytes / 1e9
    least = LEAST_SHARE[name]
    return [
        Figure(f"{name}: X @ w, wall", gigabytes / took["read"].wall, unit="GB/s"),
        Figure(f"{name}: X @ w, CPU", took["read"].cpu * 1e3, unit="ms"),
        Figure(f"{name}: gradient, wall", gigabytes / took["oracle"].wall, unit="GB/s"),
        Figure(f"{name}: gradient, CPU", took["oracle"].cpu * 1e3, unit="ms"),
        Figure(f"{name}: share of bandwidth, CPU", share(took, "oracle", "cpu"), least, ">="),
        Figure(f"{name}: share of bandwidth, wall", share(took, "oracle", "wall"), least, ">="),
        Figure(f"{name}: share of bandwidth, rows alone, CPU", share(took, "rows", "cpu")),
    ]


def share(took: dict[str, Seconds], name: str, clock: str) -> float:
    return getattr(took["read"], clock) / getattr(took[name], clock)


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
    """Examples per second beside Opacus's hooks, at the batch size that suits Opacus best."""
    try:
        import opacus
        import torch
    except ImportError:
        console.print("Opacus is not installed: install privopt[bench] to compare with it.")
        return []
    torch.set_num_threads(2)
    view = Oracle.over(
        X, y, neighbouring="zero_out", bounds=RowBounds(1.0), source=SeededSource(0)
    ).everything()
    query = ClippedGradient(Logistic(), CLIP)
    calls: dict[str, Callable[[], object]] = {"privopt": lambda: view.ask(query, theta)}
    for batch in BATCHES:
        calls[f"Opacus, {batch}"] = opacus_gradients(X, y, batch)
    took = by_turns(calls, 7)
    speed = {
        (name, clock): (N if name == "privopt" else OPACUS_EXAMPLES) / getattr(seconds, clock)
        for name, seconds in took.items()
        for clock in ("wall", "cpu")
    }
    peers = [name for name in took if name != "privopt"]
    figures = [
        Figure(f"{name}: examples per CPU second", speed[name, "cpu"])
        for name in ("privopt", *peers)
    ]
    for clock in ("cpu", "wall"):
        best = max(peers, key=lambda name: speed[name, clock])
        ratio = speed["privopt", clock] / speed[best, clock]
        label = f"float32: times Opacus {opacus.__version__} ({best.split(', ')[1]}), {clock.upper() if clock == 'cpu' else clock}"
        figures.append(Figure(label, ratio, 20, ">="))
    return figures


def opacus_gradients(X: np.ndarray, y: np.ndarray, batch: int) -> Callable[[], object]:
    """A pass over batches sliced beforehand: per-example gradients, clip, sum. No noise, no step.

    Leaving noise and step out favours Opacus: they are no part of a clipped gradient.
    """
    import torch
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    warnings.filterwarnings("ignore", message="Using a non-full backward hook")
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
        for rows, marks in batches:
            optimizer.zero_grad(set_to_none=True)
            loss(model(rows), marks).backward()
            optimizer.clip_and_accumulate()

    return run


if __name__ == "__main__":
    main()
