"""Gaussian noise that is correlated over the steps of a stream, in units of the sensitivity.

``DiscreteCorrelatedGaussian`` is the hardened one: sums and noise are integers, and a step draws
its fresh integers apart from what earlier steps take off, so that given all that was released a
neighbour only moves their centre. ``docs/proofs/streams.md`` is the proof.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from privopt.mechanisms.additive import check_multiplier
from privopt.mechanisms.on_grid import OnGrid, check_resolution, room
from privopt.noise import Source, gaussian, narrow_gaussian
from privopt.noise.discrete import (
    BASE,
    DIGIT_STD,
    GAUSSIAN_DIGITS,
    GAUSSIAN_DISTANCE,
    GAUSSIAN_STD,
    OUTSIDE,
    TAIL,
    gaussian_log_ratio,
    std_of,
    top_for,
)
from privopt.noise.source import volume
from privopt.oracle.counting import grid_step
from privopt.oracle.sensitivity import Grid, Sensitivity, SensitivityNorm
from privopt.privacy.budget import Refused
from privopt.privacy.events import ROOT, Cell, Numerics, Sampling, StreamPath, StreamPosition
from privopt.privacy.factorizations import Factorization, NoiseStream, Rounding
from privopt.privacy.kinds import GaussianKind, Kind
from privopt.privacy.participation import Participation
from privopt.privacy.spend import check_sampled

LARGEST = TAIL * DIGIT_STD * (BASE**GAUSSIAN_DIGITS - 1) / (BASE - 1)
"""No fresh integer is larger: digits are cut off."""
ROUNDING_SHARE = 1e-3
"""Share of a record's movement, in steps of the grid, that is left to rounding: the noise is wider
by that much."""
WIDER = 1 / (1 - ROUNDING_SHARE)
"""What it is wider by; bounds on errors count on it."""
COEFFICIENTS = 1e-4
"""Part of it that covers the relative errors of a factorization's own numbers."""
NEGLIGIBLE = 1e-15
"""What the sampler of a whole stream may add to delta where nobody asked for integers."""
NARROWEST = 1 / 64
"""Fresh integers of one step are no narrower than this, in units of the widest."""


@dataclass(frozen=True, slots=True)
class CorrelatedGaussian:
    """Add a_t = (C^-1 z)_t to step t of a stream, z fresh N(0, (multiplier * radius)^2).

    Running sums of what is released carry noise of standard deviation
    multiplier * radius * factorization.row_norms().

    One object is one stream of the gate that releases through it: the first release is step 0, and
    a step beyond the factorization's horizon is refused.

    Formal guarantee: a record that takes part in the steps pi loses exactly a Gaussian with
    mu^2 = 1_pi' C'C 1_pi / multiplier^2 (``privacy.factorizations``); pi is read from the cells of
    the views, or is the worst that ``participation`` allows, which the caller then has to enforce.
    """

    factorization: Factorization
    multiplier: float
    participation: Participation | None = None
    accepts: SensitivityNorm = "l2"

    def __post_init__(self) -> None:
        check_multiplier(self.multiplier)

    def kinds(self, sensitivity: Sensitivity) -> tuple[Kind, ...]:
        mu = 1 / self.multiplier
        return (GaussianKind(mu, mu * (sensitivity.single / sensitivity.radius)),)

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation of a step's fresh Gaussians at C_tt = 1, in units of the radius."""
        return self.multiplier

    def run(self, payload: Any, sensitivity: Sensitivity, source: Source) -> np.ndarray:
        raise Refused("correlated noise has a memory: release it through a gate.")


@lru_cache(maxsize=64)
def _rounding(factorization: Factorization) -> Rounding | None:
    return factorization.rounding(LARGEST)


