"""Standardise privately, cap the slope, perturb the objective once: the default classifier.

Problem: two classes, columns with declared bounds, an intercept.

Algorithm: release a histogram of row norms, the first two moments and the number of positive
labels; centre, scale and clip the rows with them; then objective perturbation of the logistic loss
with its slope capped at 1/2, regularised towards the intercept-only model.

Bound: with rows mapped to norm at most 1, E[excess of the capped sum over every theta of norm R] <=
E||b||^2 / (2 lambda) + lambda R^2 / 2, as for objective perturbation; R = 2.4 sqrt(p) makes the
best lambda the same whatever the effective dimension turns out to be, so it stays public.

Reference: objective perturbation as in Chaudhuri, Monteleoni and Sarwate (2011); shares and
constants were settled by measurement on nine data sets (``benchmarks/classifier.py``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from privopt.facts import Facts
from privopt.geometry import WholeSpace
from privopt.losses import CappedLogistic, Logistic, Loss, SmoothedHinge
from privopt.mechanisms import (
    Gate,
    ObjectivePerturbation,
    Standardizer,
    choose_discrete,
    gaussian_noise,
    laplace_noise,
)
from privopt.mechanisms.objective_perturbation import Noise
from privopt.oracle import CountPositive, Oracle, RowBounds, RowMap
from privopt.privacy import Budget
from privopt.privacy.kinds import GaussianKind, Kind, Pure
from privopt.privacy.profiles import gaussian_mu
from privopt.problem import Problem
from privopt.solvers.objective_perturbation import SOLVER as OBJECTIVE
from privopt.solvers.objective_perturbation import ObjectiveSettings
from privopt.solvers.solver import Answer, Solver, Tick, no_tick

# Shares of mu^2 (Gaussian noise) or of epsilon (pure): row norms, moments, labels.
SHARES: dict[Noise, tuple[float, float, float]] = {
    "gaussian": (0.02, 0.10, 0.01),
    "pure": (0.04, 0.12, 0.02),
}
SOLUTION_SIZE = 3.0
"""Expected size of the solution in units of the clip norm."""


@dataclass(frozen=True)
class StandardizedSettings(ObjectiveSettings):
    """Objective perturbation's settings, and those of the releases before it."""

    norm_multiplier: float
    moment_multiplier: float
    label_multiplier: float
    n: int
    cap: float
    clip: float


