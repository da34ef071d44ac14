"""``make faults``: kill, race, fill and flip; print what was seen.

``python -m tests.faults --kills 10000 --full 1000 --flips 1000 --races 10 --servers 300`` is the
long run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.federated.kills import trainings

from .faults import Outcome, flips, full_disk, kills, race


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=2000)
    parser.add_argument("--races", type=int, default=3)
    parser.add_argument("--full", type=int, default=300)
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--servers", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    wanted = parser.parse_args()
    violations: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def show(title: str, outcome: Outcome) -> None:
            print(f"{title:<34}{outcome}  [{time.perf_counter() - begun:.0f} s]", flush=True)
            violations.extend(outcome.violations)

        begun = time.perf_counter()
        show(f"kill -9, {wanted.kills}:", kills(folder, wanted.kills, wanted.seed))
        for index in range(wanted.races):
            begun = time.perf_counter()
            show("8 racing processes:", race(folder, name=f"race-{index}"))
        begun = time.perf_counter()
        show(f"disk full, {wanted.full}:", full_disk(folder, wanted.full, wanted.seed))
        begun = time.perf_counter()
        show(f"flipped bits, {wanted.flips}:", flips(folder, wanted.flips, wanted.seed))
    begun = time.perf_counter()
    seen = trainings(wanted.servers, wanted.seed, 1.0)  # raises where a rule is broken
    taken = time.perf_counter() - begun
    print(f"{f'federated servers, {wanted.servers}:':<34}{seen}  [{taken:.0f} s]", flush=True)
    for violation in sorted(set(violations)):
        print(f"VIOLATION: {violation}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
