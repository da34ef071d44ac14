"""A private choice: which of several candidates do the records speak for?

Every record gives each candidate a number between public bounds; the candidate with the largest sum
is looked for. Permute-and-flip, the best mechanism for one pure choice (``mechanisms/selection``),
names one: the loss of the expected sum against the best is at most a width log K / epsilon, with
width the distance of the bounds (twice that under replace_one), whatever the data are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np

from privopt.facts import Facts
from privopt.geometry import WholeSpace
from privopt.ledger import account_for
from privopt.losses import Linear
from privopt.mechanisms import Gate, PermuteAndFlip
from privopt.noise import source_for
from privopt.oracle import Oracle, RowBounds, Votes
from privopt.oracle.labels import numbers
from privopt.privacy import Budget, Certificate, Neighbouring
from privopt.problem import Problem
from privopt.solvers import Plan, Settings, Solver, Tick, execute, row_bounds
from privopt.solvers.solver import no_tick


@np.errstate(all="ignore")  # a warning that one record causes would tell of it
def select(
    scores: Any,
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
    epsilon: float = 1.0,
    neighbouring: str = "zero_out",
    random_state: int | None = None,
    ledger: Any = None,
    dataset: str | None = None,
    key: str | None = None,
) -> tuple[int, Certificate]:
    """The candidate with nearly the largest sum of scores, and the certificate of the choice.

    Parameters
    ----------
    scores : array of shape (n, K)
        What each record says of each of K candidates, as far as it knows itself: a row must not
        depend on other records. Private. Entries are clipped to the bounds; a row with NaN or
        infinity says nothing.
    bounds : (float, float), default=(0, 1)
        Public bounds of one score. They must not be read from the data.
    epsilon : float, default=1.0
        Of a pure guarantee; delta would not help a single choice.
    neighbouring : {"zero_out", "replace_one", "add_remove"}, default="zero_out"
    random_state : int, optional
        Makes the noise reproducible, and the certificate say that the result is not private.
    ledger : Ledger or path, optional
        Charges the release to the budget of ``dataset``, or refuses it.
    dataset : str, optional
        Name of the budget in the ledger; may be left out if there is only one.
    key : str, optional
        Names this release in the ledger; see ``solve``.

    Returns
    -------
    (int, Certificate)
        The index of a column.

    Examples
    --------
    >>> import numpy as np, privopt
    >>> votes = np.eye(3)[[0] * 20 + [1] * 200 + [2] * 30]
    >>> winner, certificate = privopt.select(votes, epsilon=1.0)
    >>> winner, round(certificate.epsilon, 6)
    (1, 1.0)
    """
    low, high = (float(bound) for bound in bounds)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(
            f"bounds must be two finite public numbers, the lower one first, got {bounds!r}."
        )
    table = np.asarray(numbers(scores, "scores"), dtype=float)
    if table.ndim != 2 or table.shape[1] < 1:
        raise ValueError("scores must be a table: a row for each record, a column a candidate.")
    budget = Budget(epsilon, 0.0, cast(Neighbouring, neighbouring))
    # Around the middle, so that an empty record and one that says nothing are the same.
    table = table - (low + high) / 2
    problem = Problem(Linear(), WholeSpace(), column_bounds=(high - low) / 2)
    # Nothing depends on the number of records, which is private under add_remove.
    facts = Facts(problem, 1, table.shape[1], budget.neighbouring)
    plan = Plan(_CHOICE, facts, budget, _CHOICE.settings(facts, budget))
    source = source_for(random_state)

    def read() -> list[Oracle]:
        return [
            Oracle.over(
                table,
                np.zeros(len(table)),
                neighbouring=budget.neighbouring,
                bounds=row_bounds(plan),
                source=source,
                classification=False,
            )
        ]

    account = account_for(ledger, dataset)
    (theta,), certificate = execute(plan, read, source, account=account, key=key)
    return int(np.argmax(theta)), certificate


@dataclass(frozen=True)
class SelectSettings(Settings):
    """See ``mechanisms.PermuteAndFlip``."""

    noise: str
    noise_multiplier: float
    candidates: int


class _Choice(Solver):
    """One choice among columns: not in the catalogue, because it answers this one question.

    Formal guarantee
    ----------------
    Every relation, pure: (1 / noise_multiplier)-DP by the range of the sums. See ``oracle.Votes``.
    """

    name: ClassVar[str] = "select"
    summary: ClassVar[str] = "one choice by permute-and-flip"
    vectors: ClassVar[bool] = True

    def refuse(self, facts: Facts, budget: Budget) -> str | None:
        return None

    def settings(self, facts: Facts, budget: Budget, **choices: Any) -> SelectSettings:
        multiplier = (1 + 1e-12) / budget.epsilon
        assert facts.problem.column_bounds is not None
        width = 2 * facts.problem.column_bounds * facts.relation_factor
        bound = multiplier * width * math.log(facts.p)
        return SelectSettings(bound, 1.0, "permute and flip", multiplier, facts.p)

    def row_bounds(self, problem: Problem) -> RowBounds:
        assert problem.column_bounds is not None
        return RowBounds(math.inf, 0.0, problem.column_bounds)

    def run(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: SelectSettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        assert problem.column_bounds is not None
        sealed = oracle.everything().ask(Votes(problem.column_bounds))
        chosen = gate.release(PermuteAndFlip(settings.noise_multiplier), sealed)
        tick(1, 1)
        return np.eye(settings.candidates)[chosen]


_CHOICE = _Choice()
