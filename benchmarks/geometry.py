"""Rates of l_p geometry: population excess against n for p from 1 to infinity, slopes and bounds.

Rows are sign vectors and the loss is half the squared residual, so that the population excess of
theta is ||theta - truth||^2 / 2 exactly. ``--plot FILE`` draws the table. Where the number of
phases is called best, it was chosen by the excess itself, which is not private.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.measure import Figure, report
from privopt import Budget, Problem, solve
from privopt.geometry import Domain, L1Ball, LpBall
from privopt.losses import Squared

SEEDS = 5
SIZES = (2000, 8000, 32_000, 128_000)


def data(n: int, p: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = 2.0 * rng.integers(0, 2, size=(n, p), dtype=np.int8) - 1
    truth = np.zeros(p)
    truth[:3] = 0.4, -0.3, 0.1
    return X, X @ truth + rng.uniform(-0.2, 0.2, size=n), truth


def excess(
    solver: str, domain: Domain, n: int, p: int, epsilon: float, seeds: int = SEEDS, **choices: Any
) -> tuple[float, float]:
    """Mean population excess, and CPU seconds of a run, under replace_one at delta 1e-6."""
    problem = Problem(Squared(residual_clip=2.0), domain, column_bounds=1.0, data_norm=math.sqrt(p))
    found, spent = [], 0.0
    for seed in range(seeds):
        X, y, truth = data(n, p, seed)
        budget = Budget(epsilon, 1e-6, "replace_one")
        start = time.process_time()
        theta = solve(
            problem, X, y, budget=budget, solver=solver, random_state=seed, **choices
        ).theta
        spent += time.process_time() - start
        found.append(float(np.sum((theta - truth) ** 2)) / 2)
    return float(np.mean(found)), spent / seeds


def best_phases(solver: str, domain: Domain, n: int, p: int, epsilon: float) -> float:
    return min(excess(solver, domain, n, p, epsilon, phases=t)[0] for t in (2, 3, 4, 5, 6))


def slope(sizes: Iterable[int], found: list[float]) -> float:
    return float(np.polyfit(np.log(list(sizes)), np.log(found), 1)[0])


# ---------------------------------------------------------------- the l1 ball, one pass
def one_pass() -> Iterable[Figure]:
    """p = 50, epsilon 1. Known: means over 20 runs of a prototype on data of the same kind."""
    found, ball = [], L1Ball(1.0)
    for n, known in ((30_000, 0.0121), (100_000, 0.0037), (300_000, 0.0017)):
        found.append(best_phases("tree_sfw", ball, n, 50, 1.0))
        yield Figure(f"tree_sfw, l1, n={n}, best phases", found[-1], 1.3 * known)
        whole, _ = excess("frank_wolfe", ball, n, 50, 1.0, 2)
        yield Figure(f"  frank_wolfe, n={n}, all records at once", whole)
    steep = slope((30_000, 100_000, 300_000), found)
    yield Figure("  slope (known -0.90; theory at most -1/2)", steep, -0.5)
    value, seconds = excess("tree_sfw", ball, 1_000_000, 50, 1.0, 2)
    yield Figure("tree_sfw, l1, n=1000000, default phases", value, 0.003)
    yield Figure("  CPU seconds of a run", seconds, 60.0)
    value, seconds = excess("poly_sfw", ball, 100_000, 50, 4.0, 2)
    yield Figure("poly_sfw, l1, n=100000, epsilon 4", value, 0.057)
    yield Figure("  CPU seconds of a run", seconds, 60.0)


# ---------------------------------------------------------------- the table of rates
RATES: dict[str, tuple[str, Domain, str, str]] = {
    "p=1": ("frank_wolfe", L1Ball(1.0), "(log d)^1/2 n^-1/2 + (log d / n)^2/3", "the same"),
    "p=1.5": ("variance_reduced_sfw", LpBall(1.5, 1.0), "n^-1/2 + d^1/2/n", "the same"),
    "p=2": ("variance_reduced_sfw", LpBall(2.0, 1.0), "n^-1/2 + d^1/2/n", "the same"),
    "p=4": ("noisy_gd", LpBall(4.0, 1.0), "d^1/4 (n^-1/2 + d^1/2/n)", "n^-1/4 or d^1/4 n^-1/2"),
    "p=inf": ("noisy_gd", LpBall(math.inf, 1.0), "d^1/2 n^-1/2 + d/n", "the same"),
}


def table() -> tuple[list[Figure], dict[str, list[float]]]:
    """d = 20, epsilon 4. The loss is curved, so that errors may fall like 1/n^2 where noise
    dominates: the worst case of the bounds is flatter."""
    figures, curves = [], {}
    for name, (solver, domain, upper, lower) in RATES.items():
        curves[name] = [
            best_phases(solver, domain, n, 20, 4.0)
            if solver == "variance_reduced_sfw"
            else excess(solver, domain, n, 20, 4.0, 3)[0]
            for n in SIZES
        ]
        for n, value in zip(SIZES, curves[name], strict=True):
            figures.append(Figure(f"{name}, {solver}, n={n}", value))
        label = f"  slope; upper {upper}, lower {lower}"
        figures.append(Figure(label, slope(SIZES, curves[name]), -0.5))
    return figures, curves


def noises() -> Iterable[Figure]:
    """Generalized Gaussian against Gaussian noise, mirror descent on the l1.5 ball."""
    for noise in ("gaussian", "generalized"):
        value, _ = excess(
            "mirror_descent", LpBall(1.5, 1.0), 8000, 20, 1.0, 3, noise=noise, n_iter=200
        )
        yield Figure(f"mirror_descent, p=1.5, n=8000, {noise} noise", value)


def plot(path: str, curves: dict[str, list[float]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4))
    for name, values in curves.items():
        axes.loglog(SIZES, values, "o-", label=f"{name}, slope {slope(SIZES, values):.2f}")
    axes.set_xlabel("records")
    axes.set_ylabel("population excess")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main(arguments: list[str]) -> None:
    figures, curves = table()
    report("geometry", "Geometry", [*figures, *one_pass(), *noises()])
    if "--plot" in arguments:
        plot(arguments[arguments.index("--plot") + 1], curves)


if __name__ == "__main__":
    main(sys.argv[1:])
