"""What a mechanism is: a public recipe that turns a sealed value into a public one."""

from __future__ import annotations

from typing import Any, Protocol

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
