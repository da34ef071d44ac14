"""Mean excess risk on made-up logistic data beside reference values, each known from 20 seeds.

``python -m benchmarks.excess_risk --quick`` takes one data set per cell and the smaller n.

The setting: rows uniform on the unit sphere, ||theta_true|| = 3, a ball of radius 5, delta = 1e-6
(``objP``: 0), add_remove with the number of rows declared. A reference value is the mean of 20
seeds on one data set; at p = 2 such a mean has a standard error of 22 % (Gaussian noise) to 34 %
(norm-Gamma), so part of a difference may be the reference's own. ``chance`` says how often the mean
of 20 of our own runs on one data set lies as far from our mean as the reference does, or farther.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np
from rich import box
from rich.table import Table
from scipy.optimize import brentq

from benchmarks.made_data import logistic_data
from benchmarks.measure import Figure, console, report
from privopt import Budget, Problem, solve
from privopt.geometry import L2Ball
from privopt.losses import Logistic
from privopt.solvers import Result

RADIUS, DELTA, SEEDS, NEAR = 5.0, 1e-6, 20, 0.3
DATA_SETS = {2: 20, 10: 8, 50: 3}
"""Data sets per cell: the fewer parameters, the more one run differs from the next."""

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "objP": ("objective_perturbation", {"noise": "pure"}),
    "objG": ("objective_perturbation", {"noise": "gaussian"}),
    "gd_suffix": ("noisy_gd", {"average": "suffix", "most_steps": 250}),
}
REFERENCE = {  # p, n, epsilon: trivial model, objP, objG, gd_suffix, steps of gd_suffix
    (2, 1_000, 0.1): (3.2e-01, 1.3e-02, 2.6e-02, 2.9e-02, 18),
    (2, 1_000, 1.0): (3.2e-01, 2.1e-04, 7.6e-04, 7.3e-04, 148),
    (2, 1_000, 4.0): (3.2e-01, 1.2e-05, 6.1e-05, 5.6e-05, 250),
    (2, 10_000, 0.1): (3.0e-01, 2.0e-04, 5.3e-04, 4.9e-04, 173),
    (2, 10_000, 1.0): (3.0e-01, 2.0e-06, 7.4e-06, 5.9e-06, 250),
    (2, 10_000, 4.0): (3.0e-01, 1.0e-07, 5.4e-07, 4.6e-07, 250),
    (10, 1_000, 0.1): (1.0e-01, 8.1e-02, 8.8e-02, 1.1e-01, 8),
    (10, 1_000, 1.0): (1.0e-01, 3.4e-03, 4.8e-03, 6.3e-03, 67),
    (10, 1_000, 4.0): (1.0e-01, 2.6e-04, 4.7e-04, 7.3e-04, 235),
    (10, 10_000, 0.1): (9.1e-02, 3.2e-03, 3.6e-03, 4.6e-03, 77),
    (10, 10_000, 1.0): (9.1e-02, 4.2e-05, 6.2e-05, 8.6e-05, 250),
    (10, 10_000, 4.0): (9.1e-02, 2.6e-06, 4.9e-06, 6.8e-06, 250),
    (50, 1_000, 0.1): (6.1e-02, 1.1e-01, 9.3e-02, 8.1e-02, 4),
    (50, 1_000, 1.0): (6.1e-02, 5.9e-02, 3.6e-02, 3.5e-02, 30),
    (50, 1_000, 4.0): (6.1e-02, 1.7e-02, 8.8e-03, 8.6e-03, 105),
    (50, 10_000, 0.1): (2.4e-02, 4.3e-02, 2.2e-02, 1.9e-02, 35),
    (50, 10_000, 1.0): (2.4e-02, 3.0e-03, 1.1e-03, 1.2e-03, 250),
    (50, 10_000, 4.0): (2.4e-02, 2.6e-04, 1.0e-04, 1.3e-04, 250),
}
Cell = tuple[int, int, float]


@dataclass(frozen=True)
class Task:
    """All seeds of all methods and epsilons on one data set: what one process does at a time."""

    p: int
    n: int
    data_seed: int


@dataclass(frozen=True)
class Found:
    """Excess of the trivial model, of every run, and the steps of gradient descent."""

    zero: float
    runs: dict[tuple[float, str], np.ndarray]
    steps: dict[float, int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, usage="%(prog)s [--quick]")
    parser.add_argument(
        "--quick", action="store_true", help="one data set per cell, smaller n only"
    )
    quick = parser.parse_args().quick
    cells = [cell for cell in REFERENCE if not quick or cell[1] == 1_000]
    tasks = [
        Task(p, n, seed)
        for p, n in dict.fromkeys((p, n) for p, n, _ in cells)
        for seed in range(1 if quick else DATA_SETS[p])
    ]
    tasks.sort(key=lambda task: -task.n * task.p)  # the longest first, so that no core waits
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # for the processes to come, one per core
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
        found = list(zip(tasks, pool.map(run_all, tasks), strict=True))
    excess: dict[tuple[Cell, str], np.ndarray] = {}  # one row per data set, one column per seed
    zero: dict[Cell, float] = {}
    steps: dict[Cell, int] = {}
    for cell in cells:
        p, n, epsilon = cell
        mine = [result for task, result in found if (task.p, task.n) == (p, n)]
        zero[cell] = float(np.mean([result.zero for result in mine]))
        steps[cell] = mine[0].steps[epsilon]
        for method in METHODS:
            excess[cell, method] = np.stack([result.runs[epsilon, method] for result in mine])
    console.print(comparison(cells, zero, excess, steps))
    console.print(outside(cells, excess))
    counts = ", ".join(f"{1 if quick else DATA_SETS[p]} at p={p}" for p in DATA_SETS)
    report(
        "excess_risk_quick" if quick else "excess_risk",
        f"Excess risk beside the reference, {SEEDS} seeds on each of several data sets ({counts})",
        summary(cells, excess),
    )


# ---------------------------------------------------------------- the runs
def run_all(task: Task) -> Found:
    """Every method at every epsilon on one data set."""
    X, y, _ = logistic_data(task.n, task.p, seed=10_000 * task.p + task.data_seed, sphere=True)
    least = mean_loss(X, y, minimum_in_ball(X, y)[None])[0]
    runs: dict[tuple[float, str], np.ndarray] = {}
    steps: dict[float, int] = {}
    epsilons = [epsilon for p, n, epsilon in REFERENCE if (p, n) == (task.p, task.n)]
    for epsilon in epsilons:
        for method in METHODS:
            results = [
                run_once(method, X, y, epsilon, seed) for seed in seeds_of(task, epsilon, method)
            ]
            thetas = np.stack([result.theta for result in results])
            runs[epsilon, method] = mean_loss(X, y, thetas) - least
            if method == "gd_suffix":
                steps[epsilon] = results[0].plan.settings.public()["n_iter"]
    return Found(np.log(2.0) - least, runs, steps)


def run_once(method: str, X: np.ndarray, y: np.ndarray, epsilon: float, seed: int) -> Result:
    """One private fit by the library's own choice of parameters, in the reference's setting."""
    solver, choices = METHODS[method]
    return solve(
        Problem(Logistic(), domain=L2Ball(RADIUS), data_norm=1.0),
        X,
        y,
        budget=Budget(epsilon, 0.0 if method == "objP" else DELTA, "add_remove"),
        solver=solver,
        n_public=len(X),
        random_state=seed,
        **choices,
    )


def seeds_of(task: Task, epsilon: float, method: str) -> Iterator[int]:
    """Different in every run: cells that shared their noise would err together."""
    key = (task.p, task.n, task.data_seed, int(10 * epsilon), list(METHODS).index(method))
    return (int(seed) for seed in np.random.SeedSequence(key).generate_state(SEEDS, np.uint64))


def mean_loss(X: np.ndarray, y: np.ndarray, thetas: np.ndarray) -> np.ndarray:
    """Mean logistic loss of each row of ``thetas``."""
    return np.logaddexp(0.0, -y[:, None] * (X @ thetas.T)).mean(axis=0)


def minimum_in_ball(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Non-private minimiser over the ball: with the ridge that brings its norm to the radius."""
    free = newton(X, y, 0.0)
    if np.linalg.norm(free) <= RADIUS:
        return free

    def surplus(log_ridge: float) -> float:
        return float(np.linalg.norm(newton(X, y, np.exp(log_ridge)))) - RADIUS

    # A root within 1e-9 moves the norm by less, and the loss by less than 1e-9 times its slope.
    root: Any = brentq(surplus, np.log(1e-9), 0.0, xtol=1e-9)
    return newton(X, y, float(np.exp(root)))


