"""The best of a random number of private runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from privopt.noise import Source
from privopt.oracle.sensitivity import Sensitivity, SensitivityNorm
from privopt.privacy.kinds import Kind
from privopt.privacy.tuning import Loss, RandomCount, Tuned


@dataclass(frozen=True, slots=True)
class BestOf:
    """Draw a secret number of runs, a candidate for each, and keep the run with the best score.

    ``losses`` are the alternatives of one run's loss, over candidates and parts of the records.
    Neither the number of runs nor anything of the others leaves. None if no run was drawn, which a
    Poisson law allows.

    Formal guarantee: see ``privacy.tuning``, whose proof needs that runs are independent given the
    data, that a run's output holds its score, and that the number does not depend on data.
    """

    count: RandomCount
    candidates: int
    losses: tuple[Loss, ...]
    accepts: SensitivityNorm = "runs"

    def kinds(self, sensitivity: Sensitivity) -> tuple[Kind, ...]:
        return (Tuned(self.count.law, self.count.parameter, self.count.eta, self.losses),)

    def run(
        self, payload: Any, sensitivity: Sensitivity, source: Source
    ) -> tuple[int, float, Any] | None:
        best: tuple[int, float, Any] | None = None
        for _ in range(self.count.at(float(source.noise.random()))):
            candidate = int(source.noise.integers(self.candidates))
            score, result = payload(candidate, source)
            if best is None or score > best[1]:
                best = candidate, score, result
        return best