@dataclass(frozen=True, slots=True)
class DiscreteCorrelatedGaussian(OnGrid, CorrelatedGaussian):
    """The same law in integers, on an integer sum: a_t = K_t - rint(sum over j < t of
    (C_tj / C_tt) a_j), with discrete Gaussian K_t of standard deviation 1/C_tt times that of the
    unit.

    Formal guarantee: that of ``CorrelatedGaussian`` up to ``numerics``. A record that moves the
    sums by at most ``resolution`` in each of its steps moves the centres of K by what C makes of
    that and by what rounding adds, which ``ROUNDING_SHARE`` pays for; so as one Gaussian release,
    also if each sum depends on what was released before (docs/proofs/streams.md). All records take
    part, or disjoint parts of them: sampled batches are refused.
    """

    rounding: Rounding = field(init=False, repr=False, compare=False)
    log_ratio: float = field(init=False, repr=False, compare=False)
    _fitting: dict[int, bool] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        check_multiplier(self.multiplier)
        rounding = _rounding(self.factorization)
        if rounding is None or rounding.least < NARROWEST * rounding.most:
            raise ValueError(
                f"{self.factorization.name} noise has no stream of integers here: use "
                "CorrelatedGaussian."
            )
        object.__setattr__(self, "rounding", rounding)
        narrowest = std_of(top_for(rounding.least / rounding.most))
        object.__setattr__(self, "log_ratio", gaussian_log_ratio(narrowest))
        check_resolution(self.multiplier, self.resolution)

    @property
    def resolution(self) -> float:
        paid = (1 - ROUNDING_SHARE) * GAUSSIAN_STD
        return paid / (self.multiplier * self.rounding.most)

    @property
    def noise_multiplier(self) -> float:
        return self.multiplier * WIDER

    def fits(self, coordinates: int) -> bool:
        """Whether rounding moves a record's centres by no more than its share.

        In a step that rounds differently for two neighbours, each coordinate's centre moves by at
        most 1 + 2 error besides; a record moves the centres by at least the diagonal of C.
        """
        if coordinates not in self._fitting:  # asked in every step
            self._fitting[coordinates] = self._fits(coordinates)
        return self._fitting[coordinates]

    def _fits(self, coordinates: int) -> bool:
        found, rule = self.rounding, self.participation
        rows = self.factorization.steps
        if rule is not None:
            rows = min(rows, rule.fitted(rows).times * found.rows)
        moved = math.sqrt(coordinates * rows) * (1 + 2 * found.error) / found.least
        least = self.resolution / (1 - ROUNDING_SHARE) / found.most
        return moved <= (ROUNDING_SHARE - COEFFICIENTS) * least

    def numerics(self, sensitivity: Sensitivity) -> Numerics:
        count = self._grid(sensitivity).coordinates
        if not self.fits(count):
            raise Refused(
                "there are too many steps and coordinates for integers in correlated noise: use "
                "CorrelatedGaussian, or noise with fewer bands."
            )
        if not sensitivity.sampling.full:
            raise Refused("integers in correlated noise are for all records, not for a sample.")
        return Numerics(count * self.log_ratio, count * (GAUSSIAN_DISTANCE + OUTSIDE))

    def noisy(
        self, noise: NoiseStream, payload: Any, sensitivity: Sensitivity, source: Source
    ) -> np.ndarray:
        """The next step of a stream: an exact sum of integers, times the grid's step."""

        def fresh(scale: float) -> np.ndarray:
            return narrow_gaussian(source, payload.shape, top_for(scale / self.rounding.most))

        return self._noisy(payload, noise.next_whole(fresh), sensitivity)


def correlated_noise(
    factorization: Factorization,
    multiplier: float,
    participation: Participation | None = None,
    *,
    discrete_noise: bool,
) -> CorrelatedGaussian:
    """Correlated noise on exact integers, or in floating point."""
    kind = DiscreteCorrelatedGaussian if discrete_noise else CorrelatedGaussian
    return kind(factorization, multiplier, participation)


def choose_correlated(
    wish: bool | None,
    factorization: Factorization,
    multiplier: float,
    participation: Participation | None = None,
    *,
    coordinates: int,
    records: int = 1,
    epsilon: float = 0.0,
) -> bool:
    """Whether correlated noise is hardened: where it can be, unless told. All of this is public;
    ``records`` take part in one step, and at this epsilon the sampler must add next to nothing."""
    if wish is False:
        return False
    try:
        whole = DiscreteCorrelatedGaussian(factorization, multiplier, participation)
        variables = factorization.steps * coordinates * (GAUSSIAN_DISTANCE + OUTSIDE)
        quiet = 2 * math.exp(min(epsilon, 700.0)) * variables <= NEGLIGIBLE
        possible = quiet and whole.fits(coordinates) and room(whole.resolution, records)
    except ValueError:
        possible = False  # no stream of integers, or no room on the grid
    if wish and not possible:
        raise ValueError(
            "discrete_noise=True needs noise with a stream of integers, and room on their grid: "
            'leave it out, or use noise="blt" or fewer steps and coordinates.'
        )
    return possible


def grid_of(mechanism: CorrelatedGaussian, moved: float, coordinates: int) -> Grid | None:
    """The grid of a sum that moves by so much, if the noise has integers."""
    resolution = resolution_of(mechanism)
    return None if resolution is None else Grid(grid_step(moved, resolution), coordinates)


def resolution_of(mechanism: CorrelatedGaussian) -> float | None:
    """What a view is asked with."""
    return mechanism.resolution if isinstance(mechanism, DiscreteCorrelatedGaussian) else None


