"""Planner regret: the chosen solver's measured error against the best of the whole catalogue.

``python -m benchmarks.planner_regret`` takes problems drawn from a seed (``drawn_problems``; the
version's own, or ``--seed NAME``) and then the listed ones (``regret_problems``); ``--drawn`` and
``--listed`` take one half. Measured is what has not been measured (kept in the results folder, so
that a run can be stopped and goes on); ``--again`` forgets, ``--only 0:5`` takes some.

Error: mean excess of the objective over its minimum, over seeds. Every solver that accepts the
problem takes part, references too, if one run takes less than ``SLOW`` CPU seconds. Errors below a
thousandth of what the trivial model loses count as that much; "strict" ratios have no such floor.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.drawn_problems import drawn_cases
from benchmarks.measure import RESULTS, Figure, console, report
from benchmarks.regret_problems import Case, cases
from privopt import plan
from privopt.facts import Facts
from privopt.mechanisms import Gate
from privopt.noise import SeededSource
from privopt.oracle import Oracle
from privopt.planner.objective import Objective
from privopt.privacy import Refused
from privopt.solvers import Plan, catalogue, row_bounds

CELLS = RESULTS / "planner_regret_cells.json"
SLOW = 6.0
"""CPU seconds of one run above which a solver is left out."""
SHARE = 0.5
"""CPU seconds that one solver may use on one problem, beyond three runs."""
MOST_SEEDS = 16
SMALL = 1e-3


@dataclass(frozen=True)
class Cell:
    """Measured excess of every solver on one problem: mean, spread of a run, CPU seconds a run,
    number of runs."""

    excess: dict[str, tuple[float, float, float, int]]
    left_out: list[str]
    trivial: float


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--drawn", action="store_true")
    parser.add_argument("--listed", action="store_true")
    parser.add_argument("--seed", default="")
    parser.add_argument("--only", default=":")
    parser.add_argument("--processes", type=int, default=1)
    chosen = parser.parse_args()
    first, _, last = chosen.only.partition(":")
    part = slice(int(first or 0), int(last) if last else None)
    both = chosen.drawn == chosen.listed
    figures = []
    for name, wanted, take in (
        ("drawn", chosen.drawn, lambda: [*drawn_cases(name=chosen.seed)]),
        ("listed", chosen.listed, cases),
    ):
        if wanted or both:
            figures += judged(name, take()[part], chosen.again, chosen.processes)
    report("planner_regret", "Regret of the planner", figures)


def judged(name: str, taken: Sequence[Case], again: bool, processes: int) -> list[Figure]:
    """Measure what has not been measured, and compare."""
    path = RESULTS / f"planner_regret_{name}_cells.json"
    kept = {} if again else read(path)
    new = [case for case in taken if case.name not in kept]
    with ProcessPoolExecutor(processes) if processes > 1 else nullcontext() as pool:
        for case_name, cell, seconds in (pool.map if pool else map)(_timed, new):
            kept[case_name] = cell
            write(path, kept)
            console.print(f"measured {case_name} ({seconds:.1f} s)")
    return summarise(name, taken, kept)


def _timed(case: Case) -> tuple[str, Cell, float]:
    start = time.process_time()
    cell = measure(case)
    return case.name, cell, time.process_time() - start


# ---------------------------------------------------------------- measuring
def measure(case: Case) -> Cell:
    """Run every solver of the catalogue that accepts the problem."""
    X, y = case.data()
    objective = Objective(case.problem, X, y, 1_500)
    least = objective.least
    problem, budget = case.problem, case.budget
    facts = Facts(problem, X.shape[0], problem.dimension(X.shape[1]), budget.neighbouring)
    found: dict[str, list[float]] = {}
    seconds: dict[str, float] = {}
    left_out: list[str] = []
    for solver in catalogue().values():
        if solver.refuse(facts, budget) is not None:
            continue
        ranked = Plan(solver, facts, budget, solver.settings(facts, budget))
        start, values = time.process_time(), []
        for seed in range(MOST_SEEDS):
            used = time.process_time() - start
            if seed >= 3 and used * (seed + 1) / seed > SHARE:
                break
            try:
                with warnings.catch_warnings(), np.errstate(all="ignore"):
                    warnings.simplefilter("ignore")
                    values.append(objective(_run(ranked, X, y, seed)))
            except (Refused, ValueError, MemoryError) as refusal:
                left_out.append(f"{ranked.name}: {refusal}")
                values = []
                break
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
                float(np.std(values, ddof=1)),
                seconds[name],
                len(values),
            )
            for name, values in found.items()
        },
        left_out,
        objective.trivial - least,
    )


def _run(ranked: Plan, X: Any, y: np.ndarray, seed: int) -> np.ndarray:
    """The plan as it is carried out, with noise from a seed and nothing to certify."""
    source = SeededSource(seed)
    oracle = Oracle.over(
        X,
        y,
        neighbouring=ranked.budget.neighbouring,
        bounds=row_bounds(ranked),
        source=source,
        classification=ranked.facts.problem.loss.classification,
    )
    return ranked.solver.run(oracle, Gate(source), ranked.facts.problem, ranked.settings)


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
    """What was chosen, what was best, and how their errors compare. ``beaten``: by how many spreads
    of a run the trivial model is better than the choice."""

    problem: str
    chosen: str
    best: str
    error: float
    least: float
    ratio: float
    strict: float
    predicted: float | None
    beaten: float
    floor: float

    def off(self, floor: float) -> float:
        """By which factor the prediction misses the error."""
        assert self.predicted is not None
        told, error = max(self.predicted, floor), max(self.error, floor)
        return max(told / error, error / told)


def regret(case: Case, cell: Cell) -> Regret:
    shape = case.rows if isinstance(case.rows, tuple) else case.data()[0].shape
    ranking = plan(case.problem, n=shape[0], p=shape[1], budget=case.budget)
    first = next(one for one in ranking.plans if one.name in cell.excess)
    best = min(cell.excess, key=lambda name: cell.excess[name][0])
    (error, spread, *_), least = cell.excess[first.name], cell.excess[best][0]
    floor = SMALL * cell.trivial
    ratio = max(error, floor) / max(least, floor)
    beaten = (error - cell.trivial) / max(spread, 1e-300)
    strict = max(error, 1e-12) / max(least, 1e-12)
    told = first.predicted
    return Regret(case.name, first.name, best, error, least, ratio, strict, told, beaten, floor)


def summarise(name: str, taken: Sequence[Case], cells: dict[str, Cell]) -> list[Figure]:
    found = [regret(case, cells[case.name]) for case in taken]
    table = Table(title=f"{name}: error of the chosen solver over that of the best")
    headings = ("problem", "chosen", "error", "best", "error", "ratio", "strict", "predicted")
    for heading in headings:
        table.add_column(heading)
    lines = ["| " + " | ".join(headings) + " |", "|---" * len(headings) + "|"]
    for one in found:
        predicted = "-" if one.predicted is None else f"{one.predicted:.2g}"
        numbers = (f"{one.error:.2g}", one.best, f"{one.least:.2g}")
        row = (one.problem, one.chosen, *numbers, f"{one.ratio:.2f}", f"{one.strict:.2f}")
        row = (*row, predicted)
        table.add_row(*row)
        lines.append("| " + " | ".join(row) + " |")
    console.print(table)
    (RESULTS / f"planner_regret_{name}.md").write_text("\n".join(lines) + "\n")
    picture(found, RESULTS / f"planner_regret_{name}.png")
    ratios = np.array([one.ratio for one in found])
    strict = np.array([one.strict for one in found])
    told = [one for one in found if one.predicted]
    off = np.array([one.off(one.floor) for one in told])
    bare = np.array([one.off(1e-9) for one in told])
    return [
        Figure(f"{name}: problems", len(found)),
        Figure(f"{name}: share within 1.3 of the best", float(np.mean(ratios <= 1.3)), 0.9, ">="),
        Figure(f"{name}: largest ratio", float(ratios.max()), 3.0),
        Figure(f"{name}: share within 1.3, no floor", float(np.mean(strict <= 1.3))),
        Figure(f"{name}: largest ratio, no floor", float(strict.max())),
        Figure(f"{name}: worse than trivial, in spreads", max(one.beaten for one in found), 1.0),
        Figure(f"{name}: share predicted", len(told) / len(found)),
        Figure(f"{name}: predictions within 3", float(np.mean(off <= 3)), 0.85, ">="),
        Figure(f"{name}: predictions within 3, no floor", float(np.mean(bare <= 3))),
        Figure(f"{name}: predictions within 10, no floor", float(np.mean(bare <= 10))),
    ]


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