class StandardizedObjective(Solver):
    """Private standardisation, then objective perturbation of a capped logistic loss.

    Formal guarantee
    ----------------
    Every relation. The first releases are additive noise on clipped sums; the last is objective
    perturbation of a convex, smooth, one-signed GLM loss on rows clipped to norm 1. They compose
    adaptively: the map between them is post-processing, and for every fixed map the last release is
    dominated by the same pair. All of them are exact integers unless ``discrete_noise=False``.
    """

    name: ClassVar[str] = "standardized_objective"
    summary: ClassVar[str] = "private centring and scaling, then objective perturbation"
    has_discrete_noise: ClassVar[bool] = True

    def refuse(self, facts: Facts, budget: Budget) -> str | None:
        problem = facts.problem
        if not isinstance(problem.loss, Logistic | SmoothedHinge):
            return (
                f"{self.name} is for the logistic loss and the smoothed hinge, "
                f"not for {facts.loss_name}."
            )
        if not facts.convex:
            return f"{self.name} needs a convex loss; {facts.loss_name} is not convex."
        if problem.column_bounds is None:
            return (
                f"{self.name} needs declared column bounds: "
                "give LogisticRegression(bounds=(low, high))."
            )
        if not problem.intercept:
            return f"{self.name} centres the columns and so needs an intercept."
        if not isinstance(problem.domain, WholeSpace) or problem.l2:
            return f"{self.name} solves on the whole space without a ridge of the caller's."
        return None

    def prefer(self, facts: Facts, budget: Budget) -> str | None:
        if facts.repeats > 2 and not budget.pure:
            return None  # all classes together lose less: standardized_softmax
        return (
            f"{self.name} goes first when column bounds are declared: its bound is for unknown "
            "scales, and on nine data sets it was the most accurate at every epsilon."
        )

    def row_bounds(self, problem: Problem) -> RowBounds:
        # Rows are clipped after they are mapped; the first sums clip inside their queries.
        return RowBounds(math.inf, 1.0)

    def settings(self, facts: Facts, budget: Budget, **choices: Any) -> StandardizedSettings:
        hinge = isinstance(facts.problem.loss, SmoothedHinge)
        cap: float = choices.pop("cap", 1.0 if hinge else 0.5)
        clip: float = choices.pop("clip", 0.8)
        noise: Noise = choices.pop("noise", "pure" if budget.pure else "gaussian")
        multipliers, prior = before(facts, budget, noise, SHARES[noise])
        choices["discrete_noise"] = choose_for_all(
            choices.get("discrete_noise"), facts, noise, multipliers
        )
        inner = _inner_facts(facts, cap, clip, prior)
        last = OBJECTIVE.settings(inner, budget, noise=noise, **choices)
        return StandardizedSettings(
            **{**vars(last), "passes": last.passes * facts.repeats + 3},
            norm_multiplier=multipliers[0],
            moment_multiplier=multipliers[1],
            label_multiplier=multipliers[2],
            n=facts.n,
            cap=cap,
            clip=clip,
        )

    def run(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: StandardizedSettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        return self.run_all([oracle], gate, problem, settings, tick).thetas[0]

    def run_all(
        self,
        oracles: Sequence[Oracle],
        gate: Gate,
        problem: Problem,
        settings: StandardizedSettings,
        tick: Tick = no_tick,
    ) -> Answer:
        """One standardisation for all models: they share their rows."""
        standardizer = Standardizer(
            settings.n,
            settings.noise,
            settings.norm_multiplier,
            settings.moment_multiplier,
            clip=settings.clip,
            discrete_noise=settings.discrete_noise,
        )
        row_map = standardizer.run(oracles[0], gate)
        thetas = []
        for done, oracle in enumerate(oracles, 1):
            theta = self._one(oracle, gate, row_map, problem, settings)
            coefficients = row_map.backward(theta) / row_map.clip_norm
            coefficients[-1] /= problem.intercept
            thetas.append(coefficients)
            tick(done, len(oracles))
        return Answer(thetas, row_map)

    def _one(
        self,
        oracle: Oracle,
        gate: Gate,
        row_map: RowMap,
        problem: Problem,
        settings: StandardizedSettings,
    ) -> np.ndarray:
        pure = settings.noise == "pure"
        counting = (laplace_noise if pure else gaussian_noise)(
            settings.label_multiplier, settings.discrete_noise
        )
        question = CountPositive("l1" if pure else "l2")
        sealed = oracle.everything().ask(question, resolution=counting.resolution)
        positive = gate.release(counting, sealed)
        loss = _loss(problem, settings.cap)
        start = np.zeros(row_map.dimension)
        rate = float(np.clip(positive[0] / settings.n, 0.01, 0.99))
        # The intercept-only model; of a hinge, the one of least squares, within the margin.
        alone = loss.margin(rate) if isinstance(loss, CappedLogistic) else 2 * rate - 1
        start[-1] = alone * row_map.clip_norm / row_map.column
        mechanism = ObjectivePerturbation(
            settings.noise,
            settings.noise_multiplier,
            settings.regularisation,
            settings.tolerance,
            settings.output_multiplier,
            centre=tuple(start.tolist()),
            discrete_noise=settings.discrete_noise,
        )
        return gate.release(mechanism, oracle.mapped(row_map).everything().function(loss))


def before(
    facts: Facts, budget: Budget, noise: Noise, shares: tuple[float, float, float]
) -> tuple[list[float], tuple[Kind, ...]]:
    """Noise multipliers of the releases before the last, by their shares of the budget, and their
    privacy losses: row norms and moments once for all models, labels once for each."""
    norms, moments, labels = shares
    labels /= facts.repeats
    if noise == "pure":
        multipliers = [1 / (share * budget.epsilon) for share in (norms, moments, labels)]
        kinds: list[Kind] = [Pure(1 / m) for m in multipliers]
    else:
        mu = gaussian_mu(budget.epsilon, budget.delta)
        multipliers = [1 / (mu * math.sqrt(share)) for share in (norms, moments, labels)]
        kinds = [GaussianKind(1 / m, 1 / m) for m in multipliers]
    return multipliers, (*kinds[:2], *[kinds[2]] * facts.repeats)


def choose_for_all(
    wish: bool | None, facts: Facts, noise: Noise, multipliers: list[float]
) -> bool | None:
    """The wish for the last release; False where a sum before it has no room in integers, so that
    all releases of a run are alike."""
    if wish is False:
        return False
    widths = (1, 2 * max(facts.p - 1, 1), 2)  # row norms are counts, one a record
    fits = [
        choose_discrete(wish, noise == "gaussian", multiplier, facts.n, width)
        for multiplier, width in zip(multipliers, widths, strict=True)
    ]
    return wish if all(fits) else False


def _loss(problem: Problem, cap: float) -> Loss:
    """The loss that is minimised: a hinge's slope is capped already."""
    return CappedLogistic(cap) if isinstance(problem.loss, Logistic) else problem.loss


def _inner_facts(facts: Facts, cap: float, clip: float, prior: tuple[Kind, ...]) -> Facts:
    """The problem that objective perturbation solves: capped loss, rows of norm at most one."""
    loss = _loss(facts.problem, cap)
    size = SOLUTION_SIZE * clip * math.sqrt(facts.p)
    problem = Problem(loss, data_norm=1.0, theta_norm=size)
    return Facts(problem, facts.n, facts.p, facts.neighbouring, facts.repeats, prior)


SOLVER = StandardizedObjective()
