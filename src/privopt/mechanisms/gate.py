"""The gate: the one door through which anything computed from data leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Protocol

from privopt.mechanisms.correlated import CorrelatedGaussian, Stream
from privopt.mechanisms.mechanism import Mechanism
from privopt.noise import Source
from privopt.numerics import NotConverged
from privopt.oracle.sealed import KEY, Sealed
from privopt.oracle.sensitivity import Sensitivity
from privopt.ownership import own_type
from privopt.privacy.budget import Refused
from privopt.privacy.certificate import RUN
from privopt.privacy.events import (
    Event,
    Log,
    ReadOnlyLog,
    StreamPath,
    StreamPosition,
)


class Hook(Protocol):
    """Sees each release, and may answer it: the door through which a run is recorded, replayed
    and audited. A hook sees data; it belongs into tests."""

    def __call__(
        self,
        mechanism: Mechanism,
        payload: Any,
        sensitivity: Sensitivity,
        event: Event,
        run: Callable[[], Any],
    ) -> Any: ...


HOOK: ContextVar[Hook | None] = ContextVar("privopt_hook", default=None)
"""Hook for the runs of this context: ``Run`` hands it to its gate, so that an audit reaches
estimators and whatever else makes runs."""


class Gate:
    """Releases sealed values and writes the log.

    Order inside ``release``: event, check against what was declared, log, open, random bits,
    public result. A crash after the log entry burns budget, never privacy.

    Only a ``Run`` makes a gate that draws secure noise, after its declaration. A gate by itself is
    for rehearsals, simulations and audits: its noise is silent or seeded, and nothing certifies it.

    Parameters
    ----------
    source : Source
        Where the noise comes from.
    declared : Log or Steps, optional
        What a dry run on no data released, or what each step of a stream may release. A release
        that was not declared is refused before the value is opened.
    guard : callable, optional
        Called with each event before it is logged; raises to refuse (a budget filter, a ledger).
    hook : Hook, optional
        Records or replays releases.
    stream : callable, default=Stream
        Makes the memory of correlated noise for a mechanism: tensors need one of their own.
    key : object, optional
        Held by runs alone.
    """

    __slots__ = (
        "_before",
        "_declared",
        "_foreign",
        "_guard",
        "_hook",
        "_log",
        "_new_stream",
        "_source",
        "_streams",
    )

    def __init__(
        self,
        source: Source,
        *,
        declared: Log | Steps | None = None,
        guard: Callable[[Event], None] | None = None,
        hook: Hook | None = None,
        stream: Callable[[CorrelatedGaussian], Stream] = Stream,
        key: object = None,
    ) -> None:
        if key is not RUN and source.private:
            raise Refused(
                "secure noise is drawn for what was declared and paid: make a Run, or give a "
                "rehearsal a silent or seeded source."
            )
        self._source, self._declared, self._guard, self._hook = source, declared, guard, hook
        self._new_stream = stream
        self._log, self._before = Log(), 0
        self._foreign: dict[type, bool] = {}
        self._streams: dict[int, tuple[CorrelatedGaussian, Stream]] = {}

    @property
    def log(self) -> Log:
        """What was released so far; nobody but this gate writes it."""
        return ReadOnlyLog(self._log)

    @property
    def foreign(self) -> list[str]:
        """Names of the mechanisms that released something here and that the library did not
        write."""
        return sorted(kind.__name__ for kind, foreign in self._foreign.items() if foreign)

    def release(self, mechanism: Mechanism, sealed: Sealed) -> Any:
        """Run a mechanism on a sealed value; the only way to an ordinary array."""
        sensitivity, kind = sealed.sensitivity, type(mechanism)
        if kind not in self._foreign:
            self._foreign[kind] = not own_type(kind)
        if mechanism.accepts != sensitivity.norm:
            raise Refused(
                f"{type(mechanism).__name__} takes a value bounded in {mechanism.accepts}, "
                f"this one is bounded in {sensitivity.norm}."
            )
        stream = self._stream(mechanism)
        event = _event(
            mechanism, sensitivity, None if stream is None else stream.position(sensitivity)
        )
        if sensitivity.grid is not None and event.numerics is None:
            raise Refused(f"{type(mechanism).__name__} takes no sum on a grid.")
        if self._declared is not None:
            self._check_declared(event)
        if self._guard is not None:
            self._guard(event)
        self._log.append(event)
        if stream is not None:
            stream.advance(sensitivity)
        payload = sealed.open(KEY)

        def run() -> Any:
            if stream is not None:
                return stream.run(payload, sensitivity, self._source)
            return mechanism.run(payload, sensitivity, self._source)

        if self._hook is not None:
            return self._hook(mechanism, payload, sensitivity, event, run)
        failure: str | None = None
        try:
            return run()
        except (Refused, NotConverged) as refusal:
            failure = None if self._foreign[kind] else str(refusal)
        except Exception:
            failure = None
        if failure is None:
            failure = f"{kind.__name__} failed; details are withheld, budget is spent."
        # Raised here and not in the except block: a chained traceback would hold on to the data.
        raise Refused(failure)

    # ------------------------------------------------------------ streams
    def past(self, events: Iterable[Event]) -> None:
        """What was paid before this gate's own releases: of streams that were given up, or of
        other parts of the records."""
        if len(self._log) or self._declared is None:
            raise Refused("a past belongs into a fresh gate of a declared run.")
        for event in events:
            self._log.append(event)
        self._before = len(self._log)

    def resumed(self, releases: int) -> None:
        """Enter the releases that other processes committed, as they were declared."""
        declared = self._declared
        if len(self._log) > self._before or not isinstance(declared, Steps):
            raise Refused("only a fresh gate of a declared stream goes on with another's steps.")
        for index in range(releases):
            stream = self._stream(declared.mechanism(index))
            event = declared.event(index, None if stream is None else stream.path)
            if event is None or (
                event.position and event.position.step >= len(event.position.path.cells)
            ):
                raise Refused("this is not the state of such a run.")
            self._log.append(event)

    def noise_state(self, mechanism: CorrelatedGaussian) -> dict[str, Any]:
        """Buffers and position of a stream, to go on with it later by ``resume``.

        Secret: whoever holds it can subtract part of the noise of later steps. Keep it apart from
        the model, readable by its owner alone, and write it before the step is published.
        """
        stream = self._stream(mechanism)
        assert stream is not None
        return stream.state_dict()

    def resume(self, mechanism: CorrelatedGaussian, state: dict[str, Any]) -> StreamPath:
        """Go on with a stream from the state another gate kept; returns its public past. Going on
        twice from one state releases the same noise twice: it must never happen with other data.
        """
        if id(mechanism) in self._streams:
            raise Refused("this stream has begun: a kept state belongs into a fresh one.")
        stream = self._new_stream(mechanism)
        stream.load_state_dict(state)
        self._streams[id(mechanism)] = mechanism, stream
        return stream.path

    def _stream(self, mechanism: Mechanism | CorrelatedGaussian) -> Stream | None:
        """The secret state of a stream; each mechanism object is one stream of this gate."""
        if not isinstance(mechanism, CorrelatedGaussian):
            return None
        if id(mechanism) not in self._streams:
            # The mechanism is kept beside its stream, so that its identity is not given to another.
            self._streams[id(mechanism)] = mechanism, self._new_stream(mechanism)
        return self._streams[id(mechanism)][1]

    def _check_declared(self, event: Event) -> None:
        declared, index = self._declared, len(self._log) - self._before
        assert declared is not None
        if isinstance(declared, Steps):
            expected = declared.event(index)
        else:
            expected = declared[index] if index < len(declared) else None
        if expected is None or not same_event(event, expected):
            raise Refused(
                f"release {index + 1} differs from what the dry run declared: it is refused before "
                "any data is opened."
            )


class Steps:
    """The declaration of a stream or a training: what release after release may be.

    ``step`` gives the mechanism and the sensitivity of each of the ``releases`` from its number
    alone, counted from 0; ``streams`` mechanisms take turns, so release k is step k // streams of
    its stream. A stream whose records keep a rule has the same mechanism and sensitivity in each of
    its steps.
    """

    __slots__ = ("_step", "_streams", "releases")

    def __init__(
        self, step: Callable[[int], tuple[Any, Sensitivity]], releases: int, streams: int = 1
    ) -> None:
        self._step, self.releases, self._streams = step, releases, streams

    @classmethod
    def once(cls, mechanism: Mechanism, sensitivity: Sensitivity) -> Steps:
        """The declaration of a single release."""
        return cls(lambda _: (mechanism, sensitivity), 1)

    def event(self, index: int, path: StreamPath | None = None) -> Event | None:
        """The declared release of this number; its place in a stream is one of ``path``."""
        if index >= self.releases:
            return None
        mechanism, sensitivity = self._step(index)
        row = None
        if isinstance(mechanism, CorrelatedGaussian):
            path = path or StreamPath(mechanism.factorization, mechanism.participation)
            row = StreamPosition(path, index // self._streams)
        return _event(mechanism, sensitivity, row)

    def mechanism(self, index: int) -> Any:
        return self._step(index)[0] if index < self.releases else None

    def log(self, releases: int | None = None) -> Log:
        """What the first so many releases, or all of them, cost together.

        Under a rule of participation the last step of a stream stands for those before it: there
        may be more of them than anybody can list.
        """
        count = self.releases if releases is None else min(releases, self.releases)
        first = self.mechanism(0)
        ruled = isinstance(first, CorrelatedGaussian) and first.participation is not None
        log, paths = Log(), {}
        for index in range(max(0, count - self._streams) if ruled else 0, count):
            mechanism, sensitivity = self._step(index)
            path = None
            if isinstance(mechanism, CorrelatedGaussian):
                fresh = StreamPath(mechanism.factorization, mechanism.participation)
                path = paths.setdefault(id(mechanism), fresh)
                path.cells.append(sensitivity.cells)
            event = self.event(index, path)
            assert event is not None
            if ruled and event.numerics is not None:
                event = replace(event, numerics=event.numerics.times(index // self._streams + 1))
            log.append(event)
        return log


def _event(mechanism: Any, sensitivity: Sensitivity, row: StreamPosition | None) -> Event:
    # ``isinstance`` of a protocol would take longer than all else here.
    numerics = getattr(mechanism, "numerics", None)
    return Event(
        type(mechanism).__name__,
        mechanism.kinds(sensitivity),
        sensitivity.cells,
        sensitivity.view,
        sensitivity.sampling,
        sensitivity.running_sum,
        row,
        None if numerics is None else numerics(sensitivity),
    )


def same_event(one: Event, other: Event) -> bool:
    """Whether two events are alike; of a running sum, only the position counts, of a stream its
    noise, its rule and the step."""
    return (
        one.mechanism == other.mechanism
        and one.kinds == other.kinds
        and one.cells == other.cells
        and one.view == other.view
        and one.sampling == other.sampling
        and one.numerics == other.numerics
        and (one.running_sum is None) == (other.running_sum is None)
        and (
            one.running_sum is None
            or other.running_sum is None
            or one.running_sum.step == other.running_sum.step
        )
        and (one.position is None) == (other.position is None)
        and (
            one.position is None
            or other.position is None
            or _same_position(one.position, other.position)
        )
    )


def _same_position(one: StreamPosition, other: StreamPosition) -> bool:
    return (
        one.step == other.step
        and one.path.participation == other.path.participation
        and one.path.factorization == other.path.factorization
    )
