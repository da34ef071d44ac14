"""Correlated noise: errors of running sums, the search for bands, and what the noise costs.

``python -m benchmarks.correlated --quick`` stops at 2^12 steps. Errors are standard deviations of a
coordinate of the running sums, largest and root mean square over the steps, for contributions of
norm one at mu = 1 and epochs in a fixed order. Figures and a plot are kept in the results folder.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
from rich.table import Table

from benchmarks.measure import RESULTS, Figure, by_turns, console, ratio, report
from privopt.noise import SecureSource, gaussian
from privopt.privacy import Budget, Participation
from privopt.privacy.amplified import Bands, compare_bands
from privopt.privacy.factorizations import (
    BLT,
    Banded,
    Factorization,
    FullHonaker,
    Honaker,
    Independent,
    Restarts,
    SquareRoot,
    Tree,
)
from privopt.privacy.factorizations.blt import best_buffers

EPOCHS = (1, 5, 20)
GROUPS = (1, 2, 4, 8, 16, 32, 64, 100)
EPSILONS = (1.0, 2.0, 4.0, 8.0, 16.0)
COORDINATES = 1_000_000

Errors = dict[tuple[str, int, int], tuple[float, float]]


# ---------------------------------------------------------------- errors
def kinds(steps: int, epochs: int) -> dict[str, Callable[[], Factorization]]:
    """The rows of the table; restarts only where there is more than one epoch."""
    per = steps // epochs
    rule = Participation.epochs(epochs, per)
    rows: dict[str, Callable[[], Factorization]] = {
        "independent": lambda: Independent(steps),
        "tree, nodes": lambda: Tree(steps, "nodes"),
        "tree": lambda: Tree(steps),
        "honaker, nodes": lambda: Honaker(steps, "nodes"),
        "honaker": lambda: Honaker(steps),
        "full honaker": lambda: FullHonaker(steps),
        "square root": lambda: SquareRoot(steps),
        "banded": lambda: Banded.for_rule(steps, rule),
        "blt": lambda: BLT.optimised(steps, rule),
    }
    if epochs > 1:
        rows["honaker, restart each epoch"] = lambda: Restarts(steps, per)
        rows["... with completion"] = lambda: Restarts(steps, per, completion=True)
        rows["banded square root"] = lambda: Banded.square_root(steps, per)
    if epochs >= 10:
        rows["... every 5 epochs, completed"] = lambda: Restarts(steps, 5 * per, completion=True)
    return rows


def errors(exponents: tuple[int, ...]) -> Errors:
    found: Errors = {}
    for exponent in exponents:
        for epochs in EPOCHS:
            steps = epochs * (2**exponent // epochs)
            rule = Participation.epochs(epochs, steps // epochs)
            for name, make in kinds(steps, epochs).items():
                noise = make()
                squared = noise.sensitivity_squared(rule)
                found[name, exponent, epochs] = noise.errors(squared)
    return found


def error_table(found: Errors, exponents: tuple[int, ...], epochs: int) -> Table:
    title = f"Largest / rms error of running sums at mu = 1, epochs: {epochs}"
    table = Table("noise", title=title, title_justify="left")
    for exponent in exponents:
        table.add_column(f"2^{exponent} steps", justify="right")
    for name in kinds(epochs, epochs):
        cells = [found[name, exponent, epochs] for exponent in exponents]
        table.add_row(name, *(f"{largest:.3g} / {mean:.3g}" for largest, mean in cells))
    return table


# ---------------------------------------------------------------- bands
def band_search(epsilons: tuple[float, ...]) -> dict[float, tuple[Bands, ...]]:
    """2000 steps of 500 out of 50000 records, delta 1e-5."""
    return {
        epsilon: compare_bands(Budget(epsilon, 1e-5), 2000, 50_000, 500, GROUPS)
        for epsilon in epsilons
    }


def band_table(found: dict[float, tuple[Bands, ...]]) -> Table:
    table = Table(title="Rms error by the number of groups that take turns", title_justify="left")
    table.add_column("epsilon")
    for groups in GROUPS:
        table.add_column(f"{groups}", justify="right")
    for epsilon, rows in found.items():
        by_groups = {row.groups: row for row in rows}
        cells = [f"{by_groups[g].mean_error:.3g}" for g in GROUPS]
        best = GROUPS.index(rows[0].groups)
        cells[best] = f"[bold]{cells[best]}[/]"
        table.add_row(f"{epsilon:g}", *cells)
    return table


# ---------------------------------------------------------------- cost
def speed() -> list[Figure]:
    """One step's noise for a million coordinates beside one fresh Gaussian vector."""
    source = SecureSource()

    def draw() -> np.ndarray:
        return gaussian(source, 1.0, COORDINATES)

    single = Participation.single_pass()
    streams: dict[str, tuple[Factorization, float]] = {
        "tree": (Tree(1024), 1.3),
        "honaker": (Honaker(1024), 1.3),
        "blt, 3 buffers": (BLT.optimised(1024, single, 3), 1.3),
        "banded, 4 bands": (Banded.optimised(1024, 4), 1.4),
        "banded, 16 bands": (Banded.optimised(1024, 16), 2.6),
    }
    calls: dict[str, Callable[[], object]] = {"fresh": lambda: [draw() for _ in range(16)]}
    for name, (noise, _) in streams.items():
        stream = noise.stream()
        calls[name] = lambda stream=stream: [stream.next(draw) for _ in range(16)]
    seconds = by_turns(calls, 7)
    return [
        ratio(f"noise of a step over a fresh vector: {name}", seconds[name].cpus,
              seconds["fresh"].cpus, target)
        for name, (_, target) in streams.items()
    ]  # fmt: skip


