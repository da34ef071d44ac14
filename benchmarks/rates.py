"""Rates: Table I of Bassily, Smith and Thakurta (2014) as code, hard instances, measured slopes.

``python -m benchmarks.rates --quick`` takes fewer cells and seeds. Figures are kept in the results
folder, with a plot. Every solver of the catalogue that does not refuse takes part in the measured
slopes, or those named with ``--only``.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from multiprocessing import get_context
from typing import Any

import numpy as np
from rich.table import Table
from scipy.optimize import minimize

from benchmarks.hard_instances import (
    LINEAR,
    QUADRATIC,
    SCALE,
    best_huberization,
    code_instance,
    fingerprint_instance,
    huberization_formula,
    tracing_advantage,
)
from benchmarks.made_data import logistic_data
from benchmarks.measure import RESULTS, Figure, console, report
from privopt import Budget, Problem, plan, solve
from privopt.facts import Facts
from privopt.geometry import L2Ball
from privopt.losses import Logistic
from privopt.privacy.profiles import gaussian_mu
from privopt.solvers import catalogue

DELTA = 1e-6
RADIUS = 5.0
CURVED = Problem(Logistic(), L2Ball(RADIUS))
SEEDS = {2: 30, 10: 10, 50: 5}
"""Runs per cell: the fewer parameters, the more one run differs from the next."""
HUBERIZED = {1_000: 8.6, 10_000: 26.0, 100_000: 86.0, 1_000_000: 280.0}

SLOPES = {  # n, epsilon, p: reference slopes of the mean excess on the same data
    "objective_perturbation, pure": (-1.95, -1.96, 2.29),
    "objective_perturbation": (-1.95, -1.80, 1.56),
    "output_perturbation, pure": (-0.82, -0.80, 0.59),
    "output_perturbation": (-0.78, -0.71, 0.09),
    "noisy_gd": (-1.65, -1.53, 2.09),
    "noisy_sgd": (-1.32, -1.02, 1.34),
}


# ---------------------------------------------------------------- Table I
def rate(
    n: int,
    p: int,
    epsilon: float,
    delta: float = 0.0,
    *,
    strong: float = 0.0,
    smooth: bool = False,
    bound: str = "upper",
    previous: bool = False,
) -> float:
    """Excess of the sum in units of L times the diameter, without constants.

    ``strong`` is the strong convexity of one record's loss times diameter / L; ``bound`` is
    "upper" or "lower"; ``previous`` the best upper bound known before the paper.
    """
    log = math.log(1 / delta) if delta else 0.0
    if not strong:
        if not delta:
            found = p * math.sqrt(n) if previous and not smooth and bound == "upper" else p
        elif bound == "lower":
            found = math.sqrt(p)
        elif smooth:
            found = math.sqrt(p) * log
        else:
            found = math.sqrt(p * n * log) if previous else math.sqrt(p) * math.log(n / delta) ** 2
        return min(float(n), found / epsilon)
    size = p**2 if not delta else p
    if bound == "lower":
        found = size / n
    elif smooth or previous:
        found = size * (log if delta else 1) / (strong * (n if smooth else math.sqrt(n)))
    else:
        found = size * (math.log(n / delta) ** 3 if delta else math.log(n)) / (strong * n)
    return min(float(n), found / epsilon**2)


def table_one(n: int, p: int, epsilon: float) -> Table:
    """The paper's table at one point, and the best proved bound of this library beside it."""
    table = Table(
        title=f"Excess of the sum / (L D), no constants: n={n:,}, p={p}, epsilon={epsilon:g}",
        title_justify="left",
    )
    for head in ("guarantee", "losses", "before", "the paper", "lower bound"):
        table.add_column(head, justify="right" if head not in ("guarantee", "losses") else "left")
    table.add_column("here, with constants, proved", justify="right")
    for delta, strong, smooth in product((0.0, DELTA), (0.0, 1.0), (False, True)):
        values = [
            rate(n, p, epsilon, delta, strong=strong, smooth=smooth, previous=True),
            rate(n, p, epsilon, delta, strong=strong, smooth=smooth),
            rate(n, p, epsilon, delta, strong=strong, bound="lower"),
        ]
        table.add_row(
            f"delta={delta:g}",
            ("strongly convex" if strong else "Lipschitz") + (", smooth" if smooth else ""),
            *(f"{value:.3g}" for value in values),
            best_here(n, p, epsilon, delta, strong, smooth),
        )
    return table


