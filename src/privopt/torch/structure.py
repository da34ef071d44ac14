"""What a model is made of, remembered so that a step can see at once whether it has changed."""

from __future__ import annotations

from operator import is_
from typing import Any

from torch import nn


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

    def same(self) -> bool:
        """Whether all modules hold what they held."""
        return all(
            len(held) == len(before) and all(map(is_, held.values(), before))
            for held, before in self._held
        )

    def trained(self) -> list[nn.Parameter]:
        return [p for p in self._parameters if p.requires_grad]

    def modes(self) -> tuple[bool, ...]:
        """Whether each module trains."""
        return tuple([module.training for module in self.modules])
