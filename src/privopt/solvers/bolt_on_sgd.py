"""Bolt-on SGD: ordinary SGD over a secret order of the records, noise on its result only.

Problem: min over a domain C of the mean of f(<x_i, theta>, y_i) + l2/2 ||theta||^2, f convex,
smooth and Lipschitz, rows bounded.

Algorithm: ``epochs`` passes over one permutation, batches of m records, every batch divided by m.

* constant step eta <= 2/(beta + l2), average of all iterates. A record met j times so far has moved
  the iterate by at most j a L eta / m, which averages to S = (epochs + 1)/2 a L eta / m.
* decreasing steps min(1/(beta + l2), 1/(l2 t)), last iterate: S = a L / (l2 n) for every number of
  passes and batch size. Contraction comes from the regulariser, which every single step contains.

a = 2 under replace_one and 1 under zero_out, where a batch loses the record's gradient and nothing
takes its place.

Bounds on the expected excess risk, G = L + l2 R, T steps a pass, b the noise, B = min((beta + l2)/2
E||b||^2, G E||b||), the first if the projection after the noise does nothing. One pass, independent
records, population risk:

* constant steps: R^2/(2 eta T) + eta G^2/2 + B;
* decreasing steps: with t0 = (beta + l2)/l2 and D = [t0^2 (R^2 + G^2/(2 l2 (beta + l2))) +
  T G^2/l2^2] / (T (T - 1)) for the squared distance: (beta + l2)/2 (D + E||b||^2) if the minimiser
  lies inside the domain, and never more than G (sqrt(D) + E||b||).

More passes: constant steps R^2/(2 eta T epochs) + eta T G^2 + B for every order, and in any case
2 G R. One pass is the default: it is what the bounds are about. With decreasing steps more passes
cost no privacy.

References: Wu, Li, Kumar, Chaudhuri, Jha and Naughton (2017), SIGMOD; Hardt, Recht and Singer
(2016), ICML.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from privopt.facts import Facts
from privopt.mechanisms import Gate, OutputPerturbation, StableSGD
from privopt.mechanisms.mask import PURE_GROWTH
from privopt.mechanisms.objective_perturbation import Noise
from privopt.oracle import Oracle
from privopt.privacy import Budget
from privopt.problem import Problem
from privopt.solvers.families.minimisers import (
    choose_noise,
    choose_stable,
    moments,
    noise_multiplier,
    refuse_unless_smooth_and_convex,
)
from privopt.solvers.families.passes import refuse_unless_ordered
from privopt.solvers.families.rounding import RoundingSolver
from privopt.solvers.solver import Settings, Tick, no_tick
from privopt.solvers.specimen import Attack, Specimen, noise_of_delta

Rule = Literal["constant", "decreasing"]
MOST_BATCHES = 20_000


@dataclass(frozen=True)
class BoltOnSettings(Settings):
    """Passes over the data, batches of a pass, records of a batch, steps, and noise in units of the
    sensitivity."""

    rule: Rule
    epochs: int
    batches: int
    batch_size: int
    step: float
    ridge: float
    noise: Noise
    noise_multiplier: float
    discrete_noise: bool


class BoltOnSGD(RoundingSolver):
    """SGD with noise on its result.

    Formal guarantee
    ----------------
    ``zero_out`` and ``replace_one``. Privacy uses: convexity and smoothness of the loss (checked;
    without smoothness a gradient step may push two runs apart), Lipschitz constant and row norms
    (enforced), steps of at most 2/smoothness (enforced), for decreasing steps a regulariser that
    makes every record's own objective strongly convex (checked), division of every batch by the
    same public number (enforced). It holds for every order of the records, so the order need not
    stay secret. Noise is hardened unless ``discrete_noise=False`` or the projection is not in
    closed form: exact integers over the result, whose rounding errors are paid for.
    """

    name: ClassVar[str] = "bolt_on_sgd"
    summary: ClassVar[str] = "SGD over a permutation, noise on its result only"
    has_discrete_noise: ClassVar[bool] = True
    specimen: ClassVar[Specimen] = Specimen(
        short={"batch_size": 7}, left=0.1, attack=Attack(n=16, choices=noise_of_delta)
    )

    def refuse_smooth(self, facts: Facts, budget: Budget) -> str | None:
        return refuse_unless_ordered(self.name, facts) or refuse_unless_smooth_and_convex(
            self.name, facts
        )

    def smooth_settings(self, facts: Facts, budget: Budget, **choices: Any) -> BoltOnSettings:
        rule: Rule | None = choices.pop("rule", None)
        epochs: int = choices.pop("epochs", 1)
        batch: int = choices.pop("batch_size", max(1, math.ceil(facts.n / MOST_BATCHES)))
        step: float | None = choices.pop("step", None)
        noise: Noise = choices.pop("noise", None) or choose_noise(facts, budget)
        discrete_noise: bool | None = choices.pop("discrete_noise", None)
        if choices:
            raise ValueError(f"{self.name} has no setting named {sorted(choices)[0]!r}.")
        ridge = facts.problem.l2
        if rule not in (None, "constant", "decreasing"):
            raise ValueError(f"rule must be constant or decreasing, got {rule!r}.")
        if rule == "decreasing" and ridge == 0:
            raise ValueError(
                "decreasing steps are stable only if every record's loss plus regulariser is "
                'strongly convex: set Problem(l2=...) or use rule="constant".'
            )
        if noise == "gaussian" and budget.pure:
            raise ValueError('noise="gaussian" needs delta > 0; use noise="pure".')
        for name, value in (("epochs", epochs), ("batch_size", batch)):
            if value < 1:
                raise ValueError(f"{name} must be positive, got {value}.")
        if step is not None and not 0 < step <= 2 / (facts.smoothness() + ridge):
            raise ValueError(f"step must lie in (0, 2/smoothness], got {step!r}.")
        rules: list[Rule] = ["constant"]
        if rule is not None:
            rules = [rule]
        elif ridge > 0 and step is None:
            rules = ["constant", "decreasing"]
        multiplier = noise_multiplier(facts, budget, noise)
        found: list[tuple[float, Rule, float]] = []
        loud = multiplier * (PURE_GROWTH if noise == "pure" else 1.0)
        for tried in rules:
            size = step or _step(facts, noise, loud, batch, epochs)
            bound = _bound(facts, noise, loud, batch, epochs, size, tried)
            found.append((bound, tried, size))
        bound, chosen, size = min(found)
        moved = facts.relation_factor * facts.lipschitz() / batch
        batches = math.ceil(facts.n / batch)
        moved *= (epochs + 1) / 2 * size if chosen == "constant" else 1 / (ridge * batches)
        return BoltOnSettings(
            bound=bound,
            passes=float(epochs),
            rule=chosen,
            epochs=epochs,
            batches=batches,
            batch_size=batch,
            step=size,
            ridge=ridge,
            noise=noise,
            noise_multiplier=multiplier,
            discrete_noise=choose_stable(discrete_noise, facts, noise, multiplier, moved),
        )

    def run_smooth(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: BoltOnSettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        algorithm = StableSGD(
            passes=settings.epochs,
            batches=settings.batches,
            batch=settings.batch_size,
            step=settings.step,
            decreasing=settings.rule == "decreasing",
            average=settings.rule == "constant",
            ridge=settings.ridge,
            domain=problem.domain,
            start=tuple(problem.domain.centre(oracle.dimension).tolist()),
        )
        mechanism = OutputPerturbation(
            settings.noise,
            settings.noise_multiplier,
            algorithm,
            discrete_noise=settings.discrete_noise,
        )
        theta = gate.release(mechanism, oracle.shuffled().everything().function(problem.loss))
        tick(1, 1)
        return problem.domain.project(theta)


def _step(facts: Facts, noise: Noise, multiplier: float, batch: int, epochs: int) -> float:
    """Minimises R^2/(2 eta T epochs) + eta G^2/2 + B, whose noise grows with the step."""
    curved, radius = facts.smoothness() + facts.problem.l2, facts.radius()
    steep = facts.lipschitz() + facts.problem.l2 * radius
    steps = epochs * math.ceil(facts.n / batch)
    moved = (epochs + 1) / 2 * facts.relation_factor * facts.lipschitz() / batch
    spread, size = moments(noise, facts.p, multiplier * moved)

    def risk(step: float) -> float:
        added = min(curved / 2 * spread * step**2, steep * size * step)
        return radius**2 / (2 * step * steps) + step * steep**2 / 2 + added

    return float(min(2 / curved * np.geomspace(1e-8, 1, 161), key=risk))


def _bound(
    facts: Facts, noise: Noise, multiplier: float, batch: int, epochs: int, step: float, rule: Rule
) -> float:
    ridge, radius, factor = facts.problem.l2, facts.radius(), facts.relation_factor
    steep, batches = facts.lipschitz() + ridge * radius, math.ceil(facts.n / batch)
    curved = facts.smoothness() + ridge
    trivial = 2 * steep * radius
    if rule == "constant":
        moved = (epochs + 1) / 2 * factor * facts.lipschitz() * step / batch
        spread, size = moments(noise, facts.p, multiplier * moved)
        added = min(curved / 2 * spread, steep * size)
        drift = step * steep**2 * (0.5 if epochs == 1 else batches)
        return min(radius**2 / (2 * step * batches * epochs) + drift + added, trivial)
    moved = factor * facts.lipschitz() / (ridge * batch * batches)
    spread, size = moments(noise, facts.p, multiplier * moved)
    if epochs > 1 or batches < 2:
        return trivial
    early = (curved / ridge) ** 2 * (radius**2 + steep**2 / (2 * ridge * curved))
    square = (early + batches * steep**2 / ridge**2) / (batches * (batches - 1))
    return min(curved / 2 * (square + spread), steep * (math.sqrt(square) + size), trivial)


SOLVER = BoltOnSGD()