def best_here(n: int, p: int, epsilon: float, delta: float, strong: float, smooth: bool) -> str:
    from privopt.losses import Hinge, SmoothedHinge

    loss = SmoothedHinge(0.5) if smooth else Hinge()
    problem = Problem(loss, L2Ball(0.5), l2=strong)  # L = 1, diameter 1
    plans = plan(problem, n=n, p=p, budget=Budget(epsilon, delta)).plans
    if not plans:
        return "-"
    best = min(plans, key=lambda one: one.settings.bound)
    return f"{best.settings.bound * n:.3g} ({best.name})"


# ---------------------------------------------------------------- hard instances
def methods(problem: Problem, budget: Budget, n: int, p: int) -> list[str]:
    facts = Facts(problem, n, p, budget.neighbouring)
    return [name for name, s in catalogue().items() if s.refuse(facts, budget) is None]


def mean_excess(problem: Problem, name: str, budget: Budget, draws: list[Any], quadratic: bool):
    """Mean excess over instances, in units of L, and the answers."""
    found, answers = [], []
    for seed, instance in enumerate(draws):
        theta = solve(
            problem, instance.X, instance.y, budget=budget, solver=name, random_state=seed
        ).theta
        found.append(
            instance.quadratic_excess(theta) if quadratic else instance.linear_excess(theta)
        )
        answers.append(theta)
    return float(np.mean(found)), answers


def code_word_table(quick: bool) -> tuple[Table, list[Figure]]:
    table = Table(
        title="Code words, pure, replace_one: mean excess of the sum", title_justify="left"
    )
    for head in ("p", "copies", "n", "lower bound", "trivial", "solver", "excess", "4 p / epsilon"):
        table.add_column(head, justify="right")
    budget, figures = Budget(1.0, 0.0, "replace_one"), []
    for p, copies in (
        [(64, 0), (256, 0), (16, 160)]
        if quick
        else [(64, 0), (256, 0), (512, 0), (16, 160), (64, 640), (256, 2560)]
    ):
        n = 200 if not copies else 2 * copies
        draws = [code_instance(p, 1.0, n, seed, copies) for seed in range(4 if quick else 10)]
        copies = round(float(np.linalg.norm(draws[0].total)))
        for name in methods(LINEAR, budget, n, p):
            excess, _ = mean_excess(LINEAR, name, budget, draws, quadratic=False)
            table.add_row(
                str(p),
                str(copies),
                str(n),
                f"{draws[0].floor:.2f}",
                str(copies),
                name,
                f"{excess:.3g}",
                f"{4 * p:g}",
            )
            if draws[0].floor:
                figures.append(
                    Figure(
                        f"code words p={p}: {name} / lower bound", excess / draws[0].floor, 1, ">="
                    )
                )
    return table, figures


