"""From a log to what each record can have lost: spend per cell of the public partition.

Rules: events of one sampled view nest into one step; a record pays for the steps of its own cell
and of every ancestor; the guarantee is the maximum over the leaves (parallel composition).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from privopt.privacy.allocated import AllocatedGaussian
from privopt.privacy.budget import Neighbouring, Refused, replaces
from privopt.privacy.events import FULL, ROOT, Cell, Event, RunningSumPath, Sampling, StreamPath
from privopt.privacy.factorizations import Factorization
from privopt.privacy.kinds import (
    BoundedRange,
    Concentrated,
    FixedSizeGaussian,
    GaussianKind,
    Kind,
    Pure,
    SampledGaussian,
    kind_from_dict,
)


@dataclass(frozen=True, slots=True)
class Step:
    """Everything asked of one view: the kinds together, and how the view was sampled."""

    sampling: Sampling
    kinds: tuple[Kind, ...]

    def resolve(self, neighbouring: Neighbouring) -> tuple[Kind, ...]:
        """Equivalent kinds without sampling; refuses a pair that has no theorem here, by name."""
        if self.sampling.full:
            return self.kinds
        rate = self.sampling.rate
        if self.sampling.fixed_size:
            return self._resolve_fixed_size(neighbouring)
        if all(isinstance(kind, GaussianKind) for kind in self.kinds):
            # One batch: a record is in all of its questions or in none.
            sensitivity = math.sqrt(
                sum(k.single**2 for k in self.kinds if isinstance(k, GaussianKind))
            )
            return (SampledGaussian(rate, sensitivity),)
        epsilon = sum(kind.pure(neighbouring) for kind in self.kinds)
        if epsilon < math.inf and not replaces(neighbouring):
            return (Pure(math.log1p(rate * math.expm1(epsilon))),)
        names = " + ".join(sorted({kind.name for kind in self.kinds}))
        raise Refused(
            f"no accounting is known for {names} on a Poisson batch under {neighbouring}: "
            "release it on all records, or use Gaussian noise."
        )

    def _resolve_fixed_size(self, neighbouring: Neighbouring) -> tuple[Kind, ...]:
        rate = self.sampling.rate
        if replaces(neighbouring):
            if all(isinstance(kind, GaussianKind) for kind in self.kinds):
                # Whoever is outside the batch stands for the replaced record: the diameter counts.
                moved = math.sqrt(sum(k.mu**2 for k in self.kinds if isinstance(k, GaussianKind)))
                return (FixedSizeGaussian(rate, moved),)
            epsilon = sum(kind.pure(neighbouring) for kind in self.kinds)
            if epsilon < math.inf:
                return (Pure(math.log1p(rate * math.expm1(epsilon))),)
        names = " + ".join(sorted({kind.name for kind in self.kinds}))
        raise Refused(
            f"no accounting is known for {names} on a batch of fixed size under {neighbouring}: "
            'use Poisson batches, or Gaussian noise and neighbouring="replace_one".'
        )

    def to_dict(self) -> dict[str, Any]:
        design = {"fixed_size": True} if self.sampling.fixed_size else {}
        kinds = [kind.to_dict() for kind in self.kinds]
        return {"rate": self.sampling.rate, **design, "kinds": kinds}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Step:
        kinds = tuple(kind_from_dict(kind) for kind in data["kinds"])
        return cls(Sampling(data["rate"], bool(data.get("fixed_size", False))), kinds)


Charge = Counter[Step]
"""The steps one record pays for, with their number."""


@dataclass(frozen=True)
class Spend:
    """Charges per cell, before ancestors are added."""

    cells: dict[Cell, Charge]

    def leaves(self) -> dict[Cell, Charge]:
        """Each leaf's whole charge: its own steps and those of its ancestors."""
        inner = {cell[:depth] for cell in self.cells for depth in range(len(cell))}
        total: dict[Cell, Charge] = {}
        for cell in self.cells:
            if cell in inner:
                continue
            charge: Charge = Counter()
            for depth in range(len(cell) + 1):
                charge.update(self.cells.get(cell[:depth], {}))
            total[cell] = charge
        return total

    def frontier(self) -> list[tuple[Cell, Charge]]:
        """Leaves that no other leaf dominates: enough to state the guarantee of all of them."""
        kept: list[tuple[Cell, Charge]] = []
        for cell, charge in sorted(self.leaves().items()):
            if any(covers(other, charge) for _, other in kept):
                continue
            kept = [(c, other) for c, other in kept if not covers(charge, other)]
            kept.append((cell, charge))
        return kept

    def at_most(self, allowed: Spend) -> bool:
        """Whether every cell's charge is covered by the allowed charge of that cell."""
        return all(
            covers(allowed.cells.get(cell, Counter()), charge)
            for cell, charge in self.cells.items()
        )


