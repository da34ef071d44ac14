"""The chain: append-only entries, each bound to all before it by its hash, and what they add up to.

The ledger is its chain. There is no column "used" that could be set back by hand: how much is left
is computed from the entries, and every process checks each entry once, when it first sees it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from privopt.privacy import Budget, Refused
from privopt.privacy.filters import SQUARE_UNITS, Cost, Remaining

START = "0" * 64
"""What the first entry is bound to."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger.

    ``action``: *create* a data set's budget; *reserve* a cost; *touch*, before the first random bit
    is drawn; *commit*, before the answer is handed out; *void* a reservation that was not touched,
    which gives its cost back; *burn* one that was, or that nobody owns any more.
    """

    number: int
    dataset: str
    release: str
    action: str
    body: str
    hash: str

    @classmethod
    def after(
        cls, last: str, number: int, dataset: str, release: str, action: str, body: dict[str, Any]
    ) -> Entry:
        text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
        entry = cls(number, dataset, release, action, text, "")
        return cls(number, dataset, release, action, text, entry.bound_to(last))

    def bound_to(self, last: str) -> str:
        """The hash this entry must have if ``last`` is the hash before it."""
        content = [last, self.number, self.dataset, self.release, self.action, self.body]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    @property
    def content(self) -> dict[str, Any]:
        return json.loads(self.body)


@dataclass(slots=True)
class Release:
    """A reservation and what became of it: reserved, touched, committed or burned."""

    name: str
    number: int
    cost: Cost
    gaussian: bool
    state: str
    what: str
    key: str | None = None
    answer: int | None = None
    """Number of the entry that holds the certificate."""


@dataclass(slots=True)
class Account:
    """What the entries of one data set add up to."""

    name: str
    budget: Budget
    left: Remaining
    open: dict[str, Release] = field(default_factory=dict)
    keys: dict[str, Release] = field(default_factory=dict)
    count: dict[str, int] = field(
        default_factory=lambda: {"committed": 0, "burned": 0, "voided": 0}
    )


class Chain:
    """The entries seen so far: their last hash, and the accounts they make."""

    def __init__(self) -> None:
        self.number, self.last = 0, START
        self.accounts: dict[str, Account] = {}

    def follow(self, entry: Entry) -> None:
        """Check one more entry and apply it."""
        try:
            fits = entry.number == self.number + 1 and entry.hash == entry.bound_to(self.last)
        except TypeError:  # a flipped bit can turn text into bytes
            fits = False
        if not fits:
            raise damaged(f"entry {self.number + 1} is missing or was altered")
        try:
            self._apply(entry)
        except (KeyError, TypeError, ValueError):
            raise damaged(f"entry {entry.number} makes no sense") from None
        self.number, self.last = entry.number, entry.hash

    def _apply(self, entry: Entry) -> None:
        if entry.action == "create":
            body = entry.content
            if entry.dataset in self.accounts:
                raise ValueError("created twice")
            budget = Budget(**body["budget"])
            left = Remaining.whole(budget, body["composition"])
            if not _same(left, left.with_amounts(body["left"])):
                raise ValueError("another total than the budget's")
            self.accounts[entry.dataset] = Account(
                entry.dataset, budget, left.with_amounts(body["left"])
            )
            return
        account = self.accounts[entry.dataset]
        if entry.action == "reserve":
            self._reserve(account, entry, entry.content)
            return
        release = account.open[entry.release]
        if entry.action == "touch":
            if release.state != "reserved":
                raise ValueError("touched twice")
            release.state = "touched"
            return
        if entry.action == "commit":
            if release.state != "touched":
                raise ValueError("committed without being touched")
            release.state, release.answer = "committed", entry.number
        elif entry.action == "burn":
            release.state = "burned"
        elif entry.action == "void":
            if release.state != "reserved":
                raise ValueError("given back after being touched")
            account.left = account.left.refunded(release.cost, release.gaussian)
            release.state = "voided"
            account.keys.pop(release.key or "", None)
        else:
            raise ValueError("unknown action")
        if release.cost.something:  # a note of a training's steps is no release
            account.count[release.state] += 1
        del account.open[entry.release]

    def _reserve(self, account: Account, entry: Entry, body: dict[str, Any]) -> None:
        if entry.release in account.open:
            raise ValueError("reserved twice")
        cost = Cost.from_dict(body["cost"])
        expected = account.left.after(cost)
        if expected is None:
            raise ValueError("more than was left")
        # The amount at the passage to a Gaussian account was computed in floating point, perhaps by
        # another version: it may differ in its last digits. All other amounts are exact.
        left = expected.with_amounts(body["left"])
        alike = _same(left, expected) if account.left.turns(cost) else left == expected
        if not alike:
            raise ValueError("wrong remainder")
        account.left = left
        release = Release(
            entry.release,
            entry.number,
            cost,
            left.gaussian,
            "touched" if body["touched"] else "reserved",
            body["what"],
            body["key"],
        )
        account.open[entry.release] = release
        if release.key is not None:
            if release.key in account.keys:
                raise ValueError("key used twice")
            account.keys[release.key] = release


def _same(one: Remaining, other: Remaining) -> bool:
    """Equal but for rounding in mu^2."""
    if one.square is None or other.square is None:
        return one == other
    near = abs(one.square - other.square) <= 1e-9 * one.square + 1e-12 * SQUARE_UNITS
    return near and (one.epsilon, one.delta) == (other.epsilon, other.delta)


def damaged(what: str) -> Refused:
    """The refusal of a ledger that contradicts itself."""
    return Refused(
        f"this ledger cannot be trusted: {what}; nothing is charged or released until it is "
        "replaced by a copy that verifies."
    )
