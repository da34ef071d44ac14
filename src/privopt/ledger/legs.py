"""Who takes which steps of a training that a ledger has paid for: each of them once.

A training is charged for all its steps before the first. A saved state of it can be gone on from
more than once: by copying it, or by a crash and a checkpoint that is older than the crash. Steps
that were taken before are then taken again, with other noise, and are a second use of the data. So
a process says in the ledger which steps it takes next, before it takes them. Steps that somebody
said before are charged again; the others are what was paid for.

Whoever saves a state hands its remaining steps over: they are free for the one who goes on first,
the same process or another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from privopt.ledger.chain import Account
from privopt.ledger.dataset import Dataset
from privopt.ledger.store import Store, store_at
from privopt.noise import fresh_name
from privopt.privacy import Budget, Refused, Spend
from privopt.privacy.filters import Cost

NOTHING = Cost(0, 0, 0)
OTHER = (
    "this run was charged to a ledger, which counts who goes on from its states: give the same "
    "ledger and data set."
)


def take(
    account: Dataset,
    mark: dict[str, Any],
    steps: range,
    again: Callable[[], Spend],
    budget: Budget,
    what: str,
) -> tuple[str, bool]:
    """Enter steps that are taken next. If any of them was entered before, ``again`` is charged.

    Returns the name of the entry, for ``hand_over``, and whether it was charged.
    """
    name = f"{mark['hash']}/{steps.start}-{steps.stop}/{fresh_name()}"
    store = store_at(account.path)
    with store.writing():
        known = _account(store, account, mark)
        if all(not _common(steps, other) for other in _entered(known, mark)):
            _note(store, account, name, what)
            return name, False
    account.reserve(again(), budget, what=f"{what}, again", key=name, touched=True).burn()
    return name, True


def hand_over(account: Dataset, mark: dict[str, Any], name: str, done: int) -> None:
    """The steps of an entry from ``done`` on were not taken: a saved state stands before them."""
    store = store_at(account.path)
    with store.writing():
        _account(store, account, mark)
        _note(store, account, f"{name}/{done}", "handed over")


def _account(store: Store, account: Dataset, mark: dict[str, Any]) -> Account:
    """The account, if it is the one that has paid."""
    number = int(mark["entry"])
    paid = mark["dataset"] == account.name and number <= store.chain.number
    if not paid or store.entry(number).hash != mark["hash"]:
        raise Refused(OTHER)
    return store.chain.accounts[account.name]


def _entered(account: Account, mark: dict[str, Any]) -> Iterator[range]:
    """Steps of a run that somebody has taken, or may have."""
    ends: dict[str, int] = {}
    for key in account.keys:
        run, *rest = key.split("/")
        if run == mark["hash"] and len(rest) == 3:
            ends["/".join(rest[:2])] = int(rest[2])
    for key in account.keys:
        run, *rest = key.split("/")
        if run == mark["hash"] and len(rest) == 2:
            start, stop = map(int, rest[0].split("-"))
            yield range(start, min(stop, ends.get("/".join(rest), stop)))


def _common(one: range, other: range) -> bool:
    return max(one.start, other.start) < min(one.stop, other.stop)


def _note(store: Store, account: Dataset, key: str, what: str) -> None:
    """An entry that costs nothing and stays."""
    left = store.chain.accounts[account.name].left.after(NOTHING)
    assert left is not None
    body = {
        **{"cost": NOTHING.to_dict(), "left": left.to_dict(), "touched": True},
        **{"key": key, "what": what, "charges": []},
    }
    entry = store.append(account.name, fresh_name(), "reserve", body)
    store.append(account.name, entry.release, "burn", {"why": "a note"})
    store.locks.disown(entry.number)
