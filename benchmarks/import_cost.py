"""What ``import privopt`` costs beside ``import sklearn.linear_model``."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from benchmarks.measure import Figure, report

RUNS = 15
LATE = ("numba", "torch", "dp_accounting", "pandas")
"""Packages that must not be imported before they are needed, unless scikit-learn imports them."""

CHILD = """
import json, sys, time
wall, cpu = time.perf_counter(), time.process_time()
import {module}
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
print(json.dumps([wall, cpu, [name for name in {late!r} if name in sys.modules]]))
"""


def main() -> None:
    modules = ("privopt", "sklearn.linear_model")
    wall: dict[str, list[float]] = {module: [] for module in modules}
    cpu: dict[str, list[float]] = {module: [] for module in modules}
    found: dict[str, set[str]] = {module: set() for module in modules}
    for turn in range(RUNS + 1):
        for module in modules:
            seconds, processor, imported = import_once(module)
            found[module].update(imported)
            if turn > 0:  # the first turn fills the caches of files and of byte code
                wall[module].append(seconds)
                cpu[module].append(processor)
    early = found[modules[0]] - found[modules[1]]
    clocks = {"CPU": cpu, "wall": wall}
    middle = {
        (clock, module): statistics.median(values[module])
        for clock, values in clocks.items()
        for module in modules
    }
    figures = [
        Figure(f"import {module}, {clock}", middle[clock, module] * 1e3, unit="ms")
        for clock in clocks
        for module in modules
    ]
    for clock in clocks:
        ratio = middle[clock, modules[0]] / middle[clock, modules[1]]
        figures.append(Figure(f"privopt / scikit-learn, {clock}", ratio, 1.5, "<"))
    named = f" ({', '.join(sorted(early))})" if early else ""
    figures.append(Figure(f"imported too early{named}, of {', '.join(LATE)}", len(early), 0))
    report("import_cost", f"Imports, median of {RUNS} fresh processes, by turns", figures)


def import_once(module: str) -> tuple[float, float, list[str]]:
    """Wall and CPU seconds of one import in a fresh process, and what came with it."""
    code = CHILD.format(module=module, late=LATE)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    wall, cpu, imported = json.loads(done.stdout)
    return wall, cpu, imported


if __name__ == "__main__":
    main()
