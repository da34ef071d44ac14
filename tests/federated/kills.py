"""kill -9 at random moments: a server that asks, dies, and is started again on the same ledger.

``python -m tests.federated.kills 300`` is the long run. Every question that left is on a tape apart
from the ledger; the tape tells whether anybody was asked against the rule.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from privopt import Participation
from privopt.federated.participations import Participations

RULE = Participation.separated(3, 4)
PEOPLE = range(60)
WAIT = 0.02
"""Seconds a server lives, at most."""


def killed_at_random(work: Callable[[], None], rng: random.Random, wait: float = WAIT) -> bool:
    """Do something in a child and kill it at a random moment; whether it was killed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    time.sleep(rng.uniform(0, wait))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def write(tape: int, line: str) -> None:
    os.write(tape, line.encode())  # one call: whole or not at all, as far as other processes go


def server(folder: Path, tape: Path, first: int, seed: int) -> None:
    """Ask round after round; what leaves is on the tape after the ledger has it."""
    rng, out = random.Random(seed), os.open(tape, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    people = Participations(RULE, folder)
    for round in range(first, first + 50):
        free = [one for one, may in zip(PEOPLE, people.may(PEOPLE, round), strict=True) if may]
        asked = rng.sample(free, min(len(free), 8))
        people.ask(asked, round)
        write(out, "".join(f"{round} {one}\n" for one in asked))


def rounds_on(tape: Path) -> dict[int, list[int]]:
    """Rounds in which each person was asked."""
    found: dict[int, list[int]] = {}
    for line in tape.read_text().splitlines() if tape.exists() else []:
        round, person = map(int, line.split())
        found.setdefault(person, []).append(round)
    return found


def main(times: int, seed: int = 0) -> dict[str, int]:
    """Kill so many servers; counts of what was seen. Raises if anybody was asked too often."""
    rng = random.Random(seed)
    seen = {"killed": 0, "questions": 0, "torn": 0, "ledgers": 0}
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        folder, tape, first = Path(name) / "0", Path(name) / "0-tape", 0
        for attempt in range(times):
            seen["killed"] += killed_at_random(partial(server, folder, tape, first, attempt), rng)
            journal = folder / "asked"
            seen["torn"] += journal.exists() and not journal.read_bytes().endswith(b"\n")
            rounds = rounds_on(tape)
            for pattern in rounds.values():
                assert RULE.allows(tuple(pattern)), pattern
            if not (folder / "key").exists():
                continue
            people = Participations(RULE, folder)
            for person, pattern in rounds.items():
                for round in range(first + 60):  # the ledger knows whatever left
                    allowed = RULE.allows((*pattern, round))
                    assert allowed or not people.may([person], round)[0]
            first = max((max(p) for p in rounds.values()), default=0)
            if len(people.patterns) and people.times >= 0.9 * 3 * len(PEOPLE):
                seen["questions"] += people.times
                seen["ledgers"] += 1
                folder, first = Path(name) / str(attempt + 1), 0
                tape = Path(name) / f"{attempt + 1}-tape"
    return seen


if __name__ == "__main__":
    print(main(int(sys.argv[1])))
