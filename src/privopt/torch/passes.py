"""Batches of a data set that can only be read from its beginning, in passes over a declared number
of records.

Step t of a pass takes the records at the places n t / E to n (t + 1) / E, for n records and E steps
in a pass. A record that comes once in a pass is in one step of each, whichever it is: the steps of
a pass ask disjoint parts (one loss for all of them together), and passes compose. With noise that
is independent from step to step and alike in all steps, that is one Gaussian loss for each pass,
also if the order changes between passes. Correlated noise would need a record to keep its place.
Nothing is sampled by this library, so no amplification is claimed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, IterableDataset, default_collate

from privopt.privacy.budget import Neighbouring, Refused
from privopt.privacy.events import FULL, Cell
from privopt.torch.batches import PrivateLoader, Schedule, check_collate
from privopt.torch.collation import Collate
from privopt.torch.fingerprints import EMPTY, EQUAL, digest_of
from privopt.torch.processes import Processes

ASSUMPTION = (
    "each record comes once in a pass of the data set, whose order and length do not depend on "
    "what the records say"
)


def in_passes(loader: object, n_public: int | None) -> bool:
    """Whether a loader's data set has an order of its own, and a declared number of records."""
    iterable = isinstance(loader, DataLoader) and isinstance(loader.dataset, IterableDataset)
    if iterable and n_public is not None and loader.batch_size is None:  # type: ignore[union-attr]
        raise ValueError("the loader needs a batch_size: it is the public expected batch size.")
    return iterable and n_public is not None


def noise_of_passes(
    noise: str, batches: str, neighbouring: Neighbouring, processes: Processes
) -> tuple[str, str]:
    """Noise and batches of a data set that is read from its beginning."""
    if noise not in ("auto", "independent") or batches in ("poisson", "allocated"):
        raise ValueError(
            "an IterableDataset is read in its own order: no coin draws its batches, and no record "
            'keeps its place. Use noise="independent" and batches="fixed", or a data set with a '
            "length."
        )
    if neighbouring == "add_remove":
        raise ValueError("a record more shifts all that follow: use zero_out or replace_one.")
    if processes.count > 1:
        raise Refused(
            "several processes would read the same records: give a data set with a length."
        )
    return "independent", "fixed"


class Passes(Schedule):
    """The same parts in every pass, by the places of records in it."""

    name = "fixed"
    sampling = FULL

    def __init__(self, count: int, batch_size: int) -> None:
        self._count = count
        self.steps_per_epoch = -(-count // batch_size)
        self.expected_batch_size = count / self.steps_per_epoch

    def cells(self, step: int) -> tuple[Cell, ...]:
        return ((step % self.steps_per_epoch,),)

    def draw(self, step: int) -> np.ndarray:
        part, parts = step % self.steps_per_epoch, self.steps_per_epoch
        return np.arange(self._count * part // parts, self._count * (part + 1) // parts)

    def state(self) -> np.ndarray:
        return np.zeros(0, dtype=np.int64)

    def load(self, state: np.ndarray) -> None:
        if len(state):
            raise Refused("this state belongs to a data set with places.")


class PassLoader(PrivateLoader):
    """Reads on where the last step ended. A pass that ends early has fewer records in its last
    steps; a record beyond the declared number is refused, and so is one that comes again."""

    key: bytes | None = None
    """Of the digests that notice records which come again in a pass; None: nobody looks."""
    _given = 0

    def _members(self, step: int) -> np.ndarray:
        return np.arange(self._given)

    def _batches(self, steps: range) -> Iterator[Any]:
        data, collate = self._loader.dataset, self._loader.collate_fn
        first: list[Any] = []  # lends its shape to steps without records
        together = Collate(collate, first)
        items = iter(
            DataLoader(
                data,
                batch_size=None,
                collate_fn=_as_it_is,
                num_workers=self._loader.num_workers,
                worker_init_fn=self._loader.worker_init_fn,
            )
        )
        seen: set[bytes] = set()
        per_pass = self._schedule.steps_per_epoch
        for step in range(steps.start - steps.start % per_pass, steps.stop):
            here = [item for _, item in zip(self._schedule.draw(step), items, strict=False)]
            self._check_once(here, seen)
            if step % per_pass == per_pass - 1 and next(items, seen) is not seen:
                raise Refused("the data set gives more records in a pass than n_public declares.")
            if step in steps:
                self._given = len(here)
                first[:] = first or here[:1]
                if not first:
                    raise Refused("the data set gives no record at all.")
                if collate is not default_collate and not self._collates:
                    check_collate(collate, here)
                    self._collates = True
                yield together(here)

    def _check_once(self, items: list[Any], seen: set[bytes]) -> None:
        if self.key is None:
            return
        for item in items:
            digest = digest_of(item, self.key)
            if digest not in (None, EMPTY):
                if digest in seen:
                    raise Refused(EQUAL)
                seen.add(digest)


def _as_it_is(item: Any) -> Any:
    return item
