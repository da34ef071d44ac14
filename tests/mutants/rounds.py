"""Planted bugs in federated rounds, and the checks that notice."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from itertools import combinations
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any
from unittest.mock import patch

import numpy as np

import privopt.federated.server as server_module
import privopt.oracle.contributions as contributions_module
from privopt.audit import replay
from privopt.audit.neighbours import searched_pairs
from privopt.audit.trainings import federated_rounds
from privopt.federated.clipping import Clip
from privopt.federated.participations import Participations
from privopt.federated.server import Server
from privopt.mechanisms.checkpoint import Checkpoint
from privopt.noise import SeededSource, SilentSource
from privopt.oracle.contributions import Contributions
from privopt.privacy import Budget, Participation, Refused
from privopt.privacy.profiles import gaussian_mu

from .mutant import Mutant

BUDGET = Budget(4.0, 1e-5, "zero_out", "user")
WIDTH = 4000


def made(width: int = 3, **more: Any) -> Server:
    given: dict[str, Any] = {
        "epsilon": 4.0, "delta": 1e-5, "rounds": 6, "report_goal": 4, "clip_norm": 0.5,
        "min_separation": 2, "noise": "banded", "random_state": SilentSource(),
    }  # fmt: skip
    return Server(np.zeros(width), **{**given, **more})


def replayed_rounds() -> str | None:
    """Sums move by at most one clip norm when one person changes."""
    for adaptive in (None, 0.5):
        for pair in searched_pairs("zero_out", 24, 3, False, 0.5)[:6]:
            found = replay(
                lambda X, y, quantile=adaptive: federated_rounds(
                    X, SeededSource(0), BUDGET, "banded", 0.5, 4, 2, quantile
                ),
                pair,
            )
            if found:
                return found[0]
    return None


def rule_kept() -> str | None:
    """Against rounds written down apart."""
    server, rule = made(), Participation.separated(3, 2)
    rounds: dict[int, tuple[int, ...]] = {}
    for round in range(6):
        for person in server.begin_round(range(8)):
            rounds[person] = (*rounds.get(person, ()), round)
        server.end_round()
    broken = [pattern for pattern in rounds.values() if not rule.allows(pattern)]
    return f"somebody was asked in rounds {broken[0]}" if broken else None


def answers_count_once() -> str | None:
    """The first of each person who was asked, and none of an earlier round."""
    server = made()
    asked, one = server.begin_round(range(40)), np.array([0.1, 0.0, 0.0])
    old = server.ticket
    for person in (asked[0], asked[0], 99):
        server.answer(person, one, old)
    first = server.end_round()[0] * 4
    server.begin_round(range(40))
    server.answer(asked[1], one, old)
    second = server.end_round()[0] * 4 - first
    for got, wanted in ((first, 0.1), (second, 0.0)):
        if abs(got - wanted) > 1e-6:
            return f"answers add up to {got:.3g} instead of {wanted}"
    return None


def fixed_divisor() -> str | None:
    """One answer of four that were asked for."""
    server = made()
    asked = server.begin_round(range(40))
    server.answer(asked[0], np.array([0.1, 0.0, 0.0]))
    got = server.end_round()[0]
    return None if abs(got - 0.1 / 4) < 1e-6 else f"one answer counts {got:.3g}"


def noise_of_rounds() -> str | None:
    """Of the first round, from the factorization's matrix and every pattern of the rule."""
    for noise in ("banded", "tree"):
        server = made(WIDTH, noise=noise, random_state=1, neighbouring="replace_one")
        server.begin_round([0])
        matrix = server.plan.factorization.encode(np.eye(6))
        rule = Participation.separated(3, 2)
        patterns = [p for k in (1, 2, 3) for p in combinations(range(6), k) if rule.allows(p)]
        gram = np.abs(matrix.T @ matrix)
        worst = max(gram[np.ix_(p, p)].sum() for p in patterns)
        least = 2 * 0.5 / 4 * math.sqrt(worst) / gaussian_mu(4.0, 1e-5) / matrix[0, 0]
        got = float(np.std(server.end_round()))
        if got < least * (1 - 5 / math.sqrt(2 * WIDTH)):
            return f"noise of {got:.3g} where {least:.3g} is the least"
    return None