def covers(large: Charge, small: Charge) -> bool:
    """Whether one charge dominates another: as many steps, each with at least the same loss."""
    if small <= large:
        return True
    ours, theirs = _lone(large), _lone(small)
    if ours is None or theirs is None:
        return False
    return all(amount <= ours.get(name, 0.0) for name, amount in theirs.items())


def _lone(charge: Charge) -> dict[str, float] | None:
    """Totals of a charge made of unsampled Gaussian and zCDP steps; None for anything else."""
    total: dict[str, float] = {}
    for step, count in charge.items():
        if not step.sampling.full:
            return None
        for kind in step.kinds:
            if isinstance(kind, GaussianKind):
                total["mu^2"] = total.get("mu^2", 0.0) + count * kind.mu**2
            elif isinstance(kind, Concentrated):
                total["rho"] = total.get("rho", 0.0) + count * kind.rho
            else:
                return None
    return total


def spend(events: Iterable[Event]) -> Spend:
    """Add up a log. Cost is linear in the number of events and cells."""
    views: dict[tuple[Cell, int, Sampling], list[Kind]] = {}
    cells: dict[Cell, Charge] = {}
    turns: dict[tuple[Cell, int, Sampling], dict[int, list[Kind]]] = {}
    running_sums: dict[int, tuple[RunningSumPath, list[tuple[int, tuple[Kind, ...]]]]] = {}
    streams: dict[int, tuple[StreamPath, list[Event]]] = {}
    for event in events:
        if event.position is not None:
            streams.setdefault(id(event.position.path), (event.position.path, []))[1].append(event)
            continue
        if event.running_sum is not None:
            path = event.running_sum.path
            running_sums.setdefault(id(path), (path, []))[1].append(
                (event.running_sum.step, event.kinds)
            )
            continue
        for cell in event.cells:
            if event.sampling.turns:
                block = (event.view - 1) // event.sampling.turns
                taken = turns.setdefault((cell, block, event.sampling), {})
                taken.setdefault(event.view, []).extend(event.kinds)
            elif event.sampling.full:
                cells.setdefault(cell, Counter())[Step(event.sampling, event.kinds)] += 1
            else:
                views.setdefault((cell, event.view, event.sampling), []).extend(event.kinds)
    for (cell, _, sampling), kinds in views.items():
        step = Step(sampling, tuple(sorted(kinds, key=lambda k: (k.name, k.strength()))))
        cells.setdefault(cell, Counter())[step] += 1
    for (cell, _, sampling), taken in turns.items():
        cells.setdefault(cell, Counter())[Step(FULL, (_allocated(sampling, taken),))] += 1
    for path, releases in running_sums.values():
        for cell, kinds in _running_sum_charges(path, releases):
            cells.setdefault(cell, Counter())[Step(Sampling(), kinds)] += 1
    for stream, rows in streams.values():
        for cell, step, count in _stream_charges(stream, rows):
            cells.setdefault(cell, Counter())[step] += count
    return Spend(cells or {ROOT: Counter()})


def _allocated(sampling: Sampling, taken: dict[int, list[Kind]]) -> Kind:
    """The loss of a record in one of several successive views, from those that were asked."""
    sizes = []
    for kinds in taken.values():
        if not all(isinstance(kind, GaussianKind) for kind in kinds):
            raise Refused(
                "records in one of several batches are accounted for Gaussian noise only."
            )
        sizes.append(math.sqrt(sum(k.single**2 for k in kinds if isinstance(k, GaussianKind))))
    return AllocatedGaussian(sampling.turns, len(sizes), max(sizes))


