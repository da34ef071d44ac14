"""DP-FTRL for least squares: two running sums with correlated noise, then a ridge solve.

Problem: min over the ball ||theta|| <= R of the mean of (<x_i, theta> - y_i)^2 / 2 + l2/2
||theta||^2, rows of norm at most L, labels clipped to [-Y, Y].

Algorithm: the records are cut into ``steps`` blocks. Step t releases the block's sums of x x' and
y x, in one vector with correlated noise, so that V_t = sum x x' + N and u_t = sum y x + w are known
up to a noise that stays small; theta_(t+1) minimises theta' V_t theta/2 - <u_t, theta> +
lambda_t/2 ||theta||^2 over the ball, negative eigenvalues of V_t set to 0: a trust-region problem.
The matrix travels as svec, an isometry, which makes N a Gaussian orthogonal matrix, of spectral
norm about sqrt(2p) in units of its scale; lambda_t is ``shrinkage`` times that, by default twice.
There is one step by default: the answer needs no more. More steps give a model after each block.

Bound on the expected excess of the sum, tau and upsilon the standard deviations of svec(N) and w:
tau (3 (sqrt(2p) + sqrt(2 ln 2)) + shrinkage sqrt(2p)) R^2/2 + 2 upsilon sqrt(p) R. Proof: with V+
the clipped matrix, V - V+ is at most ||N|| and V+ - V at most 2 ||N||; compare the minimiser's
objectives with and without noise. E||N|| is at most tau (sqrt(2p) + sqrt(2 ln 2)).

References: Kairouz, McMahan, Song, Thakkar, Thakurta and Xu (2021), ICML, Theorem 4.3; Agarwal and
Singh (2017), ICML.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from privopt.facts import Facts
from privopt.geometry import Domain, L2Ball
from privopt.losses import Squared
from privopt.mechanisms import Gate, choose_correlated, correlated_noise, resolution_of
from privopt.mechanisms.correlated import WIDER
from privopt.oracle import LeastSquaresMoments, Oracle
from privopt.privacy import Budget, Neighbouring
from privopt.privacy.budget import replaces
from privopt.privacy.factorizations import named
from privopt.privacy.participation import Participation
from privopt.privacy.profiles import gaussian_mu
from privopt.problem import Problem
from privopt.solvers.families.passes import refuse_unless_ordered
from privopt.solvers.families.quadratic_leader import SAFE, QuadraticLeader
from privopt.solvers.solver import Settings, Solver, Tick, no_tick
from privopt.solvers.specimen import SQUARES, Attack, Specimen


@dataclass(frozen=True)
class LeastSquaresSettings(Settings):
    """Blocks, the labels' bound, the ball, and the noise in units of the moments' sensitivity."""

    n: int
    steps: int
    label_bound: float
    radius: float
    ridge: float
    shrinkage: float
    noise: str
    noise_multiplier: float
    discrete_noise: bool


class DPFTRLLeastSquares(Solver):
    """Least squares from running sums with correlated noise.

    Formal guarantee
    ----------------
    ``zero_out`` and ``replace_one``, every order of the records. Rows and labels are clipped, so a
    record moves the moments' vector by sqrt(2) in units of its two bounds, and replacing it by
    1.5 sqrt(2); all steps together are one Gaussian release with mu = sens/multiplier. Everything
    else is data-free or post-processing. Needs delta > 0. Noise is hardened unless
    ``discrete_noise=False``: exact integers on a grid.
    """

    name: ClassVar[str] = "dp_ftrl_least_squares"
    summary: ClassVar[str] = "noisy sums of x x' and y x, then a ridge solve over a ball"
    has_discrete_noise: ClassVar[bool] = True
    specimen: ClassVar[Specimen] = Specimen(
        problems={"least squares": Problem(Squared(), L2Ball(1.5), intercept=0.5, l2=0.01)},
        short={"steps": 7},
        attack=Attack((SQUARES,), choices=lambda budget: {"steps": 4}),
    )

    def refuse(self, facts: Facts, budget: Budget) -> str | None:
        loss, domain = facts.problem.loss, facts.problem.domain
        if not isinstance(loss, Squared):
            return f"{self.name} needs the loss Squared(), not {facts.loss_name}."
        if budget.pure:
            return f"{self.name} fits Squared() with Gaussian noise and needs delta > 0: give one."
        if not _centred_ball(domain):
            return f"{self.name} needs a ball about the origin for Squared(): use L2Ball(radius)."
        largest = 1.0 + facts.problem.size * facts.radius()
        if loss.residual_clip is not None and loss.residual_clip < largest:
            return (
                f"{self.name} does not clip residuals: use Squared(), or a residual_clip of at "
                f"least {largest:g}, which no residual reaches."
            )
        return refuse_unless_ordered(self.name, facts)

    def settings(self, facts: Facts, budget: Budget, **choices: Any) -> LeastSquaresSettings:
        steps: int = choices.pop("steps", 1)
        label_bound: float = choices.pop("label_bound", 1.0)
        shrinkage: float = choices.pop("shrinkage", SAFE)
        noise: str = choices.pop("noise", "blt")
        discrete_noise: bool | None = choices.pop("discrete_noise", None)
        if choices:
            raise ValueError(f"{self.name} has no setting named {sorted(choices)[0]!r}.")
        if not 1 <= steps <= facts.n:
            raise ValueError(f"steps must lie between 1 and {facts.n}, got {steps}.")
        if not 0 < label_bound < math.inf:
            raise ValueError(f"label_bound must be positive and finite, got {label_bound!r}.")
        if not 0 <= shrinkage < math.inf:
            raise ValueError(f"shrinkage must be non-negative and finite, got {shrinkage!r}.")
        rule = Participation.single_pass()
        factorization = named(noise, steps, rule)
        mu = math.sqrt(gaussian_mu(budget.epsilon, budget.delta) ** 2 - facts.prior_mu**2)
        square = factorization.sensitivity_squared(rule) * facts.repeats
        multiplier = math.sqrt(square) / mu * (1 + 1e-12)
        scale = WIDER * multiplier * reach_of(facts.neighbouring)
        last = scale * float(factorization.row_norms()[-1])
        return LeastSquaresSettings(
            bound=_bound(facts, last, label_bound, shrinkage) / facts.n,
            passes=float(facts.repeats),
            n=facts.n,
            steps=steps,
            label_bound=label_bound,
            radius=facts.radius(),
            ridge=facts.strong_convexity / steps,
            shrinkage=shrinkage,
            noise=factorization.name,
            noise_multiplier=multiplier,
            discrete_noise=choose_correlated(
                discrete_noise,
                factorization,
                multiplier,
                coordinates=facts.p * (facts.p + 3) // 2,
                records=facts.n,
            ),
        )

    def run(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: LeastSquaresSettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        factorization = named(settings.noise, settings.steps, Participation.single_pass())
        mechanism = correlated_noise(
            factorization, settings.noise_multiplier, discrete_noise=settings.discrete_noise
        )
        resolution = resolution_of(mechanism)
        query = LeastSquaresMoments(oracle.bounds, settings.label_bound)
        leader = QuadraticLeader(
            oracle.bounds,
            settings.label_bound,
            oracle.dimension,
            settings.radius,
            settings.ridge,
            settings.shrinkage,
        )
        scale = mechanism.noise_multiplier * reach_of(oracle.neighbouring)
        noise = scale * factorization.row_norms()
        for t, block in enumerate(oracle.blocks(settings.steps)):
            sealed = block.everything().ask(query, resolution=resolution)
            released = gate.release(mechanism, sealed)
            leader.take(released, float(noise[t]))
            tick(t + 1, settings.steps)
        return leader.iterate()


def reach_of(neighbouring: Neighbouring) -> float:
    """How far one change moves the moments' vector."""
    return math.sqrt(2) * (1.5 if replaces(neighbouring) else 1.0)


def _centred_ball(domain: Domain) -> bool:
    return isinstance(domain, L2Ball) and (domain.middle is None or not any(domain.middle))


def _bound(facts: Facts, noise: float, label_bound: float, shrinkage: float) -> float:
    """``noise``: standard deviation of a coordinate of the moments' running sum at the end."""
    size, radius, root = facts.problem.size, facts.radius(), math.sqrt(2 * facts.p)
    matrix = size**2 * noise * (3 * (root + math.sqrt(2 * math.log(2))) + shrinkage * root)
    vector = label_bound * size * noise * math.sqrt(facts.p)
    return matrix * radius**2 / 2 + 2 * vector * radius


SOLVER = DPFTRLLeastSquares()
