"""Planner regret: the chosen solver's measured error against the best of the whole catalogue.

``python -m benchmarks.planner_regret`` measures what has not been measured (kept in the results
folder, so that a run can be stopped and goes on), ranks by the planner, and writes table and plot.
``--again`` forgets what was kept, ``--only 0:5`` takes some of the problems.

Error: mean excess of the objective over its minimum, over seeds. Every solver that accepts the
problem takes part, references too, if one run takes less than 20 CPU seconds. Errors below a
thousandth of what the trivial model loses count as that much; "strict" ratios have no such floor.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.measure import RESULTS, Figure, console, report
from benchmarks.regret_problems import Case, cases
from privopt import Problem, plan, solve
from privopt.losses import Smoothed
from privopt.privacy import Refused

CELLS = RESULTS / "planner_regret_cells.json"
SLOW = 20.0
"""CPU seconds of one run above which a solver is left out."""
SHARE = 4.0
"""CPU seconds that one solver may use on one problem, beyond three runs."""
MOST_SEEDS = 24
SMALL = 1e-3


@dataclass(frozen=True)
class Cell:
    """Measured excess of every solver on one problem: mean, standard error, CPU seconds a run."""

    excess: dict[str, tuple[float, float, float]]
    left_out: list[str]
    trivial: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, usage="%(prog)s [--again] [--only a:b]")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--only", default=":")
    chosen = parser.parse_args()
    first, _, last = chosen.only.partition(":")
    taken = cases()[int(first or 0) : int(last) if last else None]
    kept = {} if chosen.again else read(CELLS)
    for case in taken:
        if case.name not in kept:
            kept[case.name] = measure(case)
            write(CELLS, kept)
            console.print(f"measured {case.name}")
    summarise(taken, kept)


# ---------------------------------------------------------------- measuring
def measure(case: Case) -> Cell:
    """Run every solver of the catalogue that accepts the problem."""
    X, y = case.data()
    objective = Objective(case.problem, X, y)
    least = objective.least()
    ranking = plan(case.problem, n=X.shape[0], p=X.shape[1], budget=case.budget)
    found: dict[str, list[float]] = {}
    seconds: dict[str, float] = {}
    left_out: list[str] = []
    for ranked in ranking.plans:
        start, values = time.process_time(), []
        for seed in range(MOST_SEEDS):
            used = time.process_time() - start
            if seed >= 3 and used * (seed + 1) / seed > SHARE:
                break
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    theta = solve(
                        case.problem,
                        X,
                        y,
                        budget=case.budget,
                        solver=ranked.name,
                        random_state=seed,
                    ).theta
            except (Refused, ValueError, MemoryError) as refusal:
                left_out.append(f"{ranked.name}: {refusal}")
                break
            values.append(objective(theta))
            if seed == 0 and time.process_time() - start > SLOW:
                left_out.append(f"{ranked.name}: one run takes more than {SLOW:g} s")
                values = []
                break
        if values:
            found[ranked.name] = values
            seconds[ranked.name] = (time.process_time() - start) / len(values)
    least = min(least, *(min(values) for values in found.values()))
    return Cell(
        {
            name: (
                float(np.mean(values)) - least,
                float(np.std(values, ddof=1)) / math.sqrt(len(values)),
                seconds[name],
            )
            for name, values in found.items()
        },
        left_out,
        objective(case.problem.domain.centre(X.shape[1])) - least,
    )


class Objective:
    """Mean loss plus ridge on rows clipped as the problem says."""

    def __init__(self, problem: Problem, X: Any, y: np.ndarray) -> None:
        self.problem, self.X, self.y = problem, X, y

    def __call__(self, theta: np.ndarray) -> float:
        loss = self.problem.loss.value(np.asarray(self.X @ theta), self.y)
        return float(np.mean(loss) + self.problem.l2 / 2 * theta @ theta)

    def least(self) -> float:
        """The minimum, by accelerated projected gradients; kinks are rounded off ever less."""
        loss, domain = self.problem.loss, self.problem.domain
        theta = domain.centre(self.X.shape[1])
        size = _spectral(self.X)
        if loss.smooth:
            return self(self._accelerated(loss, theta, loss.smoothness * size, 4_000))
        for width in 10.0 ** -np.arange(1.0, 4.6, 0.5):
            rounded = Smoothed(loss, width)
            theta = self._accelerated(rounded, theta, rounded.smoothness * size, 1_000)
        return self(theta)

    def _accelerated(self, loss: Any, theta: np.ndarray, smooth: float, steps: int) -> np.ndarray:
        problem, ahead, weight = self.problem, theta, 1.0
        for _ in range(steps):
            slope = loss.slope(np.asarray(self.X @ ahead), self.y) / len(self.y)
            gradient = np.asarray(self.X.T @ slope) + problem.l2 * ahead
            new = problem.domain.project(ahead - gradient / (smooth + problem.l2))
            if (ahead - new) @ (new - theta) > 0:
                weight = 1.0  # restart where momentum points uphill
            heavier = (1 + math.sqrt(1 + 4 * weight**2)) / 2
            ahead = new + (weight - 1) / heavier * (new - theta)
            theta, weight = new, heavier
        return theta


def _spectral(X: Any) -> float:
    """Largest eigenvalue of X'X/n."""
    rng = np.random.default_rng(0)
    v = rng.standard_normal(X.shape[1])
    for _ in range(60):
        v = np.asarray(X.T @ (X @ (v / np.linalg.norm(v)))) / X.shape[0]
    return 1.02 * float(np.linalg.norm(v))


