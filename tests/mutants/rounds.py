"""Planted bugs in federated rounds, and the checks that notice."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np

import privopt.federated.server as server_module
import privopt.oracle.contributions as contributions_module
from privopt.audit import replay
from privopt.audit.neighbours import searched_pairs
from privopt.audit.trainings import federated_rounds
from privopt.federated.clipping import Clip
from privopt.federated.participations import Participations
from privopt.federated.server import Server
from privopt.noise import SeededSource, SilentSource
from privopt.oracle.contributions import Contributions
from privopt.privacy import Budget, Participation
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


_ANSWER, _ADD = Server.answer, Contributions.add


def rounds() -> Iterator[Mutant]:
    replayed = {
        "an update is added up twice": (Contributions, "add", _twice),
        "steps of half the size": (Contributions, "add", _finer),
    }
    for name, patch in replayed.items():
        yield Mutant(f"rounds: {name}", (patch,), replayed_rounds, "replay")
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
