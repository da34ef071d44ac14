"""Planted bugs in the ledger and its filter, and the check that kills them."""

from __future__ import annotations

import math
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.special import expit, ndtri

from privopt import Budget, Ledger, LogisticRegression, Problem, Refused, solve
from privopt.geometry import L2Ball
from privopt.ledger import Dataset, Reservation
from privopt.ledger.chain import START, Chain, Entry
from privopt.ledger.locks import Locks
from privopt.ledger.store import Store, forget
from privopt.losses import Logistic
from privopt.noise import source as source_module
from privopt.oracle import Oracle
from privopt.privacy import Spend, charge_of, filters
from privopt.privacy.filters import EPSILON_UNITS, SQUARE_UNITS, Cost, Remaining
from privopt.privacy.kinds import BoundedRange, GaussianKind, Kind, Pure
from privopt.privacy.profiles import gaussian_mu

from .mutant import Mutant


def paid() -> str | None:
    """The rules of the ledger, on small cases with known amounts."""
    with tempfile.TemporaryDirectory() as folder:
        for number, rule in enumerate((_amounts, _states, _fits, _memory)):
            place = Path(folder) / str(number)
            place.mkdir()
            try:
                found = rule(place)
            except Refused as refusal:
                found = f"refused: {refusal}"
            for file in place.rglob("*.db"):
                forget(file)
            if found:
                return found
    return None


def _cost(kind: Kind, count: int = 1, budget: Budget | None = None) -> Cost:
    return Cost.of(Spend({(): charge_of(kind, count=count)}), budget or Budget(5.0, 1e-6))


def _refuses(call: Any) -> bool:
    try:
        call()
    except Refused:
        return True
    return False


def _amounts(folder: Path) -> str | None:
    """Costs in closed form; two data sets' worth of cells pay for the dearer one."""
    if _cost(Pure(1 / 3)).epsilon < EPSILON_UNITS / 3:
        return "a cost is rounded down"
    for kind, mu in (
        (GaussianKind(0.3, 0.3), 0.3),
        (Pure(0.5), 2 * float(ndtri(expit(0.5)))),
        (BoundedRange(0.5), 2 * float(ndtri(expit(0.25)))),
    ):
        exact = 3 * mu**2 * SQUARE_UNITS
        if not 1 <= (_cost(kind, 3).square or 0) / exact <= 1 + 1e-6:
            return f"the Gaussian bound of {kind.name} is wrong"
    cells = Spend({(0,): charge_of(Pure(0.01)), (1,): charge_of(GaussianKind(0.3, 0.3))})
    if (Cost.of(cells, Budget(5.0, 1e-6)).square or 0) < 0.09 * SQUARE_UNITS:
        return "the dearest cell is not charged"
    left = Remaining.whole(Budget(2.0, 1e-6), "auto").after(_cost(Pure(1.0)))
    mu = gaussian_mu(1.0, 1e-6) * (1 + 1e-4)
    if left is None or left.after(_cost(GaussianKind(mu, mu))) is not None:
        return "more is left than the budget less what was spent"
    basic = Remaining.whole(Budget(2.0, 1e-6), "basic")
    if basic.after(_cost(GaussianKind(0.01, 0.01), budget=Budget(1.0, 2e-6))) is not None:
        return "delta is not charged"
    return None


def _states(folder: Path) -> str | None:
    budget = Ledger.create(folder / "a.db", 1.0).dataset()
    spend, quarter = Spend({(): charge_of(Pure(0.25))}), Budget(0.25)
    if not _refuses(lambda: budget.reserve(spend, replace(quarter, neighbouring="replace_one"))):
        return "another relation is charged"
    budget.reserve(spend, quarter).void()
    kept = budget.reserve(spend, quarter, touched=True)
    if not _refuses(kept.void) or budget.left[0] != 0.75:
        return "a touched reservation is given back"
    process = os.fork()
    if process == 0:
        try:
            budget.reserve(spend, quarter, touched=True)
        finally:
            os._exit(0)
    os.waitpid(process, 0)
    budget.reserve(spend, quarter, touched=True)
    if budget.left[0] != 0.25 or budget.counts["burned"] != 1:
        return "what a dead process touched is not burned"
    budget.reserve(spend, quarter)
    if not _refuses(lambda: budget.reserve(spend, quarter)):
        return "more than the total is granted"
    return None


def _fits(folder: Path) -> str | None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (60, 2))
    y = np.where(X[:, 0] > 0, 1, -1)
    ledger = Ledger.create(folder / "b.db", 3.0)
    if not _refuses(lambda: LogisticRegression(1.0, random_state=0, ledger=ledger).fit(X, y)):
        return "a seeded fit is charged"
    seen = []
    honest = Oracle.over

    def over(*arguments: Any, **options: Any) -> Any:
        seen.append(ledger.dataset().left[0])
        return honest(*arguments, **options)

    with patch.object(Oracle, "over", over):
        LogisticRegression(1.0, solver="objective_perturbation", ledger=ledger).fit(X, y)
    if seen != [2.0]:
        return "data is read before it is paid for"

    def run() -> Any:
        problem = Problem(Logistic(), L2Ball(2.0))
        return solve(problem, X, y, budget=Budget(1.0), ledger=ledger, key="once").theta

    if not np.array_equal(run(), run()) or ledger.dataset().left[0] != 1.0:
        return "a retry is charged or released again"
    with patch.object(Oracle, "over", side_effect=MemoryError), suppress(MemoryError):
        LogisticRegression(1.0, solver="objective_perturbation", ledger=ledger).fit(X, y)
    counts = ledger.dataset().counts
    if ledger.dataset().left[0] != 0.0 or counts["burned"] != 1:
        return "a fit that failed is not paid"
    return None


