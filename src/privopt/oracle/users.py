"""Privacy for users: of the rows that one user owns, a public number counts and no more.

Which rows of a user count depends on that user's rows alone (the first ones, in their order), so
two data sets that differ in one user's rows differ, after the cut, in at most so many records of
that user and in nothing else. ``privopt.privacy.groups`` says what such a group can have lost.

Neighbours, relation by relation: the rows of one user become empty (``zero_out``) or get any other
content (``replace_one``), and stay that user's, so that the number of rows that count is the same
and public; or they are added or removed (``add_remove``), and it is private.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from privopt.oracle.identities import canonical_ids

OWNED = "every row of a user carries that user's id, and ids do not depend on other users' data"


@dataclass(frozen=True)
class Owned:
    """The rows that count, one user's behind another's, and how many each of them has."""

    rows: np.ndarray
    each: np.ndarray


def rows_that_count(user_ids: Any, rows: int, cap: int | None) -> Owned | None:
    """The first ``cap`` rows of each user; None without users."""
    if user_ids is None and cap is None:
        return None
    if user_ids is None:
        raise ValueError(
            "rows_per_user promises privacy for users: pass user_ids to fit, one for each row."
        )
    if cap is None:
        raise ValueError(
            "user_ids need rows_per_user, the public number of rows that count of each user."
        )
    if isinstance(cap, bool) or not isinstance(cap, (int, np.integer)) or cap < 1:
        raise ValueError(f"rows_per_user must be a positive integer, got {cap!r}.")
    mine: dict[str, list[int]] = {}
    for row, user in enumerate(canonical_ids(user_ids, rows, "user_ids")):
        own = mine.setdefault(user, [])
        if len(own) < cap:
            own.append(row)
    each = np.array([len(own) for own in mine.values()], dtype=np.intp)
    return Owned(np.array([row for own in mine.values() for row in own], dtype=np.intp), each)
