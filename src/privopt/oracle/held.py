"""A question that the library did not write, held to what it states.

It is asked of one record at a time, not of empty ones, and each answer is clipped to the stated
radius in the stated norm before it is added. So no record can push the sum further, none can change
what another adds, and two records' answers differ by twice the radius at most, whatever the
question's own ``diameter`` says. A record on which it fails, or answers in another shape, answers
nothing: a refusal would tell of that record. What is left to assume is that it remembers no record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, cast
from weakref import WeakSet

import numpy as np

from privopt.geometry.norms import lp_norm
from privopt.oracle.counting import margin
from privopt.oracle.queries import Query
from privopt.oracle.rows import EmptyRows, Rows
from privopt.oracle.sensitivity import SensitivityNorm, order_of
from privopt.ownership import own_type
from privopt.privacy.budget import Refused

_PLAIN: WeakSet[type] = WeakSet()
"""Own questions that are made of no others: a look is all that a step of a stream has time for."""


@dataclass(frozen=True, eq=False)
class HeldQuery:
    """A foreign question, asked record by record and clipped."""

    inner: Query

    @property
    def norm(self) -> SensitivityNorm:
        return self.inner.norm

    @property
    def classes(self) -> int:
        return cast(Any, self.inner).classes

    def radius(self) -> Any:
        return self.inner.radius()

    def diameter(self) -> Any:
        return 2 * self.inner.radius()

    def total(self, rows: Rows, at: np.ndarray) -> np.ndarray:
        total = self._shape(rows, at)
        for answer in self._answers(rows, at, total.shape):
            total += answer
        return total

    def count(self, rows: Rows, at: np.ndarray, step: float) -> np.ndarray:
        """Each clipped answer is cut off toward zero, which shortens it in every norm."""
        total = self._shape(rows, at).astype(np.int64)
        for answer in self._answers(rows, at, total.shape):
            total += np.trunc(answer / step).astype(np.int64)
        return total

    def _shape(self, rows: Rows, at: np.ndarray) -> np.ndarray:
        """The sum over no records: zeros of the shape that every answer has."""
        empty = EmptyRows(rows.dimension, rows.bounds)
        with np.errstate(all="ignore"):
            return np.zeros(np.shape(self.inner.total(empty, at.copy())))

    def _answers(self, rows: Rows, at: np.ndarray, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
        radius, origin = self.radius(), np.zeros(rows.dimension)
        for index in range(rows.count):
            record = rows.part(index, index + 1)
            if not record.total(origin, lambda z, y, size: z * 0.0 + 1.0):
                continue  # an empty record answers nothing, whatever the question would say of it
            try:
                with np.errstate(all="ignore"):
                    answer = np.array(self.inner.total(record, at.copy()), dtype=np.float64)
            except Exception:
                continue
            if answer.shape != shape:
                continue
            answer[~np.isfinite(answer)] = 0.0
            yield clipped(answer, self.norm, radius)


def clipped(answer: np.ndarray, norm: SensitivityNorm, radius: Any) -> np.ndarray:
    """An answer moved into the ball of the radius, short of it by what rounding may add."""
    allowed = radius * (1 - margin(answer.size))
    if norm == "range":  # what all entries have in common changes no choice
        middle = (answer.max(initial=-np.inf) + answer.min(initial=np.inf)) / 2
        return np.clip(answer - middle, -allowed / 2, allowed / 2)
    if norm in ("coordinates", "linf"):
        return np.clip(answer, -allowed, allowed)
    length = lp_norm(answer, order_of(norm))
    return answer * (allowed / length) if length > allowed else answer


def held(query: Any) -> Any:
    """The question itself if the library wrote it and all that it is made of."""
    if type(query) in _PLAIN:
        return query
    if not own_type(type(query)):
        return HeldQuery(query)
    parts = [getattr(query, one.name) for one in fields(query)] if is_dataclass(query) else []
    inside = [part for part in parts if hasattr(part, "radius") and hasattr(part, "norm")]
    if not inside:
        _PLAIN.add(type(query))
    return query if all(held(part) is part for part in inside) else HeldQuery(cast(Query, query))


def check_own(query: Any) -> None:
    """Refuse what is not the library's own where the answers of single records are never formed."""
    if held(query) is not query:
        raise Refused(
            f"{type(query).__name__} is not a question of the library's own: it can be asked of a "
            "whole view alone (view.ask)."
        )
