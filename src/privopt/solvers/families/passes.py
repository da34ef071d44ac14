"""Records in their order: who may not use it, and how one pass is cut into phases."""

from __future__ import annotations

from collections.abc import Iterator

from privopt.facts import Facts


def refuse_unless_ordered(name: str, facts: Facts) -> str | None:
    """A sentence under add_remove, where an added record shifts the places of all others."""
    if facts.neighbouring == "add_remove":
        return (
            f"{name} goes through the records in order, and places shift when a record is added or "
            'removed: use neighbouring="zero_out" or "replace_one".'
        )
    return None


def phases(n: int) -> Iterator[int]:
    """Records of each phase: half of those left."""
    while n >= 2:
        yield n // 2
        n -= n // 2
