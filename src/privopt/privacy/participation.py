"""Participation: in which steps of a stream one record may take part. A public promise.

The caller enforces the rule; sensitivities are maxima over everything it allows, never over what
happened to occur.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

Pattern = tuple[int, ...]
"""Steps, counted from 0, in which one record takes part."""


@dataclass(frozen=True, slots=True)
class Participation:
    """At most ``times`` steps, any two of them at least ``min_separation_steps`` apart.

    ``fixed_order``: the steps of one record are exactly ``min_separation_steps`` apart, as in
    epochs that visit the same batches in the same order; otherwise any gap of at least that many
    steps is allowed. A gap of b means that steps t and t + b may both hold the record, with b - 1
    steps strictly between them.
    """

    times: int = 1
    min_separation_steps: int = 1
    fixed_order: bool = False

    def __post_init__(self) -> None:
        if self.times < 1:
            raise ValueError(f"a record takes part at least once, got times={self.times}.")
        if self.min_separation_steps < 1:
            raise ValueError(
                "min_separation_steps must be at least 1 (steps in a row), "
                f"got {self.min_separation_steps}."
            )

    @classmethod
    def single_pass(cls) -> Participation:
        """Each record is in one step at most."""
        return cls()

    @classmethod
    def epochs(cls, times: int, steps_per_epoch: int) -> Participation:
        """``times`` passes over the same batches in the same order."""
        return cls(times, steps_per_epoch, fixed_order=True)

    @classmethod
    def separated(cls, times: int, min_separation_steps: int) -> Participation:
        """At most ``times`` steps, any two at least ``min_separation_steps`` apart."""
        return cls(times, min_separation_steps)

    @classmethod
    def between(cls, times: int, steps_between: int) -> Participation:
        """The same, given the number of steps strictly between two participations (the convention
        of TensorFlow Privacy's ``min_separation``)."""
        return cls(times, steps_between + 1)

    def fitted(self, steps: int) -> Participation:
        """The same rule, as far as it matters within ``steps`` steps."""
        most = -(-steps // self.min_separation_steps)
        if self.times <= most:
            return self
        return Participation(most, self.min_separation_steps, self.fixed_order)

    def allows(self, pattern: Pattern) -> bool:
        """Whether a record may take part in these steps."""
        b = self.min_separation_steps
        gaps = [later - earlier for earlier, later in pairwise(pattern)]
        if len(pattern) > self.times or any(gap < b for gap in gaps):
            return False
        if self.fixed_order and pattern:
            return pattern[-1] - pattern[0] <= (self.times - 1) * b and all(
                g % b == 0 for g in gaps
            )
        return True

    def orders(self, steps: int) -> list[Pattern] | None:
        """The largest patterns within ``steps`` steps; None if they are too many to list."""
        b, times = self.min_separation_steps, self.times
        if times > 1 and not self.fixed_order:
            return None
        # With enough epochs to fill all steps, a later first step is part of an earlier one's.
        firsts = min(b, steps) if times > 1 and times * b >= steps else steps
        return [tuple(range(i, min(steps, i + times * b), b))[:times] for i in range(firsts)]
