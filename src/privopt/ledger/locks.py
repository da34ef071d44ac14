"""The queue of writers, and who is alive: locks on single bytes of the file ``<path>-lock``.

* One queue. SQLite lets waiting writers poll, and an unlucky one starves. So writers draw a number
  and come in the order of their numbers.
* Who is alive. The owner of open reservation k holds a lock on byte k. The system drops it when the
  process ends, however it ends; no clock and no process number is consulted.

Such locks belong to a process: a fork does not inherit them, and closing *any* descriptor of the
file gives all of them up. So there is one object for each file in a process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has no such locks; see ``queue`` and ``alive``
    fcntl = None

TICKETS = 2**40
"""Where the bytes of the queue begin; those of reservations lie below."""


class Locks:
    """This process's locks on one ledger."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.mine: set[int] = set()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        self._inode = os.fstat(self._file).st_ino

    def current(self) -> bool:
        """Whether the file is still the one that was opened."""
        try:
            return os.stat(self.path).st_ino == self._inode
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Give everything up."""
        os.close(self._file)

    @contextmanager
    def queue(self) -> Iterator[None]:
        """Draw a number and wait for the one before it.

        Whoever holds number t holds byte TICKETS + t; the next one waits for that byte. If a
        process dies in the queue, its successor comes forward too early and finds SQLite's own
        lock taken: order is lost for a moment, exclusion is not.
        """
        if fcntl is None:
            yield  # BEGIN IMMEDIATE alone keeps writers apart; they wait in no order
            return
        fcntl.lockf(self._file, fcntl.LOCK_EX, 1, 0)
        try:
            number = int.from_bytes(os.pread(self._file, 8, 0), "little") % TICKETS
            os.pwrite(self._file, (number + 1).to_bytes(8, "little"), 0)
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, TICKETS + number)
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, 0)
        try:
            if number > 0:
                fcntl.lockf(self._file, fcntl.LOCK_EX, 1, TICKETS + number - 1)
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, TICKETS + number - 1)
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, TICKETS + number)

    def own(self, number: int) -> None:
        if fcntl is not None:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
        self.mine.add(number)

    def disown(self, number: int) -> None:
        """Reservation k is settled, or its owner gives it up."""
        self.mine.discard(number)
        if fcntl is not None:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, number)

    def alive(self, number: int) -> bool:
        """Whether a process holds reservation k; only inside ``writing``."""
        if number in self.mine or fcntl is None:
            return True
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
        except OSError:
            return True
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, number)
        return False
