"""Batches: who takes part in which step. A schedule is public but for the indices it draws.

The rate, the divisor and the number of steps follow from public constants: the batch size that was
asked for and the declared number of records. A drawn batch size is private and is used nowhere.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    default_collate,
)

from privopt.noise import Source
from privopt.noise.random_numbers import same_random_numbers
from privopt.oracle.sampling import COUPLING, GeometricSkips, Sampler
from privopt.privacy.budget import Refused
from privopt.privacy.events import FULL, ROOT, Cell, Sampling
from privopt.torch.collation import Collate, Records
from privopt.torch.fingerprints import too_often
from privopt.torch.processes import Processes
from privopt.torch.progress import Progress


class Schedule(ABC):
    """Steps, cells and sampling are public; ``draw`` returns the secret members of a step."""

    name: str
    _count: int
    steps_per_epoch: int
    expected_batch_size: float
    sampling: Sampling
    parts = 1
    """How many clipped gradients one member of a batch, or all its copies, may have."""

    @property
    def count(self) -> int:
        """How many records there are."""
        return self._count

    @abstractmethod
    def cells(self, step: int) -> tuple[Cell, ...]:
        """The part of the public partition that a step asks."""

    @abstractmethod
    def draw(self, step: int) -> np.ndarray: ...

    def likely_size(self) -> int:
        """A public size that a batch rarely exceeds; a round one, if batches vary."""
        size = self.expected_batch_size
        more = 4 * math.sqrt(size * (1 - self.sampling.rate))
        most = math.ceil(size + more)
        grain = 1 << max(0, most.bit_length() - 5) if more else 1
        return -(-most // grain) * grain  # so that runs alike share what is compiled

    @abstractmethod
    def state(self) -> np.ndarray:
        """What is drawn once for all steps, and must stay when training goes on elsewhere."""

    @abstractmethod
    def load(self, state: np.ndarray) -> None: ...


class PoissonBatches(Schedule):
    """Each record by a coin of its own; with several groups, a record's group takes turns.

    Groups are dealt by independent coins, so they hold under every relation. Step t holds each
    member of group t mod ``groups`` with probability rate = groups * batch_size / records: the
    expected batch size is ``batch_size`` (Choquette-Choo et al., 2023).

    With ``repeats``, all of at most k copies of a record count as one. Each has a coin of its own,
    of probability q: some of them are in a step with probability p <= 1 - (1 - q)^k, and then the
    sum moves by j times the clip, j <= k. Scaling by j / k and adding the noise that is missing
    takes N(0, s^2) to itself and N(k v, s^2) to N(j v, s^2); done with a random j, of the law that
    j has if it is not zero, it makes the step's pair of laws from that of a Gaussian of sensitivity
    k clips, sampled at rate 1 - (1 - q)^k: which is what is declared.
    """

    name = "poisson"

    def __init__(
        self,
        count: int,
        records: int,
        batch_size: int,
        groups: int,
        source: Source,
        repeats: int = 1,
    ) -> None:
        self._count, self.groups = count, groups
        self._sampler, self._rate = _sampler(source), min(1.0, groups * batch_size / records)
        self.sampling = Sampling(rate_of_some(self._rate, repeats))
        self.expected_batch_size = float(batch_size)
        self.steps_per_epoch = -(-records // batch_size)
        self._dealt = self._sampler.groups(count, groups) if groups > 1 else np.zeros(count, int)

    def cells(self, step: int) -> tuple[Cell, ...]:
        return ((step % self.groups,),) if self.groups > 1 else (ROOT,)

    def draw(self, step: int) -> np.ndarray:
        chosen = self._sampler.choose(self._count, self._rate, step + 1)
        return chosen[self._dealt[chosen] == step % self.groups]

    def state(self) -> np.ndarray:
        return self._dealt

    def load(self, state: np.ndarray) -> None:
        self._dealt = _checked(state, self._count, self.groups)


def rate_of_some(rate: float, repeats: int) -> float:
    """Probability that some of so many copies are drawn, rounded up."""
    if repeats == 1 or rate == 1.0:
        return rate
    return min(1.0, -math.expm1(repeats * math.log1p(-rate)) * (1 + 1e-12))


class Allocated(Schedule):
    """Each record in exactly one batch of each epoch, uniformly random, dealt anew for the next.

    What a shuffled epoch is often taken for, but for sizes, which vary as those of balls in bins.
    Places are drawn when an epoch begins and forgotten when it ends. There is no state in between:
    two runs that go on from it would share one secret.
    """

    name = "allocated"

    def __init__(self, count: int, records: int, batch_size: int, source: Source) -> None:
        self._count = count
        self._sampler = _sampler(source)
        self.steps_per_epoch = -(-records // batch_size)
        self.expected_batch_size = records / self.steps_per_epoch
        turns = self.steps_per_epoch
        self.sampling = Sampling(1 / turns, turns=turns) if turns > 1 else FULL
        self._epoch, self._dealt = -1, np.zeros(0, dtype=np.int64)

    def cells(self, step: int) -> tuple[Cell, ...]:
        return (ROOT,)

    def draw(self, step: int) -> np.ndarray:
        epoch, turn = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._epoch = epoch
            self._dealt = self._sampler.allocate(self._count, self.steps_per_epoch, epoch)
        return np.flatnonzero(self._dealt == turn)

    def state(self) -> np.ndarray:
        return np.zeros(0, dtype=np.int64)

    def load(self, state: np.ndarray) -> None:
        if len(state):
            raise Refused("this state belongs to a run with other batches.")


class FixedOrder(Schedule):
    """The same batches in the same order in every epoch, cut from one random order of the records.

    No amplification by sampling is claimed. A record keeps its place only if nobody is added or
    removed: zero_out and replace_one.
    """

    name = "fixed"
    sampling = FULL

    def __init__(self, count: int, batch_size: int, source: Source) -> None:
        self._count = count
        self.steps_per_epoch = -(-count // batch_size)
        self.expected_batch_size = count / self.steps_per_epoch
        self._order = np.asarray(_sampler(source).order(count))

    def cells(self, step: int) -> tuple[Cell, ...]:
        return ((step % self.steps_per_epoch,),)

    def draw(self, step: int) -> np.ndarray:
        part, parts = step % self.steps_per_epoch, self.steps_per_epoch
        return self._order[self._count * part // parts : self._count * (part + 1) // parts]

    def state(self) -> np.ndarray:
        return self._order

    def load(self, state: np.ndarray) -> None:
        order = _checked(state, self._count, self._count)
        if len(np.unique(order)) != self._count:
            raise Refused("this is not an order of these records.")
        self._order = order


def _sampler(source: Source) -> Sampler:
    return COUPLING.get() or GeometricSkips(source)


def _checked(state: Any, count: int, below: int) -> np.ndarray:
    values = np.asarray(state, dtype=np.int64)
    if values.shape != (count,) or (count and not 0 <= values.min() <= values.max() < below):
        raise Refused("this state belongs to another data set.")
    return values


def check_loader(loader: object, repeats: int = 1) -> DataLoader[Any]:
    """A plain loader of a data set with a length; its sampler, which is replaced, is ordinary."""
    if not isinstance(loader, DataLoader):
        raise ValueError(f"loader must be a torch DataLoader, got {type(loader).__name__}.")
    if isinstance(loader.dataset, IterableDataset) or not hasattr(loader.dataset, "__len__"):
        raise ValueError(
            "private batches are drawn by index: the data set needs a length, or, if it can only "
            "be read from its beginning, n_public, its number of records in a pass."
        )
    if loader.batch_size is None:
        raise ValueError("the loader needs a batch_size: it is the public expected batch size.")
    if type(loader.sampler) not in (RandomSampler, SequentialSampler) or (
        isinstance(loader.sampler, RandomSampler)
        and (loader.sampler.replacement or loader.sampler._num_samples is not None)
    ):
        raise ValueError(
            "the loader's own sampler would be replaced by one that the accountant knows: give a "
            "loader with shuffle=True or False and no sampler."
        )
    _check_once(loader.dataset, repeats)
    return loader


def _check_once(data: Any, repeats: int) -> None:
    """Refuse subsets and chains of data sets in which a record has more places than are declared:
    it would be drawn and clipped in each of them, and pay for fewer."""
    places: dict[int, list[np.ndarray]] = {}
    for name, rows in _origins(data, np.arange(len(data))):
        places.setdefault(name, []).append(rows)
    for many in places.values():
        if np.unique(np.concatenate(many), return_counts=True)[1].max(initial=0) > repeats:
            raise ValueError(too_often(repeats))


def _origins(data: Any, rows: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Rows of the data sets that others are made from."""
    if isinstance(data, Subset):
        chosen = np.asarray(data.indices, dtype=np.int64).reshape(-1)[rows]
        yield from _origins(data.dataset, chosen % max(len(data.dataset), 1))  # type: ignore
    elif isinstance(data, ConcatDataset):
        start = 0
        for part in data.datasets:
            stop = start + len(part)  # type: ignore[arg-type]
            yield from _origins(part, rows[(start <= rows) & (rows < stop)] - start)
            start = stop
    else:
        yield id(data), rows


