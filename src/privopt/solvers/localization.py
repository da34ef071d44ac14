"""Localization: output perturbation finds a small ball that holds the minimiser, then search there.

Problem: min over a domain C of sum of f(<x_i, theta>, y_i) + lambda/2 ||theta||^2, f convex and
Lipschitz, rows bounded.

Algorithm: with Lambda = max(lambda, what the bound below wants), J the sum with strong convexity
Lambda and S = (a L + 2 tolerance L)/Lambda, half of the budget (of epsilon if pure, of mu^2 if
Gaussian) releases theta_0 = project(argmin J + b). The minimiser lies within rho of theta_0 with
probability 1 - n^-2, where, with t = 2 log n and S_1 the noise scale,

* pure: rho = S_1 (p + sqrt(2 p t) + t), the tail of a Gamma variable;
* Gaussian: rho = S_1 (sqrt(p) + sqrt(2 t)), the tail of a chi variable;

plus the tolerance, plus sqrt(2 h / Lambda) where rounding off a kink of f added up to h to the sum
(about a tenth). The other half of the budget
minimises J over C_0 = C intersected with the ball B(theta_0, rho): by noisy gradient descent from
theta_0 if Gaussian; if pure, by objective perturbation with its regulariser centred at theta_0, or,
for losses with a kink and up to four parameters, by a draw from the exponential density on C_0, as
in the original.

Bound on the expected excess of the sum: the second stage's own with radius rho in place of R, plus
n^-2 times the largest possible excess, plus (Lambda - lambda) R^2/2. For strongly convex problems
that is O(p L^2/(Lambda mu^2)) up to logarithms. On smooth losses it measures worse than objective
perturbation, and the planner does not choose it; there the exponential density is the weaker second
stage by two orders of magnitude.

References: Bassily, Smith and Thakurta (2014), FOCS, algorithms 3 and 4, with radii and constants
corrected.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from privopt.facts import Facts
from privopt.geometry import L2Ball, Near
from privopt.losses import Smoothed
from privopt.mechanisms import Gate, Minimiser, ObjectivePerturbation, OutputPerturbation
from privopt.mechanisms.mask import PURE_GROWTH, choose_masked, mask_over
from privopt.mechanisms.objective_perturbation import Noise
from privopt.oracle import Oracle
from privopt.privacy import Budget
from privopt.privacy.profiles import gaussian_epsilon, gaussian_mu
from privopt.problem import Problem
from privopt.solvers.catalogue import catalogue, solver_named
from privopt.solvers.families.minimisers import (
    TOLERANCE,
    noise_multiplier,
    output_sensitivity,
    refuse_unless_convex,
    rounding,
    strong_convexity,
)
from privopt.solvers.families.objective import ObjectiveSettings
from privopt.solvers.solver import Settings, Solver, Tick, no_tick
from privopt.solvers.specimen import Attack, Specimen, noise_of_delta, stiff

Stage = Literal["gradients", "objective", "density"]
SEARCHERS: dict[Stage, str] = {
    "gradients": "noisy_gd",
    "objective": "objective_perturbation",
    "density": "exponential_sampling",
}
"""The solvers of the second stage, where the catalogue has them."""

ROUNDED = 0.1
"""Share of the radius that rounding off a kink may add."""

SHARE = 0.5
"""Share of the budget for the first stage: the bound is inversely proportional to both parts."""


@dataclass(frozen=True)
class LocalizationSettings(Settings):
    """First stage: noise in units of the sensitivity, strong convexity of the sum, tolerance.
    ``radius`` of the ball around its release, ``failure`` the probability that the minimiser is
    outside of it, and the settings of the second stage."""

    noise: Noise
    noise_multiplier: float
    regularisation: float
    tolerance: float
    radius: float
    failure: float
    discrete_noise: bool
    second_stage: Stage
    second: Settings

    def public(self) -> dict[str, Any]:
        own = asdict(self)
        return own | {f"second_{name}": value for name, value in own.pop("second").items()}


class Localization(Solver):
    """Output perturbation, then a search close to its result.

    Formal guarantee
    ----------------
    Every relation. The releases of both stages compose. Privacy uses what output perturbation uses
    (convexity and Lipschitz constant, a certified minimiser), and in the second stage the clip
    alone (gradients, density) or what objective perturbation uses (smoothness too). Whether the
    ball holds the minimiser matters for utility, not for privacy.
    """

    name: ClassVar[str] = "localization"
    summary: ClassVar[str] = "output perturbation, then a private search in a small ball around it"
    has_discrete_noise: ClassVar[bool] = True
    specimen: ClassVar[Specimen] = Specimen(
        short={"n_iter": 12},
        attack=Attack(choices=lambda b: stiff(b) if b.pure else {"n_iter": 2, **noise_of_delta(b)}),
    )

    def refuse(self, facts: Facts, budget: Budget) -> str | None:
        sentence = refuse_unless_convex(self.name, facts)
        if sentence is not None:
            return sentence
        stage = _stages(facts, "pure" if budget.pure else "gaussian")[0]
        searcher = catalogue().get(SEARCHERS[stage])
        if searcher is None:
            return f"{self.name} ends with {SEARCHERS[stage]} here, which is not installed."
        return None

    def settings(self, facts: Facts, budget: Budget, **choices: Any) -> LocalizationSettings:
        noise: Noise = choices.pop("noise", "pure" if budget.pure else "gaussian")
        regularisation: float | None = choices.pop("regularisation", None)
        # Steps of the Gaussian second stage; the pure one has no steps to count.
        n_iter: dict[str, int] = {k: choices.pop(k) for k in ("n_iter",) if k in choices}
        stage: Stage | None = choices.pop("second_stage", None)
        discrete_noise: bool | None = choices.pop("discrete_noise", None)
        if choices:
            raise ValueError(f"{self.name} has no setting named {sorted(choices)[0]!r}.")
        stage = _stage(facts, noise, stage)
        if noise == "gaussian" and budget.pure:
            raise ValueError('noise="gaussian" needs delta > 0; use noise="pure".')
        farthest = facts.radius() + float(np.linalg.norm(facts.problem.domain.centre(facts.p)))
        ridge, multiplier = facts.strong_convexity, noise_multiplier(facts, budget, noise, SHARE)
        noisy = multiplier * (PURE_GROWTH if noise == "pure" else 1.0)

        def radius(lam: float) -> float:
            scale = noisy * output_sensitivity(facts, lam, TOLERANCE)
            size = scale * _tail(noise, facts.p, facts.n) + TOLERANCE * facts.lipschitz() / lam
            return size + math.sqrt(2 * rounded(lam, size)[1] / lam)

        def rounded(lam: float, size: float) -> tuple[float, float]:
            return rounding(facts, lam, lam * (ROUNDED * size) ** 2 / 2)

        def risk(lam: float) -> float:
            """Close to the bound, and cheap: what either second stage achieves in the ball."""
            one = facts.relation_factor * facts.lipschitz() * noisy * radius(lam)
            second = facts.p * one if noise == "pure" else math.sqrt(2 * facts.p) * one
            return second + (lam - ridge) * farthest**2 / 2

        lam = strong_convexity(self.name, facts, regularisation, risk)
        size = min(radius(lam), facts.diameter())
        near = replace(facts, problem=_stand_in(facts, lam, size))
        mask = mask_over(noise, multiplier, output_sensitivity(facts, lam, TOLERANCE), facts.p)
        second = _second_stage(near, budget, stage, n_iter, discrete_noise)
        failure = 1 / facts.n**2
        worst = 2 * (facts.n * facts.lipschitz() + lam * farthest) * facts.radius()
        added = failure * worst + (lam - ridge) * farthest**2 / 2
        return LocalizationSettings(
            bound=second.bound + added / facts.n,
            passes=20 + second.passes,
            noise=noise,
            noise_multiplier=multiplier,
            regularisation=lam,
            tolerance=TOLERANCE,
            rounded=rounded(lam, radius(lam) / (1 + ROUNDED))[0],
            radius=size,
            failure=failure,
            discrete_noise=choose_masked(discrete_noise, mask, farthest),
            second_stage=stage,
            second=second,
        )

    def run(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: LocalizationSettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        minimiser = Minimiser(
            settings.regularisation, settings.tolerance, problem.domain, width=settings.rounded
        )
        mechanism = OutputPerturbation(
            settings.noise,
            settings.noise_multiplier,
            minimiser,
            discrete_noise=settings.discrete_noise,
        )
        released = gate.release(mechanism, oracle.everything().function(problem.loss))
        near = Near(problem.domain, problem.domain.project(released), settings.radius)
        if not isinstance(settings.second, ObjectiveSettings):
            inside = replace(problem, domain=near)
            searcher = solver_named(SEARCHERS[settings.second_stage])
            return searcher.run(oracle, gate, inside, settings.second, tick)
        loss, width = problem.loss, settings.second.rounded
        theta = gate.release(
            _around(settings.second, settings.regularisation, near.point),
            oracle.everything().function(Smoothed(loss, width) if width else loss),
        )
        tick(1, 1)
        return near.project(theta)


def _tail(noise: Noise, p: int, n: int) -> float:
    """Length that noise of scale one exceeds with probability at most n^-2."""
    t = 2 * math.log(n)
    if noise == "pure":
        return p + math.sqrt(2 * p * t) + t
    return math.sqrt(p) + math.sqrt(2 * t)


def _stages(facts: Facts, noise: Noise) -> tuple[Stage, ...]:
    """What the second stage may be, the usual one first."""
    if noise == "gaussian":
        return ("gradients",)
    draw = catalogue().get(SEARCHERS["density"])
    near = replace(facts, problem=_stand_in(facts, facts.strong_convexity, 1.0))
    exact = not facts.smooth and draw is not None and draw.refuse(near, Budget(1.0)) is None
    return ("density", "objective") if exact else ("objective", "density")


def _stage(facts: Facts, noise: Noise, stage: Stage | None) -> Stage:
    possible = _stages(facts, noise)
    if stage is not None and stage not in possible:
        raise ValueError(f"second_stage must be one of {', '.join(possible)} here; got {stage!r}.")
    return possible[0] if stage is None else stage


def _stand_in(facts: Facts, strong: float, size: float) -> Problem:
    """The second stage's problem before its ball has a place: a ball about the domain's centre, or
    the part of the domain in it."""
    domain, middle = facts.problem.domain, facts.problem.domain.centre(facts.p)
    ball = L2Ball(size) if not domain.bounded else Near(domain, middle, size)
    return replace(facts.problem, domain=ball, l2=strong / facts.n)


def _second_stage(
    facts: Facts, budget: Budget, stage: Stage, n_iter: dict[str, int], discrete_noise: bool | None
) -> Settings:
    """Settings of the search in the ball, for the rest of the budget."""
    rest, searcher = 1 - SHARE, solver_named(SEARCHERS[stage])
    if stage != "gradients":
        half = replace(budget, epsilon=rest * budget.epsilon, delta=0.0)
        if stage == "density":
            return searcher.settings(facts, half)
        return searcher.settings(facts, half, discrete_noise=discrete_noise)
    # One part in 1e9 covers the rounding of mu to epsilon and back.
    mu = gaussian_mu(budget.epsilon, budget.delta) * math.sqrt(rest) * (1 - 1e-9)
    half = replace(budget, epsilon=gaussian_epsilon(mu, budget.delta))
    return searcher.settings(facts, half, discrete_noise=discrete_noise, **n_iter)


def _around(second: ObjectiveSettings, strong: float, point: np.ndarray) -> ObjectivePerturbation:
    """Objective perturbation whose added regulariser pulls to a released point."""
    centre = (1 - strong / second.regularisation) * point
    return ObjectivePerturbation(
        second.noise,
        second.noise_multiplier,
        second.regularisation,
        second.tolerance,
        second.output_multiplier,
        centre=tuple(centre.tolist()),
        discrete_noise=second.discrete_noise,
    )


SOLVER = Localization()
