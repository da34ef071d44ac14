"""What can go wrong with a ledger's file, done to it on purpose.

Every trial is a process of its own. A process tells through a pipe which reservation it drew random
bits for and which answer it handed out; afterwards the ledger must hold every one of them, and must
never have spent more than its total.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import privopt.ledger.store as store_module
from privopt import Budget, Certificate, Ledger, Refused
from privopt.ledger import Dataset
from privopt.ledger.store import forget, store_at
from privopt.privacy import Accountant, Spend, charge_of
from privopt.privacy.filters import EPSILON_UNITS
from privopt.privacy.kinds import Pure

UNIT = 0.25
"""Epsilon of one release here: a number that binary fractions hold exactly."""
BUDGET = Budget(UNIT)
SPEND = Spend({(): charge_of(Pure(UNIT))})
LEDGER_CODE = str(Path(store_module.__file__).parent)

DREW, HANDED_OUT = b"d", b"h"
Tell = Callable[[bytes, int], None]


@dataclass
class Outcome:
    """What was seen over all trials of one kind."""

    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        numbers = ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items()))
        return f"{numbers}; {len(self.violations)} violations"


def certificate(mark: dict[str, Any]) -> Certificate:
    return Certificate(
        epsilon=Accountant().epsilon(SPEND, 0.0),
        delta=0.0,
        neighbouring="zero_out",
        unit="record",
        private=True,
        solver="faults",
        charges=tuple(SPEND.frontier()),
        releases=1,
        cells=1,
        ledger=mark,
    )


# ---------------------------------------------------------------- what a process does
def at_once(budget: Dataset, tell: Tell) -> None:
    paid = budget.reserve(SPEND, BUDGET, touched=True)
    tell(DREW, paid.number)
    paid.commit(certificate(paid.mark))
    tell(HANDED_OUT, paid.number)


def step_by_step(budget: Dataset, tell: Tell) -> None:
    paid = budget.reserve(SPEND, BUDGET)
    paid.touch()
    tell(DREW, paid.number)
    paid.commit(certificate(paid.mark))
    tell(HANDED_OUT, paid.number)


def with_a_key(budget: Dataset, tell: Tell) -> None:
    key = f"{os.getpid()} {time.perf_counter_ns()}"
    paid = budget.reserve(SPEND, BUDGET, key=key, touched=True)
    tell(DREW, paid.number)
    paid.commit(certificate(paid.mark), result=[1, 2])
    tell(HANDED_OUT, paid.number)
    assert budget.reserve(SPEND, BUDGET, key=key).answer is not None


def given_back(budget: Dataset, tell: Tell) -> None:
    budget.reserve(SPEND, BUDGET).void()


def burned(budget: Dataset, tell: Tell) -> None:
    paid = budget.reserve(SPEND, BUDGET, touched=True)
    tell(DREW, paid.number)
    paid.burn()


def another_budget(budget: Dataset, tell: Tell) -> None:
    Ledger.create(budget.path, 1.0, dataset=f"other {os.getpid()} {time.perf_counter_ns()}")


DEEDS = (at_once, step_by_step, with_a_key, given_back, burned, another_budget)


def in_a_process(work: Callable[[Tell], None]) -> tuple[int, int]:
    """Fork, work, end without cleaning up; returns the process and the end of its pipe."""
    read, write = os.pipe()
    process = os.fork()
    if process:
        os.close(write)
        return process, read
    code = 1
    try:
        work(lambda what, number: _tell(write, what, number))
        code = 0
    except Refused:
        code = 3
    finally:
        os._exit(code)


def _tell(pipe: int, what: bytes, number: int) -> None:
    os.write(pipe, struct.pack("<cq", what, number))


def heard(process: int, pipe: int) -> tuple[int, list[tuple[bytes, int]]]:
    """Wait for the end of a process; its status and what it told."""
    with os.fdopen(pipe, "rb") as file:
        text = file.read()
    _, status = os.waitpid(process, 0)
    size = struct.calcsize("<cq")
    return status, [struct.unpack_from("<cq", text, i) for i in range(0, len(text), size)]


# ---------------------------------------------------------------- what must hold
class Truth:
    """What really happened on one ledger, against what it says."""

    def __init__(self, path: Path, total: int) -> None:
        self.path, self.total = path, total
        self.told: list[tuple[bytes, int]] = []

    def violations(self) -> list[str]:
        """An account of its own, from the bare entries, and the library's."""
        found = []
        ledger = Ledger(self.path)
        ledger.verify()
        states: dict[str, tuple[int, str]] = {}
        spent = 0
        for entry in store_at(self.path).entries():
            if entry.dataset != "data" or entry.action == "create":
                continue
            number = states.get(entry.release, (entry.number, ""))[0]
            states[entry.release] = (number, entry.action)
            if entry.action == "reserve":
                spent += entry.content["cost"]["epsilon"]
            elif entry.action == "void":
                spent -= EPSILON_UNITS * UNIT
            if spent > self.total * UNIT * EPSILON_UNITS:
                found.append("overspent")
        by_number = {number: action for number, action in states.values()}
        for what, number in self.told:
            action = by_number.get(number)
            if action in (None, "void"):
                found.append("random bits were drawn for a release that is not charged")
            if what == HANDED_OUT and action != "commit":
                found.append("an answer was handed out that is not committed")
        left = ledger.dataset("data").left[0]
        if abs(left - (self.total * UNIT - spent / EPSILON_UNITS)) > 1e-6:
            found.append("what is left is not what was not spent")
        return found


