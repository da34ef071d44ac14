"""The three norms of the library and all other l_r, their duals and the constants between them."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

Norm = Literal["l1", "l2", "linf"]

_DUAL: dict[Norm, Norm] = {"l1": "linf", "l2": "l2", "linf": "l1"}
_INVERSE_EXPONENT: dict[Norm, float] = {"l1": 1.0, "l2": 0.5, "linf": 0.0}


def check_norm(which: str) -> None:
    """Raise ValueError unless `which` names a norm."""
    if which not in _DUAL:
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


def lp_norm(x: ArrayLike, order: float) -> float:
    """Return the l_r norm for any r >= 1, maybe infinite; safe against over- and underflow."""
    size = np.abs(np.asarray(x, dtype=np.float64))
    largest = float(size.max(initial=0.0))
    if largest == 0.0 or math.isinf(order):
        return largest
    return largest * float(np.sum((size / largest) ** order)) ** (1 / order)


def dual_order(order: float) -> float:
    """Return q with 1/order + 1/q = 1."""
    if order == 1:
        return math.inf
    return 1.0 if math.isinf(order) else order / (order - 1)


def order_ratio(to: float, frm: float, p: int) -> float:
    """Return max ||x||_to / ||x||_frm over nonzero x in R^p, for any two orders."""
    return float(p) ** max(0.0, 1 / to - 1 / frm)


def order_named(which: Norm) -> float:
    """Return the order of a named norm."""
    check_norm(which)
    return {"l1": 1.0, "l2": 2.0, "linf": math.inf}[which]


def ascent(g: ArrayLike, order: float) -> np.ndarray:
    """Return u with ||u||_order = 1 and <g, u> = ||g||_q, q the dual order: where Hoelder is tight.

    Coordinate j is sign(g_j) |g_j|^(q-1) / ||g||_q^(q-1); for order 1 one largest coordinate takes
    it all, for an infinite order every coordinate is 1 or -1.
    """
    g = np.asarray(g, dtype=np.float64)
    if order == 1:
        u = np.zeros(g.size)
        j = int(np.argmax(np.abs(g)))
        u[j] = math.copysign(1.0, float(g[j]))
        return u
    if math.isinf(order):
        return np.where(g < 0.0, -1.0, 1.0)
    largest = float(np.abs(g).max(initial=0.0))
    if largest == 0.0:
        return np.zeros(g.size)
    u = np.copysign(np.abs(g / largest) ** (dual_order(order) - 1), g)
    return u / lp_norm(u, order)