def check_collate(collate: Any, data: Any) -> None:
    """Refuse a collate function that mixes records, as MixUp does: clipping bounds what a row
    moves, and there a record moves the rows of others.

    Three records are put together, and once more with another one in a place: the other rows must
    stay. What has another shape then, such as sentences padded to the longest, is not compared.
    """
    count = min(3, len(data))
    with same_random_numbers():
        few = [data[i] for i in range(count)]

    def put_together(examples: list[Any]) -> list[Any]:
        with same_random_numbers():
            return tree_leaves(collate([copy.deepcopy(example) for example in examples]))

    for place in range(count):
        changed = [*few]
        changed[place] = few[(place + 1) % count]
        others = [i for i in range(count) if i != place]
        for a, b in zip(put_together(few), put_together(changed), strict=False):
            if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
                continue
            if (
                a.dim()
                and len(a) == count
                and a.shape == b.shape
                and not _same(a[others], b[others])
            ):
                raise Refused(
                    "collate_fn mixes the records of a batch, and clipping cannot bound what one "
                    "of them moves: change each record by itself, in the data set."
                )


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a.double(), b.double(), equal_nan=True)


class PrivateLoader:
    """One pass of iteration is one epoch of the schedule. Each batch is for one ``step``.

    A batch that was looked at but not stepped is given again: nothing is drawn twice. A batch may
    be empty, and is stepped like any other. In several processes each is given its share.
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        schedule: Schedule,
        steps: int,
        processes: Processes,
        progress: bool = False,
    ) -> None:
        self._loader, self._schedule, self._steps = loader, schedule, steps
        self._processes, self._progress = processes, Progress(steps, progress)
        self.records = schedule.count
        self._collates = False  # whether collate_fn was seen to keep records apart
        self._drawn: dict[int, np.ndarray] = {}
        self.done = 0  # steps that are over
        self.waiting: int | None = None  # examples of the batch that waits for its step
        self.given: tuple[tuple[torch.Tensor, int], ...] = ()  # its tensors, and their versions

    def __len__(self) -> int:
        return self._schedule.steps_per_epoch

    def __iter__(self) -> Iterator[Any]:
        if self.done >= self._steps:
            raise Refused(
                f"all {self._steps} steps of the budget are used: plan more epochs from the start."
            )
        per_epoch = self._schedule.steps_per_epoch
        steps = range(self.done, min((self.done // per_epoch + 1) * per_epoch, self._steps))
        for step, batch in zip(steps, self._batches(steps), strict=True):
            if self.done != step:
                raise Refused("each batch is stepped once, before the next one is drawn.")
            self.waiting = len(self._members(step))
            self.given = tuple([(x, x._version) for x in _tensors(batch)])
            yield batch

    def stepped(self) -> None:
        """The waiting batch is used up."""
        self._drawn.pop(self.done, None)
        self.done += 1
        self.waiting, self.given = None, ()
        self._progress.stepped(self.done)

    def resume(self, done: int) -> None:
        self.done, self.waiting = done, None
        self._drawn.clear()

    def _members(self, step: int) -> np.ndarray:
        if step not in self._drawn:
            self._drawn[step] = self._processes.deal(step, lambda: self._schedule.draw(step))
        return self._drawn[step]

    def _batches(self, steps: range) -> Iterator[Any]:
        data, collate = self._loader.dataset, self._loader.collate_fn
        if type(data) is TensorDataset and collate is default_collate:
            for step in steps:
                index = torch.from_numpy(self._members(step))
                yield [tensor[index.to(tensor.device)] for tensor in data.tensors]
            return
        if collate is not default_collate and not self._collates:
            Collate(collate, data).check()
            check_collate(collate, data)
            self._collates = True
        yield from DataLoader(
            Records(data),
            batch_sampler=_Lists(self, steps),
            collate_fn=Collate(collate, data),
            num_workers=self._loader.num_workers,
            pin_memory=self._loader.pin_memory,
            worker_init_fn=self._loader.worker_init_fn,
        )


def _tensors(batch: Any) -> list[torch.Tensor]:
    leaves = tree_leaves(dict(batch) if isinstance(batch, Mapping) else batch)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


class _Lists:
    def __init__(self, loader: PrivateLoader, steps: range) -> None:
        self._loader, self._steps = loader, steps

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[list[int]]:
        for step in self._steps:
            yield self._loader._members(step).tolist()
