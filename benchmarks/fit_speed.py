"""Time and memory of a private fit, beside scikit-learn's non-private one on the same data."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from benchmarks.made_data import logistic_data
from benchmarks.measure import Figure, by_turns, report

N, P = 1_000_000, 50
REPEATS = 5
SIZE = N * P * 8  # bytes of X
MOST_GROWTH = 1.3
STAGES = ("imports", "data", "fit")


def main() -> None:
    # Memory first: a child may start with the high-water mark of its parent.
    peaks = {stage: peak_of(stage) for stage in STAGES}
    took = timed()
    times = (peaks["fit"] - peaks["imports"]) / SIZE
    report(
        "fit_speed",
        f"LogisticRegression(epsilon=1).fit, n={N:,}, p={P}, float64",
        [
            Figure("privopt, CPU", took["privopt"].cpu, unit="s"),
            Figure("scikit-learn lbfgs, CPU", took["scikit-learn"].cpu, unit="s"),
            Figure("privopt / scikit-learn, CPU", ratio(took, "cpu"), 1.0),
            Figure("privopt, wall", took["privopt"].wall, unit="s"),
            Figure("scikit-learn lbfgs, wall", took["scikit-learn"].wall, unit="s"),
            Figure("privopt / scikit-learn, wall", ratio(took, "wall"), 1.0),
            Figure("peak memory, imports only", peaks["imports"] / 1e6, unit="MB"),
            Figure("peak memory, with X and y", peaks["data"] / 1e6, unit="MB"),
            Figure("peak memory, with the fit", peaks["fit"] / 1e6, unit="MB"),
            Figure("peak beyond imports / size of X", times, MOST_GROWTH),
        ],
    )


def timed() -> dict:
    from sklearn.linear_model import LogisticRegression as Plain

    from privopt import LogisticRegression

    X, y, theta = logistic_data(N, P)
    took = by_turns(
        {
            "privopt": lambda: LogisticRegression(epsilon=1).fit(X, y),
            "scikit-learn": lambda: Plain().fit(X, y),
        },
        REPEATS,
    )
    return took


def ratio(took: dict, clock: str) -> float:
    return getattr(took["privopt"], clock) / getattr(took["scikit-learn"], clock)


def peak_of(stage: str) -> int:
    """Peak memory in bytes of a fresh process that stops after a stage."""
    command = [sys.executable, "-m", "benchmarks.fit_speed", stage]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def run_until(stage: str) -> int:
    """Go through the stages up to this one; the peak memory so far."""
    from privopt import LogisticRegression

    if stage in ("data", "fit"):
        X, y, _ = logistic_data(N, P)
        if stage == "fit":
            LogisticRegression(epsilon=1).fit(X, y)
    return high_water()


def high_water() -> int:
    """Most memory this process has held, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        if found:
            return int(found.group(1)) * 1024
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(run_until(sys.argv[1]))
    else:
        main()
