"""The score of random mutants: ``python -m tests.mutants --random 400``.

One process imports everything and collects the tests of the four rooms once. First it notes which
test runs which lines. Then each mutant lives in a fork of it: the change is made in memory, the few
quickest tests that run the changed line are tried, and the first that fails kills. Who survives a
first handful is given a second, larger one.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from .equivalent import EQUIVALENT
from .mutant import forget
from .sites import ROOMS, SOURCE, Site, drawn, plant, sites

ROOT = Path(__file__).parents[2]
TESTS = (
    *(f"tests/{room}" for room in (*ROOMS, "properties", "audit", "planner", "solvers")),
    "tests/training/test_noise.py",
    "tests/estimators/test_online.py",
    "tests/ledger/test_fits.py",
)
MAP = ROOT / "build" / "mutants-map.json"
MOST_OF_ONE = 4
"""Parameters of one test function that are used."""
LONGEST = 2.0
"""Seconds after which a test is too slow to be one of them."""
FIRST, SECOND = 1.5, 10.0
"""Seconds of tests that a mutant has to survive."""
MANY = 400
"""Random mutants, unless told otherwise."""
CONTROL = 25
"""Every so often the tests are tried without a mutant: a failure then is a false alarm."""


@dataclass
class Tested:
    """What is known of one test: its seconds, and the lines of each file that it runs."""

    seconds: float
    lines: dict[str, list[int]] = field(default_factory=dict)


class Score:
    """A pytest plugin that takes the place of the loop over tests."""

    def __init__(self, wanted: list[Site], fresh: bool = False) -> None:
        self.wanted, self.fresh = wanted, fresh
        self.items: dict[str, Any] = {}
        self.failed = False
        self.verdicts: dict[Site, str] = {}
        self.alarms = self.controls = 0

    def pytest_runtest_logreport(self, report: Any) -> None:
        # A test that skips itself, or is expected to fail, says nothing.
        self.failed |= report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = _few(session.items)
        known = self._map()
        covering: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
        for name, test in known.items():
            for file, lines in test.lines.items():
                for line in lines:
                    covering[file][line].append(name)
        began = time.monotonic()
        for count, site in enumerate(self.wanted, 1):
            names = {name for line in site.lines for name in covering[site.file][line]}
            verdict = self._verdict(site, names, known)
            self.verdicts[site] = verdict
            print(f"{count:4d} {verdict:10s} {site}", file=sys.__stdout__, flush=True)
            if count % CONTROL == 0 and names:
                chosen = _chosen(site, names, known, FIRST)
                honest = self._in_fork(lambda chosen=chosen: self._alone(chosen), 3 * FIRST)
                self.controls += 1
                self.alarms += honest != "survived"
        seconds = (time.monotonic() - began) / max(1, len(self.wanted))
        print(f"{seconds:.2f} s a mutant", file=sys.__stdout__, flush=True)
        return True

    def _verdict(self, site: Site, names: set[str], known: dict[str, Tested]) -> str:
        if site.name in EQUIVALENT:
            return "equivalent"
        if not names:
            return "not run"
        for limit in (FIRST, SECOND):
            chosen = _chosen(site, names, known, limit)
            verdict = self._in_fork(lambda chosen=chosen: self._survives(site, chosen), 3 * limit)
            if verdict != "survived":
                return verdict
        return "survived"

    def _survives(self, site: Site, chosen: list[str]) -> int:
        if not plant(site):
            return 2
        return self._alone(chosen)

    def _alone(self, chosen: list[str]) -> int:
        return 0 if all(self._passes(name) for name in chosen) else 1

    def _passes(self, name: str) -> bool:
        item = self.items[name]
        self.failed = False
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        return not self.failed

    def _in_fork(self, body: Callable[[], int], limit: float) -> str:
        """What a child says of itself; one that runs for too long is killed, and so is one whose
        interpreter dies."""
        child = os.fork()
        if child == 0:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            signal.setitimer(signal.ITIMER_PROF, limit + 2.0)
            try:
                os._exit(body())
            except BaseException:
                os._exit(1)
        status = os.waitpid(child, 0)[1]
        if os.WIFSIGNALED(status):
            return "killed"
        return {0: "survived", 1: "killed", 2: "not planted"}.get(os.WEXITSTATUS(status), "killed")

    # ------------------------------------------------------------ which test runs which line
    def _map(self) -> dict[str, Tested]:
        key = _state(self.items)
        if MAP.exists() and not self.fresh:
            kept = json.loads(MAP.read_text(encoding="utf-8"))
            if kept["of"] == key:
                return {name: Tested(**test) for name, test in kept["tests"].items()}
        found: dict[str, Tested] = {}
        # In a fork as well: what these runs leave in caches must not be there for the mutants.
        with tempfile.TemporaryDirectory() as folder:
            for part in _parts(list(self.items), 100):
                path = Path(folder) / "part.json"
                self._in_fork(lambda part=part, path=path: self._observe(part, path), 600.0)
                if path.exists():
                    found |= json.loads(path.read_text(encoding="utf-8"))
                    path.unlink()
        MAP.parent.mkdir(exist_ok=True)
        MAP.write_text(json.dumps({"of": key, "tests": found}), encoding="utf-8")
        return {name: Tested(**test) for name, test in found.items()}

    def _observe(self, names: list[str], path: Path) -> int:
        def too_long(*_: Any) -> None:
            raise TimeoutError

        signal.signal(signal.SIGVTALRM, too_long)
        found = {}
        for name in names:
            seen: dict[str, set[int]] = defaultdict(set)
            forget()
            began = time.process_time()
            signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST)
            sys.settrace(_tracer(seen))
            try:
                passed = self._passes(name)
            except BaseException:
                passed = False
            finally:
                sys.settrace(None)
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            if passed:
                lines = {file: sorted(here) for file, here in seen.items()}
                found[name] = {"seconds": time.process_time() - began, "lines": lines}
        path.write_text(json.dumps(found), encoding="utf-8")
        return 0


def _tracer(seen: dict[str, set[int]]) -> Callable[[FrameType, str, Any], Any]:
    """A trace function that notes the lines of the four rooms and leaves all other code alone."""
    roots = tuple(f"{SOURCE / room}{os.sep}" for room in ROOMS)
    files: dict[CodeType, set[int] | None] = {}

    def entered(frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if code not in files:
            name = code.co_filename
            ours = name.startswith(roots)
            files[code] = seen[os.path.relpath(name, SOURCE)] if ours else None
        lines = files[code]
        if lines is None:
            return None

        def step(frame: FrameType, event: str, argument: Any) -> Any:
            lines.add(frame.f_lineno)
            return step

        return step

    return entered


def _few(items: Iterable[Any]) -> dict[str, Any]:
    """Some parameters of each test function, by name."""
    functions: dict[str, list[Any]] = defaultdict(list)
    for item in items:
        functions[item.nodeid.partition("[")[0]].append(item)
    chooser = random.Random(0)
    found = {}
    for same in functions.values():
        for item in chooser.sample(same, min(MOST_OF_ONE, len(same))):
            found[item.nodeid] = item
    return found


def _chosen(site: Site, names: set[str], known: dict[str, Tested], limit: float) -> list[str]:
    """The quickest tests, those of the same name as the file first, one of each function before
    another of the same; at least one."""
    stem = Path(site.file).stem
    turns: Counter[str] = Counter()
    cost: dict[str, tuple[int, float, str]] = {}
    for name in sorted(names, key=lambda one: (known[one].seconds, one)):
        function = name.partition("[")[0]
        file = Path(function.partition("::")[0]).stem
        seconds = known[name].seconds * (1 if stem in file or file[5:] in stem else 4)
        cost[name] = (turns[function], seconds, name)
        turns[function] += 1
    chosen, left = [], limit
    for name in sorted(names, key=lambda one: cost[one]):
        if chosen and known[name].seconds > left:
            continue
        chosen.append(name)
        left -= known[name].seconds
    return chosen


def _parts(names: list[str], size: int) -> Iterable[list[str]]:
    return (names[start : start + size] for start in range(0, len(names), size))


def _state(names: Iterable[str]) -> str:
    """Changes with the code and with the tests."""
    found = hashlib.sha256("\n".join(names).encode())
    for folder in (SOURCE, ROOT / "tests"):
        for path in sorted(folder.rglob("*.py")):
            if path.parent.name != "mutants":
                found.update(path.read_bytes())
    return found.hexdigest()


def score(count: int, seed: int, words: list[str], out: Path | None = None) -> int:
    """Draw the mutants, or take all with these words in their names; try them and print the score.
    Fails if the tests fail without a mutant: survivors are work to do, not an error."""
    wanted = [s for s in sites() if all(word in s.name for word in words)]
    wanted = wanted if words else drawn(count, seed)
    plugin = Score(wanted)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = tempfile.mkdtemp()
    arguments = ["-s", "-p", "no:cacheprovider", "-p", "no:terminal", "-p", "no:xdist"]
    arguments += ["-o", "addopts=--import-mode=importlib --strict-markers"]
    pytest.main([*arguments, *(str(ROOT / path) for path in TESTS)], plugins=[plugin])
    counts = Counter(plugin.verdicts.values())
    tried = counts["killed"] + counts["survived"] + counts["not run"]
    for site, verdict in plugin.verdicts.items():
        if verdict in ("survived", "not run"):
            print(f"{verdict}: {site}")
    listed = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    print(f"random mutants, seed {seed}: {len(wanted)}, {listed}")
    print(
        f"score {counts['killed'] / max(tried, 1):.3f} of {tried} that are not equivalent; "
        f"{plugin.alarms} of {plugin.controls} controls without a mutant failed"
    )
    if out is not None:
        kept = {str(site): verdict for site, verdict in plugin.verdicts.items()}
        out.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return 1 if plugin.alarms or not tried else 0