def _running_sum_charges(
    path: RunningSumPath, releases: list[tuple[int, tuple[Kind, ...]]]
) -> Iterable[tuple[Cell, tuple[Kind, ...]]]:
    """Charge of each cell that entered a running sum, by one backward pass.

    A release at step t is stated for a sum of radius one; the cell of step s moves it by
    r_s exp(d_t - d_s), so its squared loss is r_s^2 times the sum over later releases of
    (value e^{d_t - d_s})^2, which obeys a backward recursion.
    """
    entered = set(path.cells)
    parents = {cell[:depth] for cell in entered for depth in range(len(cell))}
    if len(entered) < len(path.cells) or entered & parents:
        raise Refused("a cell that enters a running sum twice is not accounted.")
    decay = np.asarray(path.log_decay)
    squares = {"mu": np.zeros(len(decay)), "rho": np.zeros(len(decay))}
    for step, kinds in releases:
        for kind in kinds:
            if isinstance(kind, GaussianKind):
                squares["mu"][step] += kind.mu**2
            elif isinstance(kind, BoundedRange):
                squares["rho"][step] += kind.eta**2 / 8
            else:
                raise Refused(f"a running sum cannot be released with a {kind.name} mechanism.")
    later = {name: _later(values, decay) for name, values in squares.items()}
    for step, (cell, radius) in enumerate(zip(path.cells, path.radii, strict=True)):
        weight = radius**2
        found: list[Kind] = []
        if later["mu"][step] > 0:
            mu = math.sqrt(weight * later["mu"][step])
            found.append(GaussianKind(mu, mu))
        if later["rho"][step] > 0:
            found.append(Concentrated(weight * float(later["rho"][step])))
        if found:
            yield cell, tuple(found)


def _later(values: np.ndarray, log_decay: np.ndarray) -> np.ndarray:
    """Sum over t >= s of values[t] e^{2 (d_t - d_s)}, for every s."""
    total = values.copy()
    shrink = np.exp(2 * np.diff(log_decay))
    for step in range(len(values) - 2, -1, -1):
        total[step] += shrink[step] * total[step + 1]
    return total


def _stream_charges(path: StreamPath, events: list[Event]) -> Iterable[tuple[Cell, Step, int]]:
    """Charge of each cell that took part in a stream with correlated noise.

    One fresh Gaussian of the stream is stated for a step of radius one, mu = 1/sigma. A cell that
    took part in the steps pi pays mu^2 times the stream's squared loss on pi, as one Gaussian; so
    does every record under a declared rule, with the largest pattern that the rule allows.

    Sampled cells: if any two steps of a cell are at least as far apart as C has bands, they move
    disjoint rows of C g + z, and the loss is that of one sampled Gaussian for each of the cell's
    steps (Choquette-Choo et al., 2023), whose movement is the norm of a column of C.
    """
    factorization, (kind,) = path.factorization, events[0].kinds
    if not isinstance(kind, GaussianKind) or any(event.kinds != (kind,) for event in events):
        raise Refused("all steps of a stream carry the same Gaussian noise.")
    released = max(event.position.step for event in events if event.position is not None) + 1
    sampling = events[0].sampling
    if any(event.sampling != sampling for event in events):
        raise Refused("all steps of a stream are sampled alike.")

    def gaussian(loss_squared: float) -> GaussianKind:
        size = math.sqrt(loss_squared)
        return GaussianKind(kind.mu * size, kind.single * size)

    if path.participation is not None:
        if not sampling.full:
            raise Refused("a stream of sampled batches is charged by its cells, not by a rule.")
        loss = factorization.sensitivity_squared(path.participation, released)
        yield ROOT, Step(FULL, (gaussian(loss),)), 1
        return
    patterns: dict[Cell, list[int]] = {}
    for step, cells in enumerate(path.cells[:released]):
        for cell in cells:
            patterns.setdefault(cell, []).append(step)
    if any(cell[:depth] in patterns for cell in patterns for depth in range(len(cell))):
        # Losses of one stream do not add: a record of both would pay for the cross terms too.
        raise Refused("a stream takes all records or disjoint parts of them, not both.")
    if not sampling.full:
        for steps in patterns.values():
            gaps = [later - earlier for earlier, later in pairwise(steps)]
            # A part that was there once has not come back: early steps are no reason to refuse.
            check_sampled(factorization, sampling, min(gaps, default=factorization.steps))
        columns = factorization.losses_squared([(t,) for t in range(released)], released)
        for cell, steps in patterns.items():
            loss = gaussian(float(columns[steps].max()))
            yield cell, Step(sampling, (loss,)), len(steps)
        return
    losses = factorization.losses_squared([tuple(steps) for steps in patterns.values()], released)
    for cell, loss in zip(patterns, losses, strict=True):
        yield cell, Step(FULL, (gaussian(float(loss)),)), 1


def check_sampled(factorization: Factorization, sampling: Sampling, gap: int) -> None:
    """Refuse sampled batches that come back after ``gap`` steps, where no theorem covers them."""
    bands = factorization.bands()
    if bands is None or sampling.fixed_size:
        raise Refused(
            "sampling amplifies banded noise on Poisson batches only: use independent or banded "
            "noise, or take all records of a part."
        )
    if bands > 1 and gap < bands:
        raise Refused(
            f"a sampled part may come back after {bands} steps at the earliest, the number of "
            "bands: use more parts or fewer bands."
        )
