"""DP-FTRL: follow the regularised leader, on running sums of gradients with correlated noise.

Problem: min over a domain C of the mean of f(<x_i, theta>, y_i) + l2/2 ||theta||^2 +
l1 ||theta||_1, f convex and Lipschitz; or, for a stream of losses l_t, small regret.

Algorithm: the records are cut into T blocks, which are visited in order, ``epochs`` times. Step t
releases the clipped gradient of its block, over the block's public size, plus a_t = b_t - b_(t-1):
the running sum s_t then carries the noise b_t, which stays small when it is correlated over time.
Everything else is public: theta_(t+1) = argmin over C of <s_t, theta> + t r(theta) +
lambda/2 ||theta - theta_0||^2, r the two penalties, in closed form. Without constraint and
penalties this is SGD, theta <- theta - (g_t + a_t)/lambda. With momentum, s_t is replaced by an
average of s_1..s_t with geometric weights: heavy-ball (DP-FTRLM) or Nesterov's method with step
(1 - momentum)/lambda. No record is sampled and no order is secret: any order will do.

Bounds, with w_t = lambda + (t-1) l2, L the Lipschitz constant of a step's loss, d = ||theta* -
theta_0||, e_t the mean norm of b_(t-1), q the mean age of a gradient that momentum averages
(0 without), R a bound on ||theta||, G = L + l2 R + l1 sqrt(p):

* regret, for every order and adaptively chosen losses: on average over N steps, in expectation,
  lambda d^2/(2N) + (1/N) sum_t (L^2/2 + G (q L + e_t)) / w_t + r(theta_0)/N.
* one pass over independent records: the same bound for the expected excess of the average iterate.
* more passes, empirical risk, every order: in addition (2 L/N) sum_t of how far theta_t has moved
  since its pass began, at most ((2 L + l2 ||theta_0|| + l1 sqrt(p)) j + 3 max e)/w_t in j steps.

Proof of the first: the leader without noise and momentum has the regret lambda d^2/2 +
sum L^2/(2 w_t) (McMahan, 2017, Theorem 1), theta_t is at most (q L + ||b_(t-1)||)/w_t away from it,
and losses and penalties have slope at most G. (On the whole space l2 ||theta|| is at most L for
that leader, and the ridge adds l2/2 times the square of the distance.) lambda minimises the bound;
it depends on public facts alone. The default averages the last half of the iterates, or takes the
last one where an l1 penalty makes it sparse; the bounds are about the average of all.

References: Kairouz, McMahan, Song, Thakkar, Thakurta and Xu (2021), ICML; Denisov, McMahan, Rush,
Smith and Thakurta (2022), NeurIPS; McMahan (2017), JMLR 18.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from privopt.facts import Facts
from privopt.mechanisms import Gate, choose_correlated, correlated_noise, resolution_of
from privopt.mechanisms.correlated import WIDER
from privopt.oracle import Oracle, gradient_query
from privopt.privacy import Budget
from privopt.privacy.factorizations import Factorization, Restarts, named
from privopt.privacy.factorizations.restarts import TREES
from privopt.privacy.participation import Participation
from privopt.problem import Problem
from privopt.solvers.families.gradient_steps import Average
from privopt.solvers.families.leaders import Leader, Task, check_leader, delay
from privopt.solvers.families.passes import refuse_unless_ordered
from privopt.solvers.solver import Settings, Solver, Tick, no_tick
from privopt.solvers.specimen import Attack, Specimen

Order = Literal["shuffled", "given"]


@dataclass(frozen=True)
class DPFTRLSettings(Settings):
    """Passes, blocks of a pass, the leader's regularisation and penalties, and the noise."""

    n: int
    epochs: int
    steps_per_epoch: int
    order: Order
    regularisation: float
    momentum: float
    nesterov: bool
    l1: float
    ridge: float
    clip_norm: float
    noise: str
    noise_multiplier: float
    average: Average
    discrete_noise: bool
    restart_every: int | None = None
    completion: bool = False

    @property
    def factorization(self) -> Factorization:
        rule = Participation.epochs(self.epochs, self.steps_per_epoch)
        return _factorization(self.noise, self.n_iter, rule, self.restart_every, self.completion)

    @property
    def n_iter(self) -> int:
        return self.epochs * self.steps_per_epoch


def _factorization(
    noise: str, steps: int, rule: Participation, restart_every: int | None, completion: bool
) -> Factorization:
    """Noise by name; trees start anew after so many passes, if told."""
    if restart_every is None:
        if completion:
            raise ValueError("completion=True is of trees that start anew: give restart_every.")
        return named(noise, steps, rule)
    if noise not in TREES:
        raise ValueError(
            f'restart_every is of trees: give noise="tree" or noise="honaker", got {noise!r}.'
        )
    if restart_every < 1:
        raise ValueError(f"restart_every counts passes and is positive, got {restart_every}.")
    return Restarts(steps, restart_every * rule.min_separation_steps, completion, noise)  # type: ignore[arg-type]


