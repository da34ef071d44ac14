"""Exponential sampling: one exact draw from exp(-loss) on a bounded domain.

Problem: min over a bounded convex domain of a sum of convex Lipschitz losses, smooth or not, in few
dimensions.

Algorithm: release theta with density proportional to exp(-k sum of losses) on the domain, by a
sampler that is exact: inversion in one dimension for piecewise linear losses, adaptive rejection
under tangents (one dimension) or planes (up to four), rejection under a certified curvature bound
(logistic loss, up to ten), or a grid (up to three). With delta > 0 the density may be regularised:
exp(-k (sum + lambda/2 ||theta - centre||^2)).

Bound: E[excess of the sum] <= p / k with k = epsilon / (a Omega), Omega the range of one record's
loss on the domain and a = 2 under replace_one, else 1. Regularised: p / k + lambda R^2 / 2, at the
best lambda sqrt(2 p) a L R / mu. Both hold without smoothness, and do not fall with n on the scale
of the sum: where a loss is smooth, objective perturbation is usually far better than its bound and
this is not. Equality for a cone inside the domain; a quadratic has p / (2 k).

A loss that is not convex is drawn from a grid of N points, in up to three dimensions. A density
p_j in proportion to exp(-k F_j) has E F + (1/k) sum p_j log p_j <= min F, so the excess over the
grid's best point is at most log(N) / k for any F, and the grid adds its gap times n L.

Time: linear in n for each trial. The number of trials depends on the data and has no cap, because a
cap would be an answer of its own; the sandwich is slow when p is near ten and the margins that the
domain allows are beyond twenty while n epsilon is small.

References: McSherry and Talwar (2007); Bassily, Smith and Thakurta (2014); Gopi, Lee and Liu
(2022) for the regularised density.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from privopt.facts import Facts
from privopt.mechanisms import ExponentialDensity, Gate
from privopt.mechanisms.density import body_of, cells, grid, sandwich
from privopt.mechanisms.exponential_density import METHODS, Method, loss_range
from privopt.oracle import Oracle
from privopt.privacy import Accountant, Budget, Refused, charge_of
from privopt.privacy.kinds import BoundedRange, GaussianKind
from privopt.privacy.profiles import gaussian_mu
from privopt.problem import Problem
from privopt.solvers.solver import Settings, Solver, Tick, no_tick
from privopt.solvers.specimen import Attack, Specimen, noise_of_delta

Noise = Literal["pure", "gaussian"]
PASSES = 200.0
"""Evaluations of the whole loss to expect; the true number is private."""
ENOUGH_POINTS = 20_000
"""Of a grid for a loss that is not convex."""


@dataclass(frozen=True)
class ExponentialSettings(Settings):
    """See ``mechanisms.ExponentialDensity``. ``regularisation`` is the whole ridge, the problem's
    own included; ``added`` the part that is not the problem's."""

    noise: Noise
    noise_multiplier: float
    method: Method
    regularisation: float
    added: float
    spacing: float


