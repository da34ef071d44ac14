"""Time and memory of a private fit, beside scikit-learn's non-private one on the same data."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.made_data import logistic_data
from benchmarks.measure import CLOCKS, Figure, Seconds, by_turns, ratio, report

N, P = 1_000_000, 50
REPEATS = 7
SIZE = N * P * 8  # bytes of X
MOST_GROWTH = 1.3
STAGES = ("imports", "data", "fit")


def main() -> None:
    # Memory first: a child may start with the high-water mark of its parent.
    peaks = {stage: peak_of(stage) for stage in STAGES}
    took = timed()
    mine, peer = took["privopt"], took["scikit-learn"]
    figures: list[Figure] = []
    for clock in CLOCKS:
        what = f"privopt / scikit-learn, {clock}"
        figures += [
            Figure(f"privopt, {clock}", statistics.median(mine.of(clock)), unit="s"),
            Figure(f"scikit-learn lbfgs, {clock}", statistics.median(peer.of(clock)), unit="s"),
            ratio(what, mine.of(clock), peer.of(clock), 1.0),
        ]
    alone = one_thread()
    what = "privopt / scikit-learn, CPU, one thread"
    figures += [
        Figure("privopt, CPU, one thread", alone["privopt"].cpu, unit="s"),
        Figure("scikit-learn lbfgs, CPU, one thread", alone["scikit-learn"].cpu, unit="s"),
        ratio(what, alone["privopt"].cpus, alone["scikit-learn"].cpus, 1.0),
    ]
    times = (peaks["fit"] - peaks["imports"]) / SIZE
    figures += [
        Figure("peak memory, imports only", peaks["imports"] / 1e6, unit="MB"),
        Figure("peak memory, with X and y", peaks["data"] / 1e6, unit="MB"),
        Figure("peak memory, with the fit", peaks["fit"] / 1e6, unit="MB"),
        Figure("peak beyond imports / size of X", times, MOST_GROWTH),
    ]
    title = f"LogisticRegression(epsilon=1).fit, n={N:,}, p={P}, float64, by turns, {REPEATS} turns"
    report("fit_speed", title, figures)


def timed() -> dict[str, Seconds]:
    from sklearn.linear_model import LogisticRegression as Plain

    from privopt import LogisticRegression

    X, y, _ = logistic_data(N, P)
    return by_turns(
        {
            "privopt": lambda: LogisticRegression(epsilon=1).fit(X, y),
            "scikit-learn": lambda: Plain().fit(X, y),
        },
        REPEATS,
    )


def one_thread() -> dict[str, Seconds]:
    """The same in a process with one thread.

    The threads of BLAS spin while they wait for each other, and scikit-learn's CPU time then counts
    work that nobody does; with one thread there is nothing to wait for.
    """
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    command = [sys.executable, "-m", "benchmarks.fit_speed", "timed"]
    environment = os.environ | dict.fromkeys(names, "1")
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return {
        name: Seconds(tuple(walls), tuple(cpus))
        for name, (walls, cpus) in json.loads(done.stdout).items()
    }


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
    if sys.argv[1:] == ["timed"]:
        print(json.dumps({name: (took.walls, took.cpus) for name, took in timed().items()}))
    elif len(sys.argv) > 1:
        print(run_until(sys.argv[1]))
    else:
        main()
