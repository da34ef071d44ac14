"""The three norms of the library, their duals and the constants between them."""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

Norm = Literal["l1", "l2", "linf"]

_DUAL: dict[Norm, Norm] = {"l1": "linf", "l2": "l2", "linf": "l1"}
_INVERSE_EXPONENT: dict[Norm, float] = {"l1": 1.0, "l2": 0.5, "linf": 0.0}


def check_norm(which: str) -> None:
    """Raise ValueError unless `which` names a norm."""
    if which not in get_args(Norm):
        raise ValueError(f"norm must be one of 'l1', 'l2', 'linf'; got {which!r}.")


def norm(x: ArrayLike, which: Norm) -> float:
    """Return ||x||; safe against overflow and underflow of the squares."""
    check_norm(which)
    size = np.abs(np.asarray(x, dtype=np.float64))
    largest = float(size.max(initial=0.0))
    if which == "linf" or largest == 0.0:
        return largest
    if which == "l1":
        return float(size.sum())
    if 1e-140 < largest < 1e140:
        return math.sqrt(float(np.vdot(size, size)))
    size /= largest
    return largest * math.sqrt(float(np.vdot(size, size)))


def dual(which: Norm) -> Norm:
    """Return the norm sup {<x, u> : ||u|| <= 1}: l1 <-> linf, l2 <-> l2."""
    check_norm(which)
    return _DUAL[which]


def ratio(to: Norm, frm: Norm, p: int) -> float:
    """Return max ||x||_to / ||x||_frm over nonzero x in R^p.

    With exponents a (of `to`) and b (of `frm`) this is p^max(0, 1/a - 1/b).
    """
    check_norm(to)
    check_norm(frm)
    if p < 1:
        raise ValueError(f"the dimension p must be at least 1; got {p}.")
    return float(p) ** max(0.0, _INVERSE_EXPONENT[to] - _INVERSE_EXPONENT[frm])
