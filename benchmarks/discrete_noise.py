"""What exact integers cost: noise for each coordinate, a gradient, and whole fits; and whether the
time of a draw tells how large it was."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from scipy import stats

from benchmarks.measure import Figure, by_turns, report
from privopt import Budget, LogisticRegression, Problem
from privopt.facts import Facts
from privopt.geometry import L2Ball
from privopt.losses import Logistic
from privopt.noise import SecureSource, discrete_gaussian, discrete_laplace, gaussian
from privopt.oracle import ClippedGradient, Oracle, RowBounds
from privopt.solvers import Plan, catalogue, execute

N, P, STEPS, COORDINATES, REPEATS = 100_000, 100, 20, 1_000_000, 5
DRAWS = 300_000
"""Single draws that are timed: without any relation, ranks correlate by .002 or so."""


def main() -> None:
    source = SecureSource()
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, P))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.where(X[:, 0] + 0.1 * rng.standard_normal(N) > 0, 1.0, -1.0)
    problem, budget = Problem(Logistic(), L2Ball(3.0)), Budget(1.0, 1e-6)
    facts, solver = Facts(problem, N, P, "zero_out"), catalogue()["noisy_gd"]

    def oracle() -> Oracle:
        return Oracle.over(X, y, neighbouring="zero_out", bounds=RowBounds(1.0), source=source)

    def fit(discrete_noise: bool) -> None:
        settings = solver.settings(facts, budget, n_iter=STEPS, discrete_noise=discrete_noise)
        execute(Plan(solver, facts, budget, settings), [oracle()], source)

    def default(discrete_noise: bool | str, delta: float = 1e-6) -> None:
        LogisticRegression(1.0, delta, bounds=(-1, 1), discrete_noise=discrete_noise).fit(X, y)

    view, query, theta = oracle().everything(), ClippedGradient(Logistic(), 1.0), np.ones(P) / P
    took = by_turns(
        {
            "gaussian": lambda: gaussian(source, 1.0, COORDINATES),
            "discrete gaussian": lambda: discrete_gaussian(source, COORDINATES),
            "discrete laplace": lambda: discrete_laplace(source, COORDINATES),
            "small": lambda: [discrete_gaussian(source, P) for _ in range(100)],
            "gradient": lambda: view.ask(query, theta),
            "counted gradient": lambda: view.ask(query, theta, steps=2.0**32),
            "fit": lambda: fit(False),
            "hardened fit": lambda: fit(True),
            "default": lambda: default(False),
            "hardened default": lambda: default("auto"),
            "pure default": lambda: default(False, 0.0),
            "hardened pure default": lambda: default("auto", 0.0),
            "draws of a default": lambda: [discrete_gaussian(source, 8 * P) for _ in range(100)],
        },
        REPEATS,
    )
    cost = {name: seconds.cpu for name, seconds in took.items()}
    each = {name: cost[name] / COORDINATES * 1e9 for name in cost}
    share = STEPS * cost["small"] / 100 / cost["hardened fit"]
    # A default fit draws 64 + 1 + 2 P + 2 P coordinates and as many again without delta.
    own = cost["draws of a default"] / 100 / cost["hardened default"]
    report(
        "discrete_noise",
        f"Exact integers, n={N}, p={P}, {STEPS} steps of noisy_gd, CPU time",
        [
            Figure("Gaussian, floating point, per coordinate", each["gaussian"], unit="ns"),
            Figure("discrete Gaussian, per coordinate", each["discrete gaussian"], 60, unit="ns"),
            Figure("discrete Laplace, per coordinate", each["discrete laplace"], unit="ns"),
            Figure("share of the fit that draws noise", 100 * share, 10, unit="%"),
            Figure("share of LogisticRegression's default fit", 100 * own, 10, unit="%"),
            Figure("gradient", 1e3 * cost["gradient"], unit="ms"),
            Figure("gradient in integers", 1e3 * cost["counted gradient"], unit="ms"),
            Figure("hardened fit, times a plain one", cost["hardened fit"] / cost["fit"]),
            Figure(
                "hardened default fit, times a plain one",
                cost["hardened default"] / cost["default"],
            ),
            Figure("the same without delta", cost["hardened pure default"] / cost["pure default"]),
            Figure("rank correlation of time and |Gaussian draw|", told(discrete_gaussian), 0.01),
            Figure("rank correlation of time and |Laplace draw|", told(discrete_laplace), 0.01),
        ],
    )


def told(draw: Callable[..., np.ndarray]) -> float:
    """How far the time of a single draw is ordered as its size: ranks, against outliers."""
    source, sizes, times = SecureSource(), np.empty(DRAWS), np.empty(DRAWS)
    draw(source, 1)
    for i in range(DRAWS):
        start = time.perf_counter_ns()
        noise = draw(source, 1)
        times[i], sizes[i] = time.perf_counter_ns() - start, abs(int(noise[0]))
    return abs(float(stats.spearmanr(times, sizes).statistic))


if __name__ == "__main__":
    main()
