"""Who has taken part in which steps of a stream, and the rule that every record keeps."""

from __future__ import annotations

import hashlib
from typing import Any

from privopt.oracle.identities import canonical_ids
from privopt.privacy.budget import Refused
from privopt.privacy.participation import Participation


class Participants:
    """Enforces a participation rule for records that are named.

    Names are kept as digests of their canonical text, keyed by the run.
    """

    def __init__(self, rule: Participation, key: str, steps: list[list[str]] | None = None) -> None:
        self.rule, self._key = rule, key
        self._last: dict[str, int] = {}
        self._times: dict[str, int] = {}
        for step, records in enumerate(steps or []):
            self.enter(step, records)

    @property
    def enrolled(self) -> int:
        """Participations so far."""
        return sum(self._times.values())

    def digests(self, names: Any, rows: int, step: int) -> list[str]:
        """Digests of a batch's names; refuses a batch that would break the rule."""
        found = [self._digest(name) for name in canonical_ids(names, rows)]
        if len(set(found)) < len(found):
            raise Refused("a record stands twice in one batch: the clip bounds one row each.")
        times, gap = self.rule.times, self.rule.min_separation_steps
        if any(self._times.get(record, 0) >= times for record in found):
            raise Refused(
                f"a record of this batch has already taken part in {times} step(s), the declared "
                "max_participations: leave it out."
            )
        if any(record in self._last and step - self._last[record] < gap for record in found):
            raise Refused(
                f"a record of this batch took part less than {gap} steps ago, the declared "
                "min_separation_steps: leave it out."
            )
        return found

    def enter(self, step: int, records: list[str]) -> None:
        for record in records:
            self._times[record] = self._times.get(record, 0) + 1
            self._last[record] = step

    def _digest(self, name: str) -> str:
        text = name.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(text, digest_size=12, key=self._key.encode()[:64]).hexdigest()
