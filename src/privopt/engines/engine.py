"""What an engine is: two verbs over chunks, and the rules by which all engines give the same bits.

A task is a pure function of one chunk and of what it was sent with. A worker that dies, a task that
is run twice, and chunks that are ready in another order change nothing: sums are collected by the
number of the chunk and added along one tree.

A task that fails says so and nothing else. What an exception tells may quote a row, and engines
write it into logs and send it around; so none ever leaves a task.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from privopt.privacy.budget import Refused

Task = Callable[..., Any]

FAN = 8
"""Sums that are added in one task: a power of two, so that groups are parts of the one tree."""
FAILED = "a chunk could not be computed; details are withheld."
CHANGED = (
    "a file is not what it was when its chunks were listed: list them anew, with privopt.dataset."
)


class Failure:
    """What a worker says of a failure: which of two public sentences holds."""

    def __init__(self, sentence: str = FAILED) -> None:
        self.sentence = CHANGED if sentence == CHANGED else FAILED

    def __reduce__(self) -> Any:
        return Failure, (self.sentence,)


class Changed(Exception):
    """A file that was listed has another size or another time."""


class Engine(ABC):
    """Where chunks are kept. A handle stands for one chunk of rows, or for a vector beside it.

    ``trusted`` names whom the guarantee trusts besides this process: the certificate repeats it.
    """

    trusted: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def keep(self, task: Task, *handles: Sequence[Any]) -> list[Any]:
        """Apply a task chunk by chunk; what comes out stays where the chunk is."""

    @abstractmethod
    def add(self, task: Task, *handles: Sequence[Any]) -> Any:
        """Apply a task chunk by chunk and add up along the tree; only the sum comes out."""

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the certificate says of those who take part in the computation."""
        return tuple(f"trusted besides this process: {party}" for party in self.trusted)

    def close(self) -> None:  # noqa: B027, most engines have started nothing
        """End what this engine has started, and nothing else."""


def attempt(task: Task, *values: Any) -> Any:
    """What a task gives, or a ``Failure``: nothing is raised, nothing is written."""
    for value in values:
        if isinstance(value, Failure):
            return value
    try:
        with np.errstate(all="ignore"):
            return task(*values)
    except Changed:
        return Failure(CHANGED)
    except Exception:
        return Failure()


def attempt_sent(payload: bytes, *values: Any) -> Any:
    """The same for a task that was sent as bytes: no name and no argument of it is shown."""
    try:
        task = pickle.loads(payload)
    except Exception:
        return Failure()
    return attempt(task, *values)


def total(*parts: Any) -> Any:
    """The sum of neighbours, or the failure among them."""
    for part in parts:
        if isinstance(part, Failure):
            return part
    return along_tree(list(parts))


def opened(found: Any) -> Any:
    """A result that may be written to, or the refusal that a failure stands for."""
    if isinstance(found, Failure):
        raise Refused(found.sentence)
    if isinstance(found, tuple):
        return tuple(opened(one) for one in found)
    # What lies in the memory of an engine may be read only.
    shared = isinstance(found, np.ndarray) and not found.flags.writeable
    return found.copy() if shared else found


def along_tree(parts: list[Any]) -> Any:
    """Sum of numbers, arrays, or tuples of them, in pairs of neighbours: the error grows with the
    logarithm of their number, and the order is that of the chunks."""
    while len(parts) > 1:
        parts = [
            _plus(parts[i], parts[i + 1]) if i + 1 < len(parts) else parts[i]
            for i in range(0, len(parts), 2)
        ]
    return parts[0]


class Growing:
    """The same tree for parts that come one after the other: few sums are held at a time."""

    def __init__(self) -> None:
        self._sums: list[tuple[int, Any]] = []

    def append(self, part: Any) -> None:
        level = 0
        while self._sums and self._sums[-1][0] == level:
            part, level = _plus(self._sums.pop()[1], part), level + 1
        self._sums.append((level, part))

    def total(self) -> Any:
        """Sums that had no neighbour go up until they have one, as in ``along_tree``."""
        _, found = self._sums.pop()
        while self._sums:
            found = _plus(self._sums.pop()[1], found)
        return found


def _plus(a: Any, b: Any) -> Any:
    if isinstance(a, tuple):
        return tuple(_plus(x, y) for x, y in zip(a, b, strict=True))
    return a + b