def tuning() -> list[Figure]:
    """CPU seconds to find the parameters of BLT noise with four buffers."""
    figures = []
    for exponent in (10, 13, 16):
        best_buffers.cache_clear()
        start = time.process_time()
        for epochs in EPOCHS:
            steps = epochs * (2**exponent // epochs)
            BLT.optimised(steps, Participation.epochs(epochs, steps // epochs))
        spent = time.process_time() - start
        what = f"parameters of BLT noise, 2^{exponent} steps, 1, 5 and 20 epochs"
        figures.append(Figure(what, spent, 10.0, unit="s"))
    return figures


def plot(found: Errors, exponents: tuple[int, ...]) -> None:
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, len(EPOCHS), figsize=(4.2 * len(EPOCHS), 4), layout="constrained"
    )
    for axis, epochs in zip(axes, EPOCHS, strict=True):
        for name in ("independent", "tree", "honaker", "square root", "banded", "blt"):
            values = [found[name, exponent, epochs][1] for exponent in exponents]
            axis.plot([2**exponent for exponent in exponents], values, marker="o", label=name)
        axis.set(
            xscale="log",
            yscale="log",
            xlabel="steps",
            title="one epoch" if epochs == 1 else f"{epochs} epochs",
        )
    axes[0].set_ylabel("rms error of running sums at mu = 1")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper")
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / "correlated.png", dpi=120)
    plt.close(figure)


def main(arguments: list[str]) -> None:
    quick = "--quick" in arguments
    exponents = (10, 12) if quick else (10, 12, 14, 16)
    found = errors(exponents)
    for epochs in EPOCHS:
        console.print(error_table(found, exponents, epochs))
    bands = band_search(EPSILONS[1:2] if quick else EPSILONS)
    console.print(band_table(bands))
    plot(found, exponents)
    gaps = [
        found["blt", exponent, epochs][1] / found["banded", exponent, epochs][1]
        for exponent in exponents
        for epochs in EPOCHS
    ]
    figures = [
        Figure("rms error of BLT noise over banded noise, largest", max(gaps), 1.07),
        Figure("rms error, banded, 2^12 steps, 5 epochs", found["banded", 12, 5][1], 8.36 * 1.01),
        Figure("rms error, BLT, 2^12 steps, 5 epochs", found["blt", 12, 5][1], 8.66 * 1.01),
        Figure("rms error at epsilon 2, best number of groups", bands[2.0][0].mean_error, 31.7),
        *tuning(),
        *speed(),
    ]
    report("correlated", "Correlated noise", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
