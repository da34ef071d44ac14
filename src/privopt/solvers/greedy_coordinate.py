"""Private greedy coordinate descent: choose the best coordinate, then move along it.

Algorithm: at each of T steps choose the coordinate with the largest noisy score (``gs-s``, ``gs-r``
or ``gs-q``), release that one coordinate of the gradient, and take a proximal step along it. An l1
penalty (setting ``l1``), a ridge and a box are part of the step.

Features are clipped to [-B, B] and the slope to [-c, c], so that coordinate j of a record's
gradient is at most c B_j, where the smoothness along it is M_j = smoothness * B_j^2: in units of
sqrt(M_j) all coordinates have the same sensitivity, and one noise scale for all scores is right.

Bound on the expected excess of the sum, with h_t the excess after t steps, e the expected error
of a choice (its scale times log p) and v the variance of an update over 2 M_j:
h_(t+1) <= h_t - max(h_t / R - e, 0)^2 / 2 + v, where R^2 = p max(M D^2, largest excess) and D is
the l2 diameter of the box, or twice the expected size of the solution on the whole space (an
assumption about the iterates, of the bound only). It is for the rule gs-q, for every rule if there
is no penalty, and for step_factor=1. Quasi-sparse problems do far better than the bound.

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
from privopt.geometry import Box, Separable, WholeSpace
from privopt.mechanisms import (
    ExponentialMechanism,
    Gate,
    Gaussian,
    Laplace,
    PermuteAndFlip,
    ReportNoisyMax,
)
from privopt.mechanisms.greedy_scores import GreedyScores, Rule, step_along
from privopt.mechanisms.maps import Pick
from privopt.oracle import CoordinateClippedGradient, Oracle, RowBounds
from privopt.privacy import Accountant, Budget
from privopt.privacy.accountant import charge_of
from privopt.privacy.kinds import BoundedRange, Pure
from privopt.privacy.kinds import Gaussian as GaussianKind
from privopt.privacy.profiles import concentrated_rho
from privopt.privacy.spend import Charge
from privopt.problem import Problem
from privopt.solvers.solver import Settings, Solver, Tick, no_tick

Noise = Literal["gaussian", "laplace", "pure"]
MOST_STEPS = 1000


@dataclass(frozen=True)
class GreedyCoordinateSettings(Settings):
    """Steps, rule, clip, penalties of the mean, and noise.

    ``noise_multiplier`` sets both noises: ``share`` of the budget goes to the choices.
    """

    n_iter: int
    rule: Rule
    slope_clip: float
    step_factor: float
    share: float
    noise: Noise
    noise_multiplier: float
    l1: float
    l2: float
    n: int


class GreedyCoordinate(Solver):
    """Greedy coordinate descent with private choices and private steps.

    Formal guarantee
    ----------------
    Every relation, every loss. Privacy rests on the clips of features and slope alone. With
    Gaussian noise each step is a choice by the exponential mechanism (eta^2/8-zCDP) and a Gaussian
    release of one coordinate; under pure differential privacy a permute-and-flip and a Laplace
    release; ``noise="laplace"`` composes report-noisy-max and Laplace releases. Steps, clips,
    smoothness constants and step sizes are data-free.
    """

    name: ClassVar[str] = "greedy_coordinate"
    summary: ClassVar[str] = "private choice of the best coordinate, private step along it"

    def refuse(self, facts: Facts, budget: Budget) -> str | None:
        return refuse_coordinates(self.name, facts)

    def row_bounds(self, problem: Problem) -> RowBounds:
        return entry_bounds(problem)

    def settings(self, facts: Facts, budget: Budget, **choices: Any) -> GreedyCoordinateSettings:
        n_iter: int | None = choices.pop("n_iter", None)
        rule: Rule = choices.pop("rule", "gs-q")
        clip: float = choices.pop("slope_clip", facts.problem.loss.lipschitz)
        factor: float = choices.pop("step_factor", 1.0)
        share: float = choices.pop("share", 0.75)
        noise: Noise = choices.pop("noise", "pure" if budget.pure else "gaussian")
        l1: float = choices.pop("l1", 0.0)
        if choices:
            raise ValueError(f"{self.name} has no setting named {sorted(choices)[0]!r}.")
        if rule not in ("gs-s", "gs-r", "gs-q"):
            raise ValueError(f"rule must be gs-s, gs-r or gs-q, got {rule!r}.")
        if noise not in ("gaussian", "laplace", "pure") or (budget.pure and noise != "pure"):
            raise ValueError(
                'noise must be "gaussian", "laplace" or "pure"; delta=0 allows only "pure".'
            )
        if not 0 < share < 1:
            raise ValueError(f"share must lie between 0 and 1, got {share!r}.")
        check_step(n_iter, clip, factor, l1)
        steps = step_count(facts, budget, clip) if n_iter is None else n_iter
        multiplier = _multiplier(budget, noise, steps * facts.repeats, share)
        settings = GreedyCoordinateSettings(
            bound=math.inf,
            passes=float(steps * facts.repeats),
            n_iter=steps,
            rule=rule,
            slope_clip=clip,
            step_factor=factor,
            share=share,
            noise=noise,
            noise_multiplier=multiplier,
            l1=l1,
            l2=facts.problem.l2,
            n=facts.n,
        )
        return _with_bound(settings, facts)

    def run(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: GreedyCoordinateSettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        p, n = oracle.dimension, settings.n
        query = CoordinateClippedGradient(
            problem.loss, settings.slope_clip, oracle.bounds, p, "coordinates"
        )
        choose, move = _mechanisms(settings)
        penalty = Separable.over(problem.domain, n * settings.l1, n * settings.l2)
        smoothness = smoothness_along(problem, n, p)
        view = oracle.everything()
        theta = penalty.prox(np.zeros(p), 1.0)
        for t in range(settings.n_iter):
            gradient = view.ask(query, theta)
            scores = GreedyScores(settings.rule, theta.copy(), smoothness, penalty)
            j = gate.release(choose, gradient.through(scores))
            (slope,) = gate.release(move, gradient.through(Pick(j, move.accepts)))
            theta[j] = step_along(
                float(theta[j]), slope, float(smoothness[j]), settings.step_factor, penalty.at(j)
            )
            tick(t + 1, settings.n_iter)
        return theta


# ---------------------------------------------------------------- what coordinate methods share
def refuse_coordinates(name: str, facts: Facts) -> str | None:
    """Why a coordinate method does not apply, in a sentence."""
    domain = facts.problem.domain
    if not math.isfinite(facts.problem.loss.lipschitz):
        return (
            f"{name} needs a Lipschitz loss to clip at; {facts.loss_name} is not: "
            "use Squared(residual_clip=...) or Huber(width)."
        )
    if not facts.smooth:
        return f"{name} needs a smooth loss; {facts.loss_name} is not smooth."
    if not isinstance(domain, (Box, WholeSpace)):
        return (
            f"{name} needs a domain that splits into coordinates; {type(domain).__name__} does "
            "not: use Box or WholeSpace."
        )
    return None


def entry_bounds(problem: Problem) -> RowBounds:
    """Entries clipped to the declared column bounds, or rows to their norm."""
    if problem.column_bounds is None:
        return RowBounds(problem.data_norm, problem.intercept)
    return RowBounds(math.inf, problem.intercept, problem.column_bounds)


def smoothness_along(problem: Problem, n: int, p: int) -> np.ndarray:
    """Public smoothness of the sum along each coordinate, from the bounds on features."""
    bounds = entry_bounds(problem)
    along = np.full(p, n * problem.loss.smoothness * bounds.feature**2)
    if bounds.intercept:
        along[-1] = n * problem.loss.smoothness * bounds.intercept**2
    return along


def check_step(n_iter: int | None, clip: float, factor: float, l1: float) -> None:
    """Refuse settings that mean nothing."""
    if n_iter is not None and n_iter < 1:
        raise ValueError(f"n_iter must be positive, got {n_iter}.")
    if not 0 < clip < math.inf:
        raise ValueError(f"slope_clip must be positive and finite, got {clip!r}.")
    if not 0 < factor < math.inf:
        raise ValueError(f"step_factor must be positive and finite, got {factor!r}.")
    if not 0 <= l1 < math.inf:
        raise ValueError(f"l1 must be non-negative and finite, got {l1!r}.")


def step_count(facts: Facts, budget: Budget, clip: float) -> int:
    """Half of (size * M n sqrt(2 rho) / (L log p))^(2/3), for a solution with few large entries."""
    feature = entry_bounds(facts.problem).feature
    stiff = facts.problem.loss.smoothness * feature**2
    spread = facts.relation_factor * clip * feature * max(1.0, math.log(facts.p))
    if budget.pure:
        strength, power = budget.epsilon / facts.repeats, 1 / 2
    else:
        rho = concentrated_rho(budget.epsilon, budget.delta)
        strength, power = math.sqrt(2 * rho / facts.repeats), 2 / 3
    best = (facts.radius() * stiff * facts.n * strength / spread) ** power
    return max(1, min(MOST_STEPS, round(0.5 * best)))


def descend_bound(
    facts: Facts, l1: float, steps: int, choice_error: float, update_loss: float
) -> float:
    """Excess of the mean after so many steps of the recursion at the head of this file."""
    n, p, problem = facts.n, facts.p, facts.problem
    bounds = entry_bounds(problem)
    far = facts.diameter() if facts.bounded else 2 * facts.radius()
    wide = math.sqrt(p) * far
    excess = n * (problem.loss.lipschitz * bounds.largest + l1) * wide
    excess += n * problem.l2 * far**2
    stiff = n * problem.loss.smoothness * bounds.largest**2
    size = math.sqrt(p * max(stiff * far**2, excess))
    for _ in range(steps):
        excess += update_loss - 0.5 * max(excess / size - choice_error, 0.0) ** 2
    return excess / n


# ---------------------------------------------------------------- noise
def _split(noise: Noise, multiplier: float, share: float) -> tuple[float, float]:
    """Multipliers of a choice (of its range) and of an update (of its coordinate's reach)."""
    if noise == "gaussian":
        return multiplier / (2 * math.sqrt(share)), multiplier / math.sqrt(1 - share)
    if noise == "pure":
        return multiplier / share, multiplier / (1 - share)
    # The same Laplace scale for both, in units of the sensitivity: half of the scores' range.
    return multiplier / 2, multiplier


def _mechanisms(settings: GreedyCoordinateSettings) -> tuple[Any, Any]:
    choose, move = _split(settings.noise, settings.noise_multiplier, settings.share)
    selection = {
        "gaussian": ExponentialMechanism,
        "pure": PermuteAndFlip,
        "laplace": ReportNoisyMax,
    }[settings.noise]
    return selection(choose), (Gaussian if settings.noise == "gaussian" else Laplace)(move)


@lru_cache(maxsize=256)
def _multiplier(budget: Budget, noise: Noise, steps: int, share: float) -> float:
    """Smallest noise whose choices and updates, so many of each, fit the budget."""
    if noise == "pure":
        return steps / budget.epsilon * (1 + 1e-12)

    def charge(multiplier: float) -> Charge:
        choose, move = _split(noise, multiplier, share)
        if noise == "laplace":
            return charge_of(Pure(1 / choose), Pure(1 / move), count=steps)
        kind = GaussianKind(1 / move, 1 / move)
        return charge_of(BoundedRange(1 / choose), kind, count=steps)

    accountant = Accountant(budget.neighbouring)
    start = math.sqrt(steps / (2 * concentrated_rho(budget.epsilon, budget.delta))) * (1 + 1e-9)
    if noise == "gaussian":
        # zCDP adds up in closed form; only for few steps another route allows less noise.
        found = accountant.epsilon(charge(start), budget.delta)
        if 0.99 * budget.epsilon <= found <= budget.epsilon:
            return start
    return accountant.calibrate(charge, budget.epsilon, budget.delta, start=start)


def _with_bound(settings: GreedyCoordinateSettings, facts: Facts) -> GreedyCoordinateSettings:
    choose, move = _split(settings.noise, settings.noise_multiplier, settings.share)
    # Reach over the root of the smoothness is the same along every coordinate.
    reach = facts.relation_factor * settings.slope_clip
    reach /= math.sqrt(facts.n * facts.problem.loss.smoothness)
    factor = 2 if settings.noise == "laplace" else 1  # Laplace maxima are twice as far out
    error = factor * choose * 2 * reach * math.log(facts.p)
    variance = (1 if settings.noise == "gaussian" else 2) * (move * reach) ** 2
    bound = descend_bound(facts, settings.l1, settings.n_iter, error, variance / 2)
    return replace(settings, bound=bound)


SOLVER = GreedyCoordinate()
