"""What a model is made of, remembered so that a step can see at once whether it has changed."""

from __future__ import annotations

from operator import is_
from typing import Any

from torch import Tensor, nn


class Structure:
    """Modules of a model, with the parameters, buffers and children that each of them holds.

    Walking through a large model takes as long as launching a compiled step; this does not.
    """

    def __init__(self, model: nn.Module) -> None:
        self.modules = list(model.modules())
        self._parameters = list(model.parameters())
        self._held: list[tuple[dict[str, Any], tuple[Any, ...]]] = [
            (held, tuple(held.values()))
            for module in self.modules
            for held in (module._parameters, module._buffers, module._modules)
        ]
        # What is held here keeps its name: nothing else can be given it.
        self._names = tuple([tuple([id(value) for value in before]) for _, before in self._held])
        self._hash = hash(self._names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and self._names == other._names

    def __hash__(self) -> int:
        return self._hash

    def same(self) -> bool:
        """Whether all modules hold what they held."""
        return all(
            len(held) == len(before) and all(map(is_, held.values(), before))
            for held, before in self._held
        )

    def buffers(self, values: bool) -> Buffers:
        """All buffers, how often each was written to, and copies of them if ``values``."""
        held = [module._buffers.values() for module in self.modules if module._buffers]
        found = [b for many in held for b in many if b is not None]
        return [(b, b._version, b.clone() if values else None) for b in found]

    def trained(self) -> list[nn.Parameter]:
        return [p for p in self._parameters if p.requires_grad]

    def modes(self) -> tuple[bool, ...]:
        """Whether each module trains."""
        return tuple([module.training for module in self.modules])


Buffers = list[tuple[Tensor, int, Tensor | None]]


def same_buffers(one: Buffers, other: Buffers) -> bool:
    """Neither written to, nor replaced by others with other values."""
    return len(one) == len(other) and all(
        before._version == version
        and (before is now or same_values(before, now))
        and (value is None or same_values(value, now))
        for (before, version, value), (now, _, _) in zip(one, other, strict=True)
    )


def same_values(a: Tensor, b: Tensor) -> bool:
    """Number by number, and missing where the other is missing."""
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
