"""What a run costs: its events before they happen, and the ledger that pays for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from privopt.ledger import Dataset
from privopt.mechanisms import CorrelatedGaussian
from privopt.oracle.sensitivity import Sensitivity
from privopt.privacy import Budget, Certificate, Refused, spend
from privopt.privacy.events import Event, StreamPath, StreamPosition
from privopt.torch.noise import TensorGaussian


def events(
    mechanism: TensorGaussian | CorrelatedGaussian,
    sensitivities: Iterable[Sensitivity],
    path: StreamPath | None,
) -> Iterator[Event]:
    """The events of a run's first steps, which follow from public facts."""
    for step, sensitivity in enumerate(sensitivities):
        row = None if path is None else StreamPosition(path, step)
        name, kinds = type(mechanism).__name__, mechanism.kinds(sensitivity)
        yield Event(
            name, kinds, sensitivity.cells, sensitivity.view, sensitivity.sampling, None, row
        )


class Payment:
    """One charge for all steps of the plan, made before the first of them releases anything.

    A run that ends early stays charged. A run that goes on elsewhere was charged where it began.
    """

    def __init__(
        self,
        account: Dataset | None,
        budget: Budget,
        mechanism: TensorGaussian | CorrelatedGaussian,
        sensitivities: list[Sensitivity],
    ) -> None:
        self._account, self._budget = account, budget
        self._mechanism, self._reaches = mechanism, sensitivities
        self._open: Any = None
        self.mark: dict[str, Any] | None = None

    def pay(self, private: bool) -> None:
        """Charge the plan, once; refuses if the budget is short."""
        if self._account is None or self.mark is not None:
            return
        if not private:
            raise Refused(
                "a seeded run is not private, and a ledger does not take it: leave "
                "random_state=None."
            )
        path = None
        if isinstance(self._mechanism, CorrelatedGaussian):
            cells = [sensitivity.cells for sensitivity in self._reaches]
            path = StreamPath(self._mechanism.factorization, None, cells)
        planned = spend(events(self._mechanism, self._reaches, path))
        self._open = self._account.reserve(planned, self._budget, what="torch", touched=True)
        self.mark = self._open.mark

    def settle(self, certificate: Certificate, finished: bool) -> Certificate:
        """The certificate with its entry in the ledger, committed once the run is over."""
        if self.mark is None:
            return certificate
        certificate = replace(certificate, ledger=self.mark)
        if finished and self._open is not None:
            self._open.commit(certificate)
            self._open = None
        return certificate