def fingerprint_table(quick: bool) -> tuple[Table, list[Figure]]:
    table = Table(title="Fingerprints, delta = 1e-6: quadratic loss", title_justify="left")
    heads = (
        "p",
        "epsilon",
        "n",
        "solver",
        "excess",
        "lower bound",
        "traced, plain",
        "traced, private",
    )
    for head in heads:
        table.add_column(head, justify="right")
    figures = []
    for p, epsilon in [(256, 0.1)] if quick else [(256, 0.1), (1024, 0.1), (1024, 0.3)]:
        budget = Budget(epsilon, DELTA, "zero_out")
        n = 400
        made = [fingerprint_instance(p, epsilon, n, seed) for seed in range(4 if quick else 10)]
        draws = [instance for instance, _, _ in made]

        def traced(answers: list[np.ndarray], made: list[Any] = made) -> float:
            return float(
                np.mean(
                    [
                        tracing_advantage(answer, one.X[: len(fresh)] / SCALE, fresh, means)
                        for answer, (one, means, fresh) in zip(answers, made, strict=True)
                    ]
                )
            )

        plain = traced([one.total / n for one in draws])
        for name in methods(QUADRATIC, budget, n, p):
            excess, answers = mean_excess(QUADRATIC, name, budget, draws, quadratic=True)
            table.add_row(
                str(p),
                f"{epsilon:g}",
                str(n),
                name,
                f"{excess:.3g}",
                f"{draws[0].floor:.3g}",
                f"{plain:.1f}",
                f"{traced(answers):.1f}",
            )
            label = f"fingerprints p={p} epsilon={epsilon:g}: {name}"
            figures.append(Figure(f"{label} / lower bound", excess / draws[0].floor, 1, ">="))
        figures.append(
            Figure(f"fingerprints p={p}: plain mean is traced, deviations", plain, 3, ">=")
        )
    return table, figures


def huberization_table() -> tuple[Table, list[Figure]]:
    table = Table(title="Huberization of |theta - d|, epsilon = 1", title_justify="left")
    for head in ("n", "best width, worst data", "formula", "reference", "exponential mechanism"):
        table.add_column(head, justify="right")
    figures, found = [], {}
    for n, reference in HUBERIZED.items():
        found[n] = best_huberization(n, 1.0)
        table.add_row(
            f"{n:,}",
            f"{found[n]:.1f}",
            f"{huberization_formula(n, 1.0):.1f}",
            f"{reference:g}",
            "1",
        )
        away = abs(found[n] / reference - 1)
        figures.append(Figure(f"Huberization n={n:,}: away from the reference", away, 0.3))
    slope = float(np.polyfit(np.log(list(found)), np.log(list(found.values())), 1)[0])
    figures.append(Figure("Huberization: slope in n, away from 1/2", abs(slope - 0.5), 0.05))
    return table, figures


# ---------------------------------------------------------------- measured slopes
@dataclass(frozen=True)
class Task:
    """All methods and epsilons on one data set."""

    n: int
    p: int
    epsilons: tuple[float, ...]
    seeds: int
    only: tuple[str, ...] = ()


Cell = tuple[str, int, int, float]


def settings_for(name: str, n: int, p: int, epsilon: float, delta: float) -> dict[str, Any]:
    """The reference's own choices, where there is one; otherwise the solver decides."""
    if name in ("objective_perturbation", "output_perturbation") and delta:
        return {"noise": "gaussian"}
    if name == "noisy_gd" and delta:
        steps = math.ceil(n / 4 * RADIUS * gaussian_mu(epsilon, delta) / math.sqrt(2 * p))
        return {"n_iter": max(1, min(steps, 120 if n >= 100_000 else 250))}
    if name == "noisy_gd":
        return {"most_steps": 120}
    if name == "noisy_sgd":
        size = round(3 * math.sqrt(n))
        return {
            "n_iter": min(round(20 * n / size), 800 if n >= 100_000 else 1500),
            "batch_size": size,
        }
    return {}


