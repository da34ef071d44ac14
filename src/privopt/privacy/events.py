"""Events: what was released, whom it can have touched, through which view. Public, append-only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from privopt.privacy.budget import Refused
from privopt.privacy.factorizations import Factorization
from privopt.privacy.kinds import Kind
from privopt.privacy.participation import Participation

Cell = tuple[int, ...]
"""A path in the public partition of the records; an ancestor contains its descendants."""

ROOT: Cell = ()


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a view chose its records: ``rate`` 1 takes all, below 1 is Poisson sampling.

    ``fixed_size``: instead, a uniformly random set whose size is the share ``rate`` of a public
    number of records, without replacement.

    ``turns``: instead, each record is in exactly one of so many successive views, uniformly random
    and drawn anew for the next so many; views are counted from one.
    """

    rate: float = 1.0
    fixed_size: bool = False
    turns: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise ValueError(f"a sampling rate lies in (0, 1], got {self.rate!r}.")
        if self.turns and (self.fixed_size or self.rate != 1 / self.turns):
            raise ValueError("a record is in one of its turns: the rate is 1 / turns.")

    @property
    def full(self) -> bool:
        return self.rate == 1.0


FULL = Sampling()


@dataclass(slots=True)
class RunningSumPath:
    """Public history of a running sum: when each cell entered, and how it has decayed since.

    ``log_decay[t]`` is the logarithm of the product of decays up to step t; the cell that entered
    at step s with radius r moves the sum of step t by r * exp(log_decay[t] - log_decay[s]).
    """

    log_decay: list[float] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    radii: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RunningSumPosition:
    """A released value of a running sum: which sum, after how many steps."""

    path: RunningSumPath
    step: int


@dataclass(slots=True)
class StreamPath:
    """Public history of a stream with correlated noise: the records each step took in.

    ``participation``: the rule that every record keeps, where the cells do not say who took part.
    """

    factorization: Factorization
    participation: Participation | None = None
    cells: list[tuple[Cell, ...]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """A released step of a stream: which stream, which step (counted from 0)."""

    path: StreamPath
    step: int


@dataclass(frozen=True, slots=True)
class Numerics:
    """How far a release in exact integers is from the law its kinds speak of.

    Outside a set of probability ``distance`` (in variation) its chances and those of the law differ
    by a factor of at most e^``log_ratio``.
    """

    log_ratio: float
    distance: float

    def times(self, count: int) -> Numerics:
        """Of so many such releases together."""
        return Numerics(count * self.log_ratio, count * self.distance)


@dataclass(frozen=True, slots=True)
class Event:
    """One release through the gate.

    ``kinds`` are the losses it is made of (several, if a mechanism adds noise more than once).
    ``view`` numbers the view within its log: everything asked of one sampled batch is one
    subsampled event. An event with a ``position`` is one step of a stream; its kinds state the
    noise of one fresh Gaussian, and only all steps together have a loss. ``numerics`` is None for a
    release in floating point.
    """

    mechanism: str
    kinds: tuple[Kind, ...]
    cells: tuple[Cell, ...] = (ROOT,)
    view: int = 0
    sampling: Sampling = FULL
    running_sum: RunningSumPosition | None = None
    position: StreamPosition | None = None
    numerics: Numerics | None = None


class Log:
    """Append-only list of events."""

    __slots__ = ("_events",)

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self._events: list[Event] = list(events)

    def append(self, event: Event) -> None:
        self._events.append(event)

    def __iter__(self) -> Iterator[Event]:
        return iter(tuple(self._events))

    def __len__(self) -> int:
        return len(self._events)

    def __getitem__(self, index: int) -> Event:
        return self._events[index]


class ReadOnlyLog(Log):
    """A log as others see it: it grows with its owner's releases and takes no entry of theirs."""

    __slots__ = ()

    def __init__(self, owner: Log) -> None:
        self._events = owner._events

    def append(self, event: Event) -> None:
        raise Refused("only a gate writes its log: release through it.")