def _memory(folder: Path) -> str | None:
    path = folder / "c.db"
    budget = Ledger.create(path, 1.0).dataset()
    forget(path)
    shutil.copy(path, folder / "old")
    spend, quarter = Spend({(): charge_of(Pure(0.25))}), Budget(0.25)
    budget.reserve(spend, quarter, touched=True).burn()
    forget(path)
    shutil.copy(path, folder / "new")
    shutil.copy(folder / "old", path)
    if not _refuses(lambda: Ledger(path)):
        return "an old copy is taken for the ledger"
    forget(path)
    shutil.copy(folder / "new", path)
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER entries_stay")
    connection.execute("UPDATE entries SET release = 'other' WHERE number >= 2")
    connection.commit()
    connection.close()
    return None if _refuses(lambda: Ledger(path)) else "an altered entry is not noticed"


def ledger() -> Iterator[Mutant]:
    def mutant(name: str, *patches: tuple[Any, str, Any]) -> Mutant:
        return Mutant(f"ledger: {name}", patches, paid, "ledger")

    bound, square, refund = filters.gaussian_bound, filters.gaussian_square, Remaining.refunded
    reserve, cost_of, as_gaussian = Dataset.reserve, Cost.of.__func__, Remaining.as_gaussian
    apply = Chain._apply

    yield mutant(
        "costs rounded down", (filters, "_up", lambda amount, units: math.floor(amount * units))
    )
    yield mutant(
        "a pure release counted as Gaussian of the same number",
        (filters, "gaussian_bound", lambda k: k.epsilon if isinstance(k, Pure) else bound(k)),
    )
    yield mutant(
        "half the range of a selection",
        (
            filters,
            "gaussian_bound",
            lambda k: bound(BoundedRange(k.eta / 2)) if isinstance(k, BoundedRange) else bound(k),
        ),
    )
    yield mutant(
        "repeated releases counted once",
        (filters, "gaussian_square", lambda charge, n: square(dict.fromkeys(charge, 1), n)),
    )
    yield mutant(
        "the cheapest cell is charged",
        (
            Cost,
            "of",
            classmethod(
                lambda cls, planned, budget: min(
                    (cost_of(cls, Spend({(): charge}), budget) for _, charge in planned.frontier()),
                    key=lambda cost: cost.epsilon,
                )
            ),
        ),
    )
    yield mutant(
        "the whole budget is left when the account turns Gaussian",
        (
            Remaining,
            "as_gaussian",
            lambda self: as_gaussian(replace(self, epsilon=2 * EPSILON_UNITS)),
        ),
    )
    yield mutant(
        "deltas are not added",
        (
            Cost,
            "of",
            classmethod(lambda cls, p, b: replace(cost_of(cls, p, b), delta=0)),
        ),
    )
    yield mutant(
        "what is given back counts twice",
        (Remaining, "refunded", lambda self, c, g: refund(refund(self, c, g), c, g)),
    )
    yield mutant(
        "nothing is touched at once",
        (
            Dataset,
            "reserve",
            lambda self, p, b, **o: reserve(self, p, b, **{**o, "touched": False}),
        ),
    )
    yield mutant(
        "keys are forgotten",
        (Dataset, "reserve", lambda self, p, b, **o: reserve(self, p, b, **{**o, "key": None})),
    )
    yield mutant("relations are not compared", (Dataset, "_check", lambda self, budget: None))
    yield mutant("the dead are taken to be alive", (Locks, "alive", lambda self, number: True))
    yield mutant("a seeded source is called private", (source_module.SeededSource, "private", True))
    yield mutant("the head is not read", (Store, "_read_head", lambda self: (0, START)))

    def nameless(self: Any, entry: Entry) -> None:
        if entry.action == "burn" and entry.release not in self.accounts[entry.dataset].open:
            entry = replace(entry, release=next(iter(self.accounts[entry.dataset].open)))
        apply(self, entry)
        self.number, self.last = entry.number, entry.hash

    yield mutant("hashes are not compared", (Chain, "follow", nameless))
    yield mutant(
        "a failed fit is given back",
        (Reservation, "burn", lambda self: self.void()),
        (Chain, "_apply", _forgiving(apply)),
    )


def _forgiving(apply: Any) -> Any:
    """Void whatever was touched."""

    def mutated(self: Any, entry: Entry) -> None:
        if entry.action == "void":
            release = self.accounts[entry.dataset].open[entry.release]
            release.state = "reserved"
        apply(self, entry)

    return mutated
