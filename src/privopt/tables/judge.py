"""Evaluate a fitted pipeline on a table, and part a table by a public rule."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from privopt.evaluation import (
    Evaluation,
    PredictionIntervals,
    evaluate,
    prediction_intervals,
)
from privopt.noise import fresh_name
from privopt.oracle.identities import canonical_ids
from privopt.tables.encoder import DeclaredColumns, codes
from privopt.tables.schema import FILE_TYPES, check_target, did_you_mean


def wanted(
    pipeline: Any,
    target: str,
    users: str | None,
    present: Mapping[str, str],
    model: str,
    file: str,
) -> dict[str, str]:
    """The columns to read, and how; refuses before any cell is looked at."""
    encoder = pipeline[0] if hasattr(pipeline, "steps") else None
    if not isinstance(encoder, DeclaredColumns):
        raise ValueError(
            f"{model} does not know the columns of a table: `privopt fit` writes such models, "
            "others are evaluated in Python."
        )
    found = {}
    for name, entry in encoder.columns.items():
        kind = dict(entry)["kind"]
        if kind == "ignored":
            continue
        if name not in present:
            hint = did_you_mean(name, present) or ", which the model was fitted to."
            raise ValueError(f"{file} has no column {name!r}{hint}")
        found[name] = FILE_TYPES[kind]
    for name in (target, users):
        if name is None:
            continue
        check_target(name, present, file)
        if name in found:
            raise ValueError(f"{name!r} is a column that the model sees: name another one.")
        found[name] = "text"
    return found


def judge(
    pipeline: Any,
    table: Any,
    target: str,
    users: str | None,
    epsilon: float,
    neighbouring: str,
    **how: Any,
) -> Evaluation:
    """``evaluate`` on the columns of a table; a label that is not among the classes, or no number,
    makes its record empty."""
    final, values = pipeline[-1], table.column(target)
    if hasattr(final, "classes_"):
        place = codes(values, tuple(final.classes_.tolist()))
        known = np.array([*final.classes_.tolist(), None], dtype=object)
        y = known[place]
    else:
        y = np.array([_number(value) for value in values.to_pylist()])
    owners = {} if users is None else {"user_ids": table.column(users).to_pylist()}
    return evaluate(pipeline, table, y, epsilon, neighbouring=neighbouring, **owners, **how)


def banded(pipeline: Any, table: Any, target: str, **how: Any) -> PredictionIntervals:
    """``prediction_intervals`` from the columns of a table; a target that is no number makes its
    record empty."""
    y = np.array([_number(value) for value in table.column(target).to_pylist()])
    return prediction_intervals(pipeline, table, y, **how)


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def parted(
    table: Any, share: float, users: str | None = None, key: str | None = None
) -> tuple[Any, Any, str]:
    """A table's rows in two parts, the second with about ``share`` of them, and the rule's key.

    The part of a row follows from the key and its position, or from the key and its user's id, and
    from nothing else: not from any value, nor from who else is there. So a record that becomes
    empty, or is replaced, stays in its part, and a user is in one part with all rows.
    """
    import pyarrow as pa

    key = fresh_name() if key is None else key
    n = table.num_rows
    names = (
        [str(i) for i in range(n)]
        if users is None
        else canonical_ids(table.column(users).to_pylist(), n, "user_ids")
    )
    coins = np.array([_coin(key, name) for name in names])
    held = coins < share
    if held.all() or not held.any():
        raise ValueError("one part has no rows: hold out another share, or take more rows.")
    return table.filter(pa.array(~held)), table.filter(pa.array(held)), key


def _coin(key: str, name: str) -> float:
    """A uniform number that follows from the key and the name."""
    text = name.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(text, digest_size=8, key=key.encode()[:64]).digest()
    return int.from_bytes(digest, "big") / 2.0**64
