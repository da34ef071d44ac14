"""Noisy SGD with one record per step and n^2 steps: the first optimal algorithm, for reference.

Algorithm: theta <- project(theta - eta_t (n (clipped gradient of one record + noise) + ridge
gradient)), eta_t = c / sqrt(t), or 1 / (Lambda t) if strongly convex; n^2 steps, the last iterate.
The one record is drawn by Poisson sampling with rate 1/n (a step then sees no, one or a few
records), or, with ``sampling="fixed"`` under replace_one, uniformly as in the paper.

The noise is calibrated by privacy-loss distributions for the actual rate and number of steps. The
paper's own constant is valid but its proof does not add up: at n = 1000 and a target of 1 it
delivers .035. The often repeated remark that one-point steps may use the noise of full-batch
gradient descent with T = n^2 epsilon^2 / p steps is false: at n = 1000, p = 1000 and a target of 1
it delivers an epsilon above 100. Nothing here offers it.

Bound on the expected excess of the sum, with D the diameter and G^2 = 2 n^2 L^2 + p sigma^2 n^2
(n^2 L^2 for a record drawn uniformly): (D^2/c + c G^2)(2 + ln T)/sqrt(T), least at c = D/G; if
strongly convex 17 G^2 (1 + ln T)/(Lambda T).

References: Bassily, Smith and Thakurta (2014), Algorithm 1; Shamir and Zhang (2013) for the last
iterate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from privopt.facts import Facts
from privopt.mechanisms import Gate, choose_discrete, gaussian_noise
from privopt.oracle import ClippedGradient, Oracle
from privopt.privacy import Budget
from privopt.privacy.batches import batch_multiplier
from privopt.problem import Problem
from privopt.solvers.families.gradient_steps import Design, check_sampling, design, fresh_batch
from privopt.solvers.solver import Settings, Solver, Tick, no_tick
from privopt.solvers.specimen import Attack, Specimen

MOST_RECORDS = 300


@dataclass(frozen=True)
class OnePointSettings(Settings):
    """Steps and noise; ``step`` is the numerator c, or 1/Lambda for the strongly convex rule."""

    rule: Literal["lipschitz", "strongly_convex"]
    n_iter: int
    step: float
    sampling: Design
    records: int
    clip_norm: float
    noise: Literal["gaussian"]
    noise_multiplier: float
    ridge: float
    discrete_noise: bool


class OnePointSGD(Solver):
    """Noisy SGD, one record per step.

    Formal guarantee
    ----------------
    As noisy_sgd with a batch of one: Poisson, every relation; uniformly drawn, replace_one. Privacy
    rests on the clip and on the secrecy of the draws alone. Needs delta > 0. Noise is hardened
    unless ``discrete_noise=False``: exact integers on a grid.
    """

    name: ClassVar[str] = "one_point_sgd"
    summary: ClassVar[str] = "n^2 noisy steps on one record each, for small n"
    has_discrete_noise: ClassVar[bool] = True
    specimen: ClassVar[Specimen] = Specimen(
        short={"n_iter": 12}, attack=Attack(choices=lambda budget: {"n_iter": 6})
    )

    def refuse(self, facts: Facts, budget: Budget) -> str | None:
        if not math.isfinite(facts.lipschitz()):
            return (
                f"{self.name} needs a Lipschitz loss to clip at; {facts.loss_name} is not: "
                "use Squared(residual_clip=...) or Huber(width)."
            )
        if budget.pure:
            return f'{self.name} needs delta > 0: use solver="noisy_gd" or give a delta.'
        if facts.n > MOST_RECORDS:
            return (
                f"{self.name} takes n^2 steps and is limited to {MOST_RECORDS} records: "
                'use solver="noisy_sgd".'
            )
        return None

    def settings(self, facts: Facts, budget: Budget, **choices: Any) -> OnePointSettings:
        n_iter: int = choices.pop("n_iter", facts.n**2)
        sampling: Design = choices.pop("sampling", "poisson")
        clip_norm: float = choices.pop("clip_norm", facts.lipschitz())
        discrete_noise: bool | None = choices.pop("discrete_noise", None)
        if choices:
            raise ValueError(f"{self.name} has no setting named {sorted(choices)[0]!r}.")
        if n_iter < 1:
            raise ValueError(f"n_iter must be positive, got {n_iter}.")
        check_sampling(self.name, sampling, facts)
        n, ridge, radius = facts.n, facts.strong_convexity, facts.radius()
        multiplier = batch_multiplier(
            budget, design(sampling, 1 / n), n_iter * facts.repeats, facts.prior
        )
        scale = facts.relation_factor * clip_norm * multiplier
        seen = 1.0 if sampling == "fixed" else 2.0  # E (number of records in a step)^2
        square = n**2 * (seen * clip_norm**2 + facts.p * scale**2)
        square = (math.sqrt(square) + ridge * radius) ** 2
        diameter = facts.diameter() if facts.bounded else 2 * radius
        bounds = {
            "lipschitz": 2 * diameter * math.sqrt(square / n_iter) * (2 + math.log(n_iter)),
            "strongly_convex": 17 * square * (1 + math.log(n_iter)) / (ridge * n_iter)
            if ridge > 0
            else math.inf,
        }
        rule = "strongly_convex" if bounds["strongly_convex"] < bounds["lipschitz"] else "lipschitz"
        return OnePointSettings(
            bound=bounds[rule] / n,
            passes=n_iter / n * facts.repeats,
            rule=rule,
            n_iter=n_iter,
            step=1 / ridge if rule == "strongly_convex" else diameter / math.sqrt(square),
            sampling=sampling,
            records=n,
            clip_norm=clip_norm,
            noise="gaussian",
            noise_multiplier=multiplier,
            ridge=ridge,
            discrete_noise=choose_discrete(discrete_noise, True, multiplier, n),
        )

    def run(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: OnePointSettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        query = ClippedGradient(problem.loss, settings.clip_norm)
        mechanism = gaussian_noise(settings.noise_multiplier, settings.discrete_noise)
        theta = problem.domain.centre(oracle.dimension)
        for t in range(1, settings.n_iter + 1):
            batch = fresh_batch(oracle, settings.sampling, 1, settings.records)
            sealed = batch.ask(query, theta, resolution=mechanism.resolution)
            gradient = gate.release(mechanism, sealed) * settings.records
            gradient += settings.ridge * theta
            step = settings.step / (t if settings.rule == "strongly_convex" else math.sqrt(t))
            theta = problem.domain.project(theta - step * gradient)
            tick(t, settings.n_iter)
        return theta

    def assumptions(self, facts: Facts, settings: Any) -> tuple[str, ...]:
        return ("nobody learns which record a step used",)


SOLVER = OnePointSGD()
