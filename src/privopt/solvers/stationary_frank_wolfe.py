"""Frank-Wolfe for losses that are not convex: a nearly stationary point of a bounded set.

Problem: a point of small Frank-Wolfe gap G(theta) = max over v in the set of
<grad F(theta), theta - v>, F the mean of f(<x, theta>, y) + l2/2 ||theta||^2, f smooth and
Lipschitz, convex or not. G is zero exactly at stationary points of F on the set.

Algorithm: theta <- (1 - eta) theta + eta v, T times with one step size, v the minimiser over the
set of the inner product with a private estimate of the gradient. On an l1 ball, a simplex or a list
of vertices v is chosen privately as in ``frank_wolfe``; on any other bounded set the estimate is
released with noise and v is exact. The answer is theta_k with k drawn uniformly from 0..T-1 by
public coins, before any data is touched: the best iterate by its objective would be a leak.

The estimate is the gradient on all records, or, with ``one_pass=True``, the recursive one of
``poly_sfw``: half of the records first, then a few fresh ones in every step, each record's
difference of slopes clipped to what a smooth loss cannot pass. Every record then enters once and
its share decays.

Bound on the expected gap, h the largest F(theta_0) - min F and Gamma the curvature of the set:
h/(eta T) + eta Gamma/2 + e, since F falls by eta (G - e) - eta^2 Gamma/2 in a step whose v misses
the best one by e. For a private choice among N vertices e = scale * log N, for Gaussian noise of
deviation s it is s times the expected width of the set; one pass adds the error of the estimate, as
in ``poly_sfw`` and ``variance_reduced_sfw``. On all records this is a bound on the gap of the
records' mean, at its best T of order (log N/(n mu))^(1/2) or (sqrt(p)/(n mu))^(1/2); in one pass it
is one on the gap of the expected loss, n^(-1/3) and a smaller term of privacy.

References: Lacoste-Julien (2016) for the gap; Bassily, Guzman and Menart (2021), NeurIPS, for
private stationary points; Zhang, Shen, Mokhtari, Hassani and Karbasi (2020) for the estimate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from privopt.facts import Facts
from privopt.geometry import L1Ball, LpBall, Polytope, Simplex
from privopt.geometry.norms import dual_order
from privopt.mechanisms import ExponentialMechanism, Gate, Gaussian, NormGamma, PermuteAndFlip
from privopt.mechanisms.maps import Shift, VertexScores
from privopt.noise import SeededSource
from privopt.oracle import CoordinateClippedGradient, Oracle, RowBounds, Sealed
from privopt.privacy import Budget
from privopt.privacy.profiles import concentrated_rho, gaussian_mu
from privopt.problem import Problem
from privopt.solvers.families.mirror_steps import gaussian_length
from privopt.solvers.families.passes import refuse_unless_ordered
from privopt.solvers.families.recursive_gradients import (
    RecursiveGradient,
    dearest_record,
    difference_clip,
)
from privopt.solvers.families.vertices import (
    choice_multiplier,
    largest_fall,
    largest_margin,
    selection_error,
)
from privopt.solvers.solver import Settings, Solver, Tick, entry_bounds, no_tick
from privopt.solvers.specimen import NONCONVEX_PROBLEMS, PEAKED, Attack, Specimen

MOST_STEPS = 1000
Noise = Literal["gumbel", "gaussian", "pure"]


@dataclass(frozen=True)
class StationarySettings(Settings):
    """Steps, their size, the index of the iterate that is returned and the seed it came from, the
    clips, and noise; of one pass the records of the first estimate and of a step."""

    one_pass: bool
    n_iter: int
    step: float
    iterate: int
    seed: int
    first: int
    batch_size: int
    slope_clip: float
    difference_clip: float
    noise: Noise
    noise_multiplier: float
    ridge: float


class StationaryFrankWolfe(Solver):
    """Frank-Wolfe with one step size and a random iterate.

    Formal guarantee
    ----------------
    Every relation, every loss; in one pass ``zero_out`` and ``replace_one`` and delta > 0. Privacy
    rests on the clips of features, slopes and differences of slopes alone, and in one pass on every
    record entering the estimate once; neither convexity nor smoothness is assumed. Choices are
    bounded-range and add up by zCDP, Gaussian releases are exactly mu-GDP together; a record of one
    pass pays with the public decay that it has suffered. The index of the returned iterate comes
    from public coins.
    """

    name: ClassVar[str] = "stationary_frank_wolfe"
    summary: ClassVar[str] = "private linear minimisers on a bounded set, a random iterate"
    promise: ClassVar[Literal["excess", "stationarity"]] = "stationarity"
    specimen: ClassVar[Specimen] = Specimen(
        problems=NONCONVEX_PROBLEMS,
        short={"n_iter": 6, "iterate": 4},
        records=150,
        attack=Attack((PEAKED,), choices=lambda b: {"n_iter": 2}, pair=lambda b: "peak"),
    )

    def refuse(self, facts: Facts, budget: Budget) -> str | None:
        domain = facts.problem.domain
        if not math.isfinite(facts.problem.loss.lipschitz):
            return (
                f"{self.name} needs a Lipschitz loss to clip at; {facts.loss_name} is not: "
                "use Welsch(width) or TukeyBiweight(width)."
            )
        if facts.convex:
            return (
                f"{self.name} is for losses that are not convex; for {facts.loss_name} other "
                "solvers promise more."
            )
        if not facts.smooth:
            return (
                f"{self.name} needs a smooth loss; {facts.loss_name} is not smooth: "
                'use solver="proximal_guided".'
            )
        if not facts.bounded or domain.diameter("l2", facts.p) == 0:
            return f"{self.name} needs a bounded domain of more than one point: use L2Ball(radius)."
        return None

    def row_bounds(self, problem: Problem) -> RowBounds:
        return entry_bounds(problem)

    def settings(self, facts: Facts, budget: Budget, **choices: Any) -> StationarySettings:
        one_pass: bool = choices.pop("one_pass", False)
        n_iter: int | None = choices.pop("n_iter", None)
        step: float | None = choices.pop("step", None)
        seed: int = choices.pop("seed", 0)
        iterate: int | None = choices.pop("iterate", None)
        clip: float = choices.pop("slope_clip", facts.problem.loss.lipschitz)
        if choices:
            raise ValueError(f"{self.name} has no setting named {sorted(choices)[0]!r}.")
        most = facts.n // 2 if one_pass else math.inf
        if n_iter is not None and not 1 <= n_iter <= most:
            raise ValueError(f"n_iter must lie in 1..{most}, got {n_iter}.")
        if step is not None and not 0 < step < 1:
            raise ValueError(f"step must lie in (0, 1), got {step!r}.")
        if not 0 < clip < math.inf:
            raise ValueError(f"slope_clip must be positive and finite, got {clip!r}.")
        if one_pass:
            _check_one_pass(self.name, facts, budget)
        counts = [round(min(MOST_STEPS, most) ** (i / 40)) for i in range(41)]
        counts = sorted(set(counts)) if n_iter is None else [n_iter]
        tune = _one_pass if one_pass else _all_records
        bound, steps, eta, multiplier = min(
            tune(facts, budget, clip, count, step) for count in counts
        )
        if iterate is None:
            iterate = int(SeededSource(seed).coins.integers(0, steps))  # public coins
        if not 0 <= iterate <= steps:
            raise ValueError(f"iterate must lie in 0..{steps}, got {iterate}.")
        noise: Noise = "gumbel" if _vertices(facts.problem) else "gaussian"
        return StationarySettings(
            bound=bound,
            passes=1.0 if one_pass else float(steps * facts.repeats),
            one_pass=one_pass,
            n_iter=steps,
            step=eta,
            iterate=iterate,
            seed=seed,
            first=facts.n // 2 if one_pass else facts.n,
            batch_size=_batch(facts.n, steps) if one_pass else facts.n,
            slope_clip=clip,
            difference_clip=difference_clip(facts, clip, eta),
            noise="pure" if budget.pure else noise,
            noise_multiplier=multiplier,
            ridge=facts.problem.l2,
        )

    def run(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: StationarySettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        p, theta = oracle.dimension, problem.domain.centre(oracle.dimension)
        vertices = _vertices(problem)
        norm = "linf" if vertices else "l2"
        gradient = CoordinateClippedGradient(
            problem.loss, settings.slope_clip, oracle.bounds, p, norm
        )
        ridge, kept = settings.ridge, theta
        if settings.one_pass:
            sizes = [settings.first] + [settings.batch_size] * (settings.n_iter - 1)
            recursive = RecursiveGradient(
                oracle, gradient, sizes, settings.step, settings.difference_clip
            )
        else:
            recursive, view, ridge = None, oracle.everything(), ridge * settings.first
        choose = _chooser(gate, problem, settings, p)
        for t in range(settings.n_iter):
            estimate = recursive.at(theta) if recursive else view.ask(gradient, theta)
            if ridge:
                estimate = estimate.through(Shift(ridge * theta, norm))
            theta = (1 - settings.step) * theta + settings.step * choose(estimate)
            if t + 1 == settings.iterate:
                kept = theta
            tick(t + 1, settings.n_iter)
        return kept


def _chooser(gate: Gate, problem: Problem, settings: StationarySettings, p: int) -> Any:
    """From a sealed gradient to the point of the set that is best for it, privately."""
    if _vertices(problem):
        select = PermuteAndFlip if settings.noise == "pure" else ExponentialMechanism
        mechanism, scores = select(settings.noise_multiplier), VertexScores(problem.domain, p)

        def vertex(sealed: Sealed) -> np.ndarray:
            return scores.vertex(gate.release(mechanism, sealed.through(scores)))

        return vertex
    noisy = (NormGamma if settings.noise == "pure" else Gaussian)(settings.noise_multiplier)

    def point(sealed: Sealed) -> np.ndarray:
        return problem.domain.linear_minimiser(gate.release(noisy, sealed))

    return point


# ---------------------------------------------------------------- the bounds
def _vertices(problem: Problem) -> bool:
    return isinstance(problem.domain, (L1Ball, Simplex, Polytope))


def _check_one_pass(name: str, facts: Facts, budget: Budget) -> None:
    if budget.pure:
        raise ValueError(f"{name} needs delta > 0 in one pass: give one, or read all records.")
    if facts.n < 2:
        raise ValueError(f"{name} needs at least 2 records for one pass: collect more.")
    sentence = refuse_unless_ordered(f"{name} in one pass", facts)
    if sentence is not None:
        raise ValueError(sentence)


def _batch(n: int, steps: int) -> int:
    """Records of a step after the first, which takes half of all."""
    return (n - n // 2) // max(1, steps - 1)


def curvature(facts: Facts) -> float:
    """Curvature constant of the mean over the domain."""
    far = facts.problem.domain.diameter("l2", facts.p)
    smooth = facts.problem.loss.smoothness * largest_margin(facts) ** 2
    return smooth + facts.problem.l2 * far**2


def _walk(facts: Facts, steps: int, step: float | None) -> tuple[float, float]:
    """h/(eta T) + eta Gamma/2, and the step size: the best one if none is given."""
    fall, bend = largest_fall(facts), curvature(facts)
    eta = step or min(0.9, math.sqrt(2 * fall / (steps * bend)))
    return fall / (eta * steps) + eta * bend / 2, eta


def _order(facts: Facts) -> float:
    """The l_p geometry of the set, where that is better than l2."""
    domain = facts.problem.domain
    return domain.order if isinstance(domain, LpBall) and domain.order < 2 else 2.0


def _extent(facts: Facts) -> float:
    """Diameter in that geometry."""
    domain = facts.problem.domain
    if isinstance(domain, LpBall) and domain.order < 2:
        return 2 * domain.size
    return domain.diameter("l2", facts.p)


def _all_records(
    facts: Facts, budget: Budget, clip: float, steps: int, step: float | None
) -> tuple[float, int, float, float]:
    bound, eta = _walk(facts, steps, step)
    bounds, releases = entry_bounds(facts.problem), steps * facts.repeats
    sensitivity = facts.relation_factor * clip / facts.n
    if _vertices(facts.problem):
        multiplier = choice_multiplier(budget, releases)
        missed = selection_error(facts, 0.0, multiplier * sensitivity * bounds.largest)
        return bound + missed, steps, eta, multiplier
    scale = sensitivity * bounds.in_norm(2.0, facts.p)
    if budget.pure:
        multiplier = releases / budget.epsilon * (1 + 1e-12)
        missed = multiplier * scale * math.sqrt(facts.p * (facts.p + 1)) * facts.diameter()
    else:
        multiplier = math.sqrt(releases) / gaussian_mu(budget.epsilon, budget.delta) * (1 + 1e-12)
        wide = gaussian_length(dual_order(_order(facts)), facts.p) * _extent(facts)
        missed = multiplier * scale * wide
    return bound + missed, steps, eta, multiplier


def _one_pass(
    facts: Facts, budget: Budget, clip: float, steps: int, step: float | None
) -> tuple[float, int, float, float]:
    first, batch, bounds = facts.n // 2, _batch(facts.n, steps), entry_bounds(facts.problem)
    later = steps - 1
    found = []
    for eta in [0.9 * (steps + 1) ** (-i / 20) for i in range(21)] if step is None else [step]:
        bound, _ = _walk(facts, steps, eta)
        change, keep = difference_clip(facts, clip, eta), (1 - eta) ** 2
        noisy = clip**2 / first + change**2 / (batch * (1 - keep))  # of a slope's running mean
        if _vertices(facts.problem):
            rho = concentrated_rho(budget.epsilon, budget.delta) / facts.repeats
            row = bounds.largest
            dearest = dearest_record(facts, row, clip, first, batch, later, eta)
            multiplier = math.sqrt(dearest / (8 * rho)) * (1 + 1e-12)
            bound += selection_error(facts, noisy * row**2, multiplier)
        else:
            order = dual_order(_order(facts))
            wide = bounds.in_norm(2.0, facts.p)
            dearest = dearest_record(facts, wide, clip, first, batch, later, eta)
            mu = gaussian_mu(budget.epsilon, budget.delta) / math.sqrt(facts.repeats)
            multiplier = math.sqrt(dearest) / mu * (1 + 1e-12)
            r = max(2.0, 2 * math.log(facts.p))
            regularity = order - 1 if order <= r else math.e * (r - 1)
            sampling = math.sqrt(regularity * noisy) * 2 * bounds.in_norm(order, facts.p)
            loud = multiplier * gaussian_length(order, facts.p)
            bound += _extent(facts) * (sampling + loud)
        found.append((bound, steps, eta, multiplier))
    return min(found)


SOLVER = StationaryFrankWolfe()
