"""Objective gap against passes over the data, where there are many columns.

One pass reads every record once: a step of greedy descent or of Frank-Wolfe, p steps of random
coordinate descent, n/b batches of b records. The noise of every run is set for its own number of
passes. Epsilon 1, delta 1/n^2, zero_out, for all methods alike.

Greedy descent takes its own data-free settings at each number of passes (the star marks the number
it would take by itself). The others are tuned: at each number of passes the best of a grid of clips
and step sizes is taken by the objective itself, which is not private and favours them.

Real data is read from the folder that PRIVOPT_DATA names; without it only made data is used.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.high_dimensional import RIDGE, Objective, logistic
from benchmarks.measure import RESULTS, Figure, console, report
from benchmarks.real_data import WIDE, folder, load
from privopt import Budget, Problem
from privopt.facts import Facts
from privopt.geometry import L1Ball, WholeSpace
from privopt.losses import Logistic
from privopt.privacy.batches import batch_multiplier
from privopt.privacy.events import Sampling
from privopt.solvers.families.coordinates import step_count

MADE = ("log1", "log2", "5-sparse")
RATE = 0.1
MOST_UPDATES = 1000
Curve = list[tuple[float, float]]
"""Passes and relative gaps."""


class Case:
    """One data set: entries clipped to [-1, 1], labels -1 and 1."""

    def __init__(self, name: str) -> None:
        if name in MADE:
            X, y = logistic(name)
        else:
            found = load(name)
            X, y = found.X, np.where(found.y > 0, 1.0, -1.0)
        if sp.issparse(X):
            X = sp.csr_array(X, copy=True)
            X.data = np.clip(X.data, -1, 1)
        else:
            X = np.clip(np.asarray(X, dtype=float), -1, 1)
        self.name, self.n, self.p = name, *X.shape
        self.objective = Objective(X, y)
        self.budget = Budget(1.0, 1 / self.n**2)
        squares = np.asarray((X.multiply(X) if sp.issparse(X) else X * X).sum(axis=1)).ravel()
        self.sizes = np.sqrt(squares)

    # ------------------------------------------------------------ the methods
    def greedy(self, passes: Iterable[int]) -> Curve:
        return [
            (
                t,
                self.objective.solved("greedy_coordinate", self.budget, WholeSpace(), n_iter=t),
            )
            for t in passes
        ]

    def wolfe(self, passes: Iterable[int]) -> Curve:
        return [
            (
                t,
                min(
                    self.objective.solved(
                        "frank_wolfe", self.budget, L1Ball(r), n_iter=t, slope_clip=0.5
                    )
                    for r in (2.0, 6.0, 20.0)
                ),
            )
            for t in passes
        ]

    def random(self, passes: Iterable[int]) -> Curve:
        """Random coordinates: at most a thousand steps, often less than one pass."""
        steps = sorted({min(MOST_UPDATES, max(1, t * self.p // 16)) for t in passes})
        return [
            (
                t / self.p,
                min(
                    self.objective.solved(
                        "coordinate_descent",
                        self.budget,
                        WholeSpace(),
                        n_iter=t,
                        slope_clip=0.5,
                        step_factor=f,
                    )
                    for f in (1.0, 4.0, 16.0)
                ),
            )
            for t in steps
        ]

    def batches(self, passes: Iterable[int]) -> Curve:
        """Stochastic gradient descent on Poisson batches of a tenth."""
        usual = float(np.median(self.sizes))
        curvature = 0.25 * usual**2
        grid = list(itertools.product((0.1, 0.5), (0.1, 1.0, 10.0)))
        return [
            (
                t,
                min(
                    self.objective.gap(
                        self._descend(t, clip * usual, rate / curvature, seed) for seed in (0, 1)
                    )
                    for clip, rate in grid
                ),
            )
            for t in passes
        ]

    def _descend(self, passes: int, clip: float, step: float, seed: int) -> np.ndarray:
        rng, X, y = np.random.default_rng(seed), self.objective.X, self.objective.y
        steps = round(passes / RATE)
        noise = clip * batch_multiplier(self.budget, Sampling(RATE), steps)
        w = np.zeros(self.p)
        for _ in range(steps):
            chosen = np.flatnonzero(rng.random(self.n) < RATE)
            rows, labels = X[chosen], y[chosen]
            slope = -0.5 * labels * (1 - np.tanh(0.5 * labels * (rows @ w)))
            slope /= np.maximum(1, np.abs(slope) * self.sizes[chosen] / clip)
            total = slope @ rows + noise * rng.standard_normal(self.p)
            w = w - step * (total / (RATE * self.n) + RIDGE * w)
        return w

    def own_passes(self) -> int:
        """The number of steps greedy descent takes by itself."""
        problem = Problem(Logistic(), WholeSpace(), column_bounds=1.0, l2=RIDGE)
        facts = Facts(problem, self.n, self.p, self.budget.neighbouring)
        return step_count(facts, self.budget)


METHODS: dict[str, tuple[Callable[[Case, Any], Curve], tuple[int, ...], str, str]] = {
    "greedy coordinates": (Case.greedy, (1, 2, 4, 8, 16, 32), "tab:red", "o-"),
    "Frank-Wolfe, tuned": (Case.wolfe, (1, 2, 4, 8, 16, 32), "tab:blue", "s--"),
    "random coordinates, tuned": (Case.random, (1, 4, 16), "tab:green", "^--"),
    "batches, tuned": (Case.batches, (1, 4, 16), "tab:orange", "D--"),
}


def measure(names: Iterable[str]) -> tuple[list[Figure], dict[str, Any]]:
    figures: list[Figure] = []
    curves: dict[str, Any] = {}
    for name in names:
        start = time.process_time()
        case = Case(name)
        own = case.own_passes()
        found = {label: method(case, passes) for label, (method, passes, *_) in METHODS.items()}
        ((_, by_itself),) = case.greedy([own])
        others = min(v for label, curve in found.items() if "tuned" in label for _, v in curve)
        title = f"{name} {case.n:,}x{case.p:,}"
        curves[title] = (found, (own, by_itself))
        figures.append(Figure(f"{title}: greedy, {own} steps by itself", by_itself))
        for label, curve in found.items():
            at, best = min(curve, key=lambda point: point[1])
            figures.append(Figure(f"  {label}: best", best, note=f"at {at:.3g} passes"))
        figures.append(
            Figure("  greedy by itself, less than the best other by", others - by_itself)
        )
        console.print(f"{title}: {time.process_time() - start:.0f} s CPU")
    return figures, curves


def draw(curves: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    wide = min(5, len(curves))
    tall = math.ceil(len(curves) / wide)
    figure, panels = plt.subplots(tall, wide, figsize=(3.4 * wide, 3.1 * tall), squeeze=False)
    for panel in panels.ravel()[len(curves) :]:
        panel.axis("off")
    for panel, (title, (found, own)) in zip(panels.ravel(), curves.items(), strict=False):
        for label, (*_, colour, style) in METHODS.items():
            at, gaps = zip(*found[label], strict=True)
            panel.plot(at, gaps, style, color=colour, ms=4, label=label)
        panel.plot(*own, "*", color="tab:red", ms=13, label="greedy by itself")
        panel.axhline(1.0, color="black", lw=0.8, ls=":", label="nothing learnt")
        panel.set(xscale="log", title=title, ylim=(0, 1.6), xlabel="passes over the data")
        panel.title.set_fontsize(9)
        panel.grid(alpha=0.3)
    for row in panels:
        row[0].set_ylabel("relative gap")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=6, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / "passes.png", dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[*MADE, *WIDE])
    names = parser.parse_args().only
    if names is None:
        names = [*MADE, *(WIDE if folder() else ())]
        if not folder():
            console.print("Only made data: set PRIVOPT_DATA to the folder of the real data sets.")
    figures, curves = measure(names)
    draw(curves)
    report("passes", "Relative gap (1: nothing learnt), epsilon 1, delta 1/n^2", figures)
    console.print(f"Plot: {RESULTS / 'passes.png'}")


if __name__ == "__main__":
    main()
