"""The run: declare, pay, read, release, certify; in this order, for everything with a certificate.

What is released is derived twice. Before: the declaration, a rehearsal on no data or the steps of
a stream from public facts, is added up, held against the budget and charged to the ledger. After:
the gate's own log is added up and held against the declaration. Both belong to this object alone,
so neither can be left out, and nobody certifies a log that he wrote himself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Self, TypeVar

from privopt.ledger import SEEDED, Dataset, Reservation, stored
from privopt.mechanisms.correlated import CorrelatedGaussian, Stream
from privopt.mechanisms.gate import HOOK, Gate, Steps
from privopt.noise import SilentSource, Source
from privopt.privacy.accountant import Accountant
from privopt.privacy.budget import Budget, Refused
from privopt.privacy.certificate import RUN, Certificate, slack
from privopt.privacy.events import Event, Log
from privopt.privacy.groups import grouped
from privopt.privacy.spend import Spend, spend

Data = TypeVar("Data")


def rehearsed(story: Callable[[Gate, SilentSource], Any]) -> Log:
    """What a story releases, told on no data and without noise: the declaration of a run."""
    silent = SilentSource()
    gate = Gate(silent)
    story(gate, silent)
    return gate.log


class Run:
    """One budget, one declaration, one payment, one gate, one certificate.

    Parameters
    ----------
    budget : Budget
    declared : Log or Steps
        What a rehearsal released, or the steps of a stream or a training. More than the budget is
        refused here, before anything is paid or read.
    source : Source
        Where the noise comes from; whether the run is private is what its source says.
    what : str
        Named in the ledger and, as the solver, in the certificate.
    group : int, default=1
        How many records one unit of privacy may own.
    kept_together : bool, default=False
        Whether all records of a unit lie in one part, wherever records are cut into parts.
    past : iterable of Event, optional
        Releases of earlier runs under the same budget, which were paid then.
    stream : callable, default=Stream
        Makes the memory of correlated noise.
    """

    def __init__(
        self,
        budget: Budget,
        declared: Log | Steps,
        source: Source,
        *,
        what: str,
        group: int = 1,
        kept_together: bool = False,
        past: Iterable[Event] = (),
        stream: Callable[[CorrelatedGaussian], Stream] = Stream,
    ) -> None:
        self.budget, self.what = budget, what
        self._declared, self._group, self._past = declared, group, tuple(past)
        self._source, self._seeded_before = source, False
        self._kept_together = kept_together
        self._paid = False
        self._reservation: Reservation | None = None
        self.mark: dict[str, Any] | None = None
        """Where this run, or the one it goes on with, was charged."""
        self.planned = self._planned()
        epsilon = Accountant(budget.neighbouring).epsilon(self.planned, budget.delta)
        if epsilon > budget.epsilon * (1 + 1e-9):
            raise Refused(
                f"{what} plans to spend more than its budget: refused before any data is touched. "
                "Please report this as a privacy bug."
            )
        whole = declared if isinstance(declared, Log) else declared.log()
        slack((*self._past, *whole), epsilon)  # refuses noise whose sampler spoils the guarantee
        self._gate = Gate(source, declared=declared, hook=HOOK.get(), stream=stream, key=RUN)
        if self._past:
            self._gate.past(self._past)

    @property
    def private(self) -> bool:
        """Whether all noise so far came from secure sources."""
        return self._source.private and not self._seeded_before

    @property
    def log(self) -> Log:
        """What was released so far."""
        return self._gate.log

    @property
    def released(self) -> int:
        """How often the gate of this run was opened, and those of the runs it goes on with."""
        return len(self._gate.log) - len(self._past)

    # ------------------------------------------------------------ pay
    def pay(self, account: Dataset | None, key: str | None = None) -> Any:
        """Charge what was declared, or note that nobody keeps account.

        Returns None, or the certificate and the answer that were stored under the ``key`` before:
        then nothing is to be released again.
        """
        if self._paid:
            raise Refused("a run is paid once: what it declared is charged already.")
        if account is None:
            if key is not None:
                raise ValueError("a key belongs to a ledger: give ledger= as well.")
            self._paid = True
            return None
        if not self.private:
            raise Refused(SEEDED)
        reservation = account.reserve(
            self._own(), self.budget, what=self.what, key=key, touched=True
        )
        if reservation.answer is not None:
            return stored(reservation.answer)
        self._reservation, self.mark, self._paid = reservation, reservation.mark, True
        return None

    @property
    def paid(self) -> bool:
        """Whether this run may read and release."""
        return self._paid

    def settle(self, certificate: Certificate, answer: Any = None) -> None:
        """Commit the payment with its certificate; what is never settled stays charged."""
        if self._reservation is not None:
            self._reservation.commit(certificate, answer)
            self._reservation = None

    def settle_declared(self) -> None:
        """Commit the payment of a stream with the certificate of all its declared steps: it may
        never come to an end."""
        whole = self._declared if isinstance(self._declared, Log) else self._declared.log()
        self.settle(self._certificate(whole, self._own(), self.what, (), None))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        """A run that fails after it was paid stays paid."""
        if failure is not None and self._reservation is not None:
            with suppress(Exception):
                self._reservation.burn()
            self._reservation = None

    # ------------------------------------------------------------ read and release
    def read(self, data: Callable[[], Data]) -> Data:
        """Read private data, now that it is paid for."""
        self._check_paid()
        return data()

    @property
    def gate(self) -> Gate:
        """The door of this run; it lets out what was declared, once that is paid."""
        self._check_paid()
        return self._gate

    def _check_paid(self) -> None:
        if not self._paid:
            raise Refused("a run is paid before it reads or releases anything: call pay first.")

    # ------------------------------------------------------------ going on with another's steps
    def noise_state(self, mechanism: CorrelatedGaussian) -> dict[str, Any]:
        """Secret: see ``Gate.noise_state``."""
        return self._gate.noise_state(mechanism)

    def resume(
        self, releases: int, states: Iterable[tuple[CorrelatedGaussian, dict[str, Any]]] = ()
    ) -> None:
        """Go on after so many declared releases, with the noise that the streams had then."""
        streams = [self._gate.resume(mechanism, state) for mechanism, state in states]
        if streams and sum(len(path.cells) for path in streams) != releases:
            raise Refused("this is not the state of such a run.")
        self._gate.resumed(releases)

    def follow(self, mark: dict[str, Any] | None, *, paid: bool, private: bool) -> None:
        """Go on with a run of another process: where it was charged, whether that is settled, and
        whether its noise was private."""
        self.mark, self._paid = mark, self._paid or paid
        self._seeded_before = self._seeded_before or not private

    # ------------------------------------------------------------ certify
    def certify(
        self,
        *,
        solver: str | None = None,
        assumptions: tuple[str, ...] = (),
        settings: dict[str, Any] | None = None,
    ) -> Certificate:
        """The guarantee of everything released so far, which is a prefix of what was declared."""
        log, planned = self._gate.log, self.planned
        if isinstance(self._declared, Steps):
            planned = self._planned(self.released)
        return self._certificate(log, planned, solver or self.what, assumptions, settings)

    def _certificate(
        self,
        log: Log,
        planned: Spend,
        solver: str,
        assumptions: tuple[str, ...],
        settings: dict[str, Any] | None,
    ) -> Certificate:
        foreign = tuple(
            f"the mechanism {name} draws the noise that it states: not proved"
            for name in self._gate.foreign
        )
        return Certificate.of_run(
            RUN,
            log,
            planned,
            self.budget,
            solver=solver,
            private=self.private,
            assumptions=(*assumptions, *foreign),
            settings=settings,
            group=self._group,
            kept_together=self._kept_together,
            ledger=self.mark,
        )

    def epsilon(self, releases: int | None = None, delta: float | None = None) -> float:
        """Epsilon of what has been released, or of the first so many declared releases."""
        delta = self.budget.delta if delta is None else delta
        spent = spend(self._gate.log) if releases is None else self._planned(releases)
        if releases is None:
            spent = self._grouped(spent)
        return Accountant(self.budget.neighbouring).epsilon(spent, delta)

    def _planned(self, releases: int | None = None) -> Spend:
        """What the past and the first so many declared releases, or all of them, spend."""
        declared = self._declared
        ahead = declared if isinstance(declared, Log) else declared.log(releases)
        return self._grouped(spend((*self._past, *ahead)))

    def _own(self) -> Spend:
        """What this run alone spends: its past was paid when it was released."""
        declared = self._declared
        if not self._past:
            return self.planned
        whole = declared if isinstance(declared, Log) else declared.log()
        return self._grouped(spend(whole))

    def _grouped(self, spent: Spend) -> Spend:
        return grouped(spent, self._group, kept_together=self._kept_together)
