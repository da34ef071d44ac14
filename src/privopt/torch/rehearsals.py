"""When a model is tried on made-up inputs: once for each way in which it is called."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from privopt.torch.arguments import leaves_of
from privopt.torch.belongings import Belongings
from privopt.torch.engine import Engine
from privopt.torch.lengths import Lengths
from privopt.torch.probe import check_memory, probe
from privopt.torch.watch import Watch


class Rehearsals:
    """The ways in which a model was called so far, and how it treats examples in each."""

    def __init__(
        self, engine: Engine, belongings: Belongings, watch: Watch, lengths: Lengths | None
    ) -> None:
        self._engine, self._belongings, self._watch = engine, belongings, watch
        self._lengths, self._known = lengths, set[Any]()

    def known(self, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
        """Whether the model was called in this way before, and is what it was then."""
        return self._manner(inputs, keywords) in self._known

    def check(self, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """Try the model on made-up inputs, if it is called in a new way."""
        key = self._manner(inputs, keywords)
        if key in self._known:
            return
        given: Any = inputs, keywords
        ways: list[Any] = [given]
        if self._lengths is not None:
            ways = [self._lengths.cut(given, one) for one in self._lengths.all]
        for _ in range(len(ways) + 1):  # what one length has settled is tried with the others
            before = self._engine.shape()
            for way in ways:
                check_memory(self._belongings, self._engine.model, *way)
                with self._belongings.kept(look=True):
                    probe(self._engine, *way)
            if len(ways) == 1 or self._engine.shape() == before:
                break
        self._known.add(key)

    def _manner(self, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """How the model is called, and what it is made of."""
        leaves, shape = leaves_of((inputs, keywords, ()))
        engine = self._engine
        engine.manner = self._watch.manner()
        return (
            shape if isinstance(shape, int) else str(shape),
            tuple([(x.dim(), x.dtype) if isinstance(x, Tensor) else repr(x) for x in leaves]),
            engine.structure,
            engine.structure.modes(),
            engine.manner,
        )
