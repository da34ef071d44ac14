"""What a mechanism is: a public recipe that turns a sealed value into a public one."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from privopt.mechanisms.standard import Coins
from privopt.noise import Source
from privopt.oracle.sensitivity import Sensitivity, SensitivityNorm
from privopt.privacy.kinds import Kind


class Mechanism(Protocol):
    """Frozen and public. Noise is stated in units of the sensitivity, so that the events declared
    on no data equal those of the run bit for bit.

    One that can release exact integers times a public step has ``numerics(sensitivity)`` as well:
    how far a release is from the law of its kinds, or None if it is in floating point.
    """

    @property
    def accepts(self) -> SensitivityNorm:
        """The norm in which the value must be bounded."""
        ...

    def kinds(self, sensitivity: Sensitivity) -> tuple[Kind, ...]:
        """The privacy losses of one release, from public facts alone; refuses in a sentence."""
        ...

    def run(self, payload: Any, sensitivity: Sensitivity, source: Source) -> Any:
        """Draw the noise and return the public value. Total: it never fails because of data."""
        ...


@runtime_checkable
class Described(Protocol):
    """A mechanism without a memory that says of a release what its noise was. A stream is described
    by its factorization instead, all steps together."""

    def standard_noise(
        self, payload: Any, result: Any, sensitivity: Sensitivity, kind: Kind, coins: Coins
    ) -> np.ndarray:
        """The noise in numbers that are independent and standard normal if the release follows
        ``kind``, the first of its event, whose scale counts here and not the mechanism's own.
        For audits: it sees data."""
        ...


@runtime_checkable
class Choosing(Protocol):
    """A mechanism that chooses one of many."""

    def chances(
        self, payload: Any, sensitivity: Sensitivity, kind: Kind
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scores in units of the noise that ``kind`` declares, and the chances of each."""
        ...


@runtime_checkable
class Drawn(Protocol):
    """A mechanism that draws a point by its weight: what one record does to the weights is all that
    privacy rests on."""

    def log_weights(self, payload: Any, sensitivity: Sensitivity, points: np.ndarray) -> np.ndarray:
        """Logarithms of the weights at points, up to a constant."""
        ...

    def landmarks(self, payload: Any, sensitivity: Sensitivity) -> np.ndarray:
        """Points that show the weights from every side, the same for neighbours or not."""
        ...
