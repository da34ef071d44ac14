"""Private greedy coordinate descent: choose the best coordinate, then move along it.

Algorithm: at each of T steps choose the coordinate with the largest noisy score (``gs-s``, ``gs-r``
or ``gs-q``), release that one coordinate of the gradient, and take a proximal step along it. An l1
penalty (setting ``l1``), a ridge and a box are part of the step.

Features are clipped to [-B, B] and the slope to [-c, c], so that coordinate j of a record's
gradient is at most c B_j, where the smoothness along it is M_j = smoothness * B_j^2: in units of
sqrt(M_j) all coordinates have the same sensitivity, and one noise scale for all scores is right.

Length of a step: features are mostly far below their bounds, so steps of 1/(n M_j) are far too
short. ``curvature_share`` of the budget pays for the sum of squares h_j of each chosen column; the
step is step_factor / (smoothness * (h_j + two standard deviations of its noise)), and never
shorter than step_factor / (n M_j). With ``curvature_share=0`` all steps have that length.

A step along j changes the margins of the records with an entry in column j: they are kept, so that
a step reads one column and one product with the transposed matrix, or only the changed rows if
they are few. With ``label_bound`` least squares work on the Gram matrix: labels are clipped to it,
and theta stays where no residual can pass the clip.

Bound on the expected excess of the sum over the best model of ``sparsity`` = s coefficients (all p
if none is declared), with h_t the excess after t steps, e the expected error of a choice (its scale
times log p) and v the variance of an update over 2 M_j:

    h_(t+1) <= h_t - max(g_t - e, 0)^2 / 2 + v,
    g_t = max(h_t / (D sqrt(k M)), sqrt(2 h_t (n l2 / M) / k)),  k = min(p, s + t),

from h_0 = n (largest loss of the zero model - least), with M = M_j + n l2. For after t steps theta
has at most t coefficients, so that theta - theta* has at most k, and the best step along one of
them gains at least a k-th of what the straight way to theta* gains: h^2 / (2 M D^2), or h n l2 / M
by the ridge. Both are convex in h after e is taken off, so that expectations may be put in. D
bounds the distance to theta*: the l2 diameter of the box, at most sqrt(k) times its width, or twice
the expected size of the solution on the whole space (an assumption about the iterates, of the bound
only). The dimension enters through log p alone. It is for the rule gs-q, for every rule if there is
no penalty, and for curvature_share=0 and step_factor=1; the longer steps of the default are
measured to do better.

References: Mangold, Bellet, Salmon and Tommasi (2023), whose Laplace noise is ``noise="laplace"``
here, with its true privacy loss; Nutini, Schmidt, Laradji, Friedlander and Koepke (2015);
Karimireddy, Koloskova, Stich and Jaggi (2019).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np

from privopt.facts import Facts
from privopt.geometry import Separable
from privopt.losses import Loss, Squared
from privopt.mechanisms import (
    ExponentialMechanism,
    Gate,
    PermuteAndFlip,
    ReportNoisyMax,
    choose_discrete,
    gaussian_noise,
    laplace_noise,
)
from privopt.mechanisms.coordinate_steps import ColumnSquares, Room, spread_of, step_along
from privopt.mechanisms.greedy_scores import GreedyScores, Rule
from privopt.oracle import (
    CoordinateClippedGradient,
    GramGradient,
    Oracle,
    Query,
    RowBounds,
    SquaresAlong,
)
from privopt.privacy import Accountant, Budget
from privopt.privacy.accountant import charge_of
from privopt.privacy.kinds import BoundedRange, GaussianKind, Pure
from privopt.privacy.profiles import concentrated_rho
from privopt.privacy.spend import Charge
from privopt.problem import Problem
from privopt.solvers.families.coordinates import (
    check_step,
    descend_bound,
    refuse_coordinates,
    smoothness_along,
    step_count,
    strength,
)
from privopt.solvers.families.rounding import RoundingSolver
from privopt.solvers.solver import Settings, Tick, entry_bounds, no_tick
from privopt.solvers.specimen import BOX_PROBLEMS, Attack, Specimen

Noise = Literal["gaussian", "laplace", "pure"]
NOISY = 200.0
"""Below this strength noise is larger than the bias of a clip at the slopes of the start."""


@dataclass(frozen=True)
class GreedyCoordinateSettings(Settings):
    """Steps, rule, clips, penalties of the mean, and noise.

    ``noise_multiplier`` sets all noises: ``share`` of the budget goes to the choices,
    ``curvature_share`` to the sums of squares that set the length of a step. ``label_bound`` 0
    means that no Gram matrix is used.
    """

    n_iter: int
    rule: Rule
    slope_clip: float
    label_bound: float
    step_factor: float
    share: float
    curvature_share: float
    noise: Noise
    noise_multiplier: float
    l1: float
    l2: float
    n: int
    discrete_noise: bool


class GreedyCoordinate(RoundingSolver):
    """Greedy coordinate descent with private choices and private steps.

    Formal guarantee
    ----------------
    Every relation, every loss. Privacy rests on the clips of features and slope alone. With
    Gaussian noise each step is a choice by the exponential mechanism (eta^2/8-zCDP) and Gaussian
    releases of one coordinate and of one column's sum of squares; under pure differential privacy a
    permute-and-flip and Laplace releases; ``noise="laplace"`` composes report-noisy-max and Laplace
    releases. Numbers of steps, clips and smoothness constants are data-free, the length of a step
    is data-free or computed from released values. Numbers are exact integers, save with a Gram.
    """

    name: ClassVar[str] = "greedy_coordinate"
    summary: ClassVar[str] = "private choice of the best coordinate, private step along it"
    weights: ClassVar[bool] = False
    has_discrete_noise: ClassVar[bool] = True
    specimen: ClassVar[Specimen] = Specimen(
        problems=BOX_PROBLEMS,
        short={"n_iter": 4},
        records=150,
        attack=Attack(p=2, choices=lambda budget: {"n_iter": 1}),
    )

    def refuse_smooth(self, facts: Facts, budget: Budget) -> str | None:
        return refuse_coordinates(self.name, facts)

    def row_bounds(self, problem: Problem) -> RowBounds:
        return entry_bounds(problem)

    def smooth_settings(
        self, facts: Facts, budget: Budget, **choices: Any
    ) -> GreedyCoordinateSettings:
        n_iter: int | None = choices.pop("n_iter", None)
        rule: Rule = choices.pop("rule", "gs-q")
        clip: float = choices.pop("slope_clip", default_clip(facts, budget))
        factor: float = choices.pop("step_factor", default_factor(facts.problem.loss))
        share: float = choices.pop("share", 0.7)
        noise: Noise = choices.pop("noise", "pure" if budget.pure else "gaussian")
        curvature: float = choices.pop("curvature_share", 0.0 if noise == "laplace" else 0.05)
        l1: float = choices.pop("l1", 0.0)
        label_bound: float = choices.pop("label_bound", 0.0)
        wish: bool | None = choices.pop("discrete_noise", None)
        if choices:
            raise ValueError(f"{self.name} has no setting named {sorted(choices)[0]!r}.")
        if rule not in ("gs-s", "gs-r", "gs-q"):
            raise ValueError(f"rule must be gs-s, gs-r or gs-q, got {rule!r}.")
        if noise not in ("gaussian", "laplace", "pure") or (budget.pure and noise != "pure"):
            raise ValueError(
                'noise must be "gaussian", "laplace" or "pure"; delta=0 allows only "pure".'
            )
        if noise == "laplace" and curvature:
            raise ValueError('noise="laplace" has public steps: curvature_share must be 0.')
        if not (share > 0 and curvature >= 0 and share + curvature < 1 - 1e-9):
            raise ValueError(
                "share must lie between 0 and 1, and curvature_share between 0 and what share "
                f"leaves, got {share!r} and {curvature!r}."
            )
        check_step(n_iter, clip, factor, l1)
        _check_gram(facts, clip, label_bound)
        steps = step_count(facts, budget) if n_iter is None else n_iter
        multiplier = _multiplier(budget, noise, steps * facts.repeats, share, curvature)
        used = _split(noise, multiplier, share, curvature)[1 : 3 if curvature else 2]
        fits = all(choose_discrete(wish, True, one, facts.n) for one in used)
        if wish and label_bound:
            raise ValueError("a Gram matrix has no integers: leave label_bound or hardened out.")
        settings = GreedyCoordinateSettings(
            bound=math.inf,
            passes=float(steps * facts.repeats),
            n_iter=steps,
            rule=rule,
            slope_clip=clip,
            label_bound=label_bound,
            step_factor=factor,
            share=share,
            curvature_share=curvature,
            noise=noise,
            noise_multiplier=multiplier,
            l1=l1,
            l2=facts.problem.l2,
            n=facts.n,
            discrete_noise=fits and not label_bound,
        )
        return _with_bound(settings, facts)

    def run_smooth(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: GreedyCoordinateSettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        p, n, bounds = oracle.dimension, settings.n, oracle.bounds
        choose, move, weigh = _mechanisms(settings)
        penalty = Separable.over(problem.domain, n * settings.l1, n * settings.l2)
        smoothness = smoothness_along(problem, n, p)
        view, room = oracle.everything(), None
        if settings.label_bound:
            room = Room(bounds.each(p), settings.slope_clip - settings.label_bound)
        squares = ColumnSquares(bounds.each(p), n, spread_of(weigh))
        theta = penalty.prox(np.zeros(p), 1.0)
        walk = view.coordinate_gradient(_query(problem, settings, bounds, p), theta)
        for t in range(settings.n_iter):
            gradient = walk.ask()
            scores = GreedyScores(settings.rule, theta.copy(), smoothness, penalty)
            j = gate.release(choose, gradient.through(scores))
            (slope,) = gate.release(
                move, walk.ask_along(j, move.accepts, resolution=move.resolution)
            )
            steep = float(smoothness[j])
            if weigh:
                question = SquaresAlong(j, bounds, p, weigh.accepts)
                (found,) = gate.release(weigh, view.ask(question, resolution=weigh.resolution))
                steep = problem.loss.smoothness * squares.learn(j, found)
            new = step_along(float(theta[j]), slope, steep, settings.step_factor, penalty.at(j))
            theta[j] = room.cut(theta, j, new) if room else new
            walk.move(j, float(theta[j]))
            tick(t + 1, settings.n_iter)
        return theta


def default_clip(facts: Facts, budget: Budget) -> float:
    """The largest slope at the start, theta = 0, while noise prevails; then that of the loss."""
    loss = facts.problem.loss
    if not loss.classification or strength(facts, budget) > NOISY:
        return loss.lipschitz
    return min(loss.lipschitz, float(np.abs(loss.slope(np.zeros(2), np.array([-1.0, 1.0]))).max()))


def default_factor(loss: Loss) -> float:
    """Least squares have their whole curvature everywhere; a classifier's loss flattens out."""
    return 1.5 if loss.classification else 1.0