def run_task(task: Task) -> tuple[dict[Cell, float], float]:
    """Mean excess risk of every method, and that of theta = 0."""
    n, p = task.n, task.p
    X, y, _ = logistic_data(n, p, seed=p, sphere=True)

    def risk(w: np.ndarray) -> tuple[float, np.ndarray]:
        m = y * (X @ w)
        return float(np.logaddexp(0, -m).mean()), X.T @ (-y * 0.5 * (1 - np.tanh(m / 2))) / n

    options = {"ftol": 1e-16, "gtol": 1e-11, "maxiter": 2000}
    free = minimize(risk, np.zeros(p), jac=True, method="L-BFGS-B", options=options)
    theta = CURVED.domain.project(free.x)
    if np.linalg.norm(free.x) > RADIUS:
        for _ in range(3000):  # projected gradient steps: 4 is one over the smoothness
            theta = CURVED.domain.project(theta - 4.0 * risk(theta)[1])
    best = risk(theta)[0]
    found: dict[Cell, float] = {}
    for epsilon, delta in product(task.epsilons, (0.0, DELTA)):
        budget = Budget(epsilon, delta)
        for name in methods(CURVED, budget, n, p):
            if task.only and name not in task.only:
                continue
            excess = []
            for seed in range(task.seeds):
                result = solve(
                    CURVED,
                    X,
                    y,
                    budget=budget,
                    solver=name,
                    random_state=1000 * seed + round(10 * epsilon),
                    **settings_for(name, n, p, epsilon, delta),
                )
                excess.append(risk(result.theta)[0] - best)
            label = name if delta else f"{name}, pure"
            found[label, n, p, epsilon] = float(np.mean(excess))
    return found, math.log(2) - best


def measured(
    quick: bool, only: tuple[str, ...] = ()
) -> tuple[dict[Cell, float], dict[tuple[int, int], float]]:
    sizes = (1_000, 10_000) if quick else (1_000, 10_000, 100_000)
    tasks = [
        Task(n, p, (0.1, 1.0, 4.0), 4 if quick else SEEDS[p], only)
        for n, p in product(sizes, (2, 10) if quick else (2, 10, 50))
    ]
    tasks.sort(key=lambda task: -task.n * task.p)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # for the processes to come, one per core
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cells: dict[Cell, float] = {}
    zero: dict[tuple[int, int], float] = {}
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
        for task, (found, trivial) in zip(tasks, pool.map(run_task, tasks), strict=True):
            cells.update(found)
            zero[task.n, task.p] = trivial
    return cells, zero


def fitted(
    label: str, cells: dict[Cell, float], zero: dict[tuple[int, int], float]
) -> tuple[np.ndarray, int] | None:
    """Slopes in log n, log epsilon, log p over cells below 30 % of the trivial model's excess."""
    kept = [
        (n, epsilon, p, value)
        for (name, n, p, epsilon), value in cells.items()
        if name == label and 0 < value < 0.3 * zero[n, p]
    ]
    if len(kept) < 6:
        return None
    logs = np.log(np.array(kept))
    design = np.column_stack([logs[:, :3], np.ones(len(kept))])
    if np.linalg.matrix_rank(design) < 4:
        return None
    return np.linalg.lstsq(design, logs[:, 3], rcond=None)[0][:3], len(kept)


def slope_table(
    cells: dict[Cell, float], zero: dict[tuple[int, int], float], quick: bool
) -> tuple[Table, list[Figure]]:
    table = Table(
        title="Slopes of the mean excess risk, logistic loss on the sphere; worst-case theory: "
        "n -1, epsilon -1, p 1 (pure) or 1/2; curved data: -2, -2, 3 or 2",
        title_justify="left",
    )
    for head in ("solver", "n", "epsilon", "p", "reference n", "epsilon", "p", "cells"):
        table.add_column(head, justify="right" if head != "solver" else "left")
    figures = []
    for label in sorted({name for name, *_ in cells}):
        fit = fitted(label, cells, zero)
        if fit is None:
            table.add_row(label, "-", "-", "-", *[""] * 3, "too few")
            continue
        slopes, count = fit
        known = SLOPES.get(label)
        shown = [f"{value:.2f}" for value in known] if known else [""] * 3
        table.add_row(label, *(f"{value:.2f}" for value in slopes), *shown, str(count))
        for axis, value, target in zip(("n", "epsilon", "p"), slopes, known or (), strict=False):
            # Slopes of another set of cells are no test of the reference's.
            limit = None if quick else 0.15
            away = abs(value - target)
            figures.append(Figure(f"{label}: slope in {axis}, away from reference", away, limit))
    return table, figures


