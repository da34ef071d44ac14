"""kill -9 at random moments: a server that asks, dies, and is started again on the same ledger.

``python -m tests.federated.kills 300`` is the long run, of ledgers alone and of whole servers.
Every question that left is on a tape apart from the ledger; the tape tells whether anybody was
asked against the rule. A server's tape holds each model that it showed as well: one round has one
model, and no two rounds, shown or tried, have the same noise.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from privopt import Participation
from privopt.federated import Server
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
        except BaseException:
            traceback.print_exc()
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
    for round in range(first, first + 1000):
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


# ------------------------------------------------------------ whole servers
ROUNDS = 2000
CROWD = range(600)
"""Enough for servers that die in one and the same round again and again: turns stay used."""


def made(folder: Path) -> Server:
    return Server(
        np.zeros(3), epsilon=4.0, delta=1e-5, rounds=ROUNDS, report_goal=4, clip_norm=1.0,
        noise="banded", min_separation=4, checkpoint=folder,
    )  # fmt: skip


def training(folder: Path, tape: Path) -> None:
    """Rounds without updates: a model is nothing but the sum of its noise."""
    out = os.open(tape, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    server = made(folder)
    if server.round:
        write(out, f"model {server.round} {server.model.tobytes().hex()}\n")
    while server.rounds_left:
        asked = server.begin_round(CROWD)
        write(out, "".join(f"asked {server.round} {one}\n" for one in asked))
        for one in asked:
            server.answer(one, np.zeros(3))
        server.end_round()
        write(out, f"model {server.round} {server.model.tobytes().hex()}\n")


def trainings(times: int, seed: int = 0, wait: float = 0.2) -> dict[str, int]:
    """Kill so many whole servers; counts of what was seen."""
    rng = random.Random(seed)
    seen = {"killed": 0, "rounds": 0, "repeated": 0}
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        folder, tape = Path(name) / "run", Path(name) / "tape"
        made(folder)
        for _ in range(times):
            seen["killed"] += killed_at_random(partial(training, folder, tape), rng, wait)
            server = made(folder)
            asked: dict[int, list[int]] = {}
            models: dict[int, str] = {0: np.zeros(3).tobytes().hex()}
            for kind, round, what in map(str.split, tape.read_text().splitlines()):
                if kind == "asked":
                    asked.setdefault(int(what), []).append(int(round))
                else:  # a round that was shown once keeps its model for good
                    assert models.setdefault(int(round), what) == what
            for pattern in asked.values():
                assert server.plan.rule.allows(tuple(pattern)), pattern
            assert max(models) <= server.round  # nothing was shown before it was written down
            shown = [np.frombuffer(bytes.fromhex(m)) for _, m in sorted(models.items())]
            steps = np.diff(shown, axis=0)
            assert len(np.unique(np.round(steps, 12), axis=0)) == len(steps)
            if not server.rounds_left:
                break
        seen["rounds"] = server.round
        seen["repeated"] = len({r for rounds in asked.values() for r in rounds}) - server.round
    return seen


if __name__ == "__main__":
    print(main(int(sys.argv[1])))
    print(trainings(int(sys.argv[1]), wait=0.3))
