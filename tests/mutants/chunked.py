"""Planted bugs in sums over chunks, and the checks that notice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from privopt import Budget, Problem, Refused, solve
from privopt.audit import hostile_pairs, replay
from privopt.engines import Engine, Here, engine, here
from privopt.losses import Logistic
from privopt.oracle import RowBounds, chunked
from privopt.oracle.chunked import ChunkedRows
from privopt.sources import Dataset

from .mutant import Mutant

NORM = Problem(Logistic(), data_norm=1.0)


@dataclass(frozen=True)
class Held:
    """A chunk of arrays in memory."""

    X: np.ndarray
    y: np.ndarray
    stamps: tuple[Any, ...] = ()

    @property
    def rows(self) -> int:
        return len(self.X)

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        return self.X, self.y


def cut(X: np.ndarray, y: np.ndarray) -> Dataset:
    """Arrays in three chunks."""
    parts = zip(np.array_split(X, 3), np.array_split(y, 3), strict=True)
    chunks = tuple(Held(np.ascontiguousarray(a, float), b) for a, b in parts if len(a))
    return Dataset(chunks, tuple(f"x{j}" for j in range(X.shape[1])), "y", (), named=False)


def replayed() -> str | None:
    """One record moves an answer over chunks by at most what is declared; batches included."""
    for name, delta in (("noisy_gd", 0.0), ("noisy_sgd", 1e-4)):

        def run(X: np.ndarray, y: np.ndarray, name: str = name, delta: float = delta) -> str:
            how: dict[str, Any] = {"batch_size": (len(y) + 1) // 2} if delta else {}
            budget = Budget(1.0, delta)
            found = solve(
                NORM, cut(X, y), budget=budget, solver=name, n_iter=2, random_state=0, **how
            )
            return found.certificate.to_json()

        for pair in hostile_pairs("zero_out"):
            wrong = replay(run, pair)
            if wrong:
                return wrong[0]
    return None


def drawn() -> str | None:
    """Batches hold each record at the planned rate, independently of each other."""
    rows = ChunkedRows.read(Here(), cut(np.ones((3000, 1)), np.ones(3000)), RowBounds(1.0), True)
    held = []
    for view in (1, 2):
        batch = rows.sampled(b"k" * 16, view, 0.2)
        held.append(float(batch.asked(chunked_count(), np.zeros(1), None)[0]))
    if any(abs(count - 600) > 6 * np.sqrt(480) for count in held):
        return f"batches of {held} records at a rate of one in five"
    one, two = (chunked.chosen(b"k" * 16, view, 0.2, 0, 3000) for view in (1, 2))
    both = len(np.intersect1d(one, two))
    return None if abs(both - 120) <= 6 * np.sqrt(115) else f"{both} records are in both batches"


def chunked_count() -> Any:
    from privopt.oracle import CountRecords

    return CountRecords()


def silent() -> str | None:
    """A failing chunk says nothing of its rows."""
    data = cut(np.full((6, 1), 1234.5), np.ones(6))
    rows = ChunkedRows.read(Here(), data, RowBounds(1.0), True)

    def quoting(found: Any) -> Any:
        raise ValueError(f"cannot take {found._X[0, 0]}")

    try:
        rows.add(quoting)
    except Refused as refusal:
        return None if "1234" not in str(refusal) else "the refusal quotes a row"
    except Exception as error:
        return f"{type(error).__name__} leaves the task"
    return "nothing was refused"


class _Twice(engine.Growing):
    def append(self, part: Any) -> None:
        super().append(part)
        super().append(part)


def _raises(task: Any, *values: Any) -> Any:
    return task(*values)


def chunks() -> Iterator[Mutant]:
    honest = chunked.chosen
    assert issubclass(Here, Engine)
    yield Mutant(
        "chunks: each part is added twice", ((here, "Growing", _Twice),), replayed, "replay"
    )
    yield Mutant(
        "chunks: coins at twice the rate",
        ((chunked, "chosen", lambda key, view, rate, *at: honest(key, view, 2 * rate, *at)),),
        drawn,
        "law of coins",
    )
    yield Mutant(
        "chunks: the same batch at every step",
        ((chunked, "chosen", lambda key, view, *more: honest(key, 0, *more)),),
        drawn,
        "law of coins",
    )
    yield Mutant(
        "chunks: what a task says when it fails", ((here, "attempt", _raises),), silent, "canary"
    )
