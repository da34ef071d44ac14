"""A reservation: a cost that counts as spent from the moment it exists."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from privopt.ledger.store import store_at
from privopt.privacy import Certificate, Refused


class Reservation:
    """A charge in progress, owned by the process that made it.

    ``answer`` is what was stored at its commit if the key had been used before: nothing is to be
    released again.
    """

    def __init__(
        self,
        path: Path,
        dataset: str,
        name: str,
        number: int,
        hash_: str,
        *,
        durable: bool = False,
        answer: dict[str, Any] | None = None,
    ) -> None:
        self.path, self.dataset = path, dataset
        self.name, self.number, self.hash = name, number, hash_
        self.answer = answer
        self._durable, self._process = durable, os.getpid()

    @property
    def mark(self) -> dict[str, Any]:
        """What a certificate says about where it was charged."""
        return {"dataset": self.dataset, "entry": self.number, "hash": self.hash}

    def touch(self) -> None:
        """From here on the cost is never given back."""
        self._write("touch", {}, settled=False)

    def commit(self, certificate: Certificate, result: Any = None) -> None:
        """Store the certificate, and with it whatever JSON a retry should return."""
        self._write(
            "commit",
            {"certificate": certificate.to_dict(), "result": result},
            durable=self._durable,
        )

    def void(self) -> None:
        """Give the cost back; refused once it was touched."""
        self._write("void", {"why": "not needed"})

    def burn(self) -> None:
        """Settle a release that failed after it was touched."""
        self._write("burn", {"why": "failed"})

    def _write(
        self, action: str, body: dict[str, Any], *, settled: bool = True, durable: bool = True
    ) -> None:
        if self._process != os.getpid():
            raise Refused("a reservation belongs to the process that made it.")
        store = store_at(self.path)
        with store.writing(durable=durable):
            release = store.chain.accounts[self.dataset].open.get(self.name)
            needed = {"touch": "reserved", "void": "reserved", "commit": "touched"}
            if release is None:
                store.locks.disown(self.number)
                raise Refused("this reservation is settled already.")
            if action in needed and release.state != needed[action]:
                raise Refused(f"a reservation that is {release.state} cannot be {action}ed.")
            store.append(self.dataset, self.name, action, body)
        if settled:
            store.locks.disown(self.number)


def stored(answer: dict[str, Any]) -> tuple[Certificate, Any]:
    """Certificate and result of a release that was committed under a key."""
    return Certificate.from_json(json.dumps(answer["certificate"])), answer["result"]
