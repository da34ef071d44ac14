"""What a mechanism is: a public recipe that turns a sealed value into a public one."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from privopt.noise import Source
from privopt.oracle.reach import Reach, ReachNorm
from privopt.privacy.events import Numerics
from privopt.privacy.kinds import Kind


class Mechanism(Protocol):
    """Frozen and public. Noise is stated in units of the reach, so that the events declared on no
    data equal those of the run bit for bit."""

    @property
    def accepts(self) -> ReachNorm:
        """The norm in which the value must be bounded."""
        ...

    def kinds(self, reach: Reach) -> tuple[Kind, ...]:
        """The privacy losses of one release, from public facts alone; refuses in a sentence."""
        ...

    def run(self, payload: Any, reach: Reach, source: Source) -> Any:
        """Draw the noise and return the public value. Total: it never fails because of data."""
        ...


@runtime_checkable
class Exact(Protocol):
    """A mechanism that can release exact integers times a public step."""

    def numerics(self, reach: Reach) -> Numerics | None:
        """How far a release is from the law of its kinds; None if it is in floating point."""
        ...
