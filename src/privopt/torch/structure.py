"""What a model is made of, remembered so that a step can see at once whether it has changed."""

from __future__ import annotations

from itertools import compress
from operator import attrgetter

from torch import Tensor, nn

from privopt.torch.contents import Contents


class Structure:
    """Modules of a model, with the parameters, buffers and children that each of them holds.

    Walking through a large model takes as long as launching a compiled step; this does not.
    """

    def __init__(self, model: nn.Module) -> None:
        self.modules = list(model.modules())
        self._parameters = list(model.parameters())
        held = [
            own
            for module in self.modules
            for own in (module._parameters, module._buffers, module._modules)
        ]
        self._contents = Contents()
        for own in held:
            self._contents.add("entries", own)
        # What is held here keeps its name: nothing else can be given it.
        self._names = tuple([tuple(map(id, own.values())) for own in held])
        self._hash = hash(self._names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and self._names == other._names

    def __hash__(self) -> int:
        return self._hash

    def same(self) -> bool:
        """Whether all modules hold what they held."""
        return self._contents.untouched()

    def buffers(self, values: bool) -> Buffers:
        """All buffers, how often each was written to, and copies of them if ``values``."""
        held = [module._buffers.values() for module in self.modules if module._buffers]
        found = [b for many in held for b in many if b is not None]
        return [(b, b._version, b.clone() if values else None) for b in found]

    def trained(self) -> list[nn.Parameter]:
        return list(compress(self._parameters, map(TRAINED, self._parameters)))

    def modes(self) -> tuple[bool, ...]:
        """Whether each module trains."""
        return tuple(map(MODE, self.modules))


TRAINED, MODE = attrgetter("requires_grad"), attrgetter("training")
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
