"""Follow the regularised leader: the public half, and what its regret depends on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from privopt.facts import Facts
from privopt.geometry import Box, Domain, L1Ball, L2Ball, WholeSpace
from privopt.privacy import Budget
from privopt.privacy.factorizations import Factorization
from privopt.privacy.participation import Participation
from privopt.privacy.profiles import gaussian_mu

MOST_STEPS = 2000
NEAR = 1.1
"""Numbers of steps whose bounds are this close are alike: the smallest is taken."""


@dataclass
class Leader:
    """The public half of DP-FTRL: from noisy gradients, one after the other, to iterates.

    ``gradients`` is s_t, the sum of all gradients and of the noise; ``velocity`` is v_t =
    momentum v_(t-1) + s_t. What is minimised is <d_t, theta> + t r(theta) + regularisation/2
    ||theta - theta_0||^2 over the domain, with d_t = s_t, or (1 - momentum) v_t, or Nesterov's
    (1 - momentum)(momentum v_t + s_t): weighted averages of s_1..s_t.
    """

    STATE: ClassVar[tuple[str, ...]] = ("steps", "regularisation", "gradients", "velocity")

    domain: Domain
    start: np.ndarray
    regularisation: float
    momentum: float = 0.0
    nesterov: bool = False
    l1: float = 0.0
    ridge: float = 0.0
    steps: int = 0
    gradients: np.ndarray = field(init=False)
    velocity: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        check_leader(self.regularisation, self.momentum, self.l1)
        if self.l1 and not _soft_threshold_then_projects(self.domain):
            raise ValueError(
                "an l1 penalty has a closed form on the whole space, boxes and balls about the "
                f"origin, not on this {type(self.domain).__name__}."
            )
        self.gradients, self.velocity = np.zeros_like(self.start), np.zeros_like(self.start)

    @property
    def coordinates(self) -> int:
        """Of what it takes in."""
        return len(self.start)

    def take(self, gradient: np.ndarray) -> None:
        """Take in a noisy gradient."""
        self.steps += 1
        self.gradients = self.gradients + gradient
        self.velocity = self.momentum * self.velocity + self.gradients

    def iterate(self) -> np.ndarray:
        """The minimiser after the steps so far."""
        pull = self.regularisation * self.start - self._direction()
        if self.l1:
            pull = np.sign(pull) * np.maximum(np.abs(pull) - self.steps * self.l1, 0.0)
        return self.domain.project(pull / (self.regularisation + self.steps * self.ridge))

    def _direction(self) -> np.ndarray:
        if self.nesterov:
            return (1 - self.momentum) * (self.momentum * self.velocity + self.gradients)
        return (1 - self.momentum) * self.velocity


def check_leader(regularisation: float | None, momentum: float, l1: float) -> None:
    if regularisation is not None and not 0 < regularisation < math.inf:
        raise ValueError(f"regularisation must be positive and finite, got {regularisation!r}.")
    if not 0 <= momentum < 1:
        raise ValueError(f"momentum must lie in [0, 1), got {momentum!r}.")
    if not 0 <= l1 < math.inf:
        raise ValueError(f"l1 must be non-negative and finite, got {l1!r}.")


def delay(momentum: float, nesterov: bool) -> float:
    """Mean age of the gradients in the direction that momentum averages."""
    return momentum * (momentum if nesterov else 1.0) / (1 - momentum)


def _soft_threshold_then_projects(domain: Domain) -> bool:
    """Whether minimising with an l1 penalty over the domain is soft thresholding, then projection:
    coordinate by coordinate in a box, and along rays in balls about the origin."""
    if isinstance(domain, L2Ball):
        return domain.middle is None or not any(domain.middle)
    return isinstance(domain, (WholeSpace, Box, L1Ball))


@dataclass(frozen=True)
class Task:
    """What regret and bound depend on besides blocks, noise and lambda."""

    facts: Facts
    budget: Budget
    epochs: int
    clip_norm: float
    l1: float
    delay: float

    def multiplier(self, factorization: Factorization, blocks: int) -> float:
        """sens/mu: all steps of all models together are mu-GDP."""
        participation = Participation.epochs(self.epochs, blocks)
        square = factorization.sensitivity_squared(participation) * self.facts.repeats
        return math.sqrt(square) / self._mu() * (1 + 1e-12)

    def _mu(self) -> float:
        square = gaussian_mu(self.budget.epsilon, self.budget.delta) ** 2 - self.facts.prior_mu**2
        return math.sqrt(max(square, 0.0))

    def blocks(self) -> int:
        """The fewest blocks of a pass whose regret is near the best, at likely noise."""
        most = max(1, min(self.facts.n, MOST_STEPS // self.epochs))
        counts = sorted({round(most ** (i / 30)) for i in range(31)})
        found = []
        for count in counts:
            steps = self.epochs * count
            # The square root of the prefix sums, a good factorization, has this error per pass.
            error = self.epochs * (math.log(steps) + 3.35) / math.pi
            norms = np.full(steps, error * math.sqrt(self.facts.repeats) / self._mu())
            regret = self.regret(count, norms, self.best(count, norms))
            found.append(regret if math.isfinite(regret) else math.inf)
        return next(c for c, r in zip(counts, found, strict=True) if r <= NEAR * min(found))

    def best(self, blocks: int, norms: np.ndarray) -> float:
        """The lambda that minimises the regret: without ridge in closed form, else by search."""
        terms = self._terms(blocks, norms)
        first = math.sqrt(float(terms.pull.sum()) / terms.hold)
        if not self.facts.problem.l2:
            return first
        grid = first * np.geomspace(1e-4, 1.0, 41)
        return float(min(grid, key=lambda lam: self.regret(blocks, norms, lam)))

    def regret(self, blocks: int, norms: np.ndarray, regularisation: float) -> float:
        """Bound on the average regret without momentum."""
        terms, weights = self._terms(blocks, norms), self._weights(norms, regularisation)
        pulls = terms.pull / weights + terms.bend / weights**2
        return terms.hold * regularisation + float(pulls.sum())

    def bound(self, blocks: int, norms: np.ndarray, regularisation: float) -> float:
        """Bound on the excess risk: the regret, what momentum delays and what later passes drift,
        and never more than the losses can differ."""
        facts, l2 = self.facts, self.facts.problem.l2
        terms, weights = self._terms(blocks, norms), self._weights(norms, regularisation)
        start = facts.problem.domain.centre(facts.p)
        penalty = l2 / 2 * float(start @ start) + self.l1 * float(np.abs(start).sum())
        late = terms.steep * self.delay * terms.slope * np.ones(len(norms))
        if self.epochs > 1:
            creep = terms.slope * (2 if l2 else 1) + l2 * float(np.linalg.norm(start))
            creep += self.l1 * math.sqrt(facts.p)
            age = np.arange(len(norms)) % blocks
            late += 2 * terms.slope * (creep * age + 3 * terms.noise)
        extra = (float((late / weights).sum()) + penalty) / len(norms)
        worst = terms.steep * facts.diameter() if facts.bounded else math.inf
        return min(self.regret(blocks, norms, regularisation) + extra, worst)

    def _weights(self, norms: np.ndarray, regularisation: float) -> np.ndarray:
        return regularisation + np.arange(len(norms)) * self.facts.problem.l2

    def _terms(self, blocks: int, norms: np.ndarray) -> _Terms:
        """``norms``: standard deviations of a coordinate of b_t, in units of the sensitivity of a
        block's sum."""
        facts, l2, steps = self.facts, self.facts.problem.l2, len(norms)
        size = facts.n / blocks
        slope = self.clip_norm * math.ceil(size) / size
        noise = facts.relation_factor * self.clip_norm * math.sqrt(facts.p) / size * norms
        before = np.concatenate([[0.0], noise[:-1]])
        steep = slope + self.l1 * math.sqrt(facts.p)
        if l2:
            start = float(np.linalg.norm(facts.problem.domain.centre(facts.p)))
            steep += l2 * (facts.radius() + start) if facts.bounded else slope
        return _Terms(
            hold=facts.radius() ** 2 / (2 * steps),
            pull=(slope**2 / 2 + steep * before) / steps,
            bend=0.0 if facts.bounded else l2 / 2 * (self.delay * slope + before) ** 2 / steps,
            slope=slope,
            steep=steep,
            noise=float(noise.max()),
        )


@dataclass(frozen=True)
class _Terms:
    """The average regret is at most hold lambda + sum of pull_t / w_t + bend_t / w_t^2."""

    hold: float
    pull: np.ndarray
    bend: Any
    slope: float
    steep: float
    noise: float