# ---------------------------------------------------------------- least squares by a Gram matrix
MOST_GRAM_COLUMNS = 10_000


def _check_gram(facts: Facts, clip: float, label_bound: float) -> None:
    if label_bound == 0:
        return
    if not isinstance(facts.problem.loss, Squared):
        raise ValueError(f"label_bound is for the squared loss; this is {facts.loss_name}.")
    if not 0 < label_bound < clip:
        raise ValueError(
            f"label_bound must lie between 0 and slope_clip={clip:g}, got {label_bound!r}."
        )
    if facts.p > MOST_GRAM_COLUMNS:
        raise ValueError(f"a Gram matrix of {facts.p} columns is too large: leave label_bound out.")


def _query(
    problem: Problem, settings: GreedyCoordinateSettings, bounds: RowBounds, p: int
) -> Query:
    if settings.label_bound:
        return GramGradient(settings.slope_clip, settings.label_bound, bounds, p)
    return CoordinateClippedGradient(problem.loss, settings.slope_clip, bounds, p, "coordinates")


# ---------------------------------------------------------------- noise
def _split(
    noise: Noise, multiplier: float, share: float, curvature: float
) -> tuple[float, float, float]:
    """Multipliers of a choice (of its range), of an update and of a sum of squares (of their
    reaches); infinite where nothing is released."""
    rest = 1 - share - curvature
    if noise == "gaussian":
        square = multiplier / math.sqrt(curvature) if curvature else math.inf
        return multiplier / (2 * math.sqrt(share)), multiplier / math.sqrt(rest), square
    if noise == "pure":
        square = multiplier / curvature if curvature else math.inf
        return multiplier / share, multiplier / rest, square
    # The same Laplace scale for both, in units of the sensitivity: half of the scores' range.
    return multiplier / 2, multiplier, math.inf


