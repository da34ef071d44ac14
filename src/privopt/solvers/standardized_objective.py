"""Standardise privately, cap the slope, perturb the objective once: the default classifier.

Problem: two classes, columns with declared bounds, an intercept.

Algorithm: release a histogram of row norms, the first two moments and the number of positive
labels; centre, scale and clip the rows with them; then objective perturbation of a loss of slope at
most 1/2 whose minimiser is the log-odds, regularised towards the intercept-only model.

With few records for the budget long rows are shortened, which gives them more weight and inflates
coefficients; with many they are weighted instead, which biases nothing (``oracle.mapped``). How
much of each follows from n mu / p, a public number. Where noise is all that there can be, slopes
are drawn towards zero by its known size.

Bound: with rows mapped to norm at most 1, E[excess of the capped sum over every theta of norm R] <=
E||b||^2 / (2 lambda) + lambda R^2 / 2, as for objective perturbation; R = 2.4 sqrt(p) makes the
best lambda the same whatever the effective dimension turns out to be, so it stays public.

Reference: objective perturbation as in Chaudhuri, Monteleoni and Sarwate (2011); shares and
constants were settled by measurement on nine data sets (``benchmarks/classifier.py``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from privopt.facts import Facts
from privopt.geometry import WholeSpace
from privopt.losses import CappedExponential, CappedLogistic, Logistic, Loss, SmoothedHinge
from privopt.mechanisms import (
    Gate,
    ObjectivePerturbation,
    Standardizer,
    gaussian_noise,
    laplace_noise,
)
from privopt.mechanisms.objective_perturbation import Noise
from privopt.mechanisms.shape_plan import (
    by_bins,
    in_integers,
    of_columns,
    planned_shapes,
    shape_learner,
    shape_noise,
)
from privopt.oracle import ClassCounts, CountPositive, Oracle, RowBounds, RowMap
from privopt.privacy import Budget
from privopt.privacy.kinds import Kind
from privopt.privacy.profiles import gaussian_mu
from privopt.problem import Problem
from privopt.solvers.families.objective import ObjectiveSettings, objective_settings
from privopt.solvers.families.standardization import CURVATURE_LEFT, before, choose_for_all
from privopt.solvers.solver import Answer, Solver, Tick, no_tick
from privopt.solvers.specimen import COLUMNS, Attack, Specimen, stiff

# Shares of mu^2 (Gaussian noise) or of epsilon (pure): row norms, moments, labels.
SHARES: dict[Noise, tuple[float, float, float]] = {
    "gaussian": (0.02, 0.10, 0.01),
    "pure": (0.04, 0.12, 0.02),
}
MOST_FOR_LABELS = 0.3
ENOUGH_FOR_RATE = 20.0
"""From this n mu on the smallest share suffices for the rate of positive labels."""
PRIOR_RATE = 0.06
"""Variance of the rate over problems, against which the noise of a released one is weighed."""
SOLUTION_SIZE = 3.0
"""Expected size of the solution in units of the clip norm; half of it where noise prevails."""
NOISY, PLENTY = 32.0, 128.0
"""n mu / p up to which the solution counts as half as large, and from which as whole."""
HARDLY, SOME = 0.5, 1.5
"""n mu / p up to which slopes are drawn towards zero, and from which the ridge does enough."""
DOUBT = 1.5
LEAST_WEIGHT = 0.01
"""Of n, that all weights together are taken to be at least, where noise hides them."""
SHORTENED, WEIGHTED = 64.0, 1024.0
"""n mu / p up to which long rows are shortened, and from which they are weighted."""


@dataclass(frozen=True)
class StandardizedSettings(ObjectiveSettings):
    """Objective perturbation's settings, and those of the releases before it."""

    norm_multiplier: float
    moment_multiplier: float
    label_multiplier: float
    n: int
    clip: float
    shortening: float
    doubt: float
    shape_multiplier: float | None = None
    harmonics: int = 0
    roughness: float = 0.0


