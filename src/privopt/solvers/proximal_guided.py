"""Proximally guided descent: weakly convex losses, smooth or not, one convex problem at a time.

Problem: a nearly stationary point over an l_p ball (p <= 2) of F, the expected value of
f(<x, theta>, y) + l2/2 ||theta||^2 for independent records, f Lipschitz and weakly convex: f plus
w/2 z^2 is convex. Then F(u) >= F(t) + <g, u - t> - rho D(u, t) with rho = w times the square of the
largest row in the dual norm and D the divergence of the ball's mirror map.

Algorithm: K rounds on disjoint batches of m = n/K records. Round k goes from x_k towards
x^_k = argmin F + 2 rho D(., x_k), a rho-strongly convex problem, by P phases on disjoint parts of
the batch, the first half of it, the next a quarter, and so on. Phase i minimises the mean over its
records + 2 rho D(., x_k) + rho (4^(i-1) - 1) D(., y_(i-1)), y_(i-1) the last phase's end, by T
steps of noisy mirror descent whose regulariser is part of the closed-form step. The answer is x_k
with k drawn uniformly from 0..K-1 by public coins, before any data is touched.

Bound. Let o be a phase's exact minimiser, kappa = rho 4^(i-1) its strong convexity, L the Lipschitz
constant and V the expected square of a step's noise in the dual norm. A step of size
s/(1 - s rho), s = 2/(kappa (t+4)), gives (1 + s kappa) D(o, +) <= D(o, .) + s^2 (2 L + sqrt(V))^2,
so that after T steps D(o, y_i) <= a_i = (20 D_0 + 5 T (2 L + sqrt(V))^2/kappa^2)/((T+4)(T+5)). o
generalises with error 2 L^2/(kappa m_i), and is compared with the o before: the error of a round is
e = sum over i of 2 L^2/(kappa_i m_i) + sum over i > 1 of rho (4^(i-1) - 1) a_(i-1)
+ (L + 4 rho R/(p-1)) sqrt(2 a_P). Since a round lowers F by rho D(x_k, x^_k) - e, the mean of
E||x_k - x^_k||^2 is at most (2/rho)(h/K + e), h the largest F(x_0) - min F. What is reported is the
root of that times 2 rho and the diameter: in l2 a bound on the Frank-Wolfe gap of the near point
x^_k. With T = m, P = log(m) and K = min(sqrt(n), (n mu/sqrt(p))^(2/3)) the distance is
n^(-1/4) + (sqrt(p)/(n mu))^(1/3), up to logarithms. The default has this K with one phase of ten
steps, which measures as well with a thousandth of the work, though the bound is then a trivial one.

References: Davis and Grimmer (2019) for proximal guidance; Bassily, Guzman and Menart (2021),
NeurIPS, for its private form; Feldman, Koren and Talwar (2020) for the phases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from privopt.facts import Facts
from privopt.geometry import L1Ball, L2Ball, LpBall, MirrorMap, NormMap, mirror_of
from privopt.geometry.norms import dual_order
from privopt.mechanisms import Gate
from privopt.noise import SeededSource
from privopt.oracle import Oracle, RowBounds
from privopt.privacy import Budget
from privopt.problem import Problem
from privopt.solvers.families.mirror_steps import (
    Noise,
    check_noise,
    choose_shaped,
    noise_multiplier,
    noise_order,
    noise_size,
    noisy_gradient,
    steepness,
)
from privopt.solvers.families.passes import refuse_unless_ordered
from privopt.solvers.families.vertices import largest_fall
from privopt.solvers.solver import Settings, Solver, Tick, entry_bounds, no_tick
from privopt.solvers.specimen import NONCONVEX_PROBLEMS, PEAKED, Attack, Specimen

STEPS = 10
"""Steps of a phase. The bound wants as many as a phase has records; measured, more do not help."""


@dataclass(frozen=True)
class ProximalSettings(Settings):
    """Rounds, records of a batch, phases of a round and steps of a phase, the index of the iterate
    that is returned and the seed it came from, rho, the clip of a slope, and the noise."""

    rounds: int
    batch_size: int
    phases: int
    n_iter: int
    iterate: int
    seed: int
    weak_convexity: float
    slope_clip: float
    noise: Noise
    noise_order: float
    noise_multiplier: float
    ridge: float
    discrete_noise: bool


class ProximalGuided(Solver):
    """Proximally guided mirror descent.

    Formal guarantee
    ----------------
    ``zero_out`` and ``replace_one``, every loss. Privacy rests on the clips of features and slope,
    and on disjoint batches and phases: a record pays for the T releases of its own phase, as in
    ``mirror_descent``. Weak convexity is a matter of utility alone. The index of the returned
    iterate comes from public coins.
    """

    name: ClassVar[str] = "proximal_guided"
    summary: ClassVar[str] = "strongly convex problems around the last point, on disjoint batches"
    has_discrete_noise: ClassVar[bool] = True
    promise: ClassVar[Literal["excess", "stationarity"]] = "stationarity"
    specimen: ClassVar[Specimen] = Specimen(
        problems=NONCONVEX_PROBLEMS,
        short={"n_iter": 2, "rounds": 4, "phases": 2, "iterate": 3},
        attack=Attack(
            (PEAKED,), choices=lambda b: {"n_iter": 2, "rounds": 1}, pair=lambda b: "peak"
        ),
    )

    def refuse(self, facts: Facts, budget: Budget) -> str | None:
        loss, domain = facts.problem.loss, facts.problem.domain
        if not math.isfinite(loss.lipschitz):
            return (
                f"{self.name} needs a Lipschitz loss to clip at; {facts.loss_name} is not: "
                "use PhaseRetrieval(margin_clip) or Welsch(width)."
            )
        if facts.convex:
            return (
                f"{self.name} is for losses that are not convex; for {facts.loss_name} other "
                "solvers promise more."
            )
        if not math.isfinite(loss.weak_convexity):
            return (
                f"{self.name} needs a declared weak-convexity constant, which {facts.loss_name} "
                "does not have: define its weak_convexity."
            )
        ball = isinstance(domain, L1Ball) or (isinstance(domain, LpBall) and domain.order <= 2)
        if not ball and not (isinstance(domain, L2Ball) and domain.middle is None):
            return (
                f"{self.name} needs a ball around the origin as its domain: use L2Ball, L1Ball or "
                "LpBall with p <= 2."
            )
        if facts.n < 2:
            return f"{self.name} needs at least 2 records: collect more."
        return refuse_unless_ordered(self.name, facts)

    def row_bounds(self, problem: Problem) -> RowBounds:
        return entry_bounds(problem)

    def settings(self, facts: Facts, budget: Budget, **choices: Any) -> ProximalSettings:
        rounds: int | None = choices.pop("rounds", None)
        phases: int = choices.pop("phases", 1)
        n_iter: int = choices.pop("n_iter", STEPS)
        seed: int = choices.pop("seed", 0)
        iterate: int | None = choices.pop("iterate", None)
        clip: float = choices.pop("slope_clip", facts.problem.loss.lipschitz)
        noise: Noise = choices.pop("noise", None) or ("pure" if budget.pure else "gaussian")
        discrete_noise: bool | None = choices.pop("discrete_noise", None)
        if choices:
            raise ValueError(f"{self.name} has no setting named {sorted(choices)[0]!r}.")
        if n_iter < 1:
            raise ValueError(f"n_iter must be positive, got {n_iter}.")
        check_noise(noise, clip, budget)
        mirror = mirror_of(facts.problem.domain, facts.p)
        if rounds is None:
            once = noise_multiplier(noise, budget, facts.repeats)
            rounds = _rounds(facts, mirror, noise_size(facts, mirror, noise, clip, once))
        if phases < 1 or rounds < 1 or (facts.n // rounds) >> phases < 1:
            raise ValueError(
                f"rounds={rounds} of phases={phases} do not fit {facts.n} records: each round "
                "needs at least 2^phases of them."
            )
        multiplier = noise_multiplier(noise, budget, n_iter * facts.repeats)
        loud = noise_size(facts, mirror, noise, clip, multiplier)
        if iterate is None:
            iterate = int(SeededSource(seed).coins.integers(0, rounds))  # public coins
        if not 0 <= iterate <= rounds:
            raise ValueError(f"iterate must lie in 0..{rounds}, got {iterate}.")
        return ProximalSettings(
            bound=_bound(facts, mirror, n_iter, loud, rounds, phases),
            passes=float(n_iter * facts.repeats),
            rounds=rounds,
            batch_size=facts.n // rounds,
            phases=phases,
            n_iter=n_iter,
            iterate=iterate,
            seed=seed,
            weak_convexity=weak_convexity(facts, mirror),
            slope_clip=clip,
            noise=noise,
            noise_order=noise_order(noise, mirror),
            noise_multiplier=multiplier,
            ridge=facts.problem.l2,
            discrete_noise=choose_shaped(discrete_noise, noise, multiplier, facts.n),
        )

    def run(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: ProximalSettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        p, rho = oracle.dimension, settings.weak_convexity
        query, mechanism = noisy_gradient(problem, oracle, settings)
        mirror, kept = mirror_of(problem.domain, p), problem.domain.centre(p)
        theta = kept
        sizes = phase_sizes(settings.batch_size, settings.phases)
        parts = iter(oracle.shuffled().parts(sizes * settings.rounds))
        for k in range(settings.rounds):
            around = mirror.to_dual(theta)
            for phase, (size, part) in enumerate(zip(sizes, parts, strict=False)):
                kappa = rho * 4.0**phase
                pull = 2 * rho * around + (kappa - rho) * mirror.to_dual(theta)
                view = part.everything()
                for t in range(settings.n_iter):
                    shrunk = 2 / (kappa * (t + 4))
                    step = shrunk / (1 - shrunk * rho)
                    sealed = view.ask(query, theta, resolution=mechanism.resolution)
                    gradient = gate.release(mechanism, sealed) / size
                    gradient += settings.ridge * theta
                    ahead = mirror.to_dual(theta) + step * (pull - gradient)
                    theta = mirror.from_dual(ahead / (1 + step * (kappa + rho)))
            if k + 1 == settings.iterate:
                kept = theta
            tick(k + 1, settings.rounds)
        return kept


def phase_sizes(batch: int, phases: int) -> list[int]:
    """Half of a batch, a quarter of it, and so on; the first phase takes what is left over."""
    later = [batch >> i for i in range(2, phases + 1)]
    return [batch - sum(later), *later]


def weak_convexity(facts: Facts, mirror: MirrorMap) -> float:
    """Weak convexity of a record's loss relative to the mirror map."""
    row = entry_bounds(facts.problem).in_norm(dual_order(mirror.order), facts.p)
    return facts.problem.loss.weak_convexity * row**2


