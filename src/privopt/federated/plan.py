"""Which noise a federated training gets, and how much: from public numbers alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from privopt.mechanisms import (
    choose_correlated,
    choose_discrete,
    correlated_noise,
    gaussian_noise,
)
from privopt.privacy import Budget, Participation
from privopt.privacy.amplified import compare_bands, cyclic_multiplier
from privopt.privacy.events import FULL, ROOT, Cell, Sampling
from privopt.privacy.factorizations import Factorization, Independent, Restarts, named
from privopt.privacy.profiles import gaussian_mu

Asking = Literal["rule", "poisson"]
AMPLIFIED = ("auto", "independent", "banded")
MOST_VECTORS, FEWEST_VECTORS = 64, 4
MOST_NUMBERS = 1 << 28
"""What "auto" lets noise keep: vectors of the model's size, two gibibytes as a rule."""


@dataclass(frozen=True)
class Plan:
    """Noise for all rounds. ``groups`` take turns, and within the group of a round everybody is
    asked with probability ``rate``; without sampling there is one group, and a rule."""

    rounds: int
    rule: Participation
    factorization: Factorization
    multiplier: float
    asking: Asking = "rule"
    groups: int = 1
    rate: float = 1.0

    @property
    def sampling(self) -> Sampling:
        return FULL if self.asking == "rule" else Sampling(self.rate)

    def cells(self, round: int) -> tuple[Cell, ...]:
        """The part of the public partition of people that a round may ask."""
        return ((round % self.groups,),) if self.groups > 1 else (ROOT,)


def under_a_rule(
    budget: Budget, rounds: int, rule: Participation, noise: str, width: int, restarts: bool = True
) -> Plan:
    """Nothing is assumed of who is asked, but for the rule. The whole training is one Gaussian with
    mu = sensitivity / multiplier (``privacy.factorizations``). ``restarts``: trees start anew where
    that helps; they have no integers then."""
    if budget.neighbouring == "add_remove":
        raise ValueError(
            'one person more would change who else is asked: use neighbouring="zero_out" or '
            '"replace_one", or sample by population.'
        )
    rule = rule.fitted(rounds)
    kept = max(FEWEST_VECTORS, min(MOST_VECTORS, MOST_NUMBERS // width))
    factorization = named(noise, rounds, rule, kept)
    if restarts and noise in ("tree", "honaker"):
        factorization = Restarts.best(noise, rounds, rule)  # type: ignore[arg-type]
    squared = factorization.sensitivity_squared(rule)
    mu = gaussian_mu(budget.epsilon, budget.delta)
    return Plan(rounds, rule, factorization, math.sqrt(squared) / mu * (1 + 1e-12))


def sampled(budget: Budget, rounds: int, population: int, goal: int, noise: str) -> Plan:
    """Everybody is asked by a secret coin of their own (DP-FedAvg); banded noise needs groups of
    people that take turns (Choquette-Choo et al., 2023)."""
    if noise not in AMPLIFIED:
        raise ValueError(
            f"sampling amplifies {' and '.join(AMPLIFIED[1:])} noise only: drop population for "
            f"{noise}."
        )
    if not 1 <= goal <= population:
        raise ValueError(f"report_goal={goal} people cannot be sampled from {population}.")
    rate = min(1.0, goal / population)
    if noise == "independent":
        multiplier = cyclic_multiplier(budget, rounds, 1, rate)
        return Plan(
            rounds, Participation(rounds), Independent(rounds), multiplier, "poisson", 1, rate
        )
    most = min(population // goal, rounds, MOST_VECTORS)
    groups = [1 << i for i in range(most.bit_length()) if noise == "auto" or i]
    if not groups:
        raise ValueError("banded noise needs two groups of people: lower report_goal.")
    best = compare_bands(budget, rounds, population, goal, groups)[0]
    count = best.groups
    factorization = best.factorization if count > 1 else Independent(rounds)
    rule = Participation.separated(-(-rounds // count), count)
    return Plan(rounds, rule, factorization, best.noise_multiplier, "poisson", count, best.rate)


def plan_for(
    budget: Budget,
    rounds: int,
    goal: int,
    noise: str,
    width: int,
    population: int | None,
    min_separation: int | None,
    max_participations: int | None,
    secure: bool,
) -> Plan:
    """Sampling, where a population says from how many; else the rule."""
    given = ("min_separation", min_separation), ("max_participations", max_participations)
    for name, value in given:
        check_count(name, value)
    if population is not None:
        if min_separation is not None or max_participations is not None:
            raise ValueError("population is for sampling, min_separation for none: give one.")
        return sampled(budget, rounds, population, goal, noise)
    if min_separation is None and max_participations is None:
        raise ValueError(
            "give min_separation, the rounds between two questions to one person, or population, "
            "the number of people to sample from."
        )
    rule = Participation.separated(max_participations or rounds, min_separation or 1)
    return under_a_rule(budget, rounds, rule, noise, width, restarts=not secure)


def mechanism_for(plan: Plan, budget: Budget, ask: int, width: int, secure: bool) -> Any:
    """Noise in integers where there is room; what secure aggregation adds up are integers."""
    records = ask * (4 if plan.asking == "poisson" else 1)
    if plan.asking == "poisson" and plan.groups == 1:
        whole = choose_discrete(None, True, plan.multiplier, records)
        mechanism: Any = gaussian_noise(plan.multiplier, whole)
    else:
        rule = plan.rule if plan.asking == "rule" else None
        noise = plan.factorization, plan.multiplier, rule
        whole = plan.sampling.full and choose_correlated(
            None, *noise, coordinates=width, records=records, epsilon=budget.epsilon
        )
        mechanism = correlated_noise(*noise, discrete_noise=whole)
    if secure and not whole:
        raise ValueError(
            f"secure aggregation adds up integers, and {plan.factorization.name} noise has none "
            'here: use noise="blt" or "banded".'
        )
    return mechanism


def check_count(name: str, value: object) -> None:
    """Refuse what is not a positive integer, or nothing."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if value is not None and not (whole and value >= 1):  # type: ignore[operator]
        raise ValueError(f"{name} must be a positive integer, got {value!r}.")
