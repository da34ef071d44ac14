"""A row bound that nobody has to know: released first, with a stated share of the budget.

Algorithm: release a histogram of row norms over public geometric bins, take the first edge B below
which, by the noisy counts, nine tenths of the records lie, map every row to x / max(||x||, B) and
hand the rows, now of norm at most 1, to any solver.

Share: 5 % of the budget. Where every release of the solver is pure, that is 5 % of epsilon, the
histogram gets Laplace noise, and epsilons add. Otherwise it is 5 % of mu^2, with mu the Gaussian
parameter that the whole budget buys: the histogram gets Gaussian noise with sqrt(.05) mu and the
solver a budget whose mu is sqrt(.95) of the whole; squares add, so a Gaussian solver meets the
budget exactly, and any other is given less until the accountant, which composes what both would
really release, agrees.

Cost in accuracy: a solver's noise grows by 2.6 % (Gaussian) or 5.3 % (pure).

Why 0.9: a few long rows are better shortened than paid for by all, because noise grows with B.
Why a bound that errs to the low side does little harm: rows shortened to less than their norm keep
their direction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from privopt.facts import Facts
from privopt.mechanisms import Gate, choose_discrete, gaussian_noise, laplace_noise
from privopt.mechanisms.standardizer import BINS, SMALLEST_NORM, norm_bound
from privopt.oracle import NormHistogram, Oracle, RowBounds
from privopt.planner.choose import by_epsilon, choose
from privopt.privacy import Accountant, Budget, Refused, spend
from privopt.privacy.profiles import gaussian_epsilon, gaussian_mu
from privopt.problem import Problem
from privopt.solvers import Plan, Settings, Solver, Tick, declare
from privopt.solvers.solver import Answer, no_tick

SHARE = 0.05
QUANTILE = 0.9
WIDE = tuple(float(2.0**k) for k in np.arange(-20.0, 20.5, 0.5))
"""Edges for rows of unknown scale: from one in a million to a million, by factors of sqrt(2)."""

Noise = Literal["pure", "gaussian"]


@dataclass(frozen=True)
class PrivateNormSettings(Settings):
    """Settings of the histogram, and those of the solver that follows."""

    norm_share: float
    norm_quantile: float
    norm_noise: Noise
    norm_multiplier: float
    norm_discrete_noise: bool
    n: int
    inner: Settings

    def public(self) -> dict[str, Any]:
        own = {key: value for key, value in vars(self).items() if key != "inner"}
        return {**self.inner.public(), **own}


class PrivateNorm(Solver):
    """Release a row bound, then run another solver on rows in units of it.

    Not in the catalogue: it is a way to run any solver, not an algorithm of its own.

    Formal guarantee
    ----------------
    Every relation. One record lies in one bin, so it moves the histogram by 1 (replace_one: two
    bins by 1 each, sqrt(2) in l2 and 2 in l1). For every fixed bound the solver's releases are what
    its own guarantee says of rows of norm at most 1; the bound is public once released, so the two
    compose adaptively, in one log and one certificate.
    """

    name: ClassVar[str] = "private_norm"
    summary: ClassVar[str] = "a private bound on row norms, then another solver"

    def __init__(self, inner: Solver) -> None:
        self.inner = inner
        self.name = f"private_norm+{inner.name}"  # type: ignore[misc]

    def refuse(self, facts: Facts, budget: Budget) -> str | None:
        return self.inner.refuse(facts, budget)

    def settings(self, facts: Facts, budget: Budget, **choices: Any) -> PrivateNormSettings:
        inner: Settings = choices.pop("inner")
        noise: Noise = choices.pop("noise")
        discrete_noise: bool | None = choices.pop("discrete_noise", None)
        if choices:
            raise ValueError(f"{self.name} has no setting named {sorted(choices)[0]!r}.")
        if noise == "pure":
            # One part in 1e12 keeps the sum of rounded epsilons within the budget.
            multiplier = (1 + 1e-12) / (SHARE * budget.epsilon)
        else:
            multiplier = 1 / (math.sqrt(SHARE) * gaussian_mu(budget.epsilon, budget.delta))
        return PrivateNormSettings(
            bound=inner.bound,
            passes=inner.passes + 1,
            norm_share=SHARE,
            norm_quantile=QUANTILE,
            norm_noise=noise,
            norm_multiplier=multiplier,
            norm_discrete_noise=choose_discrete(discrete_noise, True, multiplier, facts.n),
            n=facts.n,
            inner=inner,
        )

    def replanned(self, facts: Facts, budget: Budget, settings: Any) -> Settings:
        return choose_with_private_norm(facts, budget, self.inner.name).settings

    def row_bounds(self, problem: Problem) -> RowBounds:
        return RowBounds(math.inf, problem.intercept)

    def assumptions(self, facts: Facts, settings: PrivateNormSettings) -> tuple[str, ...]:
        return self.inner.assumptions(facts, settings.inner)

    def run(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: PrivateNormSettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        return self.run_all([oracle], gate, problem, settings, tick).thetas[0]

    def run_all(
        self,
        oracles: Any,
        gate: Gate,
        problem: Problem,
        settings: PrivateNormSettings,
        tick: Tick = no_tick,
    ) -> Answer:
        features = oracles[0].dimension - (problem.intercept != 0)
        bound = _released_bound(oracles[0], gate, problem, settings)
        inside = [oracle.clipped_to(bound) for oracle in oracles]
        answer = self.inner.run_all(inside, gate, problem, settings.inner, tick)
        # Coefficients of rows that are shortened to the bound and not divided by it.
        units = np.append(np.full(features, bound), np.ones(int(problem.intercept != 0)))
        return Answer([theta / units for theta in answer.thetas], data_norm=bound)


def choose_with_private_norm(
    facts: Facts, budget: Budget, solver: str = "auto", discrete_noise: bool | str = "auto"
) -> Plan:
    """A plan that needs no declared row bound. The problem's ``data_norm`` must be 1.

    A solver that standardises rows by itself needs no bound, and gets the whole budget.
    """
    if facts.problem.data_norm != 1:
        raise ValueError("rows are measured in the released bound: the problem's data_norm is 1.")
    discrete_noise = by_epsilon(discrete_noise, budget)
    whole = choose(facts, budget, solver, discrete_noise=discrete_noise)
    if whole.solver.row_bounds(facts.problem).data_norm == math.inf:
        return whole
    almost = (1 - SHARE) * budget.epsilon * (1 - 1e-12)
    plan = _wrapped(facts, budget, whole.name, almost, "pure", discrete_noise)
    if budget.pure or Accountant(budget.neighbouring).epsilon(spend(declare(plan)), 0.0) < math.inf:
        return plan
    mu = gaussian_mu(budget.epsilon, budget.delta)
    epsilon = gaussian_epsilon(math.sqrt(1 - SHARE) * mu, budget.delta)
    for _ in range(40):
        plan = _wrapped(facts, budget, whole.name, epsilon, "gaussian", discrete_noise)
        found = Accountant(budget.neighbouring).epsilon(spend(declare(plan)), budget.delta)
        if found <= budget.epsilon:
            return plan
        epsilon *= min(budget.epsilon / found, 1.0) * (1 - 1e-4)
    raise Refused(f"{whole.name} leaves no room for a private row bound: declare data_norm.")


def _wrapped(
    facts: Facts,
    budget: Budget,
    solver: str,
    epsilon: float,
    noise: Noise,
    discrete_noise: bool | str,
) -> Plan:
    inner = choose(facts, replace(budget, epsilon=epsilon), solver, discrete_noise=discrete_noise)
    wrapper = PrivateNorm(inner.solver)
    wish = discrete_noise if isinstance(discrete_noise, bool) else None
    settings = wrapper.settings(
        facts, budget, inner=inner.settings, noise=noise, discrete_noise=wish
    )
    return Plan(wrapper, facts, budget, settings)


def _edges(problem: Problem, features: int) -> tuple[float, ...]:
    """Where row norms may lie: entries in [-1, 1] cannot make a row longer than sqrt(p)."""
    if problem.column_bounds is None:
        return WIDE
    largest = problem.column_bounds * math.sqrt(features)
    return tuple((np.geomspace(SMALLEST_NORM, 1.0, BINS) * largest).tolist())


def _released_bound(
    oracle: Oracle, gate: Gate, problem: Problem, settings: PrivateNormSettings
) -> float:
    features = oracle.dimension - (problem.intercept != 0)
    edges = _edges(problem, features)
    pure = settings.norm_noise == "pure"
    histogram = NormHistogram(edges, "l1" if pure else "l2")
    counting = (laplace_noise if pure else gaussian_noise)(
        settings.norm_multiplier, settings.norm_discrete_noise
    )
    counts = gate.release(
        counting, oracle.everything().ask(histogram, resolution=counting.resolution)
    )
    # A scale nobody knows has no safe side: the counts decide, however noisy they are.
    noise = settings.norm_multiplier if problem.column_bounds else 0.0
    return norm_bound(np.array(edges), counts, settings.norm_quantile, settings.n, noise)
