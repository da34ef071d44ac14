"""Noise for many steps on sampled batches: the smallest multiplier that keeps a budget."""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache

from privopt.privacy.accountant import Accountant
from privopt.privacy.allocated import AllocatedGaussian
from privopt.privacy.budget import Budget, records_moved, replaces
from privopt.privacy.events import FULL, Sampling
from privopt.privacy.kinds import GaussianKind, Kind
from privopt.privacy.profiles import gaussian_mu
from privopt.privacy.spend import Charge, Step


@lru_cache(maxsize=1024)
def batch_multiplier(
    budget: Budget, sampling: Sampling, steps: int, prior: tuple[Kind, ...] = ()
) -> float:
    """Smallest noise multiplier, in units of the sensitivity of one step, for ``steps`` batches.

    Under replace_one the sensitivity is the diameter, two records' worth. ``prior`` lists releases
    on all records that the same budget pays for.
    """

    def charge(multiplier: float) -> Charge:
        return batch_charge(budget, sampling, steps, multiplier, prior)

    start = likely_multiplier(budget, sampling, steps, prior)
    accountant = Accountant(budget.neighbouring)
    return accountant.calibrate(charge, budget.epsilon, budget.delta, start=1.1 * start)


def batch_charge(
    budget: Budget,
    sampling: Sampling,
    steps: int,
    multiplier: float,
    prior: tuple[Kind, ...] = (),
) -> Charge:
    """What one record pays for ``steps`` batches with Gaussian noise, and for ``prior``."""
    records = records_moved(budget.neighbouring)
    kind = GaussianKind(1 / multiplier, 1 / (records * multiplier))
    charge: Charge = Counter(Step(FULL, (before,)) for before in prior)
    charge[Step(sampling, (kind,))] += steps
    return charge


@lru_cache(maxsize=64)
def allocated_multiplier(budget: Budget, turns: int, epochs: int) -> float:
    """Smallest noise multiplier if each record is in one of ``turns`` batches of each epoch."""
    if replaces(budget.neighbouring):
        raise ValueError(
            "allocated batches have no theorem for records that are replaced: use neighbouring="
            '"zero_out" or "add_remove".'
        )

    def charge(multiplier: float) -> Charge:
        kind = AllocatedGaussian(turns, turns, 1 / multiplier)
        return Counter({Step(FULL, (kind,)): epochs})

    start = likely_multiplier(budget, Sampling(1 / turns), turns * epochs)
    accountant = Accountant(budget.neighbouring)
    return accountant.calibrate(charge, budget.epsilon, budget.delta, start=start)


def likely_multiplier(
    budget: Budget, sampling: Sampling, steps: int, prior: tuple[Kind, ...] = ()
) -> float:
    """The multiplier in the limit of many small steps (Dong, Roth and Su, 2022): an estimate to
    compare plans with, not a guarantee."""
    spent = sum(kind.mu**2 for kind in prior if isinstance(kind, GaussianKind))
    left = gaussian_mu(budget.epsilon, budget.delta) ** 2 - spent
    each = max(left, 1e-6) / (sampling.rate**2 * steps)
    if replaces(budget.neighbouring) and not sampling.fixed_size:
        # One record's own sensitivity is half the multiplier's unit.
        return 0.5 / math.sqrt(math.asinh(each / 4))
    return 1 / math.sqrt(math.log1p(each))
