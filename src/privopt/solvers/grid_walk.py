"""Grid walk: the sampler of Bassily, Smith and Thakurta on a tabulated grid, for reference.

Problem: min over a ball or a box of a sum of convex Lipschitz losses, pure privacy.

Algorithm: Metropolis walk on a grid of a cube around the domain, with a penalty outside the domain,
as long as a conductance bound asks; repeat until it ends inside. See ``mechanisms.GridWalk``.

Bound: E[excess of the sum] <= p / k + 2 / k, k = 0.8 epsilon / (a Omega): the exponential
mechanism's own, and twice the change of the log density over a cell for the grid.

Time and memory: exponential in p, since the loss is tabulated at all points of the grid first. The
theorem's walk asks for values as it goes and so has polynomially many steps, of a degree that no
run could wait for: in more than four dimensions pure privacy at the rate p / epsilon is a theorem
without a program here, for losses with a kink; see ``docs/kinks.md`` for what is run instead.

The number of steps is a bound, 300 to 4000 times what the walk needs, and more than the points of
the grid: ``exponential_sampling`` draws from the same density exactly, and is better everywhere.

References: Bassily, Smith and Thakurta (2014), section III, with corrected constants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from privopt.facts import Facts
from privopt.mechanisms import Gate, GridWalk
from privopt.mechanisms.grid_walk import MOST_POINTS, WalkConstants
from privopt.oracle import Oracle
from privopt.privacy import Budget, Refused
from privopt.problem import Problem
from privopt.solvers.solver import Settings, Solver, Tick, no_tick
from privopt.solvers.specimen import Attack, Specimen

MOST_STEPS = 5e7


@dataclass(frozen=True)
class WalkSettings(Settings):
    """``steps`` of one walk on ``points`` points; it is repeated twice on average."""

    noise: str
    noise_multiplier: float
    n: int
    steps: float
    points: float


class GridWalkSolver(Solver):
    """Exponential mechanism by a walk on a grid.

    Formal guarantee
    ----------------
    zero_out and replace_one, pure. Privacy uses the enforced range of one record's loss, the
    public number of records (which bounds how long the walk must run), the convexity of the loss
    and a mixing bound; the certificate lists the last two. The time of a run is not covered.
    """

    name: ClassVar[str] = "grid_walk"
    summary: ClassVar[str] = "one release: the end of a long Metropolis walk on a grid"
    specimen: ClassVar[Specimen] = Specimen(attack=Attack(n=1, share=0.2))

    def refuse(self, facts: Facts, budget: Budget) -> str | None:
        loss = facts.loss_name
        if not facts.lipschitz() < float("inf"):
            return f"{self.name} needs a Lipschitz loss; {loss} is not: use Huber(width)."
        if not facts.convex:
            return f"{self.name} needs a convex loss; {loss} is not convex."
        if not facts.bounded:
            return f"{self.name} needs a bounded domain: use L2Ball(radius) or Box(lower, upper)."
        if facts.neighbouring == "add_remove":
            return (
                f"{self.name} walks for a number of steps that depends on n, which is private "
                'under add_remove: use neighbouring="zero_out" or solver="exponential_sampling".'
            )
        if facts.strong_convexity > 0:
            return f'{self.name} knows no ridge: use solver="exponential_sampling" or l2=0.'
        try:
            walk = _walk(facts, budget)
        except Refused as refusal:
            return str(refusal)
        if walk.steps * facts.repeats > MOST_STEPS or walk.side**facts.p > MOST_POINTS:
            return (
                f"{self.name} would walk {walk.steps:.2g} steps, at most {MOST_STEPS:.0g} are "
                'walked: use solver="exponential_sampling".'
            )
        return None

    def settings(self, facts: Facts, budget: Budget, **choices: Any) -> WalkSettings:
        if choices:
            raise ValueError(f"{self.name} has no setting named {sorted(choices)[0]!r}.")
        walk = _walk(facts, budget)
        return WalkSettings(
            bound=(facts.p + 2) / walk.inverse_temperature / facts.n,
            passes=float(walk.side**facts.p),
            noise="pure",
            noise_multiplier=_multiplier(facts, budget),
            n=facts.n,
            steps=float(walk.steps),
            points=float(walk.side**facts.p),
        )

    def run(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: WalkSettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        mechanism = GridWalk(settings.noise_multiplier, problem.domain, settings.n)
        theta = gate.release(mechanism, oracle.everything().function(problem.loss))
        tick(1, 1)
        return theta

    def assumptions(self, facts: Facts, settings: WalkSettings) -> tuple[str, ...]:
        return (
            f"the loss {facts.loss_name} is convex",
            "the conductance bound of the grid walk holds with the stated constants",
        )


def _multiplier(facts: Facts, budget: Budget) -> float:
    # One part in 1e12 keeps the sum of rounded epsilons within the budget.
    return (1 + 1e-12) * facts.repeats / budget.epsilon


def _walk(facts: Facts, budget: Budget) -> WalkConstants:
    problem = facts.problem
    return WalkConstants.planned(
        problem.loss,
        problem.size,
        problem.domain,
        facts.n,
        facts.p,
        facts.relation_factor,
        1 / _multiplier(facts, budget),
    )


SOLVER = GridWalkSolver()
