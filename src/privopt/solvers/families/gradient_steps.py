"""Noisy gradient steps: rules for their size, averages of iterates, batches."""

from __future__ import annotations

import math
from typing import Literal, Protocol

import numpy as np

from privopt.facts import Facts
from privopt.oracle import Oracle, View
from privopt.privacy import Sampling
from privopt.privacy.budget import replaces

Rule = Literal["smooth", "lipschitz", "strongly_convex", "one_step"]
Average = Literal["suffix", "uniform", "last"]
Design = Literal["poisson", "fixed"]


class Averaged(Protocol):
    """Settings of a run whose iterates are averaged."""

    @property
    def rule(self) -> Rule: ...
    @property
    def n_iter(self) -> int: ...
    @property
    def average(self) -> Average: ...


def weight(settings: Averaged, t: int) -> float:
    """Weight of iterate t, from 0 (the start) to n_iter (the last)."""
    last, rule = settings.n_iter, settings.rule
    if settings.average == "last" or rule == "one_step":
        return float(t == last)
    if settings.average == "suffix":
        return float(t > last // 2) * (t if rule == "strongly_convex" else 1.0)
    if rule == "smooth":
        return float(t > 0)
    return float(t < last) * (t + 1 if rule == "strongly_convex" else 1.0)


def rules(facts: Facts) -> list[Rule]:
    rules: list[Rule] = ["smooth"] if facts.smooth else []
    return [*rules, "lipschitz", *(["strongly_convex"] if facts.strong_convexity > 0 else [])]


def tune(facts: Facts, rule: Rule, steps: int, spread: float) -> tuple[float, float]:
    """Best step size for a number of steps, and the bound it gives; ``spread`` is the variance of
    an unbiased estimate of the gradient of the sum."""
    n, radius, ridge = facts.n, facts.radius(), facts.strong_convexity
    if rule == "one_step":
        stiff = n * facts.problem.loss.isotropic + ridge
        # A projection keeps a minimiser inside at its distance; one outside may slide along.
        inside = not facts.bounded or (
            facts.problem.size <= radius and not facts.problem.domain.centre(facts.p).any()
        )
        return 1 / stiff, (1 if inside else 2) * spread / (2 * stiff)
    if rule == "smooth":
        stiff = n * facts.smoothness() + ridge
        step = radius / math.sqrt(2 * steps * spread)
        step = min(1 / stiff, step) if stiff > 0 else step
        return step, radius**2 / (2 * step * steps) + step * spread
    farthest = radius + float(np.linalg.norm(facts.problem.domain.centre(facts.p)))
    square = (n * facts.lipschitz() + ridge * farthest) ** 2 + spread
    if rule == "lipschitz":
        return radius / math.sqrt(steps * square), radius * math.sqrt(square / steps)
    return 2 / ridge, 2 * square / (ridge * (steps + 1))


def check_sampling(name: str, sampling: str, facts: Facts) -> None:
    if sampling not in ("poisson", "fixed"):
        raise ValueError(f"sampling must be poisson or fixed, got {sampling!r}.")
    if sampling == "fixed" and not replaces(facts.neighbouring):
        raise ValueError(
            f'{name} with sampling="fixed" needs neighbouring="replace_one", got '
            f'{facts.neighbouring}: use sampling="poisson".'
        )


def design(sampling: Design, rate: float) -> Sampling:
    return Sampling(rate, fixed_size=sampling == "fixed" and rate < 1)


def fresh_batch(oracle: Oracle, sampling: Design, size: int, records: int) -> View:
    if sampling == "fixed":
        return oracle.fixed(size, of=records)
    return oracle.poisson(size / records)


def variance(
    facts: Facts, sampling: Design, rate: float, clip_norm: float, multiplier: float
) -> float:
    """Variance of the estimate of the whole gradient: drawing the batch, and the noise."""
    drawn = facts.n * clip_norm**2 * (1 - rate) / rate
    if sampling == "fixed" and facts.n > 1:
        drawn *= facts.n / (facts.n - 1)
    scale = facts.relation_factor * clip_norm * multiplier / rate
    return drawn + facts.span * scale**2