def fresh(folder: Path, name: str, total: int) -> Truth:
    path = folder / f"{name}.db"
    Ledger.create(path, total * UNIT)
    return Truth(path, total)


# ---------------------------------------------------------------- kill -9
def lines_of(deed: Callable[[Dataset, Tell], None], path: Path) -> int:
    """How many lines of the ledger's code a deed runs through."""
    count = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(LEDGER_CODE):
            return None
        count += event == "line"
        return trace

    budget = Ledger(path).dataset("data")
    before, _ = sys.gettrace(), sys.settrace(trace)
    try:
        deed(budget, lambda what, number: None)
    finally:
        sys.settrace(before)
    return count


def killed_at(line: int) -> None:
    """End this process, like a power cut, when it reaches the given line of the ledger's code."""
    count = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(LEDGER_CODE):
            return None
        count += event == "line"
        if count >= line:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)


def kills(folder: Path, number: int, seed: int = 0, together: int = 3) -> Outcome:
    """kill -9 at every line of the ledger's code, and at any time, several processes at once."""
    rng = np.random.default_rng(seed)
    outcome = Outcome()
    probe = fresh(folder, "probe", 1000)
    spans = {deed: lines_of(deed, probe.path) for deed in DEEDS}
    forget(probe.path)
    truth, rounds = None, 0
    while outcome.counts["kills"] < number:
        if truth is None or rounds % 40 == 0:
            if truth is not None:
                forget(truth.path)
            truth = fresh(folder, f"kills-{rounds}", 20 if rounds % 80 else 400)
        rounds += 1
        running = []
        for _ in range(together):
            deed = DEEDS[rng.integers(len(DEEDS))]
            line = int(rng.integers(1, spans[deed] + 1))
            when = rng.choice(["opening", "any time", "at a line"], p=[0.1, 0.2, 0.7])
            timed = when == "any time"

            def work(tell: Tell, deed=deed, line=line, when=when, path=truth.path) -> None:
                if when == "opening":
                    killed_at(line)
                budget = Ledger(path).dataset("data")
                if when == "at a line":
                    killed_at(line)
                deed(budget, tell)

            process, pipe = in_a_process(work)
            running.append((process, pipe))
            if timed:
                time.sleep(float(rng.uniform(0, 0.02)))
                os.kill(process, signal.SIGKILL)
        for process, pipe in running:
            status, told = heard(process, pipe)
            truth.told += told
            if os.WIFSIGNALED(status):
                outcome.counts["kills"] += 1
            else:
                outcome.counts[{0: "finished", 3: "refused"}.get(os.WEXITSTATUS(status), "?")] += 1
        found = truth.violations()
        outcome.violations += found
        if rounds % 40 == 0:
            counts = Ledger(truth.path).dataset("data").counts
            outcome.counts.update({name: counts[name] for name in ("burned", "voided")})
    if outcome.counts["?"]:
        outcome.violations.append("a process ended in an error of its own")
    return outcome


