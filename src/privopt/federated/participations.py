"""Who was asked in which round: a ledger of people, on disk, and the rule that each of them keeps.

A person is entered when *asked*, before any message leaves: whether they answer may depend on what
they hold, so an unanswered question burns their turn. Of the answers, the first of each person who
was asked in the open round counts; a late, a second and a foreign one count nothing.

On disk there are pseudonyms, digests of canonical ids under a secret key that lies beside them,
both readable by their owner alone. The journal is a chain of lines, each sealed by a digest over
all before it and flushed before ``ask`` returns. A line that was cut at the end is of a question
that was never sent, and is dropped; any other damage is refused. Whoever opens the ledger writes a
line, so of two servers on one ledger the first is refused at its next question.

Restoring the folder from a backup cannot be noticed here: people would be asked again too early.
Whoever keeps ``times`` elsewhere notices.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from privopt import durable
from privopt.noise import fresh_name
from privopt.oracle.identities import canonical_ids
from privopt.privacy import Participation, Refused
from privopt.privacy.participation import Pattern

JOURNAL, KEY, LOCK = "asked", "key", "lock"
FORMAT = 1
ELSEWHERE = "another server has gone on with this ledger of participations: this one must stop."
DAMAGED = "the ledger of participations was cut or altered: use another folder, and a new budget."


class Participations:
    """Enforces a rule of participation for people who are asked, round after round.

    Parameters
    ----------
    rule : Participation
        How often one person may be asked, and how many rounds apart.
    folder : path, optional
        Where it outlives the process. Without it the rule holds for this process alone.

    Examples
    --------
    >>> from privopt import Participation
    >>> people = Participations(Participation.separated(2, min_separation_steps=10))
    >>> people.ask(["ada", "ben"], round=0)
    >>> people.may(["ada", "eve"], round=9)
    [False, True]
    >>> people.answered("ada"), people.answered("ada"), people.answered("eve")
    (True, False, False)
    """

    def __init__(self, rule: Participation, folder: str | os.PathLike[str] | None = None) -> None:
        self.rule = rule
        self._rounds: dict[str, list[int]] = {}
        self._waiting: set[str] = set()
        self._known: dict[Any, str] = {}
        self._folder = None if folder is None else Path(folder)
        self._seen, self._chain = 0, ""
        if self._folder is None:
            self._key = fresh_name()
        else:
            self._open(self._folder)

    # ------------------------------------------------------------ asking
    def may(self, people: Sequence[Any], round: int) -> list[bool]:
        """Whether each of these people may be asked in a round, counted from 0."""
        return [self._free(name, round) for name in self._names(people)]

    def ask(self, people: Sequence[Any], round: int) -> None:
        """Enter people as asked; once this returns, and not before, they may be asked."""
        names = self.refuse_twice(people)
        if not all(self._free(name, round) for name in names):
            raise Refused(
                "a person would be asked more often, or sooner again, than the rule allows: "
                "leave them out."
            )
        if self._folder is not None:
            with durable.alone(self._folder / LOCK):
                self._refuse_others()
                self._write({"round": round, "asked": names})
        self._enter(names, round)
        self._waiting = set(names)

    def refuse_twice(self, people: Sequence[Any]) -> list[str]:
        """Their names; refuses a person who is there twice."""
        names = self._names(people)
        if len(set(names)) < len(names):
            raise Refused("a person is there twice in one round: each has one turn, one answer.")
        return names

    def answered(self, person: Any) -> bool:
        """Whether an answer counts: the first of somebody who was asked in the open round."""
        (name,) = self._names([person])
        if name not in self._waiting:
            return False
        self._waiting.discard(name)
        return True

    def groups(self, people: Sequence[Any], count: int) -> list[int]:
        """A group for each person: uniform, independent of all others, the same for good."""
        return [int(name, 16) % count for name in self._names(people)]

    def close(self) -> None:
        """End the open round: answers that come from now on count nothing."""
        self._waiting = set()

    def still_mine(self) -> None:
        """Refuse if another server has opened this ledger since."""
        if self._folder is not None:
            with durable.alone(self._folder / LOCK):
                self._refuse_others()

    # ------------------------------------------------------------ what happened
    @property
    def patterns(self) -> set[Pattern]:
        """The rounds in which anybody was asked, person by person, without names."""
        return {tuple(sorted(set(rounds))) for rounds in self._rounds.values()}

    @property
    def times(self) -> int:
        """How often people were asked, all together."""
        return sum(map(len, self._rounds.values()))

    # ------------------------------------------------------------ inside
    def _names(self, people: Sequence[Any]) -> list[str]:
        people = list(people)
        kinds = {type(person) for person in people}
        if len(kinds) == 1 and kinds <= {int, str}:  # one way of writing ids, the same every round
            fresh = [person for person in people if person not in self._known]
            self._known.update(zip(fresh, self._pseudonyms(fresh), strict=True))
            return [self._known[person] for person in people]
        return self._pseudonyms(people)

    def _pseudonyms(self, people: list[Any]) -> list[str]:
        found = canonical_ids(people, len(people), "ids of people")
        key = self._key.encode()
        return [
            hashlib.blake2b(
                name.encode("utf-8", "surrogatepass"), digest_size=16, key=key
            ).hexdigest()
            for name in found
        ]

    def _free(self, name: str, round: int) -> bool:
        return self.rule.allows((*self._rounds.get(name, ()), round))

    def _enter(self, names: Iterable[str], round: int) -> None:
        for name in names:
            self._rounds.setdefault(name, []).append(round)

    # ------------------------------------------------------------ on disk
    def _open(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        rule = [FORMAT, self.rule.times, self.rule.min_separation_steps]
        with durable.alone(folder / LOCK):
            if not (folder / KEY).exists():
                if (folder / JOURNAL).exists():
                    raise Refused(DAMAGED)
                durable.replace(folder / KEY, fresh_name().encode())
            self._key = (folder / KEY).read_bytes().decode("ascii", "replace")
            self._chain = hashlib.sha256(self._key.encode()).hexdigest()
            entries = self._read(folder / JOURNAL)
            if any(entry.get("rule", rule) != rule for entry in entries):
                raise Refused(
                    "the rule of participation cannot change within a ledger: set "
                    "max_participations and min_separation back, or use another folder, and a "
                    "new budget."
                )
            for entry in entries:
                self._enter(entry.get("asked", ()), entry.get("round", 0))
            self._write({"rule": rule, "server": fresh_name()})

    def _read(self, path: Path) -> list[dict[str, Any]]:
        """All entries; a tail that was never flushed is cut off."""
        content = path.read_bytes() if path.exists() else b""
        lines = content.splitlines(keepends=True)
        found: list[dict[str, Any]] = []
        for number, line in enumerate(lines, 1):
            digest, _, body = line.partition(b" ")
            sealed = self._sealed(body.removesuffix(b"\n"))
            if number == len(lines) and not line.endswith(b"\n"):
                durable.replace(path, content[: self._seen])
                break
            if digest != sealed.encode():
                raise Refused(DAMAGED)
            found.append(json.loads(body))
            self._chain, self._seen = sealed, self._seen + len(line)
        return found

    def _sealed(self, body: bytes) -> str:
        return hashlib.sha256(self._chain.encode() + body).hexdigest()

    def _write(self, entry: dict[str, Any]) -> None:
        assert self._folder is not None
        body = json.dumps(entry).encode()
        sealed = self._sealed(body)
        line = sealed.encode() + b" " + body + b"\n"
        durable.append(self._folder / JOURNAL, line)
        self._chain, self._seen = sealed, self._seen + len(line)

    def _refuse_others(self) -> None:
        assert self._folder is not None
        path = self._folder / JOURNAL
        size = path.stat().st_size if path.exists() else -1
        if size != self._seen:
            raise Refused(ELSEWHERE if size > self._seen else DAMAGED)