def read(path: Path) -> dict[str, Cell]:
    if not path.exists():
        return {}
    return {name: Cell(**cell) for name, cell in json.loads(path.read_text()).items()}


def write(path: Path, cells: dict[str, Cell]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({name: vars(cell) for name, cell in cells.items()}, indent=1))


# ---------------------------------------------------------------- regret
@dataclass(frozen=True)
class Regret:
    """What was chosen, what was best, and how their errors compare."""

    problem: str
    chosen: str
    best: str
    error: float
    least: float
    ratio: float
    strict: float


def regret(case: Case, cell: Cell) -> Regret:
    shape = case.rows if isinstance(case.rows, tuple) else case.data()[0].shape
    ranking = plan(case.problem, n=shape[0], p=shape[1], budget=case.budget)
    chosen = next(p.name for p in ranking.plans if p.name in cell.excess)
    best = min(cell.excess, key=lambda name: cell.excess[name][0])
    error, least = cell.excess[chosen][0], cell.excess[best][0]
    floor = SMALL * cell.trivial
    ratio = max(error, floor) / max(least, floor)
    return Regret(case.name, chosen, best, error, least, ratio, error / least)


def summarise(taken: list[Case], cells: dict[str, Cell]) -> None:
    found = [regret(case, cells[case.name]) for case in taken]
    table = Table(title="Regret: error of the chosen solver over that of the best")
    for heading in ("problem", "chosen", "error", "best", "error", "ratio", "strict"):
        table.add_column(heading)
    lines = [
        "| problem | chosen | error | best | error | ratio | strict |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in found:
        numbers = (f"{one.error:.2g}", one.best, f"{one.least:.2g}")
        row = (one.problem, one.chosen, *numbers, f"{one.ratio:.2f}", f"{one.strict:.2f}")
        table.add_row(*row)
        lines.append("| " + " | ".join(row) + " |")
    console.print(table)
    (RESULTS / "planner_regret.md").write_text("\n".join(lines) + "\n")
    ratios = np.array([one.ratio for one in found])
    strict = np.array([one.strict for one in found])
    picture(found, RESULTS / "planner_regret.png")
    report(
        "planner_regret",
        f"Regret of the planner on {len(ratios)} problems",
        [
            Figure("share within 1.3 of the best", float(np.mean(ratios <= 1.3)), 0.9, ">="),
            Figure("largest ratio", float(ratios.max()), 3.0),
            Figure("share within 1.3, no floor", float(np.mean(strict <= 1.3))),
            Figure("largest ratio, no floor", float(strict.max())),
        ],
    )


def picture(found: list[Regret], path: Path) -> None:
    """Each problem's ratio, sorted."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    ratios = np.sort([one.ratio for one in found])
    figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    axes.step(np.arange(1, len(ratios) + 1) / len(ratios), ratios, where="pre")
    axes.axhline(1.3, color="0.6", linestyle="--", linewidth=1)
    axes.axhline(3.0, color="0.6", linestyle=":", linewidth=1)
    axes.set(xlabel="share of the problems", ylabel="error / best error", yscale="log")
    axes.set_yticks([1, 1.3, 2, 3], ["1", "1.3", "2", "3"])
    axes.minorticks_off()
    figure.savefig(path, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    main()
