"""What a training pays, and who takes which of its steps.

All steps are charged before the first. Then each leg, from one state to the next, enters the steps
it takes next in the ledger, an epoch at a time, and what somebody entered before is charged again
(``privopt.ledger.legs``).

What is charged again. Let two legs go on from a state before step s. With independent noise each
step is a release of its own, so steps that are taken again spend their own events again.
Correlated noise: with C x = z a run releases the rows (C g)_t + z_t. Both legs hold the rows before
s, with the noise that they share, and each its own rows from s on, with fresh noise. Given the
rows they share, the second leg adds sum over t >= s of (C 1_pi)_t^2 to a record's squared loss, no
more than a whole run does. So the whole run is charged again, once for the leg.
"""

from __future__ import annotations

from typing import Any

from privopt.ledger import SEEDED, Dataset
from privopt.ledger.legs import OTHER, hand_over, take
from privopt.mechanisms import CorrelatedGaussian, Run, Steps
from privopt.privacy import Refused, Spend, spend

ALONE = (
    "the state that this run went on from was gone on from once, and no step that was taken after "
    "it elsewhere, as before a crash, was published"
)


class Legs:
    """The payments of one training."""

    def __init__(
        self, account: Dataset | None, run: Run, declared: Steps, steps: int, per_epoch: int
    ) -> None:
        self._account, self._run, self._declared = account, run, declared
        self._steps, self._epoch = steps, per_epoch
        self._entry: str | None = None
        self._until = 0  # steps before it are entered

    def pay(self, done: int) -> None:
        """Before the step after ``done``: charge the plan once, and enter the steps of an epoch."""
        run, account = self._run, self._account
        if account is not None and not run.private:
            raise Refused(SEEDED)
        if not run.paid:
            run.pay(account)
        if account is None or run.mark is None or not self.due(done):
            return
        stop = min(self._steps, (done // self._epoch + 1) * self._epoch)
        self._entry, again = take(
            account,
            run.mark,
            range(done, stop),
            lambda: self._again(done, stop),
            run.budget,
            "torch",
        )
        self._until = self._steps if again and self._correlated else stop

    def due(self, done: int) -> bool:
        """Whether the step after ``done`` has something to pay before it."""
        entered = self._account is None or self._run.mark is None or done < self._until
        return not (self._run.paid and entered)

    def hand_over(self, done: int) -> None:
        """A state is saved: whoever goes on first takes the steps from here on."""
        account, mark = self._account, self._run.mark
        if account is not None and mark is not None and self._entry and done < self._until:
            hand_over(account, mark, self._entry, done)
        self._entry, self._until = None, done

    def follow(self, mark: dict[str, Any] | None) -> tuple[str, ...]:
        """Go on from a state that was charged there; what a certificate assumes then."""
        if mark is not None and self._account is None:
            raise Refused(OTHER)
        return (ALONE,) if self._account is None else ()

    @property
    def _correlated(self) -> bool:
        return isinstance(self._declared.mechanism(0), CorrelatedGaussian)

    def _again(self, start: int, stop: int) -> Spend:
        if self._correlated:
            return self._run.planned
        return spend(event for step in range(start, stop) if (event := self._declared.event(step)))
