"""Objective perturbation with all that intervals for its coefficients need, in one budget.

Problem: two classes, targets with bounds, or counts; columns with declared bounds or rows with a
declared norm; an intercept.

Algorithm: standardise the rows privately, or take the declared norm; then objective perturbation of
a loss with a capped slope. Then release, at the released minimiser, the Hessian of the losses and
the covariance of their scores, in one noisy vector (``oracle.Curvature``). Standard errors follow
from what was released (``inference.Sandwich``).

What is estimated: long rows are weighted, never shortened, and weights that depend on the row alone
bias nothing. So where the model holds, log-odds, a mean with symmetric errors, or errors that are
independent of the columns, its coefficients are estimated; otherwise the minimiser of the weighted
and capped loss over the population.

Bound: that of objective perturbation.

Reference: the sandwich covariance of Huber (1967) and White (1980), intervals for ratios of Fieller
(1954); derived for this use in docs/proofs/inference.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from privopt.facts import Facts
from privopt.geometry import WholeSpace
from privopt.inference import Sandwich
from privopt.inference.coefficients import LONGEST, LONGEST_SQUARES, Linear
from privopt.losses import CappedExponential, Logistic, Loss, Poisson, Squared, Standard
from privopt.mechanisms import (
    Gate,
    ObjectivePerturbation,
    Standardizer,
    gaussian_noise,
    laplace_noise,
    norm_gamma_noise,
)
from privopt.mechanisms.objective_perturbation import Noise
from privopt.numerics.trust_region import unsvec
from privopt.oracle import CountPositive, Curvature, Oracle, RowBounds, RowMap
from privopt.privacy import Budget
from privopt.privacy.budget import records_moved
from privopt.problem import Problem
from privopt.solvers.families.interval_shares import SHARES, curvature_share
from privopt.solvers.families.objective import ObjectiveSettings, objective_settings
from privopt.solvers.families.standardization import (
    ENOUGH,
    NEARLY_ALL,
    USUAL,
    choose_for_all,
    given,
    label_moments,
    noise_for,
)
from privopt.solvers.solver import Answer, Solver, Tick, no_tick
from privopt.solvers.specimen import Attack, Specimen, noise_of_delta

CLIP, COLUMN = 0.8, 2.0
WIDENS = 16.0
"""Caps of squares are wider than usual only from so many times the usual n mu / p on: what a cap
cuts off is no bias here, and a wide one needs noise in proportion."""
SOLUTION_SIZE = 3.0
"""Expected size of log-odds, in units of the clip norm."""
SHORTER, LOG_ODDS_SHORTER = 0.5, 0.35
"""The ridge is chosen as for a solution so much shorter: what it pulls is put back, so a larger one
costs little, and noise is smaller beside it."""


@dataclass(frozen=True)
class IntervalSettings(ObjectiveSettings):
    """Objective perturbation's settings, and those of the releases around it. ``norm_multiplier``
    and ``moment_multiplier`` are None where rows have a declared norm."""

    norm_multiplier: float | None
    moment_multiplier: float | None
    label_multiplier: float
    curvature_multiplier: float
    n: int
    plenty: float
    clip: float


class WithIntervals(Solver):
    """Objective perturbation, and the second moments at its answer.

    Formal guarantee
    ----------------
    Every relation. The releases compose adaptively: the map of the rows follows from the first, and
    for every fixed map and point the next is dominated by the same pair. Second moments are asked
    at the *released* point and never at the minimiser inside, so given what was released before
    they are additive noise on a clipped sum. All releases are exact integers unless
    ``discrete_noise=False``.
    """

    name: ClassVar[str] = "with_intervals"
    summary: ClassVar[str] = "objective perturbation, then the noisy curvature at its answer"
    has_discrete_noise: ClassVar[bool] = True
    weights: ClassVar[bool] = False
    specimen: ClassVar[Specimen] = Specimen(
        problems={
            "intervals, bounded columns": Problem(
                Logistic(), intercept=0.5, column_bounds=1.0, intervals=True
            ),
            "intervals, norm": Problem(Logistic(), intercept=0.5, intervals=True),
            "intervals, squares, ridge": Problem(
                Squared(residual_clip=0.5),
                intercept=0.5,
                column_bounds=1.0,
                l2=0.01,
                intervals=True,
            ),
            "intervals, counts": Problem(Poisson(), intercept=0.5, intervals=True),
        },
        attack=Attack(
            (Problem(Squared(residual_clip=0.5), intercept=0.5, intervals=True),),
            n=20,
            choices=noise_of_delta,
            pair=lambda b: "crowd",
        ),
    )

    def refuse(self, facts: Facts, budget: Budget) -> str | None:
        problem = facts.problem
        if not facts.convex:
            return f"{self.name} needs a convex loss; {facts.loss_name} is not convex."
        if not isinstance(problem.loss, Logistic | Squared | Poisson):
            return (
                f"{self.name}, by curvature, is for least squares, log-odds and counts, not for "
                f"{facts.loss_name}: use privopt.IntervalsByParts."
            )
        if not math.isfinite(facts.lipschitz()):
            return f"{self.name} needs a bounded slope: give {facts.loss_name} a residual_clip."
        if not problem.intervals:
            return f"{self.name} is for fits that ask for intervals: give intervals=True."
        if facts.repeats > 1:
            return (
                "intervals=True is for two classes: the curvature of all classes together would "
                f"have {(facts.repeats * facts.p) ** 2 // 2} entries. For more, wrap the estimator "
                "in privopt.IntervalsByParts."
            )
        if facts.group > 1:
            return (
                "intervals take records as independent, and rows of one user are not: leave "
                "rows_per_user out, or intervals."
            )
        if not problem.intercept:
            return "intervals need an intercept: leave fit_intercept=True."
        if problem.shaped:
            return 'intervals are for slopes: leave features="linear".'
        if not isinstance(problem.domain, WholeSpace):
            return f"{self.name} solves on the whole space."
        if isinstance(problem.loss, Logistic) and problem.l2:
            return "intervals of log-odds take no ridge of the caller's."
        return None

    def row_bounds(self, problem: Problem) -> RowBounds:
        # Rows are clipped after they are mapped; the first sums clip inside their queries.
        return RowBounds(math.inf, 1.0)

    def settings(self, facts: Facts, budget: Budget, **choices: Any) -> IntervalSettings:
        noise: Noise = choices.pop("noise", "pure" if budget.pure else "gaussian")
        plenty = facts.plenty(budget, noise == "pure")
        clip: float = choices.pop("clip", CLIP)
        share: float = choices.pop("share", curvature_share(facts, budget, noise))
        scaled = facts.problem.column_bounds is not None
        each = [part / facts.repeats for part in (SHARES[noise][2], share)]
        once = SHARES[noise][:2] if scaled else ()
        multipliers, kinds = noise_for(budget, noise, (*once, *each))
        prior = (*kinds[: len(once)], *kinds[len(once) :] * facts.repeats)
        *scaling, labels, curvature = multipliers
        q = facts.p
        widths = (*((1, 2 * (q - 1)) if scaled else ()), 2, q * (q + 1))
        wish = choose_for_all(choices.get("discrete_noise"), facts, noise, multipliers, widths)
        choices["discrete_noise"] = wish
        loss, size = self._typical(facts, plenty, clip)
        size *= LOG_ODDS_SHORTER if isinstance(facts.problem.loss, Logistic) else SHORTER
        inner = replace(
            facts,
            problem=Problem(loss, data_norm=1.0, theta_norm=size),
            prior=(*facts.prior, *prior),
        )
        last = objective_settings(self.name, inner, budget, {"noise": noise, **choices})
        return IntervalSettings(
            **{**vars(last), "passes": last.passes * facts.repeats + 5},
            norm_multiplier=scaling[0] if scaled else None,
            moment_multiplier=scaling[1] if scaled else None,
            label_multiplier=labels,
            curvature_multiplier=curvature,
            n=facts.n,
            plenty=plenty,
            clip=clip,
        )

    def _typical(self, facts: Facts, plenty: float, clip: float) -> tuple[Loss, float]:
        """The loss to plan with, and the expected size of its minimiser."""
        problem = facts.problem
        scaled = problem.column_bounds is not None
        spread = clip * math.sqrt(facts.p)
        if isinstance(problem.loss, Logistic):
            far = SOLUTION_SIZE * spread if scaled else facts.radius() * problem.size
            return CappedExponential(), far
        typical = given(problem.loss.typical(_widening(problem, plenty)))
        return typical.loss, spread * typical.size if scaled else facts.radius() * problem.size

    def run(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: IntervalSettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        return self.run_all([oracle], gate, problem, settings, tick).thetas[0]

    def run_all(
        self,
        oracles: Sequence[Oracle],
        gate: Gate,
        problem: Problem,
        settings: IntervalSettings,
        tick: Tick = no_tick,
    ) -> Answer:
        """One standardisation for all models: they share their rows."""
        row_map, found = self._map(oracles[0], gate, problem, settings), []
        for done, oracle in enumerate(oracles, 1):
            found.append(self._one(oracle, gate, problem, settings, row_map))
            tick(done, len(oracles))
        (one, lipschitz), thetas = found[0], [sandwich.value for sandwich, _ in found]
        inference = one if len(found) == 1 else None
        return Answer(thetas, row_map, math.inf, lipschitz=lipschitz, inference=inference)

    def _one(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: IntervalSettings,
        row_map: RowMap,
    ) -> tuple[Sandwich, float]:
        """The released minimiser with its second moments, and the largest slope."""
        standard = self._standard(oracle, gate, problem, settings)
        row_map = replace(
            row_map, label_centre=standard.centre, label_scale=standard.scale, shortening=0.0
        )
        if isinstance(standard.loss, CappedExponential):
            row_map = replace(row_map, label_centre=None)
        rows, loss = oracle.mapped(row_map), standard.loss
        ridge = _ridge(problem, row_map, standard, settings)
        centre = np.zeros(row_map.dimension)
        if row_map.label_centre is None:  # the constant model; of targets, the origin is
            centre[-1] = standard.offset * row_map.clip_norm / row_map.column
        mechanism = ObjectivePerturbation(
            settings.noise,
            settings.noise_multiplier,
            settings.regularisation,
            settings.tolerance,
            settings.output_multiplier,
            centre=tuple(centre.tolist()),
            ridge=tuple(ridge.tolist()),
            discrete_noise=settings.discrete_noise,
        )
        theta = gate.release(mechanism, rows.everything().function(loss))
        found = self._second_moments(rows, gate, loss, theta, settings)
        q, single = row_map.dimension, float(found.sensitivity)
        pure = settings.noise == "pure"
        wide = math.sqrt(q * (q + 1) + 1) if pure else 1.0
        wider = math.sqrt(q + 1) if pure else 1.0
        moved = settings.noise_multiplier * loss.lipschitz
        moved *= records_moved(oracle.neighbouring) if pure else 1
        last = settings.output_multiplier * 2 * settings.tolerance * loss.lipschitz
        deviation = settings.curvature_multiplier * single * wide
        back = np.array([row_map.backward(one) for one in np.eye(q)]).T / row_map.clip_norm
        back[-1] /= problem.intercept
        shift = np.zeros(q)
        if row_map.label_centre is not None:
            shift[-1] = standard.offset / problem.intercept
        sandwich = Sandwich(
            theta=theta,
            shift=settings.regularisation * (theta - centre),
            ridge=ridge,
            hessian=loss.most_expected * found.hessian,
            scores=2 * loss.lipschitz**2 * found.scores,
            hessian_noise=loss.most_expected * deviation,
            score_noise=2 * loss.lipschitz**2 * deviation,
            objective_noise=moved * wider,
            output_noise=last / settings.regularisation * wider,
            records=settings.n,
            quadratic=isinstance(problem.loss, Squared),
            pure=pure,
            pull=settings.regularisation,
            reach=_longest(problem.loss, standard)
            * (math.sqrt(q) if settings.norm_multiplier is None else row_map.clip_norm),
            reported=Linear(back, shift),
        )
        return sandwich, loss.lipschitz

    def _map(
        self, oracle: Oracle, gate: Gate, problem: Problem, settings: IntervalSettings
    ) -> RowMap:
        """Rows are standardised, or measured in their declared norm."""
        if settings.norm_multiplier is None or settings.moment_multiplier is None:
            features = oracle.dimension - 1
            return RowMap(np.zeros(features), np.ones(features), problem.intercept, problem.size)
        logistic = isinstance(problem.loss, Logistic)
        return Standardizer(
            settings.n,
            settings.noise,
            settings.norm_multiplier,
            settings.moment_multiplier,
            quantile=NEARLY_ALL if settings.plenty >= ENOUGH else USUAL,
            column=COLUMN if logistic else 1.0,
            clip=settings.clip,
            discrete_noise=settings.discrete_noise,
        ).run(oracle, gate)

    def _standard(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: IntervalSettings,
    ) -> Standard:
        """What is minimised; of log-odds ``offset`` is the constant model's."""
        if not isinstance(problem.loss, Logistic):
            mean, deviation, _ = label_moments(oracle, gate, settings)
            plenty = _widening(problem, settings.plenty)
            return given(problem.loss.standard(mean, deviation, plenty))
        pure = settings.noise == "pure"
        counting = (laplace_noise if pure else gaussian_noise)(
            settings.label_multiplier, settings.discrete_noise
        )
        question = CountPositive("l1" if pure else "l2")
        sealed = oracle.everything().ask(question, resolution=counting.resolution)
        share = float(gate.release(counting, sealed)[0]) / settings.n
        rate = float(np.clip(share, 0.01, 0.99))
        return Standard(CappedExponential(), math.log(rate / (1 - rate)), 0.0)

    def _second_moments(
        self, rows: Oracle, gate: Gate, loss: Loss, theta: np.ndarray, settings: IntervalSettings
    ) -> _Moments:
        q, pure = len(theta), settings.noise == "pure"
        adding = (
            norm_gamma_noise(settings.curvature_multiplier, q * (q + 1), settings.discrete_noise)
            if pure
            else gaussian_noise(settings.curvature_multiplier, settings.discrete_noise)
        )
        sealed = rows.everything().ask(Curvature(loss), theta, resolution=adding.resolution)
        movement = float(sealed.sensitivity.radius)
        sums = gate.release(adding, sealed)
        half = q * (q + 1) // 2
        return _Moments(unsvec(sums[:half]), unsvec(sums[half:]), movement)


@dataclass(frozen=True, eq=False)
class _Moments:
    """In units of the largest curvature, and of twice the largest squared slope."""

    hessian: np.ndarray
    scores: np.ndarray
    sensitivity: float


def _longest(loss: Loss, standard: Standard) -> float:
    """In units of the clip norm; a declared one is taken for that of as many standardised columns
    as there are."""
    return LONGEST_SQUARES * standard.size if isinstance(loss, Squared) else LONGEST


def _widening(problem: Problem, plenty: float) -> float:
    return plenty / WIDENS if isinstance(problem.loss, Squared) else plenty


def _ridge(
    problem: Problem, row_map: RowMap, standard: Standard, settings: IntervalSettings
) -> np.ndarray:
    """The caller's ridge, on the coefficients of the columns as given and not on the constant."""
    pull = np.zeros(row_map.dimension)
    if problem.l2:
        units = 1.0 if problem.units is None else np.array(problem.units)
        to_columns = row_map.scale / (row_map.clip_norm * units)
        pull[:-1] = settings.n * problem.l2 / standard.unit * to_columns**2
    return pull


SOLVER = WithIntervals()