class StandardizedObjective(Solver):
    """Private standardisation, then objective perturbation of a loss with a capped slope.

    A ``CappedLogistic`` loss is minimised as it is, over shortened rows, and predicted with them:
    its scores are not log-odds, and its model is no linear one.

    Formal guarantee
    ----------------
    Every relation. The first releases are additive noise on clipped sums; the last is objective
    perturbation of a convex, smooth, one-signed GLM loss on rows clipped to norm 1. They compose
    adaptively: the map between them is post-processing, and for every fixed map the last release is
    dominated by the same pair. All of them are exact integers unless ``discrete_noise=False``.
    """

    chunks: ClassVar[bool] = True
    name: ClassVar[str] = "standardized_objective"
    summary: ClassVar[str] = "private centring and scaling, then objective perturbation"
    has_discrete_noise: ClassVar[bool] = True
    specimen: ClassVar[Specimen] = Specimen(
        problems={
            "bounded columns": COLUMNS,
            "bounded columns, hinge": Problem(SmoothedHinge(0.5), intercept=0.5, column_bounds=1.0),
        },
        attack=Attack((COLUMNS,), n=20, choices=stiff, pair=lambda b: "crowd"),
    )

    def refuse(self, facts: Facts, budget: Budget) -> str | None:
        problem = facts.problem
        if not isinstance(problem.loss, Logistic | CappedLogistic | SmoothedHinge):
            return (
                f"{self.name} is for the logistic loss, capped or not, and the smoothed hinge, "
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

    def row_bounds(self, problem: Problem) -> RowBounds:
        # Rows are clipped after they are mapped; the first sums clip inside their queries.
        return RowBounds(math.inf, 1.0)

    def settings(self, facts: Facts, budget: Budget, **choices: Any) -> StandardizedSettings:
        noise: Noise = choices.pop("noise", "pure" if budget.pure else "gaussian")
        clip: float = choices.pop("clip", 0.8)
        plenty = facts.plenty(budget, noise == "pure")
        shapes = planned_shapes(facts, plenty, noise, choices)
        plenty /= shapes.dilution(facts)
        linear = isinstance(facts.problem.loss, Logistic)
        usual = _between(plenty, WEIGHTED, SHORTENED) if linear else 1.0
        shortening: float = choices.pop("shortening", usual)
        if not 0 <= shortening <= 1:
            raise ValueError(f"shortening must lie in [0, 1], got {shortening!r}.")
        half = _between(plenty, PLENTY, NOISY) if linear else 0.0
        norms, moments, labels = SHARES[noise]
        if linear:
            labels = min(max(_enough_for_rate(facts, budget, noise), labels), MOST_FOR_LABELS)
        multipliers, prior = before(facts, budget, noise, (norms, moments, labels))
        multiplier, kinds = shape_noise(facts, budget, noise, shapes)
        wish = choose_for_all(choices.get("discrete_noise"), facts, noise, multipliers)
        choices["discrete_noise"] = in_integers(wish, multiplier, facts)
        loss, size = _loss(facts.problem), SOLUTION_SIZE * (1 - half / 2)
        wider = replace(facts, p=facts.p + shapes.harmonics * len(facts.problem.shaped))
        inner = _inner_facts(wider, loss, clip * size, (*prior, *kinds))
        last = objective_settings(self.name, inner, budget, {"noise": noise, **choices})
        return StandardizedSettings(
            **{**vars(last), "passes": last.passes * facts.repeats + 3},
            norm_multiplier=multipliers[0],
            moment_multiplier=multipliers[1],
            label_multiplier=multipliers[2],
            n=facts.n,
            clip=clip,
            shortening=shortening,
            doubt=DOUBT * _between(plenty, SOME, HARDLY) if linear else 0.0,
            shape_multiplier=multiplier,
            harmonics=shapes.harmonics,
            roughness=shapes.roughness,
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
        row_map = replace(standardizer.run(oracles[0], gate), shortening=settings.shortening)
        tables = None
        learner = shape_learner(settings, problem.shaped)
        if learner is not None:
            tables, row_map = learner.widen(oracles[0], gate, row_map, settings.clip)
            oracles = [oracle.shaped(tables) for oracle in oracles]
        thetas = []
        for done, oracle in enumerate(oracles, 1):
            theta = self._one(oracle, gate, row_map, problem, settings)
            coefficients = row_map.backward(theta) / row_map.clip_norm
            coefficients[-1] /= problem.intercept
            thetas.append(coefficients if tables is None else by_bins(coefficients, tables))
            tick(done, len(oracles))
        clipped = isinstance(problem.loss, CappedLogistic)
        plain = of_columns(row_map, tables)
        cap = _loss(problem).lipschitz
        return Answer(thetas, plain, clipped=clipped, tables=tables, lipschitz=cap)

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
        norm = "l1" if pure else "l2"
        question = ClassCounts(2, norm) if problem.weighted else CountPositive(norm)
        sealed = oracle.everything().ask(question, resolution=counting.resolution)
        counts = gate.release(counting, sealed)
        loss = _loss(problem)
        start = np.zeros(row_map.dimension)
        whole = float(settings.n)
        if problem.weighted:  # what there is in all is as private as its parts
            whole = float(np.clip(counts.sum(), LEAST_WEIGHT * settings.n, settings.n))
        share = counts[-1] / whole
        if isinstance(loss, CappedExponential):
            noise = settings.label_multiplier * (math.sqrt(2) if pure else 1.0) / whole
            share = 0.5 + (share - 0.5) * PRIOR_RATE / (PRIOR_RATE + noise**2)
        rate = float(np.clip(share, 0.01, 0.99))
        start[-1] = _alone(loss, rate) * row_map.clip_norm / row_map.column
        mechanism = ObjectivePerturbation(
            settings.noise,
            settings.noise_multiplier,
            settings.regularisation,
            settings.tolerance,
            settings.output_multiplier,
            centre=tuple(start.tolist()),
            discrete_noise=settings.discrete_noise,
        )
        theta = gate.release(mechanism, oracle.mapped(row_map).everything().function(loss))
        if not isinstance(loss, CappedExponential):
            return theta
        return start + _signal(theta, row_map, settings, whole, rate) * (theta - start)


def _enough_for_rate(facts: Facts, budget: Budget, noise: Noise) -> float:
    """The share that tells the rate of positive labels well enough: one number, which moves by 1
    whatever the relation, so columns do not count here."""
    if noise == "pure":
        return ENOUGH_FOR_RATE * facts.repeats / (facts.n * budget.epsilon)
    mu = gaussian_mu(budget.epsilon, budget.delta)
    return facts.repeats * (ENOUGH_FOR_RATE / (facts.n * mu)) ** 2


def _between(value: float, none: float, whole: float) -> float:
    """0 at ``none``, 1 at ``whole``, linear in the logarithm between them."""
    return float(np.clip(math.log(none / value) / math.log(none / whole), 0.0, 1.0))


def _alone(loss: Loss, rate: float) -> float:
    """The intercept-only model; of a hinge, the one of least squares, within the margin."""
    if isinstance(loss, CappedExponential):
        return math.log(rate / (1 - rate))
    return loss.margin(rate) if isinstance(loss, CappedLogistic) else 2 * rate - 1


def _signal(
    theta: np.ndarray, row_map: RowMap, settings: StandardizedSettings, whole: float, rate: float
) -> float:
    """Which share of the slopes is kept: one, but where noise is all that there can be."""
    clip, p = row_map.clip_norm, row_map.dimension
    deviation = settings.noise_multiplier * CappedExponential().lipschitz
    if settings.noise == "pure":
        deviation *= math.sqrt(p + 1)
    # Mean curvature at the intercept-only model, of a column of variance one.
    curved = 0.5 * min(rate, 1 - rate) * whole * CURVATURE_LEFT / clip**2
    noise = (p - 1) * (deviation / (curved + settings.regularisation)) ** 2
    seen = float(theta[:-1] @ theta[:-1])
    return max(0.0, 1.0 - settings.doubt * noise / seen) if seen > 0 else 0.0


def _loss(problem: Problem) -> Loss:
    """The loss that is minimised: others have capped slopes already."""
    return CappedExponential() if isinstance(problem.loss, Logistic) else problem.loss


def _inner_facts(facts: Facts, loss: Loss, size: float, prior: tuple[Kind, ...]) -> Facts:
    """The problem that objective perturbation solves: capped loss, rows of norm at most one, a
    solution of ``size`` for each column of unit variance."""
    problem = Problem(loss, data_norm=1.0, theta_norm=size * math.sqrt(facts.p))
    return Facts(problem, facts.n, facts.p, facts.neighbouring, facts.repeats, prior)


SOLVER = StandardizedObjective()
