"""Banded noise on sampled batches: groups take turns, and each turn's batch is Poisson sampled.

The records are dealt into ``groups`` parts by coins that do not look at them; step t asks part
t mod groups, each of its members by a coin of probability ``rate``. If C has at most that many
bands and columns of norm one, the columns of one record's steps do not overlap, and the transcript
is at most as revealing as ceil(steps / groups) releases of a sampled Gaussian of the same rate and
multiplier (Choquette-Choo et al., 2023). One group is noisy SGD. There is no such theorem for noise
without bands, nor for shuffled batches.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from privopt.privacy.batches import batch_multiplier
from privopt.privacy.budget import Budget
from privopt.privacy.events import Sampling
from privopt.privacy.factorizations import Banded


@dataclass(frozen=True)
class Bands:
    """One row of the search: noise in units of the sensitivity of one record's contribution."""

    groups: int
    rate: float
    noise_multiplier: float
    factorization: Banded
    largest_error: float
    mean_error: float


def cyclic_multiplier(budget: Budget, steps: int, groups: int, rate: float) -> float:
    """Smallest noise multiplier, in units of the sensitivity, for columns of norm one."""
    if not 1 <= groups <= steps:
        raise ValueError(f"there are between 1 and {steps} groups, got {groups}.")
    return batch_multiplier(budget, Sampling(rate), -(-steps // groups))


def compare_bands(
    budget: Budget,
    steps: int,
    records: int,
    batch_size: int,
    groups: Iterable[int] | None = None,
) -> tuple[Bands, ...]:
    """Error of the running sums for each number of groups, as many bands as groups, best first.

    ``records`` and ``batch_size`` are public constants: the rate within a group is
    groups * batch_size / records, so that batches have the same expected size for all rows.
    """
    most = min(records // batch_size, steps)
    if most < 1:
        raise ValueError(f"a batch of {batch_size} does not fit into {records} records.")
    if groups is None:
        groups = [1 << i for i in range(most.bit_length())]
    found: list[Bands] = []
    for count in groups:
        rate = min(1.0, count * batch_size / records)
        multiplier = cyclic_multiplier(budget, steps, count, rate)
        factorization = Banded.optimised(steps, count)
        largest, mean = factorization.errors(multiplier**2)
        found.append(Bands(count, rate, multiplier, factorization, largest, mean))
    return tuple(sorted(found, key=lambda row: row.mean_error))
