"""The gate: the one door through which anything computed from data leaves."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Protocol

from privopt.mechanisms.correlated import CorrelatedGaussian, Stream
from privopt.mechanisms.mechanism import Exact, Mechanism
from privopt.noise import Source
from privopt.oracle.reach import Reach
from privopt.oracle.sealed import KEY, Sealed
from privopt.privacy.budget import Refused
from privopt.privacy.events import Event, Log, StreamPath, StreamPosition


class Hook(Protocol):
    """Sees each release, and may answer it: the door through which a run is recorded, replayed
    and audited. A hook sees data; it belongs into tests."""

    def __call__(
        self,
        mechanism: Mechanism,
        payload: Any,
        reach: Reach,
        event: Event,
        run: Callable[[], Any],
    ) -> Any: ...


HOOK: ContextVar[Hook | None] = ContextVar("privopt_hook", default=None)
"""Hook for the runs of this context: ``execute`` hands it to its gate, so that an audit reaches
estimators and other code that makes its own gates."""


class Gate:
    """Releases sealed values and writes the log.

    Order inside ``release``: event, check against what was declared, log, open, random bits,
    public result. A crash after the log entry burns budget, never privacy.

    Parameters
    ----------
    source : Source
        Where the noise comes from.
    declared : Log, optional
        What a dry run on no data released. A release that was not declared is refused before the
        value is opened.
    guard : callable, optional
        Called with each event before it is logged; raises to refuse (a budget filter, a ledger).
    hook : Hook, optional
        Records or replays releases.
    stream : callable, default=Stream
        Makes the memory of correlated noise for a mechanism: tensors need one of their own.
    """

    __slots__ = ("_declared", "_guard", "_hook", "_log", "_new_stream", "_source", "_streams")

    def __init__(
        self,
        source: Source,
        *,
        declared: Log | None = None,
        guard: Callable[[Event], None] | None = None,
        hook: Hook | None = None,
        stream: Callable[[CorrelatedGaussian], Stream] = Stream,
    ) -> None:
        self._source, self._declared, self._guard, self._hook = source, declared, guard, hook
        self._new_stream = stream
        self._log = Log()
        self._streams: dict[int, tuple[CorrelatedGaussian, Stream]] = {}

    @property
    def log(self) -> Log:
        return self._log

    def release(self, mechanism: Mechanism, sealed: Sealed) -> Any:
        """Run a mechanism on a sealed value; the only way to an ordinary array."""
        reach = sealed.reach
        if mechanism.accepts != reach.norm:
            raise Refused(
                f"{type(mechanism).__name__} takes a value bounded in {mechanism.accepts}, "
                f"this one is bounded in {reach.norm}."
            )
        stream = self._stream(mechanism)
        event = Event(
            type(mechanism).__name__,
            mechanism.kinds(reach),
            reach.cells,
            reach.view,
            reach.sampling,
            reach.lane,
            None if stream is None else stream.position(reach),
            mechanism.numerics(reach) if isinstance(mechanism, Exact) else None,
        )
        if reach.grid is not None and event.numerics is None:
            raise Refused(f"{type(mechanism).__name__} takes no sum on a grid.")
        if self._declared is not None:
            self._check_declared(event)
        if self._guard is not None:
            self._guard(event)
        self._log.append(event)
        if stream is not None:
            stream.advance(reach)
        payload = sealed.open(KEY)

        def run() -> Any:
            if stream is not None:
                return stream.run(payload, reach, self._source)
            return mechanism.run(payload, reach, self._source)

        if self._hook is not None:
            return self._hook(mechanism, payload, reach, event, run)
        failure: str | None = None
        try:
            return run()
        except Refused as refusal:
            failure = str(refusal)
        except Exception:
            failure = f"{type(mechanism).__name__} failed; details are withheld, budget is spent."
        # Raised here and not in the except block: a chained traceback would hold on to the data.
        raise Refused(failure)

    # ------------------------------------------------------------ streams
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
        declared, index = self._declared, len(self._log)
        assert declared is not None
        if index >= len(declared) or not same_event(event, declared[index]):
            raise Refused(
                f"release {index + 1} differs from what the dry run declared: it is refused before "
                "any data is opened."
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
        and (one.lane is None) == (other.lane is None)
        and (one.lane is None or other.lane is None or one.lane.step == other.lane.step)
        and (one.row is None) == (other.row is None)
        and (one.row is None or other.row is None or _same_row(one.row, other.row))
    )


def _same_row(one: StreamPosition, other: StreamPosition) -> bool:
    return (
        one.step == other.step
        and one.path.participation == other.path.participation
        and one.path.factorization == other.path.factorization
    )
