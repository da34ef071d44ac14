"""Rates of l_p geometry: population excess against n for p from 1 to infinity, slopes and bounds.

Rows are sign vectors and the loss is half the squared residual, so that the population excess of
theta is ||theta - truth||^2 / 2 exactly. ``--plot FILE`` draws the table. Where the number of
phases is called best, it was chosen by the excess itself, which is not private.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.measure import Figure, console, report
from privopt import Budget, Problem, solve
from privopt.geometry import Domain, L1Ball, LpBall
from privopt.losses import Squared
from privopt.privacy.profiles import gaussian_mu

SEEDS = 5
SIZES = (2000, 8000, 32_000, 128_000)
START = 0.13
"""Excess of the origin."""


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
    for n, known in ((10_000, 0.0444), (30_000, 0.0121), (100_000, 0.0037), (300_000, 0.0017)):
        found.append(best_phases("tree_sfw", ball, n, 50, 1.0))
        yield Figure(f"tree_sfw, l1, n={n}, best phases", found[-1], 1.3 * known)
        whole, _ = excess("frank_wolfe", ball, n, 50, 1.0, 2)
        yield Figure(f"  frank_wolfe, n={n}, all records at once", whole)
    steep = slope((10_000, 30_000, 100_000, 300_000), found)
    yield Figure("  slope (known -0.90; theory at most -1/2)", steep, -0.9 + 0.15)
    yield Figure("  default over best phases, n=100000", _default_over_best(ball), 1.3)
    value, seconds = excess("tree_sfw", ball, 1_000_000, 50, 1.0, 2)
    yield Figure("tree_sfw, l1, n=1000000, default phases", value, 1.3 * 0.00048)
    yield Figure("  CPU seconds of a run", seconds, 60.0)
    value, seconds = excess("poly_sfw", ball, 100_000, 50, 4.0, 2)
    yield Figure("poly_sfw, l1, n=100000, epsilon 4", value, 0.057)
    yield Figure("  CPU seconds of a run", seconds, 60.0)


def _default_over_best(ball: Domain) -> float:
    default, _ = excess("tree_sfw", ball, 100_000, 50, 1.0)
    return default / best_phases("tree_sfw", ball, 100_000, 50, 1.0)


# ---------------------------------------------------------------- the table of rates
Rate = Callable[[int, int, float], float]


@dataclass(frozen=True)
class Geometry:
    """An l_p ball, the solver measured on it, and the rates of the worst case."""

    solver: str
    domain: Domain
    upper: Rate
    lower: Rate
    choices: dict[str, Any] = field(default_factory=dict)


def _l1(n: int, d: int, mu: float) -> float:
    return math.sqrt(math.log(d) / n) + (math.log(d) / (n * mu)) ** (2 / 3)


def _below_two(p: float) -> tuple[Rate, Rate]:
    def upper(n: int, d: int, mu: float) -> float:
        kappa = min(1 / (p - 1), math.log(d))
        return math.sqrt(kappa / n) + kappa * math.sqrt(d) / (n * mu)

    def lower(n: int, d: int, mu: float) -> float:
        return 1 / math.sqrt(n) + (p - 1) * math.sqrt(d) / (n * mu)

    return upper, lower


def _above_two(p: float) -> tuple[Rate, Rate]:
    def upper(n: int, d: int, mu: float) -> float:
        return d ** (1 / 2 - 1 / p) * (1 / math.sqrt(n) + math.sqrt(d) / (n * mu))

    def lower(n: int, d: int, mu: float) -> float:
        return min(n ** (-1 / p), d ** (1 / 2 - 1 / p) / math.sqrt(n))

    return upper, lower


FAST: dict[str, Any] = {"discrete_noise": False}  # for the time it takes
RATES: dict[str, Geometry] = {
    "p=1": Geometry("frank_wolfe", L1Ball(1.0), _l1, lambda n, d, mu: _l1(n, d, mu)),
    "p=1.5": Geometry("variance_reduced_sfw", LpBall(1.5, 1.0), *_below_two(1.5)),
    "p=1.5, all records": Geometry("mirror_descent", LpBall(1.5, 1.0), *_below_two(1.5)),
    "p=1.5, steps of l2": Geometry("noisy_gd", LpBall(1.5, 1.0), *_below_two(1.5), FAST),
    "p=2": Geometry("variance_reduced_sfw", LpBall(2.0, 1.0), *_below_two(2.0)),
    "p=2, all records": Geometry("noisy_gd", LpBall(2.0, 1.0), *_below_two(2.0), FAST),
    "p=4": Geometry("noisy_gd", LpBall(4.0, 1.0), *_above_two(4.0), FAST),
    "p=inf": Geometry("noisy_gd", LpBall(math.inf, 1.0), *_above_two(math.inf), FAST),
}
DIMENSIONS = {20: SIZES, 200: (2000, 8000, 32_000), 1000: (1000, 4000, 16_000)}
EPSILON = 4.0


def table() -> tuple[list[Figure], dict[tuple[str, int], list[float]]]:
    """Measured excess, its slope in n, and the slopes of the rates over the same n.

    The loss is curved, so that errors may fall like 1/n^2 where noise dominates: the worst case of
    the rates is flatter, and an excess that has not yet left its start flatter still.
    """
    figures, curves = [], {}
    mu = gaussian_mu(EPSILON, 1e-6) / 2  # replace_one
    for d, sizes in DIMENSIONS.items():
        seeds = 2 if d < 1000 else 1
        for name, one in RATES.items():
            found = [
                best_phases(one.solver, one.domain, n, d, EPSILON)
                if one.solver == "variance_reduced_sfw" and d == 20
                else excess(one.solver, one.domain, n, d, EPSILON, seeds, **one.choices)[0]
                for n in sizes
            ]
            curves[name, d] = found
            shown = " ".join(f"{value:.2g}" for value in found) + "; rates: "
            fitted = {
                what: slope(sizes, [rate(n, d, mu) for n in sizes])
                for what, rate in (("upper", one.upper), ("lower", one.lower))
            }
            figures.append(
                Figure(
                    f"{name}, d={d}, {one.solver}, slope",
                    slope(sizes, found),
                    fitted["upper"] + 0.15 if min(found) < START / 2 else None,
                    note=shown + ", ".join(f"{what} {value:.2f}" for what, value in fitted.items()),
                )
            )
            console.print(figures[-1].what, figures[-1].value, figures[-1].note)
    return figures, curves


def noises() -> Iterable[Figure]:
    """Generalized Gaussian against Gaussian noise, mirror descent on the l1.5 ball."""
    for n in (8000, 32_000):
        found = {
            noise: excess(
                "mirror_descent", LpBall(1.5, 1.0), n, 20, 1.0, 4, noise=noise, n_iter=200
            )[0]
            for noise in ("gaussian", "generalized")
        }
        for noise, value in found.items():
            yield Figure(f"mirror_descent, p=1.5, n={n}, {noise} noise", value)
        share = found["gaussian"] / found["generalized"]
        yield Figure("  gaussian over generalized", share, 1.05)


def plot(path: str, curves: dict[tuple[str, int], list[float]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import NullFormatter

    figure, panels = plt.subplots(1, len(DIMENSIONS), figsize=(12, 4), sharey=True)
    for axes, (d, sizes) in zip(panels, DIMENSIONS.items(), strict=True):
        for name in RATES:
            values = curves[name, d]
            axes.loglog(sizes, values, "o-", label=f"{name}: {slope(sizes, values):.2f}")
        axes.axhline(START, color="grey", linestyle=":")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_title(f"d = {d}")
        axes.set_xlabel("records")
        axes.legend(title="slope", fontsize=7)
    panels[0].set_ylabel("population excess")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main(arguments: list[str]) -> None:
    figures, curves = table()
    report("geometry", "Geometry", [*figures, *one_pass(), *noises()])
    if "--plot" in arguments:
        plot(arguments[arguments.index("--plot") + 1], curves)


if __name__ == "__main__":
    main(sys.argv[1:])
