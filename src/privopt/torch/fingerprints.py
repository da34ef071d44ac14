"""Who is who: a keyed digest of each record, which notices records that are held more than once,
and data sets that are exchanged or put in another order while a run is interrupted.

A record that is held twice is drawn and clipped twice, and pays once. A run that goes on with other
records in the places of the first ones spends on both. Digests live in memory only. Their key, and
one digest of all of them in their order, are part of a run's state, which is secret.

Records without content, those that hold a missing value or nothing but zeros, stand for nobody:
that is how a neighbour under zero_out holds an empty record. They may be there many times.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from privopt.noise.random_numbers import draw_again, same_random_numbers
from privopt.noise.source import fresh_name
from privopt.privacy.budget import Refused

EqualRecords = Literal["auto", "refused", "people", "unchecked"]

EQUAL = (
    "the data set holds the same record more than once, and would pay for it once: take each "
    "record once, and weight its loss instead; or declare repeats=, the most copies of one; or say "
    'equal_records="people" if equal records are different people.'
)
OTHERS = (
    "the data set holds other records than the one this state was written with, or in another "
    "order: go on with the same data set."
)
PEOPLE = "equal records in the data set are different people"


def too_often(repeats: int) -> str:
    """What is said of a record with too many copies."""
    if repeats == 1:
        return EQUAL
    return f"the data set holds a record more than {repeats} times, and repeats={repeats} pays for."


def copies(repeats: int) -> str:
    """What is assumed where nobody looks."""
    times = "once" if repeats == 1 else f"{repeats} times"
    return f"nobody's record is in the data set more than {times}"


EMPTY = bytes(16)


class Fingerprints:
    """Digests of all records of a data set, in their order, under one key."""

    def __init__(self, loader: DataLoader[Any], key: str | None = None) -> None:
        self.key = key or fresh_name() + fresh_name()
        with same_random_numbers():
            found = list(_digests(loader, bytes.fromhex(self.key)))
        self.readable = None not in found
        self._found = [one for one in found if one is not None] if self.readable else []

    def copies(self) -> int:
        """How many places hold one record, at most."""
        held = Counter(one for one in self._found if one != EMPTY)
        return max(held.values(), default=0)

    @property
    def digest(self) -> str | None:
        """One for all records in their order."""
        if not self.readable:
            return None
        key = bytes.fromhex(self.key)
        return blake2b(b"".join(self._found), key=key, digest_size=16).hexdigest()


class Roster:
    """What a run knows of its records: at most their digests."""

    def __init__(self, loader: DataLoader[Any], equal: str, repeats: int = 1) -> None:
        if equal not in ("auto", "refused", "people", "unchecked"):
            raise ValueError(
                f"equal_records must be auto, refused, people or unchecked, got {equal!r}."
            )
        if repeats > 1 and equal == "people":
            raise ValueError("repeats are copies of one record: drop equal_records or repeats.")
        if equal == "auto":  # a row of a table is a record, as everywhere in this library
            table = type(loader.dataset) is TensorDataset and repeats == 1
            equal = "people" if table else "refused"
        self._loader, self._equal, self._repeats = loader, equal, repeats
        self._prints: Fingerprints | None = None

    def check(self) -> None:
        """Refuse a record that is held more often than was declared."""
        if self._equal == "unchecked":
            return
        self._prints = Fingerprints(self._loader)
        if self._equal == "refused" and self._prints.copies() > self._repeats:
            raise ValueError(too_often(self._repeats))

    def assumptions(self) -> tuple[str, ...]:
        if self._prints is not None and not self._prints.readable:
            return (f"{copies(self._repeats)} (its items cannot be compared)",)
        if self._equal == "people":
            return (PEOPLE,)
        if self._equal == "unchecked":
            return (f"{copies(self._repeats)} (not checked)",)
        return ()

    def state(self) -> dict[str, Any] | None:
        """What tells these records from others; secret."""
        prints = self._prints
        return None if prints is None else {"salt": prints.key, "digest": prints.digest}

    def load(self, state: dict[str, Any] | None) -> bool:
        """Refuse a state of other records; False if nobody can tell."""
        if state is None or self._prints is None or state["digest"] is None:
            return False
        prints = Fingerprints(self._loader, state["salt"])
        if prints.digest != state["digest"]:
            raise Refused(OTHERS)
        self._prints = prints
        return True


def digest_of(item: Any, key: bytes) -> bytes | None:
    """Of one record's content; ``EMPTY`` if it has none, None if it cannot be read."""
    found = blake2b(key=key, digest_size=16)
    try:
        content = [_feed(found, name, part) for name, part in _parts(item)]
    except Exception:
        return None
    return EMPTY if None in content or not any(content) else found.digest()


