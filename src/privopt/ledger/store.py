"""The file: SQLite with a queue in front, a lock for every open reservation, and a head beside it.

* Write-ahead log, ``synchronous=FULL``: a reservation is on the disk before it counts as made. A
  commit changes no amount; it is written to the disk at once only if a key asks for a retry that
  survives a power failure. Otherwise it goes there with the next reservation, and a power failure
  in between turns it into a burned release: budget is lost, privacy is not.
* One queue for writers, and a lock for every open reservation: see ``locks``.
* The head. After every reservation the number and the hash of the last entry are written to
  ``<path>-head``. A database that ends before its head is a restored old copy, or lost committed
  entries: it is refused.

Only for local disks: locks and write-ahead logs do not work over network file systems.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from privopt import durable
from privopt.ledger.chain import START, Chain, Entry, damaged
from privopt.ledger.locks import Locks
from privopt.privacy import Refused

TABLE = """
CREATE TABLE entries (
    number INTEGER PRIMARY KEY CHECK (number >= 1),
    dataset TEXT NOT NULL,
    release TEXT NOT NULL,
    action TEXT NOT NULL
        CHECK (action IN ('create', 'reserve', 'touch', 'commit', 'void', 'burn')),
    body TEXT NOT NULL,
    hash TEXT NOT NULL CHECK (length(hash) = 64)
) STRICT;
CREATE TRIGGER entries_stay BEFORE UPDATE ON entries
    BEGIN SELECT RAISE(ABORT, 'entries are never changed'); END;
CREATE TRIGGER entries_remain BEFORE DELETE ON entries
    BEGIN SELECT RAISE(ABORT, 'entries are never deleted'); END;
"""
COLUMNS = "number, dataset, release, action, body, hash"
PATIENCE = 60.0
"""Seconds to wait for somebody who writes without queueing, such as a backup."""

_STORES: dict[str, Store] = {}
_GUARD = threading.Lock()


def store_at(path: Path, *, create: bool = False) -> Store:
    """The store of a file: one in each process, which has checked the entries it has seen."""
    name = os.path.realpath(path)
    with _GUARD:
        store = _STORES.get(name)
        if store is None or not store.locks.current():
            if not create and not os.path.exists(name):
                raise Refused(f"there is no ledger at {name}: make one with Ledger.create.")
            store = _STORES[name] = Store(Path(name))
    if create:
        store.create()
    return store


def forget(path: Path) -> None:
    """Close a ledger's files; its open reservations are given up."""
    with _GUARD:
        store = _STORES.pop(os.path.realpath(path), None)
    if store is not None:
        store.close()


def _before_fork() -> None:
    # SQLite forbids a connection to live on both sides of a fork: a child that inherits one
    # believes in locks that only its parent holds. So it is closed, and opened again when needed.
    _GUARD.acquire()
    for store in _STORES.values():
        store.pause()


def _after_fork_in_parent() -> None:
    for store in _STORES.values():
        store.resume()
    _GUARD.release()


def _after_fork_in_child() -> None:
    _STORES.clear()
    _GUARD.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )


