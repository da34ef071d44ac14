"""Stationarity of private points of losses that are not convex: gaps against n, with their slopes.

Frank-Wolfe: the Welsch loss on an l1 ball, a fifth of the labels outliers. Proximal guidance: the
Welsch loss on an l2 ball and the loss of phase retrieval, which has kinks. Gaps are those of a
large sample of the same law. ``--plot FILE`` draws them.

The index of an iterate is uniform; here the runs of one setting take it from equal parts of
its range in turn, which leaves the mean what it is and makes it less noisy.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from benchmarks.geometry import slope
from benchmarks.measure import Figure, report
from privopt import Budget, Problem, solve
from privopt.diagnostics import frank_wolfe_gap, moreau_gap
from privopt.facts import Facts
from privopt.geometry import L1Ball, L2Ball
from privopt.losses import PhaseRetrieval, Welsch
from privopt.solvers import catalogue

Data = tuple[np.ndarray, np.ndarray]
CURVES: dict[str, tuple[tuple[int, ...], list[float]]] = {}
KNOWN = {500: 0.420, 1000: 0.327, 2000: 0.200, 4000: 0.132, 8000: 0.082, 16_000: 0.051}
"""Gaps of a prototype in units of four times the loss, whose gap at the origin was KNOWN_START."""
KNOWN_START = 0.572


def signs(n: int, seed: int) -> Data:
    rng = np.random.default_rng(seed)
    X = rng.choice([-1.0, 1.0], size=(n, 50))
    y = X[:, :3] @ [0.5, -0.3, 0.2] + 0.1 * rng.standard_normal(n)
    far = rng.random(n) < 0.2
    y[far] = rng.choice([-3.0, 3.0], int(far.sum()))
    return X, y


def sphere(n: int, seed: int) -> Data:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = X @ np.full(5, 0.8 / math.sqrt(5)) + 0.1 * rng.standard_normal(n)
    far = rng.random(n) < 0.2
    y[far] = 2 * rng.standard_normal(int(far.sum()))
    return X, y


def intensities(n: int, seed: int) -> Data:
    """Squared margins with noise; the constant column makes the origin no stationary point."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, (X @ [0.5, 0.3, 0.2] + 0.35) ** 2 + 0.02 * rng.standard_normal(n)


def gaps(
    solver: str,
    problem: Problem,
    made: Callable[[int, int], Data],
    n: int,
    gap: Callable[..., Any],
    budget: Budget,
    runs: int,
    **choices: Any,
) -> tuple[float, float, float]:
    """Gap of a random iterate, of the last one, and CPU seconds of a run.

    Of Frank-Wolfe gaps the mean, of distances the root of the mean square: what the bounds are of.
    """
    X, y = made(20_000, 10_000)
    p = problem.dimension(X.shape[1])
    facts = Facts(problem, n, p, budget.neighbouring)
    settings: Any = catalogue()[solver].settings(facts, budget, **choices)
    steps = settings.n_iter if solver == "stationary_frank_wolfe" else settings.rounds
    drawn, last, spent = [], [], 0.0
    for run in range(runs):
        data = made(n, run)
        for found, iterate in ((drawn, int((run + 0.5) / runs * steps)), (last, steps)):
            start = time.process_time()
            theta = solve(
                problem,
                *data,
                budget=budget,
                solver=solver,
                random_state=run,
                iterate=iterate,
                **choices,
            ).theta
            spent += time.process_time() - start
            found.append(float(gap(problem, X, y, theta, non_private=True)))
    power = 1 if gap is frank_wolfe_gap else 2
    typical = float(np.mean(np.power(drawn, power))) ** (1 / power)
    return typical, float(np.mean(last)), spent / (2 * runs)


def frank_wolfe() -> Iterable[Figure]:
    """d = 50, epsilon 1, replace_one. All records: -1/2 in theory; one pass: -1/3."""
    # Twice 1/4 of the width's square of a loss that is one at its limit.
    problem = Problem(Welsch(0.5 * math.sqrt(2)), L1Ball(1.0), column_bounds=1.0)
    budget = Budget(1.0, 1e-6, "replace_one")
    X, y = signs(200_000, 10_000)
    start = float(frank_wolfe_gap(problem, X, y, np.zeros(50), non_private=True))
    yield Figure("Welsch, l1 ball: gap at the origin, times 4", 4 * start, note="known .572")
    found = []
    for n, known in KNOWN.items():
        drawn, last, _ = gaps(
            "stationary_frank_wolfe", problem, signs, n, frank_wolfe_gap, budget, 8
        )
        found.append(drawn / start)
        yield Figure(
            f"  all records, n={n}: gap over that of the origin",
            drawn / start,
            1.3 * known / KNOWN_START,
            note=f"last iterate {last / start:.3g}",
        )
    CURVES["Frank-Wolfe, all records"] = tuple(KNOWN), found
    yield Figure("  slope (theory -1/2, known -0.51)", slope(KNOWN, found), -0.35)
    sizes, found = (8000, 32_000, 128_000), []
    for n in sizes:
        drawn, last, _ = gaps(
            "stationary_frank_wolfe", problem, signs, n, frank_wolfe_gap, budget, 6, one_pass=True
        )
        found.append(drawn / start)
        yield Figure(
            f"  one pass, n={n}: the same", drawn / start, note=f"last iterate {last / start:.3g}"
        )
    CURVES["Frank-Wolfe, one pass"] = sizes, found
    yield Figure("  slope (theory -1/3)", slope(sizes, found), -1 / 3 + 0.15)


def proximal() -> Iterable[Figure]:
    """epsilon 1, zero_out. In theory the distance falls like n^(-1/4) + (sqrt(d)/n)^(1/3)."""
    budget, sizes = Budget(1.0, 1e-6), (2000, 8000, 32_000, 128_000)
    for name, problem, made, runs in (
        ("Welsch, l2 ball", Problem(Welsch(0.7), L2Ball(1.0)), sphere, 16),
        (
            "phase retrieval, l2 ball",
            Problem(PhaseRetrieval(1.0), L2Ball(1.0), intercept=0.5),
            intensities,
            6,
        ),
    ):
        found = []
        for n in sizes:
            drawn, last, seconds = gaps(
                "proximal_guided", problem, made, n, moreau_gap, budget, runs
            )
            found.append(drawn)
            yield Figure(
                f"{name}, n={n}: Moreau gap of a random iterate",
                drawn,
                note=f"last iterate {last:.2g}; {seconds:.2g} s of CPU",
            )
        CURVES[f"proximal, {name}"] = sizes, found
        steep = slope(sizes, found)
        yield Figure("  slope (theory between -1/4 and -1/3)", steep, -0.25 + 0.15)
        yield Figure("  how far it is steeper than -1/3", -1 / 3 - steep, 0.15)


def plot(path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5))
    for name, (sizes, values) in CURVES.items():
        axes.loglog(sizes, values, "o-", label=f"{name}, slope {slope(sizes, values):.2f}")
    axes.set_xlabel("records")
    axes.set_ylabel("gap of a random iterate")
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main(arguments: list[str]) -> None:
    report("nonconvex", "Losses that are not convex", [*frank_wolfe(), *proximal()])
    if "--plot" in arguments:
        plot(arguments[arguments.index("--plot") + 1])


if __name__ == "__main__":
    main(sys.argv[1:])