class DPFTRL(Solver):
    """Follow the regularised leader with correlated noise.

    Formal guarantee
    ----------------
    ``zero_out`` and ``replace_one``, every loss, every order of the records. Privacy rests on the
    clip alone: all steps together are one Gaussian release with mu = sens/multiplier, sens^2 the
    largest 1_pi' C'C 1_pi over the blocks' patterns pi = {j, j + T, ...} (C the noise's encoder);
    twice the sensitivity under replace_one. Blocks, steps, lambda and the clip are data-free. Needs
    delta > 0. Noise is hardened unless ``discrete_noise=False``: exact integers on a grid.
    """

    vectors: ClassVar[bool] = True
    name: ClassVar[str] = "dp_ftrl"
    summary: ClassVar[str] = "follows the leader on gradient sums with correlated noise, any order"
    has_discrete_noise: ClassVar[bool] = True
    specimen: ClassVar[Specimen] = Specimen(
        short={"epochs": 2, "batch_size": 20},
        enough={"epochs": 1, "batch_size": None},
        left=0.2,
        attack=Attack(choices=lambda budget: {"epochs": 4, "batch_size": 1}),
    )

    def refuse(self, facts: Facts, budget: Budget) -> str | None:
        if not math.isfinite(facts.lipschitz()):
            return (
                f"{self.name} needs a Lipschitz loss to clip at; {facts.loss_name} is not: "
                "use Squared(residual_clip=...), Huber(width) or solver="
                '"dp_ftrl_least_squares".'
            )
        if budget.pure:
            return f'{self.name} needs delta > 0: use solver="noisy_gd" or give a delta.'
        return refuse_unless_ordered(self.name, facts)

    def settings(self, facts: Facts, budget: Budget, **choices: Any) -> DPFTRLSettings:
        epochs: int = choices.pop("epochs", 1)
        batch_size: int | None = choices.pop("batch_size", None)
        order: Order = choices.pop("order", "shuffled")
        # One pass: within a percent of the best, and found fast enough for every plan.
        noise: str = choices.pop("noise", "blt" if epochs == 1 else "auto")
        clip_norm: float = choices.pop("clip_norm", facts.lipschitz())
        momentum: float = choices.pop("momentum", 0.0)
        nesterov: bool = choices.pop("nesterov", False)
        l1: float = choices.pop("l1", 0.0)
        regularisation: float | None = choices.pop("regularisation", None)
        average: Average = choices.pop("average", "last" if l1 else "suffix")
        discrete_noise: bool | None = choices.pop("discrete_noise", None)
        restart_every: int | None = choices.pop("restart_every", None)
        completion: bool = choices.pop("completion", False)
        if choices:
            raise ValueError(f"{self.name} has no setting named {sorted(choices)[0]!r}.")
        check_leader(regularisation, momentum, l1)
        if epochs < 1:
            raise ValueError(f"epochs must be positive, got {epochs}.")
        if batch_size is not None and not 1 <= batch_size <= facts.n:
            raise ValueError(f"batch_size must lie between 1 and {facts.n}, got {batch_size}.")
        if order not in ("shuffled", "given"):
            raise ValueError(f"order must be shuffled or given, got {order!r}.")
        if average not in ("suffix", "uniform", "last"):
            raise ValueError(f"average must be suffix, uniform or last, got {average!r}.")
        task = Task(facts, budget, epochs, clip_norm, l1, delay(momentum, nesterov))
        blocks = task.blocks() if batch_size is None else -(-facts.n // batch_size)
        rule = Participation.epochs(epochs, blocks)
        factorization = _factorization(noise, epochs * blocks, rule, restart_every, completion)
        multiplier = task.multiplier(factorization, blocks)
        norms = WIDER * multiplier * factorization.row_norms()
        regularisation = regularisation or task.best(blocks, norms)
        return DPFTRLSettings(
            bound=task.bound(blocks, norms, regularisation),
            passes=float(epochs * facts.repeats),
            n=facts.n,
            epochs=epochs,
            steps_per_epoch=blocks,
            order=order,
            regularisation=regularisation,
            momentum=momentum,
            nesterov=nesterov,
            l1=l1,
            ridge=facts.problem.l2,
            clip_norm=clip_norm,
            noise=factorization.name if restart_every is None else noise,
            noise_multiplier=multiplier,
            average=average,
            discrete_noise=choose_correlated(
                discrete_noise, factorization, multiplier, coordinates=facts.p, records=facts.n
            ),
            restart_every=restart_every,
            completion=completion,
        )

    def run(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: DPFTRLSettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        query = gradient_query(problem.loss, settings.clip_norm)
        mechanism = correlated_noise(
            settings.factorization,
            settings.noise_multiplier,
            discrete_noise=settings.discrete_noise,
        )
        resolution = resolution_of(mechanism)
        ordered = oracle.shuffled() if settings.order == "shuffled" else oracle
        blocks = ordered.blocks(settings.steps_per_epoch)
        size = settings.n / len(blocks)  # public, also where blocks differ by one record
        leader = Leader(
            problem.domain,
            problem.domain.centre(oracle.dimension),
            settings.regularisation,
            settings.momentum,
            settings.nesterov,
            settings.l1,
            settings.ridge,
        )
        theta = leader.iterate()
        total, mass = np.zeros_like(theta), 0
        for t in range(settings.n_iter + 1):
            if _counts(settings, t):
                total, mass = total + theta, mass + 1
            if t == settings.n_iter:
                break
            view = blocks[t % len(blocks)].everything()
            sealed = view.ask(query, theta, resolution=resolution)
            leader.take(gate.release(mechanism, sealed) / size)
            theta = leader.iterate()
            tick(t + 1, settings.n_iter)
        return total / mass


def _counts(settings: DPFTRLSettings, t: int) -> bool:
    """Whether iterate t, from 0 (the start) to n_iter (the last), is averaged."""
    if settings.average == "last":
        return t == settings.n_iter
    return t < settings.n_iter if settings.average == "uniform" else t > settings.n_iter // 2


SOLVER = DPFTRL()