class Store:
    """One process's access to a ledger's file. Never pickled, never used after a fork."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.chain = Chain()
        self._thread = threading.RLock()
        self._seen = self.chain.number, self.chain.last
        self._stale = False
        self._open: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self.locks = Locks(Path(f"{path}-lock"))

    def create(self) -> None:
        """Make the files; what a process that was killed here left behind is completed."""
        with self._thread, _plain(self.path), self.locks.queue():
            self._create()

    def _create(self) -> None:
        path, head = self.path, Path(f"{self.path}-head")
        if not path.exists():
            if head.exists() and head.stat().st_size and self._read_head()[0] > 0:
                raise damaged(f"its file is gone, and its head, {head.name}, is still there")
            self._write_head()
            path.touch()
        if self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.executescript(f"BEGIN IMMEDIATE; {TABLE} COMMIT;")
            for place in (head, path.parent):  # a power failure must not take the names away
                durable.flush(place)

    def pause(self) -> None:
        """Close the connection and keep every thread out; reservations stay owned."""
        self._thread.acquire()
        self._disconnect()

    def resume(self) -> None:
        self._thread.release()

    def close(self) -> None:
        """Close everything."""
        with self._thread:
            self._disconnect()
            self.locks.close()

    def _disconnect(self) -> None:
        if self._open is not None:
            with suppress(sqlite3.Error):
                self._open.close()
            self._open = None

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._open is not None and not self._open.in_transaction and self._replaced():
            self._disconnect()
        if self._open is not None:
            return self._open
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?mode=rw",  # never makes a new file where one was deleted
            uri=True,
            timeout=PATIENCE,
            isolation_level=None,
            check_same_thread=False,
        )
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA fullfsync=ON")  # macOS: flush the disk's own cache as well
        connection.execute("PRAGMA trusted_schema=OFF")
        self._open, self._file = connection, _identity(self.path)
        return connection

    def _replaced(self) -> bool:
        """Whether another file lies where the open one did: a restored copy, or none."""
        return _identity(self.path) != self._file

    # ------------------------------------------------------------ reading
    def refresh(self) -> Chain:
        """The chain with all entries up to now, each checked."""
        with self._thread, _plain(self.path):
            head = self._read_head()  # before the entries: the database can only be ahead of it
            self._catch_up(head)
            return self.chain

    def entry(self, number: int) -> Entry:
        with self._thread, _plain(self.path):
            found = self._rows("number = ?", number)
            if not found:
                raise damaged(f"entry {number} is missing")
            return Entry(*found[0])

    def entries(self) -> list[Entry]:
        """All entries, read from the file and checked from the first."""
        with self._thread, _plain(self.path):
            self._stale = True
            self._catch_up(self._read_head())
            return [Entry(*row) for row in self._rows("number <= ?", self.chain.number)]

    def accept_head(self) -> None:
        """Declare the entries that are there to be all there were; for a person to decide."""
        with self._thread, _plain(self.path), self.locks.queue():
            self._stale, self._seen = True, (0, START)
            self._catch_up(None)
            self._write_head()

    def sound(self) -> None:
        """Let SQLite check its own pages."""
        with self._thread, _plain(self.path):
            found = self._connection.execute("PRAGMA integrity_check").fetchall()
        if found != [("ok",)]:
            raise damaged("SQLite finds its pages damaged")

    def _rows(self, where: str, *values: Any) -> list[tuple[Any, ...]]:
        query = f"SELECT {COLUMNS} FROM entries WHERE {where} ORDER BY number"
        return self._connection.execute(query, values).fetchall()

    def _catch_up(self, head: tuple[int, str] | None) -> None:
        """Check the entries that are new, and that none is missing that was there before."""
        if self._stale:
            self.chain, self._stale = Chain(), False
        chain = self.chain
        older = "it is older than what this process has seen of it"
        known = {}
        try:
            for entry in (Entry(*row) for row in self._rows("number >= ?", chain.number)):
                if entry.number > chain.number:
                    chain.follow(entry)
                known[entry.number] = entry.hash
            if chain.number not in known and chain.number > 0:
                raise damaged(older)
            self._holds(self._seen, known, older)
            if head is not None:
                ends = f"it ends at entry {chain.number}, and its head says {head[0]}"
                self._holds(head, known, ends)
        except BaseException:
            self._stale = True
            raise
        self._seen = chain.number, chain.last

    def _holds(self, mark: tuple[int, str], known: dict[int, str], otherwise: str) -> None:
        """Refuse if the entry with a number and hash seen before is not there."""
        number, hash_ = mark
        if number > self.chain.number:
            raise damaged(otherwise)
        found = known.get(number) or (START if number == 0 else self.entry(number).hash)
        if found != hash_:
            raise damaged(f"entry {number} is not the one it was")

    # ------------------------------------------------------------ writing
    @contextmanager
    def writing(self, *, durable: bool = True) -> Iterator[Store]:
        """One transaction, alone in the queue. Either all of it is on the disk, or nothing."""
        with self._thread, _plain(self.path), self.locks.queue():
            self._connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._connection.execute("BEGIN IMMEDIATE")
            taken = set(self.locks.mine)
            try:
                self._catch_up(self._read_head())
                yield self
                self._connection.execute("COMMIT")
                self._seen = self.chain.number, self.chain.last
                if durable:
                    self._write_head()
            except BaseException:
                self._stale = True
                for number in self.locks.mine - taken:
                    self.locks.disown(number)
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise

    def append(self, dataset: str, release: str, action: str, body: dict[str, Any]) -> Entry:
        """One more entry; only inside ``writing``."""
        chain = self.chain
        number = chain.number + 1
        entry = Entry.after(chain.last, number, dataset, release, action, body)
        if action == "reserve":
            self.locks.own(number)
        chain.follow(entry)
        self._connection.execute(
            f"INSERT INTO entries ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
            (number, dataset, release, action, entry.body, entry.hash),
        )
        return entry

    def _read_head(self) -> tuple[int, str]:
        try:
            number, hash_ = Path(f"{self.path}-head").read_text("ascii").split()
            return int(number), hash_
        except FileNotFoundError:
            raise damaged(f"its head, {self.path.name}-head, is missing") from None
        except ValueError:
            raise damaged("its head cannot be read") from None

    def _write_head(self) -> None:
        # One short write in place: a process killed before it leaves the older head, which is true.
        text = f"{self.chain.number:>20} {self.chain.last}\n".encode()
        durable.overwrite(f"{self.path}-head", text)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def _plain(path: Path) -> Iterator[None]:
    """SQLite's complaints in a sentence of ours."""
    try:
        yield
    except sqlite3.OperationalError as problem:
        raise Refused(
            f"the ledger {path.name} could not be read or written ({problem}): nothing that was "
            "not charged is released."
        ) from None
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        raise damaged("SQLite finds its file damaged") from None
    except OSError as problem:
        raise Refused(
            f"the ledger {path.name} could not be read or written ({problem.strerror}): nothing "
            "that was not charged is released."
        ) from None
