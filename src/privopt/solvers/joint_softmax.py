"""All classes in one release: noisy gradient descent on a softmax whose gradient is capped.

Problem: three classes or more, rows of declared norm.

Algorithm: release the class counts, and start from the model of them alone; then T times release
the sum of the records' gradients in the whole coefficient matrix, each clipped to the length that
it has where all scores are equal; step with momentum, and average the last half of the iterates.

Why: one model for each class splits the budget by K. Here a record moves one matrix, and because
its row multiplies one residual, the whole matrix moves by no more than c = sqrt(1 - 1/K).

Bound: none is proved. Beyond its cap the field is the gradient of no function, nor monotone.

Reference: noisy gradient descent as in Bassily, Smith and Thakurta (2014); the cap, the number of
steps and the rates were settled by measurement (``benchmarks/many_classes.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from privopt.facts import Facts
from privopt.mechanisms import Gate
from privopt.oracle import Oracle
from privopt.privacy import Budget
from privopt.problem import Problem
from privopt.solvers.families.softmax import (
    COUNTS,
    JointSettings,
    descend,
    joint_settings,
    log_prior,
    refuse_joint,
    scale_of,
)
from privopt.solvers.solver import Answer, Solver, Tick, no_tick
from privopt.solvers.specimen import MANY, Attack, Specimen


class JointSoftmax(Solver):
    """Class counts, then noisy gradients of a capped softmax in the matrix of all classes.

    Formal guarantee
    ----------------
    Every relation, delta > 0. Only Gaussian noise on sums whose clip is enforced: counts (a record
    moves them by 1, replacing one by sqrt 2) and T gradients (c, and 2c), with fixed multipliers
    1/(mu sqrt .01) and sqrt(T)/(mu sqrt .99): exactly mu-GDP together, by adaptive composition of
    Gaussian mechanisms. T and all multipliers come from public numbers; start, rates, momentum and
    average are functions of releases. Nothing is assumed of convexity, smoothness or rank.
    """

    chunks: ClassVar[bool] = True
    name: ClassVar[str] = "joint_softmax"
    summary: ClassVar[str] = "noisy gradients of all classes in one release"
    has_discrete_noise: ClassVar[bool] = True
    joint: ClassVar[bool] = True
    specimen: ClassVar[Specimen] = Specimen(
        attack=Attack((MANY,), choices=lambda b: {"n_iter": 3}, pair=lambda b: "class", classes=3)
    )

    def refuse(self, facts: Facts, budget: Budget) -> str | None:
        return refuse_joint(self.name, facts, budget)

    def settings(self, facts: Facts, budget: Budget, **choices: Any) -> JointSettings:
        return joint_settings(self.name, facts, budget, COUNTS, 1 - COUNTS, choices)

    def run(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: JointSettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        return self.run_all([oracle], gate, problem, settings, tick).thetas[0]

    def run_all(
        self,
        oracles: Sequence[Oracle],
        gate: Gate,
        problem: Problem,
        settings: JointSettings,
        tick: Tick = no_tick,
    ) -> Answer:
        start = np.zeros((settings.classes, oracles[0].dimension))
        if problem.intercept:
            start[:, -1] = (
                log_prior(oracles[0], gate, settings, problem.weighted) / problem.intercept
            )
        # Rows are measured in their bound: in its units they are at most 1 long.
        size = problem.size
        W = descend(oracles[0], gate, settings, start * size, size, oracles[0].dimension, tick)
        return Answer(list(W / size * scale_of(settings)))


SOLVER = JointSoftmax()
