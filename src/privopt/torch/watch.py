"""When the assumption that examples do not meet is checked again, on the records of a step.

At the first step; whenever the model or the loss can get at something new; and at steps chosen by
secret coins: now and then with a whole batch, more often with a small part of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from privopt.noise.random_numbers import same_random_numbers
from privopt.privacy.budget import Refused
from privopt.torch.arguments import leaves_of
from privopt.torch.engine import Engine
from privopt.torch.exchange import check_batch, kept, of_batch
from privopt.torch.losses import LossFunction
from privopt.torch.reachable import COUNTED, Reachable

WHOLE = 1 / 128
"""Share of steps whose batch is checked: one pass more. In a compiled step it is two slower ones,
so they are rarer there."""
WHOLE_COMPILED = 1 / 400
PART, ENOUGH = 1 / 24, 1024
"""Share of steps of which a part is checked, by a processor. Rarer for batches of fewer examples,
whose parts take almost as long as they do."""
FIRST = 2
"""Ways in which records are exchanged when something is new; else one."""
SMALL = 16
"""A part of a batch is a sixteenth of it."""
OFTEN = 16
"""Changes that are checked with a whole batch. Of later ones only the loss is tried again, and a
model not if a count is all that has changed: a temperature may fall in every step."""


class Watch:
    """What was seen so far, and what a step has to show."""

    def __init__(self, engine: Engine, compiled: bool) -> None:
        self._engine, self._compiled = engine, compiled
        self._model: Reachable | None = None
        self._loss: Reachable | None = None
        self._counted = 0  # times that only a count in the model had changed
        quick = compiled or engine.parameters[0].is_cuda  # where a part takes as long as a batch
        self._part = 0.0 if quick else PART * min(1.0, engine.crowd / ENOUGH)
        self._manners: set[Any] = set()
        self._losses: set[int] = set()
        self.outside = False  # whether a loss held rows that are not the loader's

    def manner(self) -> int:
        """What the model can get at, as a number: another one if that has changed."""
        known = self._model
        if known is not None and known.same():
            return known.mark
        self._model = found = Reachable(self._engine.model)
        if known is not None and known.only(COUNTED):
            self._counted += 1
            if self._counted > OFTEN:
                found.mark = known.mark
        return found.mark

    def look(
        self,
        loss: LossFunction,
        inputs: tuple[Any, ...],
        keywords: dict[str, Any],
        targets: tuple[Any, ...],
        count: int,
    ) -> Tensor | None:
        """Refuse a step in which examples meet, if it is this one's turn; the clipped sum then."""
        if count < 2:
            return None
        engine = self._engine
        reached = self._reached(loss)
        leaves, _ = leaves_of((inputs, keywords, targets))
        shapes = tuple([x.shape[1:] for x in leaves if isinstance(x, Tensor)])
        # As it was looked at when this step began, and at one of the declared lengths.
        manner, mark = (engine.manner, shapes), reached.mark
        self.outside = self.outside or _outside(reached, count, engine.given)
        fresh = manner not in self._manners or mark not in self._losses
        few = len(self._manners) + len(self._losses) <= OFTEN
        whole, total = WHOLE_COMPILED if self._compiled else WHOLE, None
        if (fresh and few) or engine.coins.random() < whole:
            engine.known.discard(mark)
            tries = FIRST if fresh else 1
            given = inputs, keywords, targets
            if self._compiled:  # which finds the sum in another way
                with _undone(engine, loss):
                    check_batch(engine, loss, *given, count, tries)
            else:
                total = check_batch(engine, loss, *given, count, tries)
        elif engine.coins.random() < self._part and tree_leaves(targets):
            self._look_at_few(loss, (inputs, keywords, targets), count)
        self._manners.add(manner)
        self._losses.add(mark)
        return total

    def _reached(self, loss: LossFunction) -> Reachable:
        """What the loss can get at; walked again only if it is another one or has changed."""
        known = self._loss
        if known is not None and known.root is loss and known.same():
            return known
        found = Reachable(loss, self._engine.model)
        # What holds tensors, of a batch maybe, is not kept until the next step.
        held = any(isinstance(thing, Tensor) for thing in found.met())
        self._loss = None if held else found
        return found

    def _look_at_few(self, loss: LossFunction, given: Any, count: int) -> None:
        engine = self._engine
        size = max(2, count // SMALL)
        rows = torch.from_numpy(engine.coins.permutation(count)[:size])

        def cut(x: Any) -> Any:
            return x[rows.to(x.device)] if isinstance(x, Tensor) else x

        try:
            few = tree_map(cut, given)
            with _undone(engine, loss):
                check_batch(engine, loss, few[0], few[1], few[2], size)
        except Refused:
            raise
        except Exception:
            return  # the loss holds tensors of the whole batch


@contextmanager
def _undone(engine: Engine, loss: LossFunction) -> Iterator[None]:
    """What runs inside leaves nothing behind, in random numbers neither."""
    device = engine.parameters[0].device
    with kept(engine.model, loss), same_random_numbers(device, None):
        yield


def _outside(reached: Reachable, count: int, given: tuple[Tensor, ...]) -> bool:
    """Whether a loss holds a tensor with a row for each example that somebody else has made."""
    rows = [x for x in reached.met() if isinstance(x, Tensor) and x.dim() and len(x) == count]
    return any(not x.requires_grad and not of_batch(x, given) for x in rows)
