"""Run the benchmarks, each in a process of its own, and summarise the targets.

``python -m benchmarks`` runs all of them, ``python -m benchmarks gate_cost import_cost`` some.
"""

from __future__ import annotations

import subprocess
import sys

from benchmarks.measure import RESULTS, console, figure_table, kept_figures

NAMES = (
    "import_cost",
    "gate_cost",
    "discrete_noise",
    "ledger_speed",
    "gradient_speed",
    "fit_speed",
    "adult_accuracy",
    "classifier",
    "additive",
    "many_classes",
    "regression",
    "excess_risk",
    "rates",
    "high_dimensional",
    "texts",
    "geometry",
    "nonconvex",
    "kinks",
    "sparse_speed",
    "passes",
    "correlated",
    "stream_speed",
    "online",
    "refits",
    "federated",
    "user_clipping",
    "torch_speed",
    "torch_processes",
    "planner_regret",
    "accounting_speed",
    "peers",
    "search",
    "inference",
    "evaluation",
)


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        console.print(f"Unknown benchmark {unknown[0]!r}; choose from {', '.join(NAMES)}.")
        return 2
    broken = []
    chosen = names or list(NAMES)
    for name in chosen:
        (RESULTS / f"{name}.json").unlink(missing_ok=True)
        console.rule(name)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode:
            broken.append(name)
    console.rule("targets")
    found = [(name, figure) for name in chosen for figure in kept_figures(name)]
    console.print(figure_table("", [pair for pair in found if pair[1].target is not None]))
    if broken:
        console.print(f"[red]Did not finish:[/] {', '.join(broken)}.")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
