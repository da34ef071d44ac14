"""The same solver on disjoint parts of the records: how much its answers differ says how sure they
are, whatever the solver is.

Records are dealt into k parts by fair coins of their own, which holds under every relation. A
record is in one part, so the whole costs what one fit costs (parallel composition); the answer is
the mean of the k fits. It pays for needing no derivative: each fit has n/k records and the same
noise, so the noise of their mean is sqrt(k) times that of one fit to all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from privopt.facts import Facts
from privopt.inference import Parts
from privopt.losses import CappedLogistic
from privopt.mechanisms import Gate
from privopt.oracle import Oracle, RowBounds
from privopt.privacy import Budget, Refused
from privopt.problem import Problem
from privopt.solvers.solver import Answer, Plan, Settings, Solver, Tick, no_tick

FEWEST, MOST = 3, 100
"""Below it Student intervals are absurdly wide; above it a part has hardly any records."""


@dataclass(frozen=True)
class PartSettings(Settings):
    """Those of the fit to one part, and how many parts there are."""

    inner: Settings
    parts: int

    def public(self) -> dict[str, Any]:
        return {**self.inner.public(), "parts": self.parts}


class InParts(Solver):
    """Another solver, once on each part.

    Formal guarantee: that of the other solver on one part, by parallel composition.
    """

    name: ClassVar[str] = "in_parts"

    def __init__(self, inner: Solver, parts: int) -> None:
        self.inner, self.parts = inner, parts
        self.name = f"{inner.name} in {parts} parts"  # type: ignore[misc]
        self.summary = f"{inner.summary}, on each of {parts} parts"  # type: ignore[misc]
        self.promise = inner.promise  # type: ignore[misc]
        self.joint = inner.joint  # type: ignore[misc]

    def refuse(self, facts: Facts, budget: Budget) -> str | None:
        return self.inner.refuse(self._part(facts), budget)

    def settings(self, facts: Facts, budget: Budget, **choices: Any) -> PartSettings:
        inner = self.inner.settings(self._part(facts), budget, **choices)
        return self._of(inner)

    def replanned(self, facts: Facts, budget: Budget, settings: PartSettings) -> PartSettings:
        return self._of(self.inner.replanned(self._part(facts), budget, settings.inner))

    def _of(self, inner: Settings) -> PartSettings:
        return PartSettings(inner.bound, inner.passes, inner, self.parts, rounded=inner.rounded)

    def _part(self, facts: Facts) -> Facts:
        return replace(facts, n=max(facts.n // self.parts, 1))

    def row_bounds(self, problem: Problem) -> RowBounds:
        return self.inner.row_bounds(problem)

    def assumptions(self, facts: Facts, settings: PartSettings) -> tuple[str, ...]:
        return self.inner.assumptions(self._part(facts), settings.inner)

    def run(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: PartSettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        return self.run_all([oracle], gate, problem, settings, tick).thetas[0]

    def run_all(
        self,
        oracles: Sequence[Oracle],
        gate: Gate,
        problem: Problem,
        settings: PartSettings,
        tick: Tick = no_tick,
    ) -> Answer:
        (oracle,) = oracles
        answers = []
        for done, part in enumerate(oracle.cyclic(self.parts), 1):
            answers.append(self.inner.run_all([part], gate, problem, settings.inner))
            tick(done, self.parts)
        fits = np.array([answer.thetas for answer in answers])
        thetas = list(fits.mean(axis=0))
        return replace(answers[0], thetas=thetas, inference=Parts(fits.reshape(len(fits), -1)))


def in_parts(plan: Plan, parts: int, n: int) -> Plan:
    """A plan for n records from one for a part of them, or a refusal by public numbers."""
    facts = plan.facts
    if isinstance(parts, bool) or not isinstance(parts, int) or not FEWEST <= parts <= MOST:
        raise ValueError(f"parts must be a whole number from {FEWEST} to {MOST}, got {parts!r}.")
    if facts.repeats > 1 and not plan.solver.joint:
        raise Refused(
            f"intervals for more than two classes need a solver that fits all of them together, "
            f"and {plan.name} does not: take LogisticRegression."
        )
    if facts.group > 1:
        raise Refused(
            "intervals take records as independent, and rows of one user are not: leave "
            "rows_per_user out, or intervals."
        )
    if facts.problem.shaped:
        raise Refused('intervals are for slopes: leave features="linear".')
    if isinstance(facts.problem.loss, CappedLogistic) and facts.problem.column_bounds is not None:
        raise Refused('fits with link="capped" have no mean: each has scaled rows of its own.')
    if facts.n < 2 * facts.p:
        raise Refused(
            f"{n} records in {parts} parts leave fewer than {2 * facts.p} for {facts.p} "
            "coefficients: take fewer parts."
        )
    solver = InParts(plan.solver, parts)
    whole = PartSettings(
        plan.settings.bound,
        plan.settings.passes,
        plan.settings,
        parts,
        rounded=plan.settings.rounded,
    )
    return Plan(solver, replace(facts, n=n), plan.budget, whole, plan.expectation)
