"""Records of several declared lengths: each is run at its own, with others of that length.

Padded to the longest of their batch, records would meet: one long record makes all others longer,
and where padding is seen (a mean over positions, a recurrent layer) changes their gradients. Here a
batch comes in one public shape, that of the longest declared length, and a step cuts it into parts:
a record is in the part of the shortest declared length that holds it. That depends on its own row
alone, so one record moves the sum by what its own clipped gradient is, whatever its length. How
many records a part has is as secret as the size of a batch, and is released nowhere.

What a row repeats to its end, in all its tensors alike, is taken for padding. One of it is kept:
a row without padding ends with something, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from privopt.torch.arguments import Asked


class Lengths:
    """Declared lengths, in the second dimension of the tensors that a step is given."""

    def __init__(self, lengths: Sequence[int]) -> None:
        whole = isinstance(lengths, (list, tuple)) and all(type(x) is int for x in lengths)
        if not whole or not lengths or lengths[0] < 1 or any(a >= b for a, b in pairwise(lengths)):
            raise ValueError(
                f"lengths must be positive whole numbers in rising order, got {lengths!r}."
            )
        self.all = tuple(lengths)

    def _long(self, x: Any) -> bool:
        return isinstance(x, Tensor) and x.dim() > 1 and x.shape[1] == self.all[-1]

    def check(self, given: Any) -> None:
        """Refuse a batch in which nothing has the longest length."""
        if not any(map(self._long, tree_leaves(given))):
            raise ValueError(
                f"no tensor of the batch has a second dimension of {self.all[-1]}, the longest of "
                "lengths: pad every record to that, and a step cuts each to its own."
            )

    def cut(self, given: Any, length: int) -> Any:
        """Arguments of a step at one of the lengths."""
        return tree_map(lambda x: x[:, :length] if self._long(x) else x, given)

    def parts(self, asked: Asked) -> Iterator[Asked]:
        """The records of each length that some have, at that length."""
        given = asked.inputs, asked.keywords, asked.targets
        if not asked.count:
            return
        own = self._own([x for x in tree_leaves(given) if self._long(x)])
        places = torch.bucketize(own, torch.tensor(self.all))
        for place, length in enumerate(self.all):
            rows = torch.nonzero(places == place).flatten()
            if len(rows):
                cut = tree_map(
                    lambda x, rows=rows: x[rows.to(x.device)] if isinstance(x, Tensor) else x,
                    self.cut(given, length),
                )
                yield Asked(asked.loss, cut[0], cut[1], cut[2], len(rows))

    def _own(self, tensors: list[Tensor]) -> Tensor:
        """How much of each row is more than what it repeats to its end, and one of that."""
        places = torch.arange(self.all[-1]) + 1
        found = []
        for x in tensors:
            other = (x != x[:, -1:]).reshape(*x.shape[:2], -1).any(2)
            found.append((other * places.to(x.device)).amax(1).cpu())
        return (torch.stack(found).amax(0) + 1).clamp_max(self.all[-1])
