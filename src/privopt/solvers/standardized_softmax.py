"""Standardise privately, then release the gradients of all classes together.

Problem: three classes or more, columns with declared bounds, an intercept.

Algorithm: release a histogram of row norms, the first two moments and the class counts; centre,
scale and clip the rows with them; then ``joint_softmax`` on the mapped rows. The standardisation is
one for all classes. Scores are those of rows as they are, so that coefficients are a linear model;
long rows count less. A ``CappedLogistic`` loss stands for the model of shortened rows.

Bound: none is proved, as for ``joint_softmax``.

Reference: ``standardized_objective`` for the map, ``joint_softmax`` for the descent; shares were
settled by measurement (``benchmarks/many_classes.py``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from privopt.facts import Facts
from privopt.losses import CappedLogistic
from privopt.mechanisms import Gate, Standardizer, choose_discrete
from privopt.oracle import Oracle, RowBounds
from privopt.privacy import Budget
from privopt.privacy.profiles import gaussian_mu
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
from privopt.solvers.specimen import COLUMNS, Attack, Specimen

NORMS, MOMENTS = 0.02, 0.10
"""Shares of mu^2 for row norms and moments."""
CLIP = 0.8
"""Mapped rows are clipped to this multiple of their root mean square."""


@dataclass(frozen=True)
class StandardizedSoftmaxSettings(JointSettings):
    """Settings of the descent, and of the releases before it."""

    norm_multiplier: float
    moment_multiplier: float
    clip: float
    shortening: float


class StandardizedSoftmax(Solver):
    """Private standardisation, then noisy gradients of a capped softmax in all classes.

    Formal guarantee
    ----------------
    Every relation, delta > 0. Gaussian noise on clipped sums alone: the histogram of norms moves by
    1 (replace_one: sqrt 2), moments by sqrt 2 (sqrt 6), counts by 1 (sqrt 2), each gradient by c
    (2c); shares .02, .10, .01 and .87 of mu^2: exactly mu-GDP together. The map between them is
    public once released.
    """

    chunks: ClassVar[bool] = True
    name: ClassVar[str] = "standardized_softmax"
    summary: ClassVar[str] = "private centring and scaling, then gradients of all classes at once"
    has_discrete_noise: ClassVar[bool] = True
    joint: ClassVar[bool] = True
    specimen: ClassVar[Specimen] = Specimen(
        attack=Attack(
            (COLUMNS,),
            n=20,
            choices=lambda b: {"n_iter": 3},
            pair=lambda b: "class crowd",
            classes=3,
        )
    )

    def refuse(self, facts: Facts, budget: Budget) -> str | None:
        if facts.problem.column_bounds is None:
            return (
                f"{self.name} needs declared column bounds: "
                "give LogisticRegression(bounds=(low, high))."
            )
        if not facts.problem.intercept:
            return f"{self.name} centres the columns and so needs an intercept."
        return refuse_joint(self.name, facts, budget)

    def row_bounds(self, problem: Problem) -> RowBounds:
        # Rows are clipped after they are mapped; the first sums clip inside their queries.
        return RowBounds(math.inf, 1.0)

    def settings(self, facts: Facts, budget: Budget, **choices: Any) -> StandardizedSoftmaxSettings:
        clip: float = choices.pop("clip", CLIP)
        mu = gaussian_mu(budget.epsilon, budget.delta)
        norms, moments = ((1 + 1e-12) / (mu * math.sqrt(share)) for share in (NORMS, MOMENTS))
        wish, features = choices.get("discrete_noise"), max(facts.p - 1, 1)
        if wish is not False and not (
            choose_discrete(wish, True, norms, facts.n)
            and choose_discrete(wish, True, moments, facts.n, 2 * features)
        ):
            choices["discrete_noise"] = False  # all releases of a run are alike
        spared = 1 - NORMS - MOMENTS - COUNTS
        last = joint_settings(self.name, facts, budget, COUNTS, spared, choices)
        return StandardizedSoftmaxSettings(
            **{**vars(last), "passes": last.passes + 2},
            norm_multiplier=norms,
            moment_multiplier=moments,
            clip=clip,
            shortening=float(isinstance(facts.problem.loss, CappedLogistic)),
        )

    def run(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: StandardizedSoftmaxSettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        return self.run_all([oracle], gate, problem, settings, tick).thetas[0]

    def run_all(
        self,
        oracles: Sequence[Oracle],
        gate: Gate,
        problem: Problem,
        settings: StandardizedSoftmaxSettings,
        tick: Tick = no_tick,
    ) -> Answer:
        oracle = oracles[0]
        row_map = Standardizer(
            settings.n,
            "gaussian",
            settings.norm_multiplier,
            settings.moment_multiplier,
            clip=settings.clip,
            discrete_noise=settings.discrete_noise,
        ).run(oracle, gate)
        row_map = replace(row_map, shortening=settings.shortening)
        start = np.zeros((settings.classes, row_map.dimension))
        prior = log_prior(oracle, gate, settings, problem.weighted)
        start[:, -1] = prior * row_map.clip_norm / row_map.column
        effective = (row_map.clip_norm / settings.clip) ** 2
        W = descend(oracle.mapped(row_map), gate, settings, start, 1.0, effective, tick)
        thetas = []
        for theta in W * scale_of(settings):
            coefficients = row_map.backward(theta) / row_map.clip_norm
            coefficients[-1] /= problem.intercept
            thetas.append(coefficients)
        return Answer(thetas, row_map, clipped=settings.shortening == 1)


SOLVER = StandardizedSoftmax()