class Stream:
    """One stream of a gate: the public path, and the secret buffers."""

    __slots__ = ("_failed", "_mechanism", "_noise", "_path", "_radius", "_sampling", "_steps")

    def __init__(self, mechanism: CorrelatedGaussian) -> None:
        self._mechanism = mechanism
        self._path = StreamPath(mechanism.factorization, mechanism.participation)
        self._noise = mechanism.factorization.stream()
        self._radius: float | None = None
        self._sampling: Sampling | None = None
        self._steps: dict[Cell, list[int]] = {}
        self._failed = False

    @property
    def path(self) -> StreamPath:
        """The public past."""
        return self._path

    def position(self, sensitivity: Sensitivity) -> StreamPosition:
        """The next step; refuses one that was not promised. Nothing has been opened yet."""
        step, path = len(self._path.cells), self._path
        if self._failed:
            raise Refused("a step of this stream failed: start a new stream.")
        if step >= path.factorization.steps:
            raise Refused(
                f"this stream was declared for {path.factorization.steps} steps: start a new one, "
                "and account for both."
            )
        if self._radius is not None and sensitivity.radius != self._radius:
            raise Refused("the clip norm of a stream cannot change: start a new stream.")
        if sensitivity.running_sum is not None:
            raise Refused("a stream takes fresh values, not running sums: its sums are its own.")
        if self._sampling not in (None, sensitivity.sampling):
            raise Refused("all steps of a stream are sampled alike.")
        if not sensitivity.sampling.full:
            if path.participation is not None:
                raise Refused("a stream of sampled batches is charged by its parts, not by a rule.")
            for cell in sensitivity.cells:
                before = self._steps.get(cell, [])
                gap = step - before[-1] if before else path.factorization.steps
                check_sampled(path.factorization, sensitivity.sampling, gap)
        if path.participation is not None:
            for cell in sensitivity.cells:
                # Different records may share the root; a part of a partition is the same records.
                if cell and not path.participation.allows((*self._steps.get(cell, []), step)):
                    raise Refused("these records would take part more often than was declared.")
        return StreamPosition(path, step)

    def advance(self, sensitivity: Sensitivity) -> None:
        """Count the step before anything is opened: a crash burns it, and it is never replayed."""
        for cell in sensitivity.cells:
            self._steps.setdefault(cell, []).append(len(self._path.cells))
        self._path.cells.append(sensitivity.cells)
        self._radius, self._sampling = float(sensitivity.radius), sensitivity.sampling

    def run(self, payload: Any, sensitivity: Sensitivity, source: Source) -> np.ndarray:
        mechanism = self._mechanism
        if isinstance(mechanism, DiscreteCorrelatedGaussian):
            self._failed = True
            released = mechanism.noisy(self._noise, payload, sensitivity, source)
            self._failed = False
            return released
        payload = np.asarray(payload, dtype=float)
        if not volume(source):
            return payload.copy()
        self._failed = True
        noise = self._noise.next(lambda: gaussian(source, 1.0, payload.shape))
        self._failed = False
        noise *= self._mechanism.multiplier * sensitivity.radius
        noise += payload
        return noise

    def state_dict(self) -> dict[str, Any]:
        ruled = self._path.participation is not None
        return {
            "of": self._name(),
            "noise": self._noise.state_dict(),
            "radius": self._radius,
            "sampling": None if self._sampling is None else asdict(self._sampling),
            # Under a rule nobody asks which cells took part.
            "cells": None if ruled else [[list(c) for c in here] for here in self._path.cells],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        ruled = self._path.participation is not None
        try:
            self._noise.load_state_dict(state["noise"])
            steps, radius = self._noise.step, state["radius"]
            cells = [(ROOT,)] * steps if ruled else [_cells(here) for here in state["cells"]]
            radius = None if radius is None else float(radius)
            sampling = None if state["sampling"] is None else Sampling(**state["sampling"])
            right = state.get("of", self._name()) == self._name() and len(cells) == steps
        except (KeyError, TypeError, ValueError) as problem:
            raise Refused("this is not the state of such a stream.") from problem
        if not right or steps > self._path.factorization.steps:
            raise Refused("this is not the state of such a stream.")
        self._path.cells[:] = cells
        for step, here in enumerate(cells):
            for cell in here:
                self._steps.setdefault(cell, []).append(step)
        self._radius, self._sampling = radius, sampling

    def _name(self) -> str:
        """Tells streams of different noise apart."""
        return hashlib.sha256(repr(self._mechanism).encode()).hexdigest()


def _cells(here: Any) -> tuple[Cell, ...]:
    return tuple(tuple(int(part) for part in cell) for cell in here)
