"""What a mutant is, and how it is tried."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

Check = Callable[[], str | None]
"""Says in a few words what is wrong, or None."""


@dataclass(frozen=True)
class Mutant:
    """A bug: what is replaced, by what, and the check that must notice it."""

    name: str
    patches: tuple[tuple[Any, str, Any], ...]
    check: Check
    by: str
    quick: bool = True

    def try_it(self) -> str | None:
        """What the check says of the mutated code; None if the mutant survives."""
        with planted(self.patches):
            return self.check()


@contextmanager
def planted(patches: tuple[tuple[Any, str, Any], ...]) -> Iterator[None]:
    """The patches in force, and nothing remembered from before or after."""
    with ExitStack() as stack:
        stack.callback(forget)
        for owner, name, new in patches:
            stack.enter_context(patch.object(owner, name, new))
        forget()
        yield


def forget() -> None:
    """Empty every cache of the package: a cached number would hide a mutant or outlive it."""
    for name, module in list(sys.modules.items()):
        if name.startswith("privopt"):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear") and value.__name__ != "catalogue":
                    value.cache_clear()
