"""Standardise privately, bound the slope, perturb the objective once: the default regression.

Problem: real labels in [-1, 1], columns with declared bounds, an intercept, a loss that says what
to minimise once the labels' mean and deviation are known (``Loss.standard``).

Algorithm: release a histogram of row norms, the first two moments of the features and those of the
labels; centre and scale the features, and the labels as the loss says; then objective perturbation
of that loss, regularised towards the constant model.

A row longer than ``CLIP`` times the root mean square is shortened by s < 1. A residual of a linear
model is shortened with it, as (s x, s y), which every linear model survives; any other loss is
weighted instead (``oracle.RowMap``). Either way a long record counts less and biases nothing, and
the model predicts rows as they are. With rows of norm at most 1 the slope of the loss is at most L
and its curvature at most its smoothness, whatever the labels are; that is all privacy needs.

How wide the loss is, and how far out a row's norm still enters the moments, follows r = n mu / p,
with mu = 1 / (noise of a sum of p terms in units of its sensitivity): the noise of a wide loss is
affordable where r is large, and there a narrow one would only be biased.

Bound: E[excess of the bounded sum over every theta of norm R] <= E||b||^2 / (2 lambda) +
lambda R^2 / 2, as for objective perturbation; R = ``CLIP`` sqrt(p) times the spread that the loss
expects of margins for a typical label, so that lambda depends on public numbers alone.

Constants: shares, clip, height of the constant column and the growth of the width were settled by
measurement on eleven data sets and hold on others (``benchmarks/regression.py``).

Reference: objective perturbation as in Chaudhuri, Monteleoni and Sarwate (2011); the Huber loss
bounds the residual as in Huber (1964).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from privopt.facts import Facts
from privopt.geometry import WholeSpace
from privopt.losses import Gamma, Loss, Poisson, SmoothedQuantile, Squared, Standard
from privopt.mechanisms import (
    Gate,
    ObjectivePerturbation,
    Standardizer,
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
from privopt.oracle import Oracle, RowBounds, RowMap
from privopt.privacy import Budget
from privopt.problem import Problem
from privopt.solvers.families.objective import ObjectiveSettings, objective_settings
from privopt.solvers.families.standardization import (
    ENOUGH,
    NEARLY_ALL,
    USUAL,
    before,
    choose_for_all,
    given,
    label_moments,
)
from privopt.solvers.solver import Answer, Solver, Tick, no_tick
from privopt.solvers.specimen import TARGETS, Attack, Specimen, noise_of_delta

# Shares of mu^2 (Gaussian noise) or of epsilon (pure): row norms, moments, labels.
SHARES: dict[Noise, tuple[float, float, float]] = {
    "gaussian": (0.02, 0.10, 0.05),
    "pure": (0.04, 0.12, 0.08),
}
CLIP = 0.8
"""Records are shortened to this multiple of the root mean square of standardised rows."""
COLUMN = 1.0
"""Height of the constant column: labels are centred, so the intercept has little left to do."""


@dataclass(frozen=True)
class RegressionSettings(ObjectiveSettings):
    """Objective perturbation's settings, and those of the releases before it.

    ``plenty`` is n mu / p, from which the loss takes its width and the moments their quantile.
    """

    norm_multiplier: float
    moment_multiplier: float
    label_multiplier: float
    n: int
    plenty: float
    clip: float
    shape_multiplier: float | None = None
    harmonics: int = 0
    roughness: float = 0.0


class StandardizedRegression(Solver):
    """Private standardisation, then objective perturbation of a bounded loss.

    Formal guarantee
    ----------------
    Every relation. The first releases are additive noise on clipped sums; the last is objective
    perturbation of a convex, smooth GLM loss on records mapped so that their rows have norm at most
    1. They compose adaptively: the map between them is post-processing, and for every fixed map and
    Lipschitz constant the last release is dominated by the same pair, because noise is stated in
    units of that constant and the smoothness is fixed in the plan. What follows it, an intercept
    through the released means, is post-processing too. All releases are exact integers unless
    ``discrete_noise=False``.
    """

    chunks: ClassVar[bool] = True
    name: ClassVar[str] = "standardized_regression"
    summary: ClassVar[str] = (
        "private centring and scaling, then objective perturbation (regression)"
    )
    has_discrete_noise: ClassVar[bool] = True
    specimen: ClassVar[Specimen] = Specimen(
        problems={
            "bounded columns, squares": Problem(
                Squared(residual_clip=0.5), intercept=0.5, l2=0.01, column_bounds=1.0
            ),
            "bounded columns, huber": TARGETS,
            "bounded columns, quantile": Problem(
                SmoothedQuantile(0.9, 0.1), intercept=0.5, column_bounds=1.0
            ),
            "bounded columns, counts": Problem(Poisson(), intercept=0.5, column_bounds=1.0),
            "bounded columns, amounts": Problem(Gamma(), intercept=0.5, l2=0.01, column_bounds=1.0),
        },
        attack=Attack((TARGETS,), n=20, choices=noise_of_delta, pair=lambda b: "crowd"),
    )

    def refuse(self, facts: Facts, budget: Budget) -> str | None:
        problem = facts.problem
        if problem.loss.typical(1.0) is None:
            return (
                f"{self.name} is for losses that say what to minimise when the moments of the "
                f"labels are known, not for {facts.loss_name}: take Squared, Huber or another "
                "with a standard form."
            )
        if not facts.convex:
            return f"{self.name} needs a convex loss; {facts.loss_name} is not convex."
        if not math.isfinite(facts.lipschitz()):
            return (
                f"{self.name} needs a Lipschitz loss; {facts.loss_name} is not: "
                "use Squared(residual_clip=...) or Huber(width)."
            )
        if problem.column_bounds is None:
            return f"{self.name} needs declared column bounds: give Ridge(bounds=(low, high))."
        if not problem.intercept:
            return f"{self.name} centres the columns and so needs an intercept."
        if not isinstance(problem.domain, WholeSpace):
            return f"{self.name} solves on the whole space."
        return None

    def row_bounds(self, problem: Problem) -> RowBounds:
        # Rows are clipped after they are mapped; the first sums clip inside their queries.
        return RowBounds(math.inf, 1.0)

    def settings(self, facts: Facts, budget: Budget, **choices: Any) -> RegressionSettings:
        clip: float = choices.pop("clip", CLIP)
        noise: Noise = choices.pop("noise", "pure" if budget.pure else "gaussian")
        plenty = facts.plenty(budget, noise == "pure")
        shapes = planned_shapes(facts, plenty, noise, choices)
        dilution = shapes.dilution(facts)
        plenty /= dilution
        multipliers, prior = before(facts, budget, noise, SHARES[noise])
        multiplier, kinds = shape_noise(facts, budget, noise, shapes)
        wish = choose_for_all(choices.get("discrete_noise"), facts, noise, multipliers)
        choices["discrete_noise"] = in_integers(wish, multiplier, facts)
        typical = given(facts.problem.loss.typical(plenty))
        size = clip * math.sqrt(facts.p * dilution) * typical.size
        inner = replace(
            facts,
            problem=Problem(typical.loss, data_norm=1.0, theta_norm=size),
            p=facts.p + shapes.harmonics * len(facts.problem.shaped),
            prior=(*prior, *kinds),
        )
        last = objective_settings(self.name, inner, budget, {"noise": noise, **choices})
        return RegressionSettings(
            **{**vars(last), "passes": last.passes * facts.repeats + 3},
            norm_multiplier=multipliers[0],
            moment_multiplier=multipliers[1],
            label_multiplier=multipliers[2],
            n=facts.n,
            plenty=plenty,
            clip=clip,
            shape_multiplier=multiplier,
            harmonics=shapes.harmonics,
            roughness=shapes.roughness,
        )

    def run(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: RegressionSettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        return self.run_all([oracle], gate, problem, settings, tick).thetas[0]

    def run_all(
        self,
        oracles: Sequence[Oracle],
        gate: Gate,
        problem: Problem,
        settings: RegressionSettings,
        tick: Tick = no_tick,
    ) -> Answer:
        """One standardisation for all models: they share their rows."""
        standardizer = Standardizer(
            settings.n,
            settings.noise,
            settings.norm_multiplier,
            settings.moment_multiplier,
            quantile=NEARLY_ALL if settings.plenty >= ENOUGH else USUAL,
            column=COLUMN,
            clip=settings.clip,
            discrete_noise=settings.discrete_noise,
        )
        row_map, blur = standardizer.learn(oracles[0], gate)
        tables = None
        learner = shape_learner(settings, problem.shaped)
        if learner is not None:
            tables, row_map = learner.widen(oracles[0], gate, row_map, settings.clip)
            oracles = [oracle.shaped(tables) for oracle in oracles]
        thetas, lipschitz = [], 1.0
        for done, oracle in enumerate(oracles, 1):
            mean, deviation, doubt = label_moments(oracle, gate, settings)
            standard = given(problem.loss.standard(mean, deviation, settings.plenty))
            lipschitz = standard.loss.lipschitz
            joint = replace(
                row_map,
                label_centre=standard.centre,
                label_scale=standard.scale,
                shortening=1.0 if standard.linear else 0.0,
            )
            ridge = _ridge(problem, joint, standard, settings)
            # A copy: what was released stays as it is.
            theta = self._one(oracle, gate, joint, standard.loss, ridge, settings).copy()
            # Means of labels and columns count every record alike: weighted ones lie elsewhere.
            if standard.matches_means and settings.plenty >= ENOUGH and not problem.weighted:
                theta[-1] *= _kept(row_map, theta, doubt, blur)
            coefficients = row_map.backward(theta) / row_map.clip_norm
            coefficients[-1] = (coefficients[-1] + standard.offset) / problem.intercept
            thetas.append(coefficients if tables is None else by_bins(coefficients, tables))
            tick(done, len(oracles))
        plain = of_columns(row_map, tables)
        return Answer(thetas, plain, math.inf, tables=tables, lipschitz=lipschitz)

    def _one(
        self,
        oracle: Oracle,
        gate: Gate,
        row_map: RowMap,
        loss: Loss,
        ridge: np.ndarray,
        settings: RegressionSettings,
    ) -> np.ndarray:
        mechanism = ObjectivePerturbation(
            settings.noise,
            settings.noise_multiplier,
            settings.regularisation,
            settings.tolerance,
            settings.output_multiplier,
            ridge=tuple(ridge.tolist()),
            discrete_noise=settings.discrete_noise,
        )
        return gate.release(mechanism, oracle.mapped(row_map).everything().function(loss))


def _ridge(
    problem: Problem, row_map: RowMap, standard: Standard, settings: RegressionSettings
) -> np.ndarray:
    """What is added to the planned regularisation, from public numbers and released moments.

    The caller's ridge, on the coefficients of the columns as given and not on the constant; and,
    where the loss turns out steeper for its size than was planned, as much as keeps the balance of
    noise and pull that the plan had.
    """
    typical = given(problem.loss.typical(settings.plenty))
    steeper = standard.loss.lipschitz / standard.size * typical.size / typical.loss.lipschitz
    pull = np.full(row_map.dimension, max(steeper**1.25 - 1, 0.0) * settings.regularisation)
    units = 1.0 if problem.units is None else np.array(problem.units)
    columns = slice(row_map.dimension - 1 - settings.harmonics * len(problem.shaped))
    to_columns = row_map.scale[columns] / (row_map.clip_norm * units)
    counted = min(settings.clip, 1.0) ** 2  # weight of a record as long as the root mean square
    pull[columns] += counted * settings.n * problem.l2 / standard.unit * to_columns**2
    return pull


def _kept(row_map: RowMap, theta: np.ndarray, doubt: float, blur: float) -> float:
    """How much of the fitted constant is kept: the plane through the means has none.

    What noise in the means alone would explain is kept, at up to sqrt(3) of its deviation; more
    says that records which were shortened, or lie beyond the cap, do not lie around this plane.
    """
    slopes = row_map.scale * theta[:-1] / row_map.clip_norm
    constant = row_map.column * theta[-1] / row_map.clip_norm
    noise = doubt**2 + blur**2 * float(slopes @ slopes)
    return 1 - max(0.0, 1 - 3 * noise / constant**2) if constant else 1.0


SOLVER = StandardizedRegression()
