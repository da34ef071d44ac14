"""How many releases a ledger takes in a second, and how long one of eight processes waits.

A release is a reservation that is on the disk before the data is touched, and a commit before the
answer is handed out. Waiting is for the disk, so this is wall time.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.measure import Figure, report
from privopt import Budget, Certificate, Ledger
from privopt.privacy import Spend, charge_of
from privopt.privacy.kinds import GaussianKind

ALONE, EACH, PROCESSES = 2000, 250, 8
MU = 1e-3
BUDGET = Budget(1.0, 1e-6)
SPEND = Spend({(): charge_of(GaussianKind(MU, MU))})
CERTIFICATE = Certificate(
    epsilon=1.0,
    delta=1e-6,
    neighbouring="zero_out",
    unit="record",
    private=True,
    solver="benchmark",
    charges=tuple(SPEND.frontier()),
    releases=1,
    cells=1,
)


def releases(path: Path, count: int) -> list[float]:
    """Seconds that each of ``count`` releases took."""
    budget = Ledger(path).dataset()
    took = []
    for _ in range(count):
        begun = time.perf_counter()
        budget.reserve(SPEND, BUDGET, touched=True).commit(CERTIFICATE)
        took.append(time.perf_counter() - begun)
    return took


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "alone.db"
        Ledger.create(path, 100.0, 1e-6)
        took = np.array(releases(path, ALONE))
        begun = time.perf_counter()
        entries = Ledger(path).verify()
        verified = time.perf_counter() - begun
        size = path.stat().st_size / entries
        together = Path(folder) / "together.db"
        Ledger.create(together, 100.0, 1e-6)
        with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
            pool.starmap(releases, [(together, 1)] * PROCESSES)  # imports
            begun = time.perf_counter()
            waits = np.concatenate(pool.starmap(releases, [(together, EACH)] * PROCESSES, 1))
            elapsed = time.perf_counter() - begun
    report(
        "ledger_speed",
        f"Releases charged to a ledger, reservations synchronous; {ALONE} alone, {EACH} in each "
        f"of {PROCESSES} processes",
        [
            Figure("alone", 1 / took.mean(), 150, ">=", unit="/s"),
            Figure("alone, 99th percentile", 1e3 * np.quantile(took, 0.99), unit="ms"),
            Figure("eight processes together", waits.size / elapsed, unit="/s"),
            Figure("eight processes, median", 1e3 * np.median(waits), unit="ms"),
            Figure(
                "eight processes, 99th percentile",
                1e3 * np.quantile(waits, 0.99),
                100,
                "<",
                unit="ms",
            ),
            Figure("eight processes, longest", 1e3 * waits.max(), unit="ms"),
            Figure(f"checking {entries} entries", verified, unit="s"),
            Figure("size of an entry", size, unit="bytes"),
        ],
    )


if __name__ == "__main__":
    main()