# ---------------------------------------------------------------- a race
def race(folder: Path, processes: int = 8, total: int = 200, name: str = "race") -> Outcome:
    """Processes that take until they are refused: together they get exactly the total."""
    outcome = Outcome()
    truth = fresh(folder, name, total)

    def work(tell: Tell) -> None:
        budget = Ledger(truth.path).dataset("data")
        while True:
            at_once(budget, tell)

    running = [in_a_process(work) for _ in range(processes)]
    for process, pipe in running:
        status, told = heard(process, pipe)
        truth.told += told
        if os.WEXITSTATUS(status) != 3:
            outcome.violations.append("a process ended otherwise than by a refusal")
    granted = sum(what == HANDED_OUT for what, _ in truth.told)
    outcome.counts.update({"granted": granted, "offered": total})
    if granted != total:
        outcome.violations.append(f"{granted} of {total} were granted")
    outcome.violations += truth.violations()
    forget(truth.path)
    return outcome


# ---------------------------------------------------------------- a full disk
def full_disk(folder: Path, number: int, seed: int = 0) -> Outcome:
    """No more pages, or no more bytes in a file, at a random moment."""
    rng = np.random.default_rng(seed)
    outcome = Outcome()
    truth = None
    for trial in range(number):
        if truth is None or trial % 25 == 0:
            if truth is not None:
                forget(truth.path)
            truth = fresh(folder, f"full-{trial}", 400)
        by_pages, room = bool(trial % 2), int(rng.integers(0, 120_000))
        deed = DEEDS[rng.integers(3)]

        def work(tell: Tell, room=room, by_pages=by_pages, deed=deed, path=truth.path) -> None:
            budget = Ledger(path).dataset("data")
            if by_pages:
                connection = store_at(path)._connection
                (pages,) = connection.execute("PRAGMA page_count").fetchone()
                connection.execute(f"PRAGMA max_page_count={pages + room // 20_000}")
            else:
                log = Path(f"{path}-wal")
                size = max(path.stat().st_size, log.stat().st_size if log.exists() else 0)
                resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, resource.RLIM_INFINITY))
            for _ in range(12):
                deed(budget, tell)

        status, told = heard(*in_a_process(work))
        truth.told += told
        code = os.WEXITSTATUS(status)
        outcome.counts[{0: "found room", 3: "refused in a sentence"}.get(code, "?")] += 1
        if code not in (0, 3):
            outcome.violations.append("a process ended in an error of its own")
        outcome.violations += truth.violations()
    if truth is not None:
        forget(truth.path)
    return outcome


# ---------------------------------------------------------------- flipped bits
def flips(folder: Path, number: int, seed: int = 0) -> Outcome:
    """One bit of one of the files turned over: refused, or nothing changes."""
    rng = np.random.default_rng(seed)
    outcome = Outcome()
    for logged in (False, True):
        original = folder / f"flips-{logged}.db"
        Ledger.create(original, 100 * UNIT)
        budget = Ledger(original).dataset("data")
        for k in range(60):
            DEEDS[k % 5](budget, lambda what, number: None)
        if not logged:
            forget(original)  # the last connection moves the log into the database
        left, head = Ledger(original).dataset("data").left, Ledger(original).head
        if not logged:
            forget(original)
        files = [f"{original}{end}" for end in ("", "-wal", "-head") if _full(f"{original}{end}")]
        content = {file: Path(file).read_bytes() for file in files}
        sizes = np.array([len(content[file]) for file in files], dtype=float)
        sizes[-1] = sizes[:-1].sum() / 20  # the head is short: let it be met, too
        for trial in range(number // 2):
            place = folder / f"flip-{logged}-{trial}"
            place.mkdir()
            victim = files[rng.choice(len(files), p=sizes / sizes.sum())]
            for file in files:
                text = bytearray(content[file])
                if file == victim:
                    where = rng.integers(len(text))
                    text[where] ^= 1 << int(rng.integers(8))
                (place / Path(file).name).write_bytes(text)
            copy = place / original.name
            try:
                ledger = Ledger(copy)
                same = ledger.dataset("data").left == left and ledger.head == head
                if same:
                    at_once(ledger.dataset("data"), lambda what, number: None)
                    same = ledger.dataset("data").left[0] == left[0] - UNIT
                outcome.counts["harmless" if same else "missed"] += 1
                if not same:
                    outcome.violations.append(f"a flipped bit in {Path(victim).name} was missed")
            except Refused:
                outcome.counts["refused"] += 1
            forget(copy)
            shutil.rmtree(place)
        forget(original)
    return outcome


def _full(file: str) -> bool:
    return Path(file).exists() and Path(file).stat().st_size > 0
