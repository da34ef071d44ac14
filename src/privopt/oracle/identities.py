"""Who a row belongs to: one canonical text for every id, however its column was read.

Splitting is the dangerous direction. If one person passes for two, a stream takes that person in
twice as often as its noise was made for, and a user's rows escape their cap. The same column of ids
arrives as int64, as text, as object, and as float next to a missing value; so ids are integers or
text, and what spells the same id is the same person:

* an integer, of whatever width and library, is its decimal digits; text of digits is that integer
  (``7``, ``"7"``, ``" 7"``, ``"007"``, ``"+7"``, digits of other scripts);
* text is compared in Unicode's normal form KC, without case, without invisible characters, and with
  runs of white space as one space, none at the ends.

Two people whose ids differ in nothing else are one person here. That costs accuracy: their
participations and rows are counted together.

Everything else is refused, because it may be another spelling of an integer: floats (above 2^53
they stand for other ids), text that prints one, bool, bytes, Decimal, dates, missing values and
their printed names, and integers beside text in one batch. No message quotes an id.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import numpy as np

_DIGITS = re.compile(r"([+-]?)(\d+)")
_PRINTED_FLOAT = re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+(?=e[+-]))(e[+-]?\d+)?|[+-]?inf(inity)?")
_MISSING = {"", "nan", "none", "<na>", "nat", "null"}


def canonical_ids(ids: Any, rows: int, name: str = "record_ids") -> list[str]:
    """One text for each of ``rows`` ids; equal texts are equal people. Refuses in one sentence."""
    values = _values(ids, rows, name)
    if any(_missing(value) for value in values):
        raise ValueError(f"{name} hold a missing value: every row needs an id.")
    texts = sum(isinstance(value, str) for value in values)
    if 0 < texts < len(values) and all(_known(value) for value in values):
        raise ValueError(f"{name} mix integers and text: write all ids in one way.")
    return [_canonical(value, name) for value in values]


def _values(ids: Any, rows: int, name: str) -> list[Any]:
    """The column as Python objects; NumPy would make one type of [1, "a"] and of [1, 2.0]."""
    shape = getattr(ids, "shape", None)
    for method in ("to_pylist", "to_list", "tolist"):  # arrow; pandas and polars; NumPy and torch
        if hasattr(ids, method) and not isinstance(ids, (str, bytes)):
            found = getattr(ids, method)()
            break
    else:
        found = list(ids) if isinstance(ids, (list, tuple, range)) else None
    if not isinstance(found, list) or len(found) != rows or (shape and tuple(shape) != (rows,)):
        raise ValueError(f"{name} must hold one id for each of the {rows} rows.")
    return found


def _missing(value: Any) -> bool:
    """None, NaN of every library, pandas.NA and NaT; a masked entry comes as None."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):  # pandas.NA compares to nothing, an array to many things
        return True


def _known(value: Any) -> bool:
    integer = isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_))
    return integer or isinstance(value, str)


def _canonical(value: Any, name: str) -> str:
    if not _known(value):
        raise ValueError(
            f"{name} must be integers or text, got a value of type "
            f"{type(value).__name__}: other types may spell one person in two ways."
        )
    if not isinstance(value, str):
        try:
            return int.__repr__(int(value))
        except ValueError:  # beyond the digits that Python prints
            raise ValueError(f"{name} hold an integer of thousands of digits.") from None
    text = str.__str__(value)
    text = " ".join(unicodedata.normalize("NFKC", text).split())
    text = "".join(one for one in text if unicodedata.category(one) not in ("Cc", "Cf"))
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).strip()
    if text in _MISSING:
        raise ValueError(f"{name} hold a missing value: every row needs an id.")
    if digits := _DIGITS.fullmatch(text):
        plain = "".join(str(unicodedata.decimal(one)) for one in digits[2]).lstrip("0") or "0"
        return f"-{plain}" if digits[1] == "-" and plain != "0" else plain
    if _PRINTED_FLOAT.fullmatch(text):
        raise ValueError(
            f"{name} hold a number with a decimal point or exponent, which may stand for another "
            "id than the one it was read from: read the column as integers or text."
        )
    return text