def _rounds(facts: Facts, mirror: MirrorMap, loud: float) -> int:
    """The number of rounds that balances the two terms of the rate, at least two records each;
    ``loud`` is the noise of a single release of the sum."""
    quiet = facts.n * steepness(facts, mirror) / loud
    return max(1, min(facts.n // 2, round(math.sqrt(facts.n)), round(quiet ** (2 / 3))))


def _bound(
    facts: Facts, mirror: MirrorMap, steps: int, loud: float, rounds: int, phases: int
) -> float:
    rho, steep = weak_convexity(facts, mirror), steepness(facts, mirror)
    assert isinstance(mirror, NormMap)
    error, near = 0.0, 0.0
    for phase, size in enumerate(phase_sizes(facts.n // rounds, phases)):
        kappa = rho * 4.0**phase
        error += 2 * steep**2 / (kappa * size) + (kappa - rho) * near
        # The first phase starts at its anchor, which the loss leaves no farther than this.
        start = 2 * (steep / (2 * rho)) ** 2 if phase == 0 else 4 * mirror.size
        noisy = (2 * steep + loud / size) ** 2 / kappa**2
        near = (20 * start + 5 * steps * noisy) / ((steps + 4) * (steps + 5))
    pulled = steep + 4 * rho * mirror.radius / (mirror.exponent - 1)
    error += pulled * math.sqrt(2 * near)
    distance = math.sqrt(2 / rho * (largest_fall(facts) / rounds + error))
    return 2 * rho * 2 * mirror.radius * min(distance, 2 * mirror.radius)


SOLVER = ProximalGuided()