def _mechanisms(settings: GreedyCoordinateSettings) -> tuple[Any, Any, Any]:
    """For a choice, an update and a sum of squares, or None for the last."""
    choose, move, square = _split(
        settings.noise, settings.noise_multiplier, settings.share, settings.curvature_share
    )
    selection = {
        "gaussian": ExponentialMechanism,
        "pure": PermuteAndFlip,
        "laplace": ReportNoisyMax,
    }[settings.noise]
    additive = gaussian_noise if settings.noise == "gaussian" else laplace_noise
    weigh = additive(square, settings.discrete_noise) if settings.curvature_share else None
    return selection(choose), additive(move, settings.discrete_noise), weigh


@lru_cache(maxsize=256)
def _multiplier(budget: Budget, noise: Noise, steps: int, share: float, curvature: float) -> float:
    """Smallest noise whose choices and releases, so many of each, fit the budget."""
    if noise == "pure":
        return steps / budget.epsilon * (1 + 1e-12)

    def charge(multiplier: float) -> Charge:
        choose, move, square = _split(noise, multiplier, share, curvature)
        if noise == "laplace":
            return charge_of(Pure(1 / choose), Pure(1 / move), count=steps)
        mu = math.hypot(1 / move, 1 / square)  # Gaussian releases add up in squares
        return charge_of(BoundedRange(1 / choose), GaussianKind(mu, mu), count=steps)

    accountant = Accountant(budget.neighbouring)
    start = math.sqrt(steps / (2 * concentrated_rho(budget.epsilon, budget.delta))) * (1 + 1e-9)
    if noise == "gaussian":
        # zCDP adds up in closed form; only for few steps another route allows less noise.
        found = accountant.epsilon(charge(start), budget.delta)
        if 0.99 * budget.epsilon <= found <= budget.epsilon:
            return start
    return accountant.calibrate(charge, budget.epsilon, budget.delta, start=start)


def _with_bound(settings: GreedyCoordinateSettings, facts: Facts) -> GreedyCoordinateSettings:
    choose, move, _ = _split(
        settings.noise, settings.noise_multiplier, settings.share, settings.curvature_share
    )
    # Sensitivity over the root of the smoothness is the same along every coordinate.
    sensitivity = facts.relation_factor * settings.slope_clip
    sensitivity /= math.sqrt(facts.n * facts.problem.loss.smoothness)
    factor = 2 if settings.noise == "laplace" else 1  # Laplace maxima are twice as far out
    error = factor * choose * 2 * sensitivity * math.log(facts.p)
    variance = (1 if settings.noise == "gaussian" else 2) * (move * sensitivity) ** 2
    bound = descend_bound(facts, settings.l1, settings.n_iter, error, variance / 2)
    return replace(settings, bound=bound)


SOLVER = GreedyCoordinate()
