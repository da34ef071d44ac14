"""A line that says how far a run is: steps and time, and nothing that depends on data."""

from __future__ import annotations

import sys
import time

SELDOM = 0.1
"""Seconds between two lines."""


class Progress:
    """Writes over one line of the terminal after a step."""

    def __init__(self, steps: int, shown: bool) -> None:
        self._steps, self._shown = steps, shown
        self._began: tuple[float, int] | None = None
        self._last = 0.0

    def stepped(self, done: int) -> None:
        """One more step is over."""
        if not self._shown:
            return
        now = time.monotonic()
        began, before = self._began = self._began or (now, done)
        over = done >= self._steps
        if not over and now - self._last < SELDOM:
            return
        self._last = now
        left = (now - began) / max(done - before, 1) * (self._steps - done)
        text = f"\r{done} of {self._steps} steps, {now - began:.0f} s, about {left:.0f} s left"
        print(f"{text:<60}", end="\n" if over else "", file=sys.stderr, flush=True)
