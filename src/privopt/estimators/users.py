"""What ``fit`` takes beside the data: whose the rows are."""

from __future__ import annotations

from typing import Any

from privopt.estimators.frames import concrete
from privopt.oracle.users import OWNED, Owned
from privopt.oracle.users import rows_that_count as counting

__all__ = ["OWNED", "Owned", "refuse_others", "rows_that_count"]


def rows_that_count(user_ids: Any, rows: int, cap: int | None) -> Owned | None:
    """The first ``cap`` rows of each user, however their ids come; None without users."""
    ids = None if user_ids is None else concrete(user_ids, "user_ids")
    return counting(ids, rows, cap)


def refuse_others(others: dict[str, Any]) -> None:
    """What ``fit`` does not take, with the reason."""
    if others.pop("sample_weight", None) is not None:
        raise TypeError(
            "this fit takes no sample_weight: estimators that do have a parameter max_weight, a "
            "public bound on how far a record can move the model."
        )
    if others:
        raise TypeError(f"fit got an unexpected keyword argument {sorted(others)[0]!r}.")
