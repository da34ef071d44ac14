"""Stable SGD: passes over the records in a fixed order, whose end one record cannot move far.

References
----------
Hardt, Recht and Singer (2016), ICML; Wu et al. (2017), SIGMOD ("bolt-on"); Feldman, Koren and
Talwar (2020), STOC.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privopt.geometry import Box, Domain, L1Ball, L2Ball, Simplex, WholeSpace
from privopt.mechanisms.output_perturbation import convex_facts
from privopt.oracle.objective import Objective
from privopt.oracle.sensitivity import FunctionFacts, Sensitivity
from privopt.privacy.budget import Refused

UNIT = 2.0**-53
"""Relative error of one operation in double precision."""
CLOSED = (Box, L1Ball, L2Ball, Simplex, WholeSpace)
"""Domains whose projections are known to a few units in the last place, or exact."""


@dataclass(frozen=True, slots=True)
class StableSGD:
    """theta <- project(theta - step_t (sum over a batch of gradients / batch + ridge theta)).

    Records are taken in the order in which they come, ``batch`` at a time, ``batches`` times a
    pass. Both numbers are public: records beyond batch * batches are left out, and places without a
    record count as empty ones. A batch is always divided by ``batch``, also the last one: dividing
    by what is left would let the record of a lonely place move the result ``batch`` times as far.

    Parameters
    ----------
    passes, batches, batch : int
    step : float
        Constant step if ``decreasing`` is false.
    decreasing : bool
        step_t = min(1/(smoothness + ridge), 1/(ridge t)) instead.
    average : bool
        Return the average of all iterates, each before its step, instead of the last one. Constant
        steps only.
    ridge : float
        Strong convexity of the regulariser that every single step contains, on the mean scale.
    domain : Domain
    start : tuple of float

    Formal guarantee
    ----------------
    Both data sets go through the same order. A step with the gradient of a convex smooth function
    moves two points no further apart while step <= 2/(smoothness + ridge); the step that holds the
    changed record adds at most step a L / batch, with a L the sensitivity (L for a record that is
    zeroed out, 2 L for one that is replaced). Each pass holds it once:

    * constant steps: passes a L step / batch for the last iterate, and for the average of all
      iterates at most (passes + 1)/2 a L step / batch, the mean over passes of visits so far;
    * decreasing steps: each later step t contracts by 1 - step_t ridge, and the products telescope
      to a L / (ridge batch passes batches) for each visit: S = a L / (ridge batch batches).

    Contraction needs strong convexity of every step's own function, that is of the regulariser: a
    mean that is strongly convex while single records are not gives none of it.

    That is the sensitivity of exact arithmetic. A computed step is within ``_misstep`` of the exact
    one from the same point, and later exact steps bring two points no further apart, so the
    computed result is within ``error`` of the exact one, whatever the data: the sensitivity that is
    stated is larger by twice that (docs/proofs/masks.md).
    """

    passes: int
    batches: int
    batch: int
    step: float
    decreasing: bool
    average: bool
    ridge: float
    domain: Domain
    start: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("passes", "batches", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)!r}.")
        if not 0 < self.step < math.inf:
            raise ValueError(f"step must be positive and finite, got {self.step!r}.")
        if not 0 <= self.ridge < math.inf:
            raise ValueError(f"ridge must be non-negative and finite, got {self.ridge!r}.")
        if self.decreasing and self.average:
            raise ValueError("an average of early iterates is less stable than the last one.")

    def output_sensitivity(self, sensitivity: Sensitivity) -> float:
        facts = convex_facts(sensitivity, "stable SGD")
        if not facts.in_place:
            raise Refused(
                "stable SGD goes through the records in order, and places shift when a record is "
                'added or removed: use neighbouring="zero_out" or "replace_one".'
            )
        if self.decreasing:
            if self.ridge <= 0:
                raise Refused(
                    "decreasing steps are stable only if every record's loss plus regulariser is "
                    "strongly convex: give the problem a ridge, or use constant steps."
                )
            exact = sensitivity.radius / (self.ridge * self.batch * self.batches)
            return exact + 2 * self.error(facts)
        if self.step > 2 / (facts.smoothness + self.ridge):
            raise Refused("stable SGD needs a step of at most 2 / smoothness.")
        visits = (self.passes + 1) / 2 if self.average else self.passes
        exact = visits * sensitivity.radius * self.step / self.batch
        return exact + 2 * self.error(facts)

    def error(self, facts: FunctionFacts) -> float:
        """l2 bound on how far rounding moves ``value``, in all steps together and in the average.

        Rows that rounding left longer than their bound count as a change of the gradient.
        """
        steps, farthest = self.passes * self.batches, self._farthest(facts)
        return 2 * (steps * self._misstep(facts, farthest) + (steps + 2) * UNIT * farthest)

    def _farthest(self, facts: FunctionFacts) -> float:
        """A bound on the norm of all iterates: no projection takes a point away from the start."""
        start = math.sqrt(math.fsum(x * x for x in self.start))
        largest = self._largest(facts.smoothness)
        pull = facts.lipschitz + self.ridge * start
        return 2 * (start + self.passes * self.batches * largest * pull)

    def _misstep(self, facts: FunctionFacts, farthest: float) -> float:
        """Rounding of one step, in units of 2^-53: p products in a margin, eight units of a slope,
        a sum of ``batch`` terms in any order, a row's length, the step itself, and a projection
        with a norm in it."""
        p, ridge = facts.dimension, self.ridge
        gradient = facts.smoothness * (2 * p + 8) * farthest
        gradient += (self.batch + 2 * p + 64) * facts.lipschitz + 8 * ridge * farthest
        return UNIT * (self._largest(facts.smoothness) * gradient + (2 * p + 64) * farthest)

    def _largest(self, smoothness: float) -> float:
        return 1 / (smoothness + self.ridge) if self.decreasing else self.step

    def value(self, objective: Objective) -> np.ndarray:
        smoothness = objective.loss.smoothness_in("l2", objective.rows.bounds.size)
        largest = self._largest(smoothness)
        theta = np.array(self.start)
        total = np.zeros_like(theta)
        count, t = objective.count, 0
        parts = [
            objective.part(min(first, count), min(first + self.batch, count))
            for first in range(0, self.batch * self.batches, self.batch)
        ]
        for _ in range(self.passes):
            for part in parts:
                t += 1
                total += theta
                gradient = part.gradient(theta) / self.batch if part.count else 0.0
                step = min(largest, 1 / (self.ridge * t)) if self.decreasing else largest
                theta = self.domain.project(theta - step * (gradient + self.ridge * theta))
        return total / t if self.average else theta