def _digests(loader: DataLoader[Any], key: bytes) -> Iterator[bytes | None]:
    data: Any = loader.dataset
    if type(data) is TensorDataset:
        yield from _rows(data.tensors, key)
        return
    items = DataLoader(
        _Digested(data, key),
        batch_size=64,
        num_workers=loader.num_workers,
        collate_fn=list,
        worker_init_fn=loader.worker_init_fn,
    )
    for many in items:
        yield from many


class _Digested(Dataset[Any]):
    """A data set that gives digests of its items; random changes are the same for all of them."""

    def __init__(self, data: Any, key: bytes) -> None:
        self._data, self._key = data, key

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> bytes | None:
        draw_again()
        return digest_of(self._data[index], self._key)


def _rows(tensors: tuple[Tensor, ...], key: bytes) -> Iterator[bytes]:
    """As ``digest_of``, for all rows of some tensors."""
    if not len(tensors[0]):
        return
    parts, content = [], np.zeros(len(tensors[0]), dtype=bool)
    missing = np.zeros(len(tensors[0]), dtype=bool)
    for tensor in tensors:
        flat = tensor.detach().flatten(1) if tensor.dim() > 1 else tensor.detach()[:, None]
        flat = flat.cpu().contiguous()
        content |= (flat != 0).any(1).numpy()
        missing |= (flat != flat).any(1).numpy()
        parts.append(flat.view(torch.uint8).reshape(len(flat), -1).numpy())
    rows = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
    for row, there in zip(rows, content & ~missing, strict=True):
        yield blake2b(row, key=key, digest_size=16).digest() if there else EMPTY


def _parts(item: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of an item, with the names they stand under."""
    if isinstance(item, dict):
        for key in sorted(item, key=str):
            yield from _parts(item[key], f"{name}/{key}")
    elif isinstance(item, (list, tuple)) and not all(isinstance(x, (int, float)) for x in item):
        for i, part in enumerate(item):
            yield from _parts(part, f"{name}/{i}")
    else:
        yield name, item


def _feed(found: Any, name: str, part: Any) -> bool | None:
    """Take in a leaf; whether it is more than zero, None if it is missing."""
    found.update(repr(name).encode())
    if isinstance(part, Tensor):
        part = part.detach().cpu().contiguous()
        array = part.view(torch.int16).numpy() if part.dtype == torch.bfloat16 else part.numpy()
    elif isinstance(part, (bool, int, float, complex, list, tuple, np.generic, np.ndarray)):
        array = np.asarray(part)
    elif isinstance(part, (str, bytes)) or part is None:
        found.update(b"s" + repr(part).encode())
        return bool(part)
    elif hasattr(part, "__array__"):  # pictures, for example
        array = np.asarray(part)
    else:
        found.update(b"p" + pickle.dumps(part))
        return True
    if array.dtype == object:
        found.update(b"p" + pickle.dumps(array))
        return True
    found.update(f"a{array.dtype.str}{array.shape}".encode())
    found.update(np.ascontiguousarray(array).data)
    if array.dtype.kind in "fc" and bool(np.isnan(array).any()):
        return None
    return bool(array.any())
