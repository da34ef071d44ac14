"""How records become a batch: each is put together alone, and then they are laid side by side.

A collate function that sees one record at a time cannot mix records, and cannot pad one to the
length of another. So each record has to come out in the same public shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_map
from torch.utils.data import Dataset, default_collate

from privopt.noise.random_numbers import same_random_numbers
from privopt.privacy.budget import Refused

PAD = (
    "Shapes are public: put every record into one shape that is known before, with "
    'padding="max_length" and max_length=... in a tokenizer or its collator, F.pad to a fixed '
    "length in a data set of your own."
)
LONGEST = f"records come out of the data set and collate_fn in different shapes. {PAD}"
PACKED = f"a packed sequence tells the lengths of all records of a batch. {PAD}"
ROWS = "collate_fn must give tensors with one row for each record: it gave one record other rows. "


class Records(Dataset[Any]):
    """A data set asked for one record at a time, also if it could give several at once."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> Any:
        return self._data[index]


class Collate:
    """Collate, also of no records: the first one lends its shape."""

    def __init__(self, collate: Callable[[list[Any]], Any], data: Any) -> None:
        self._collate, self._data, self._first = collate, data, None

    def __call__(self, examples: list[Any]) -> Any:
        if self._first is None:
            with same_random_numbers():
                self._first = self._alone(self._data[0])
        if self._collate is default_collate and examples:
            try:
                batch = default_collate(examples)
            except RuntimeError as problem:
                if "stack expects each tensor to be equal size" in str(problem):
                    raise Refused(LONGEST) from None
                raise
            _check_alike(_cut(batch, 1), self._first)
            return batch
        if not examples:
            return _cut(self._first, 0)
        rows = [self._alone(example) for example in examples]
        for row in rows:
            _check_alike(row, self._first)
        return _side_by_side(rows)

    def check(self) -> None:
        """Refuse what two records alone show."""
        for i in range(min(2, len(self._data))):
            with same_random_numbers():
                self([self._data[i]])

    def _alone(self, example: Any) -> Any:
        return _plain(self._collate([example]))


def _cut(batch: Any, stop: int) -> Any:
    return tree_map(lambda x: x[:stop] if isinstance(x, Tensor) and x.dim() else x, batch)


def _plain(batch: Any) -> Any:
    """Mappings of other kinds, such as a tokenizer's, as dictionaries."""
    if isinstance(batch, PackedSequence):
        raise Refused(PACKED)
    if isinstance(batch, Mapping):
        return {name: _plain(value) for name, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(_plain, batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(map(_plain, batch))
    return batch


def _check_alike(row: Any, first: Any) -> None:
    """One record's tensors have the shapes of another one's."""
    if isinstance(first, Tensor):
        if not isinstance(row, Tensor) or row.shape != first.shape or row.dtype != first.dtype:
            raise Refused(LONGEST)
    elif isinstance(first, dict):
        if not isinstance(row, dict) or row.keys() != first.keys():
            raise Refused(LONGEST)
        for name, value in first.items():
            _check_alike(row[name], value)
    elif isinstance(first, (list, tuple)):
        if not isinstance(row, (list, tuple)) or len(row) != len(first):
            raise Refused(LONGEST)
        for one, other in zip(row, first, strict=True):
            _check_alike(one, other)


def _side_by_side(rows: Sequence[Any]) -> Any:
    first = rows[0]
    if isinstance(first, Tensor):
        if not first.dim():
            if any(not torch.equal(row, first) for row in rows):
                raise Refused(ROWS + "It gave a single number.")
            return first
        if len(first) != 1:
            raise Refused(ROWS + PAD)
        return torch.cat(list(rows))
    if isinstance(first, np.ndarray):
        return np.concatenate(list(rows)) if first.ndim else np.stack(list(rows))
    if isinstance(first, dict):
        return {name: _side_by_side([row[name] for row in rows]) for name in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*map(_side_by_side, zip(*rows, strict=True)))
    if isinstance(first, (list, tuple)):
        if len(first) == 1 and not isinstance(first[0], (Tensor, list, tuple, dict)):
            return type(first)([row[0] for row in rows])
        return type(first)(map(_side_by_side, zip(*rows, strict=True)))
    same = all(type(row) is type(first) and row == first for row in rows)
    return first if same else list(rows)