def excess_table(cells: dict[Cell, float], zero: dict[tuple[int, int], float]) -> Table:
    labels = sorted({name for name, *_ in cells})
    table = Table(title="Mean excess risk", title_justify="left")
    for head in ("p", "n", "eps", "zero", *(short(label) for label in labels)):
        table.add_column(head, justify="right", no_wrap=True)
    for p, n, epsilon in sorted({(p, n, epsilon) for _, n, p, epsilon in cells}):
        row = (cells.get((label, n, p, epsilon), math.nan) for label in labels)
        table.add_row(
            str(p), f"{n:.0e}", f"{epsilon:g}", f"{zero[n, p]:.1e}", *(f"{v:.1e}" for v in row)
        )
    return table


def short(label: str) -> str:
    """Initials of a solver's name, with P for pure noise."""
    name, _, pure = label.partition(", ")
    return "".join(part[:3] for part in name.split("_")) + ("/P" if pure else "")


def draw(cells: dict[Cell, float], quick: bool) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    p, n = 10, 10_000
    axes_of = {
        "n": (lambda c: c[1], lambda c: c[2] == p and c[3] == 1.0, -1),
        "epsilon": (lambda c: c[3], lambda c: c[1] == n and c[2] == p, -1),
        "p": (lambda c: c[2], lambda c: c[1] == n and c[3] == 1.0, 1),
    }
    labels = sorted({name for name, *_ in cells})
    colours = plt.get_cmap("tab20")(np.linspace(0, 1, 20))
    figure, panels = plt.subplots(1, 3, figsize=(15, 5.5), sharey=True)
    for panel, (axis, (value, wanted, power)) in zip(panels, axes_of.items(), strict=True):
        for colour, label in zip(colours, labels, strict=False):
            points = sorted((value(c), v) for c, v in cells.items() if c[0] == label and wanted(c))
            style = "--" if label.endswith("pure") else "-"
            panel.plot(
                *zip(*points, strict=True), style, marker="o", ms=4, color=colour, label=label
            )
        ends = sorted({value(c) for c in cells if wanted(c)})
        x = np.array([ends[0], ends[-1]], dtype=float)
        middle = np.exp(np.mean(np.log([v for c, v in cells.items() if wanted(c)])))
        for times, dots, text in ((1, ":", "worst-case slope"), (2, "-.", "twice that")):
            y = middle * (x / math.sqrt(x[0] * x[1])) ** (times * power)
            panel.plot(x, y, dots, color="black", lw=1, label=text)
        fixed = {"n": f"p={p}, epsilon=1", "epsilon": f"n={n:,}, p={p}", "p": f"n={n:,}, epsilon=1"}
        panel.set(xscale="log", yscale="log", xlabel=axis, title=fixed[axis])
        panel.set_xticks(ends, [f"{end:,g}" for end in ends])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("mean excess risk")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="lower center", ncol=5, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.1, 1, 1))
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / ("rates_quick.png" if quick else "rates.png"), dpi=110)
    plt.close(figure)


# ---------------------------------------------------------------- all of it
def parts(quick: bool, only: tuple[str, ...]) -> Iterator[tuple[Table, list[Figure]]]:
    yield table_one(10_000, 50, 1.0), []
    yield huberization_table()
    yield code_word_table(quick)
    yield fingerprint_table(quick)
    cells, zero = measured(quick, only)
    draw(cells, quick)
    yield excess_table(cells, zero), []
    yield slope_table(cells, zero, quick)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer cells and seeds")
    parser.add_argument("--only", nargs="+", default=[], metavar="SOLVER", choices=[*catalogue()])
    chosen = parser.parse_args()
    quick = chosen.quick
    figures: list[Figure] = []
    for table, found in parts(quick, tuple(chosen.only)):
        console.print(table)
        figures += found
    report("rates_quick" if quick else "rates", "Rates and lower bounds", figures)


if __name__ == "__main__":
    main()