def written_before_it_is_shown() -> str | None:
    """An optimizer is somebody's code: what it sees was written down."""
    written: list[int] = []
    seen: list[int] = []

    def step(model: np.ndarray, update: np.ndarray) -> np.ndarray:
        seen.append(len(written))
        return model + update

    def saves(self: Checkpoint, *arguments: Any) -> None:
        written.append(len(seen))

    with TemporaryDirectory() as folder, patch.object(Checkpoint, "save", saves):
        server = made(optimizer=step, checkpoint=folder)
        server.begin_round(range(8))
        server.end_round()
    return None if seen == [1] else "the optimizer sees a round that is not written down"


def one_coin_for_each() -> str | None:
    """Two spellings of one id among those who can be reached."""
    server = made(min_separation=None, population=8, noise="independent", random_state=0)
    try:
        server.begin_round(["ada", "ben", "Ada "])
    except Refused:
        return None
    return "somebody has two coins"


def one_thread_at_a_time() -> str | None:
    """A second answer comes while the first is being looked at."""
    server = made()
    person, *_ = server.begin_round(range(8))
    name, counted = server.people._names, []

    def looking(people: Any) -> Any:
        found = name(people)
        time.sleep(0.02)
        return found

    def answers() -> None:
        counted.append(server.answer(person, np.zeros(3)))

    server.people._waiting = Slow(server.people._waiting)
    with patch.object(server.people, "_names", looking):
        threads = [Thread(target=answers) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return None if sum(counted) == 1 else f"{sum(counted)} answers of one person count"


class Slow(set[str]):
    """Whoever looks into it waits a little."""

    def __contains__(self, name: object) -> bool:
        found = super().__contains__(name)
        time.sleep(0.02)
        return found


def _seen_first(self: Server) -> np.ndarray:
    step = self.optimizer.step

    def early(*arguments: Any, **named: Any) -> Any:
        step(self.model.copy(), np.zeros_like(self.model))
        return _SECRET(*arguments, **named)

    with patch.object(server_module, "secret_of", early):
        return _END(self)


def _far(lengths: Any, bound: float, dimension: int) -> Any:
    return np.ones_like(lengths)


def _uncut(self: Clip, update: np.ndarray, scale: float = 1.0) -> np.ndarray:
    return update / (self.norm * scale)


def _by_answers(self: Server, *arguments: Any) -> bool:
    counted = _ANSWER(self, *arguments)
    self._count = getattr(self, "_count", 0) + counted
    self.report_goal = self._count
    return counted


def _twice(self: Contributions, vector: np.ndarray, unit: float = 1.0) -> None:
    _ADD(self, vector, unit)
    _ADD(self, vector, unit)


def _finer(self: Contributions, vector: np.ndarray, unit: float = 1.0) -> None:
    _ADD(self, vector, unit)
    self._recent[:] *= 2


def _as_one(neighbouring: Any) -> int:
    return 1


_ANSWER, _ADD, _END = Server.answer, Contributions.add, Server.end_round
_SECRET = server_module.secret_of


def rounds() -> Iterator[Mutant]:
    replayed = {
        "an update is added up twice": (Contributions, "add", _twice),
        "steps of half the size": (Contributions, "add", _finer),
    }
    for name, bug in replayed.items():
        yield Mutant(f"rounds: {name}", (bug,), replayed_rounds, "replay")
    both = (contributions_module, "shorten", _far), (Clip, "unit", _uncut)
    yield Mutant("rounds: updates are not clipped", both, replayed_rounds, "replay")
    yield Mutant(
        "rounds: nobody looks at the rule",
        ((Participations, "_free", lambda self, name, round: True),),
        rule_kept,
        "log",
    )
    yield Mutant(
        "rounds: any answer counts",
        ((Participations, "answered", lambda self, person: True),),
        answers_count_once,
        "log",
    )
    for name, patch_of, check in (
        (
            "the optimizer sees a round before it is written down",
            (Server, "end_round", _seen_first),
            written_before_it_is_shown,
        ),
        (
            "who is listed twice has two coins",
            (Participations, "refuse_twice", lambda self, people: self._names(people)),
            one_coin_for_each,
        ),
        (
            "threads do not wait for each other",
            (Server, "answer", Server.answer.__wrapped__),
            one_thread_at_a_time,
        ),
    ):
        yield Mutant(f"rounds: {name}", (patch_of,), check, "log")
    yield Mutant(
        "rounds: divided by the answers that came",
        ((Server, "answer", _by_answers),),
        fixed_divisor,
        "exact",
    )
    yield Mutant(
        "rounds: replaced people count as one",
        ((server_module, "records_moved", _as_one),),
        noise_of_rounds,
        "law",
    )