class ExponentialSampling(Solver):
    """Exponential mechanism on a convex body.

    Formal guarantee
    ----------------
    Every relation. ``noise="pure"``: epsilon-DP and bounded range; privacy uses the enforced range
    of one record's loss on the domain and nothing else, convexity neither. ``noise="gaussian"``:
    mu-GDP; privacy uses the enforced Lipschitz constant and the convexity of the loss, which the
    certificate lists. The time a run takes is not covered.
    """

    convexity_free: ClassVar[bool] = True
    name: ClassVar[str] = "exponential_sampling"
    summary: ClassVar[str] = "one release: an exact draw from exp(-loss) on the domain"
    specimen: ClassVar[Specimen] = Specimen(
        # Gaussian noise only moves, whatever the others do; a bounded range wants an end.
        attack=Attack(n=8, choices=noise_of_delta, pair=lambda b: "opposed" if b.pure else "lone")
    )

    def refuse(self, facts: Facts, budget: Budget) -> str | None:
        loss, domain = facts.loss_name, type(facts.problem.domain).__name__
        if not math.isfinite(facts.lipschitz()):
            return (
                f"{self.name} needs a Lipschitz loss; {loss} is not: "
                "use Squared(residual_clip=...) or Huber(width)."
            )
        if not facts.bounded:
            return (
                f"{self.name} needs a bounded domain; {domain} is not: "
                'use L2Ball(radius), Box(lower, upper) or solver="objective_perturbation".'
            )
        most = cells.MOST_DIMENSION
        if not facts.convex:
            most = grid.MOST_DIMENSION
        elif facts.problem.loss.curved:
            most = sandwich.MOST_DIMENSION
        dimension = facts.p
        if dimension <= most + 1:  # a body of many dimensions would not fit into memory
            try:
                dimension = body_of(facts.problem.domain, facts.p).dimension
            except Refused as refusal:
                return f"{self.name}: {refusal}"
        if dimension > most and not facts.convex:
            return (
                f"{self.name} needs a convex loss in more than {most} dimensions; {loss} is not "
                f'convex, and there are {dimension}: use solver="noisy_gd".'
            )
        if dimension > most:
            other = "objective_perturbation" if facts.smooth else "noisy_gd"
            return (
                f"{self.name} draws exactly from {loss} in at most {most} dimensions, here "
                f'there are {dimension}: use solver="{other}".'
            )
        return None

    def settings(self, facts: Facts, budget: Budget, **choices: Any) -> ExponentialSettings:
        noise: Noise | None = choices.pop("noise", None)
        method: str = choices.pop("method", "auto")
        spacing: float | None = choices.pop("spacing", None)
        if choices:
            raise ValueError(f"{self.name} has no setting named {sorted(choices)[0]!r}.")
        if noise == "gaussian" and budget.pure:
            raise ValueError('noise="gaussian" needs delta > 0; use noise="pure".')
        if not facts.convex:  # a grid needs no convexity, and nothing else does without
            if noise == "gaussian" or method not in ("auto", "grid"):
                raise ValueError('a loss that is not convex takes noise="pure" and method="grid".')
            noise, method = "pure", "grid"
        plans = {}
        for kind in ("pure", "gaussian") if noise is None else (noise,):
            if not (kind == "gaussian" and (budget.pure or method == "grid")):
                plans[kind] = _calibrated(facts, budget, kind)
        chosen = min(plans, key=lambda kind: plans[kind][1])
        (multiplier, risk, added) = plans[chosen]
        sampler = _sampler(facts, method, ridge=facts.strong_convexity + added)
        width = 0.0
        if sampler == "grid":
            width = _spacing(facts, multiplier) if spacing is None else float(spacing)
            points = _check_grid(facts, width)
            if not facts.convex:
                risk = math.log(points) * _temperature(facts, multiplier)
            # The nearest point of the grid adds the Lipschitz constant of the sum times its gap.
            risk += facts.n * facts.lipschitz() * _gap(facts, width)
        elif spacing is not None:
            raise ValueError('spacing belongs to method="grid".')
        return ExponentialSettings(
            bound=risk / facts.n,
            passes=PASSES,
            noise=chosen,
            noise_multiplier=multiplier,
            method=sampler,
            regularisation=facts.strong_convexity + added,
            added=added,
            spacing=width,
        )

    def run(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: ExponentialSettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        # The problem pulls to the origin, the added ridge to the domain's centre.
        share = settings.added / settings.regularisation if settings.added else 0.0
        mechanism = ExponentialDensity(
            settings.noise,
            settings.noise_multiplier,
            problem.domain,
            settings.method,
            settings.regularisation,
            tuple((share * problem.domain.centre(oracle.dimension)).tolist()),
            settings.spacing,
        )
        theta = gate.release(mechanism, oracle.everything().function(problem.loss))
        tick(1, 1)
        return theta

    def assumptions(self, facts: Facts, settings: ExponentialSettings) -> tuple[str, ...]:
        if settings.noise == "pure":
            return ()
        return (f"the loss {facts.loss_name} is convex",)


def _calibrated(facts: Facts, budget: Budget, noise: Noise) -> tuple[float, float, float]:
    """Noise multiplier, bound on the sum's excess, and the ridge added to the problem's."""
    if noise == "gaussian":
        mu = gaussian_mu(budget.epsilon, budget.delta) / math.sqrt(facts.repeats)
        multiplier = Accountant(facts.neighbouring).calibrate(
            lambda m: charge_of(GaussianKind(1 / m, 1 / m), count=facts.repeats),
            budget.epsilon,
            budget.delta,
            start=1 / mu,
            tolerance=1e-6,
        )
        sensitivity, radius = facts.relation_factor * facts.lipschitz(), facts.radius()
        ridge = math.sqrt(2 * facts.p) * sensitivity * multiplier / radius
        added = max(ridge - facts.strong_convexity, 0.0)
        spread = facts.p * (sensitivity * multiplier) ** 2 / (facts.strong_convexity + added)
        return multiplier, spread + added * radius**2 / 2, added
    if budget.pure:
        # One part in 1e12 keeps the sum of rounded epsilons within the budget.
        multiplier = (1 + 1e-12) * facts.repeats / budget.epsilon
    else:
        multiplier = Accountant(facts.neighbouring).calibrate(
            lambda m: charge_of(BoundedRange(1 / m), count=facts.repeats),
            budget.epsilon,
            budget.delta,
            start=facts.repeats / budget.epsilon,
        )
    return multiplier, facts.p * _temperature(facts, multiplier), 0.0


def _temperature(facts: Facts, multiplier: float) -> float:
    """1/k of the pure density."""
    problem = facts.problem
    omega = loss_range(problem.loss, problem.size, problem.domain, facts.p)
    return multiplier * facts.relation_factor * omega


def _sampler(facts: Facts, method: str, ridge: float) -> Method:
    """The sampler by public facts alone; refuses one that does not apply."""
    if method not in ("auto", *METHODS):
        raise ValueError(f"method must be auto or one of {', '.join(METHODS)}; got {method!r}.")
    k, loss = body_of(facts.problem.domain, facts.p).dimension, facts.problem.loss
    lines = loss.pieces(np.ones(1)) is not None and ridge == 0.0
    if method == "auto":
        if k <= 1:
            return "piecewise_linear" if lines else "tangents"
        return "sandwich" if loss.curved else "cells"
    most = {
        "piecewise_linear": 1,
        "tangents": 1,
        "cells": cells.MOST_DIMENSION,
        "sandwich": sandwich.MOST_DIMENSION,
        "grid": grid.MOST_DIMENSION,
    }[method]
    if k > most:
        raise Refused(f'method="{method}" works in at most {most} dimension(s); use method="auto".')
    if method == "piecewise_linear" and not lines:
        raise Refused('method="piecewise_linear" needs a piecewise linear loss and no ridge.')
    if method == "sandwich" and not loss.curved:
        raise Refused('method="sandwich" needs a loss that is curved everywhere; use "cells".')
    return method  # type: ignore[return-value]


def _spacing(facts: Facts, multiplier: float) -> float:
    """Cells in which k times the sum changes by at most one from centre to corner; larger ones
    where those would be too many for a loss that has no other sampler."""
    steep = facts.n * facts.lipschitz() / _temperature(facts, multiplier)
    fine = 2 / (steep * math.sqrt(facts.p))
    if facts.convex:
        return fine
    body = body_of(facts.problem.domain, facts.p)
    a_side = math.floor(ENOUGH_POINTS ** (1 / body.dimension))
    return max(fine, float(np.max(body.high - body.low)) / a_side)


def _gap(facts: Facts, spacing: float) -> float:
    """How far a point of the domain is from a grid point inside, at most. Pulled to the centre by
    1 - h/r, with h half a cell's diagonal and r the radius of a ball inside, it has a whole cell
    around it that lies within; that is h (1 + R/r) away, and R/r is at most p on a simplex."""
    return spacing * math.sqrt(facts.p) / 2 * (1 + facts.p)


def _check_grid(facts: Facts, spacing: float) -> int:
    points = math.prod(grid.sides(body_of(facts.problem.domain, facts.p), spacing))
    if points > grid.MOST_POINTS:
        raise Refused(
            f"the grid would have {points:.2g} points, at most {grid.MOST_POINTS:.2g} are "
            'enumerated: use method="auto" or a larger spacing.'
        )
    return points


SOLVER = ExponentialSampling()
