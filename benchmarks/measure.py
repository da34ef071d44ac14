"""Timing by turns, and figures with their targets."""

from __future__ import annotations

import json
import math
import operator
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"
CLOCKS = ("CPU", "wall")
SIGNS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt}
console = Console(width=None if sys.stdout.isatty() else 120)


@dataclass(frozen=True)
class Seconds:
    """Wall and CPU seconds (all threads of the process) of one call, turn by turn."""

    walls: tuple[float, ...]
    cpus: tuple[float, ...]

    @property
    def wall(self) -> float:
        """The median."""
        return statistics.median(self.walls)

    @property
    def cpu(self) -> float:
        """The median."""
        return statistics.median(self.cpus)

    def of(self, clock: str) -> tuple[float, ...]:
        """The turns by one of the ``CLOCKS``."""
        return self.cpus if clock == "CPU" else self.walls


def by_turns(
    calls: Mapping[Any, Callable[[], Any]], repeats: int, rest: float = 0.1
) -> dict[Any, Seconds]:
    """Call everything once to warm up, then all in turn, ``repeats`` times.

    ``rest`` seconds pass before each timed call: the threads of BLAS and OpenMP go on spinning for
    a while after their work is done, and would be charged to the next in turn.
    """
    for call in calls.values():
        call()
    wall: dict[Any, list[float]] = {name: [] for name in calls}
    cpu: dict[Any, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            time.sleep(rest)
            wall_start, cpu_start = time.perf_counter(), time.process_time()
            call()
            cpu[name].append(time.process_time() - cpu_start)
            wall[name].append(time.perf_counter() - wall_start)
    return {name: Seconds(tuple(wall[name]), tuple(cpu[name])) for name in calls}


def ratio(
    what: str,
    above: Sequence[float],
    below: Sequence[float],
    target: float | None = None,
    sign: str = "<=",
) -> Figure:
    """Median over the turns of above / below, with the quartiles as a note.

    The two were measured one right after the other, so what slows both down cancels.
    """
    turns = [a / b for a, b in zip(above, below, strict=True)]
    low, middle, high = statistics.quantiles(turns, n=4)
    return Figure(what, middle, target, sign, note=f"quartiles {number(low)} to {number(high)}")


@dataclass(frozen=True)
class Figure:
    """A measured number, and the target it should meet where there is one."""

    what: str
    value: float
    target: float | None = None
    sign: str = "<="
    unit: str = ""
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        if self.target is None:
            return None
        return bool(SIGNS[self.sign](self.value, self.target))

    def cells(self) -> tuple[str, str, str, str]:
        """Value, target, verdict and note as text."""
        if self.target is None:
            return number(self.value, self.unit), "", "", self.note
        verdict = "[green]met[/]" if self.met else "[red]missed[/]"
        return (
            number(self.value, self.unit),
            f"{self.sign} {number(self.target, self.unit)}",
            verdict,
            self.note,
        )


def number(value: float, unit: str = "") -> str:
    """Three significant digits, with the unit."""
    if not math.isfinite(value):
        return "-"
    digits = f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{digits} {unit}".strip()


def report(name: str, title: str, figures: Iterable[Figure]) -> None:
    """Print the figures as a table and keep them as JSON in the results folder."""
    figures = list(figures)
    console.print(figure_table(title, [("", figure) for figure in figures]))
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else math.nan
    cores = os.cpu_count() or 1
    if busy > 1.5 * cores:
        console.print(
            f"[yellow]The machine is busy (load {busy:.1f} on {cores} cores): "
            "wall times are unreliable, CPU times somewhat too long.[/]"
        )
    RESULTS.mkdir(exist_ok=True)
    kept = [{**asdict(figure), "met": figure.met} for figure in figures]
    (RESULTS / f"{name}.json").write_text(json.dumps({"title": title, "figures": kept}, indent=1))


def figure_table(title: str, figures: Iterable[tuple[str, Figure]]) -> Table:
    """A table of figures, each under the name of its benchmark (or under none)."""
    figures = list(figures)
    table = Table(title=title, title_justify="left")
    named = any(name for name, _ in figures)
    if named:
        table.add_column("benchmark")
    table.add_column("figure")
    for heading in ("measured", "target"):
        table.add_column(heading, justify="right")
    table.add_column("")
    if any(figure.note for _, figure in figures):
        table.add_column("")
    for name, figure in figures:
        cells = figure.cells()
        row = [*([name] if named else []), figure.what, *cells]
        table.add_row(*row[: len(table.columns)])
    return table


def kept_figures(name: str) -> list[Figure]:
    """What the last run of a benchmark found; nothing if there was none."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return []
    found = json.loads(path.read_text())["figures"]
    return [Figure(**{k: v for k, v in entry.items() if k != "met"}) for entry in found]