def newton(X: np.ndarray, y: np.ndarray, ridge: float) -> np.ndarray:
    """Minimiser of the mean logistic loss + ridge/2 ||theta||^2, by damped Newton steps."""
    n, p = X.shape
    theta = np.zeros(p)

    def gradient_at(point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        t = np.tanh(0.5 * (X @ point))
        return X.T @ (0.5 * (t - y)) / n + ridge * point, t

    gradient, t = gradient_at(theta)
    for _ in range(100):
        size = float(np.linalg.norm(gradient))
        if size < 1e-12:
            break
        hessian = (X.T * (0.25 * (1 - t * t) / n)) @ X + ridge * np.eye(p)
        step, length = np.linalg.solve(hessian, gradient), 1.0
        while length > 1e-6:
            moved = theta - length * step
            new, new_t = gradient_at(moved)
            if np.linalg.norm(new) < size:
                break
            length /= 2
        else:
            break  # rounding error
        theta, gradient, t = moved, new, new_t
    assert np.linalg.norm(gradient) < 1e-10, "the non-private minimum was not found"
    return theta


# ---------------------------------------------------------------- the tables
def reference(cell: Cell, method: str) -> float:
    return REFERENCE[cell][1 + list(METHODS).index(method)]


def ratio_of(cell: Cell, method: str, runs: np.ndarray) -> float:
    return float(runs.mean()) / reference(cell, method)


def near(ratio: float) -> bool:
    return abs(ratio - 1) <= NEAR


def short(n: int) -> str:
    return f"1e{round(np.log10(n))}"


def comparison(
    cells: list[Cell],
    zero: dict[Cell, float],
    excess: dict[tuple[Cell, str], np.ndarray],
    steps: dict[Cell, int],
) -> Table:
    """Reference, measured mean and their ratio, side by side."""
    table = Table(
        title="Mean excess risk, trivial model and each method: reference, ours, ratio; steps T",
        title_justify="left",
        box=box.SIMPLE,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    heads = ["p", "n", "eps", "zero", "ours"]
    for method in METHODS:
        heads += [method, "ours", "ratio"]
    for head in [*heads, "T", "ours"]:
        table.add_column(head, justify="right", no_wrap=True)
    for cell in cells:
        p, n, epsilon = cell
        known = REFERENCE[cell]
        row = [str(p), short(n), f"{epsilon:g}", f"{known[0]:.1e}", f"{zero[cell]:.1e}"]
        for method in METHODS:
            runs = excess[cell, method]
            ratio = ratio_of(cell, method, runs)
            colour = "green" if near(ratio) else "red"
            row += [f"{reference(cell, method):.1e}", f"{runs.mean():.1e}"]
            row.append(f"[{colour}]{ratio:.2f}[/]")
        table.add_row(*row, str(known[4]), str(steps[cell]))
    return table


def outside(cells: list[Cell], excess: dict[tuple[Cell, str], np.ndarray]) -> Table:
    """The cells that are not near the reference, and how far its own 20 seeds explain them."""
    table = Table(title=f"Outside {NEAR:.0%}", title_justify="left", box=box.SIMPLE)
    for head in ("method", "p", "n", "eps", "ratio", "error", "error of 20 seeds", "chance"):
        table.add_column(head, justify="right", no_wrap=True)
    for method in METHODS:
        for cell in cells:
            runs = excess[cell, method]
            ratio = ratio_of(cell, method, runs)
            if not near(ratio):
                spread = float(runs.std(ddof=1) / runs.mean())
                chance = chance_of(cell, method, runs)
                table.add_row(
                    method,
                    str(cell[0]),
                    short(cell[1]),
                    f"{cell[2]:g}",
                    f"{ratio:.2f}",
                    f"{spread / np.sqrt(runs.size):.0%}",
                    f"{spread / np.sqrt(SEEDS):.0%}",
                    f"{chance:.1%}" if chance >= 1e-3 else "< 0.1%",
                )
    return table


def chance_of(cell: Cell, method: str, runs: np.ndarray) -> float:
    """Two-sided: how often 20 runs on one data set are as far out as the reference, or farther."""
    rng = np.random.default_rng(0)
    draws = 20_000
    which = rng.integers(len(runs), size=(draws, 1))
    means = runs[which, rng.integers(runs.shape[1], size=(draws, SEEDS))].mean(axis=1)
    known = reference(cell, method)
    return min(1.0, 2 * min(float(np.mean(means <= known)), float(np.mean(means >= known))))


def summary(cells: list[Cell], excess: dict[tuple[Cell, str], np.ndarray]) -> list[Figure]:
    figures: list[Figure] = []
    for method in METHODS:
        ratios = {cell: ratio_of(cell, method, excess[cell, method]) for cell in cells}
        far = [cell for cell in cells if not near(ratios[cell])]
        beyond = [cell for cell in far if chance_of(cell, method, excess[cell, method]) < 0.01]
        worse = [cell for cell in far if ratios[cell] > 1]
        figures += [
            Figure(f"{method}: cells within {NEAR:.0%}", len(cells) - len(far), len(cells), ">="),
            Figure(f"{method}: of the others, worse than the reference", len(worse)),
            Figure(f"{method}: of the others, chance below 1 %", len(beyond), 0),
            Figure(f"{method}: mean of log ratio", float(np.mean(np.log(list(ratios.values()))))),
        ]
    return figures


if __name__ == "__main__":
    main()
