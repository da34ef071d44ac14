"""Noisy stochastic gradient descent on sampled batches: many cheap steps for one budget.

Algorithm: draw a batch, theta <- project(theta - eta (G + ridge gradient)) with
G = (sum of the batch's clipped gradients + noise) / q, T steps, then an average of the iterates.
q = B/n is public; the divisor is q, never the number of records drawn, and an empty batch is a step
like any other.

Batches are Poisson (every record by its own coin), or, under replace_one, of fixed size without
replacement. The noise multiplier is calibrated by privacy-loss distributions for the actual q, T.

Bounds on the expected excess of the sum, with R the radius of the domain and
V = n L^2 (1-q)/q + p sigma^2/q^2 the variance of G (sigma: the noise of one step; for batches of
fixed size the first term is n/(n-1) times as large):

* smooth, eta <= 1/(n beta): R^2/(2 eta T) + eta V for the average of theta_1..theta_T.
* Lipschitz: R sqrt((n^2 L^2 + V)/T) for the average of theta_0..theta_(T-1).
* strongly convex with Lambda: eta_t = 2/(Lambda (t+1)), weights proportional to t:
  2 (G^2 + V) / (Lambda (T+1)).

Averaging is post-processing. The default averages the last half of the iterates, which measures
better than the uniform average that the bounds are about.

References: Song, Chaudhuri and Sarwate (2013); Bassily, Smith and Thakurta (2014); Abadi et al.
(2016); accounting of both designs in ``privacy.sampled``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from privopt.facts import Facts
from privopt.mechanisms import Gate, choose_discrete, gaussian_noise
from privopt.oracle import Oracle, gradient_query
from privopt.privacy import Budget, Sampling
from privopt.privacy.batches import batch_multiplier, likely_multiplier
from privopt.privacy.kinds import Kind
from privopt.problem import Problem
from privopt.solvers.families.gradient_steps import (
    Average,
    Design,
    Rule,
    check_sampling,
    design,
    fresh_batch,
    rules,
    tune,
    variance,
    weight,
)
from privopt.solvers.solver import Settings, Solver, Tick, no_tick
from privopt.solvers.specimen import Attack, Specimen

EPOCHS = (20, 30, 45, 70, 100)
MOST_STEPS = 10_000
BATCH = 3.0
"""Default batch: this many times the square root of n."""


@dataclass(frozen=True)
class NoisySGDSettings(Settings):
    """Steps, step size (the numerator 2/Lambda for the strongly convex rule), batches and noise.

    ``batch_size`` is the expected size of a Poisson batch, or the size of a fixed one, out of
    ``records``, the public number of records.
    """

    rule: Rule
    n_iter: int
    step: float
    sampling: Design
    batch_size: int
    records: int
    clip_norm: float
    noise: Literal["gaussian"]
    noise_multiplier: float
    average: Average
    ridge: float
    discrete_noise: bool

    @property
    def rate(self) -> float:
        return self.batch_size / self.records


class NoisySGD(Solver):
    """Noisy gradient descent on batches.

    Formal guarantee
    ----------------
    Poisson batches: every relation; batches of fixed size: replace_one. Every loss. Privacy rests
    on the clip and on the secrecy of the batches alone. Steps, step sizes, rates and the clip are
    data-free. Needs delta > 0. Noise is hardened unless ``discrete_noise=False``: exact integers
    on a grid.
    """

    vectors: ClassVar[bool] = True
    chunks: ClassVar[bool] = True
    name: ClassVar[str] = "noisy_sgd"
    summary: ClassVar[str] = "gradient descent on secret random batches, noise added to each step"
    has_discrete_noise: ClassVar[bool] = True
    specimen: ClassVar[Specimen] = Specimen(
        short={"n_iter": 12},
        enough={"n_iter": 200, "batch_size": 100},
        attack=Attack(choices=lambda budget: {"n_iter": 4, "batch_size": 1}),
    )

    def refuse(self, facts: Facts, budget: Budget) -> str | None:
        if not math.isfinite(facts.lipschitz()):
            return (
                f"{self.name} needs a Lipschitz loss to clip at; {facts.loss_name} is not: "
                "use Squared(residual_clip=...) or Huber(width)."
            )
        if budget.pure:
            return f'{self.name} needs delta > 0: use solver="noisy_gd" or give a delta.'
        return None

    def settings(self, facts: Facts, budget: Budget, **choices: Any) -> NoisySGDSettings:
        n_iter: int | None = choices.pop("n_iter", None)
        batch_size: int | None = choices.pop("batch_size", None)
        sampling: Design = choices.pop("sampling", "poisson")
        average: Average = choices.pop("average", "suffix")
        clip_norm: float = choices.pop("clip_norm", facts.lipschitz())
        discrete_noise: bool | None = choices.pop("discrete_noise", None)
        if choices:
            raise ValueError(f"{self.name} has no setting named {sorted(choices)[0]!r}.")
        if n_iter is not None and n_iter < 1:
            raise ValueError(f"n_iter must be positive, got {n_iter}.")
        if average not in ("suffix", "uniform", "last"):
            raise ValueError(f"average must be suffix, uniform or last, got {average!r}.")
        check_sampling(self.name, sampling, facts)
        if batch_size is None:
            batch_size = max(1, min(facts.n, round(BATCH * math.sqrt(facts.n))))
        if not 1 <= batch_size <= facts.n:
            raise ValueError(f"batch_size must lie between 1 and {facts.n}, got {batch_size}.")
        rate = batch_size / facts.n

        def budgeted(steps: int) -> tuple[Budget, Sampling, int, tuple[Kind, ...]]:
            return budget, design(sampling, rate), steps * facts.repeats, facts.prior

        def tuned(steps: int, multiplier: float) -> tuple[float, Rule, float]:
            spread = variance(facts, sampling, rate, clip_norm, multiplier)
            best: tuple[float, Rule, float] | None = None
            for rule in rules(facts):
                step, bound = tune(facts, rule, steps, spread)
                best = (bound, rule, step) if best is None or bound < best[0] else best
            assert best is not None
            return best

        steps = n_iter
        if steps is None:
            # Steps are compared with approximate noise; only the chosen number is calibrated.
            counts = sorted({max(1, min(MOST_STEPS, round(e / rate))) for e in EPOCHS})
            bounds = [tuned(t, likely_multiplier(*budgeted(t)))[0] for t in counts]
            steps = next(t for t, b in zip(counts, bounds, strict=True) if b <= 1.05 * min(bounds))
        multiplier = batch_multiplier(*budgeted(steps))
        bound, rule, step = tuned(steps, multiplier)
        return NoisySGDSettings(
            bound=bound / facts.n,
            passes=steps * rate * facts.repeats,
            rule=rule,
            n_iter=steps,
            step=step,
            sampling=sampling,
            batch_size=batch_size,
            records=facts.n,
            clip_norm=clip_norm,
            noise="gaussian",
            noise_multiplier=multiplier,
            average=average,
            ridge=facts.strong_convexity,
            discrete_noise=choose_discrete(discrete_noise, True, multiplier, facts.n),
        )

    def run(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: NoisySGDSettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        query = gradient_query(problem.loss, settings.clip_norm)
        mechanism = gaussian_noise(settings.noise_multiplier, settings.discrete_noise)
        theta = problem.domain.centre(oracle.dimension)
        total, mass = np.zeros_like(theta), 0.0
        for t in range(settings.n_iter + 1):
            share = weight(settings, t)
            total, mass = total + share * theta, mass + share
            if t == settings.n_iter:
                break
            batch = fresh_batch(oracle, settings.sampling, settings.batch_size, settings.records)
            # The divisor is the public rate: the number of records drawn is private.
            sealed = batch.ask(query, theta, resolution=mechanism.resolution)
            gradient = gate.release(mechanism, sealed) / settings.rate
            gradient += settings.ridge * theta
            step = settings.step / (t + 2) if settings.rule == "strongly_convex" else settings.step
            theta = problem.domain.project(theta - step * gradient)
            tick(t + 1, settings.n_iter)
        return total / mass

    def assumptions(self, facts: Facts, settings: Any) -> tuple[str, ...]:
        return ("nobody learns which records a batch held",)


SOLVER = NoisySGD()
