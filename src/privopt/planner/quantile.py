"""A private quantile of one column."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import numpy as np

from privopt.facts import Facts
from privopt.geometry import Box
from privopt.ledger import account_for
from privopt.losses import Quantile
from privopt.mechanisms import Gate, RankQuantile
from privopt.noise import source_for
from privopt.oracle import Oracle
from privopt.oracle.labels import numbers
from privopt.planner.choose import choose
from privopt.privacy import Budget, Certificate, Neighbouring
from privopt.problem import Problem
from privopt.solvers import Plan, Settings, Solver, Tick, execute, row_bounds
from privopt.solvers.solver import no_tick


@np.errstate(all="ignore")  # a warning that one record causes would tell of it
def quantile(
    values: Any,
    q: float,
    *,
    bounds: tuple[float, float],
    epsilon: float = 1.0,
    neighbouring: str = "zero_out",
    method: Literal["loss", "rank"] = "loss",
    widening: float | None = None,
    random_state: int | None = None,
    ledger: Any = None,
    dataset: str | None = None,
    key: str | None = None,
) -> tuple[float, Certificate]:
    """A quantile of one column under pure differential privacy, and its certificate.

    Parameters
    ----------
    values : array of shape (n,)
        Private. NaN and infinity count as empty records; values beyond the bounds count as far.
    q : float
        Level strictly between 0 and 1; 0.5 is the median.
    bounds : (float, float)
        Public bounds of the answer. They must not be read from the data.
    epsilon : float, default=1.0
    neighbouring : {"zero_out", "replace_one", "add_remove"}, default="zero_out"
    method : {"loss", "rank"}, default="loss"
        ``"loss"``: density exp(-k sum of quantile losses). The expected excess of the summed loss
        is at most 1/k = a max(q, 1-q) (high - low) / epsilon for every data set (a = 2 under
        replace_one, else 1). ``"rank"``: density by rank error, usually 20 to 1000 times more
        precise on continuous data; it finds a value that many records share only to within
        ``widening``, and has no such bound.
    widening : float, optional
        For ``"rank"``: public half-width of the neighbourhood in which a value counts as met.
        Default: 1e-4 of the bounds' distance.
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
    (float, Certificate)

    Examples
    --------
    >>> import numpy as np, privopt
    >>> median, certificate = privopt.quantile(
    ...     np.linspace(0, 1, 10_001), 0.5, bounds=(0, 2), epsilon=1.0
    ... )
    >>> bool(abs(median - 0.5) < 0.1), round(certificate.epsilon, 6)
    (True, 1.0)
    """
    if method not in ("loss", "rank"):
        raise ValueError(f'method must be "loss" or "rank", got {method!r}.')
    if widening is not None and method != "rank":
        raise ValueError('widening belongs to method="rank".')
    low, high = _checked(bounds)
    column = _column(values)
    budget = Budget(epsilon, 0.0, cast(Neighbouring, neighbouring))
    problem = Problem(Quantile(q), Box(low, high), data_norm=1.0)
    # Under add_remove the number of records is private; nothing but the bound would use it.
    n = 1 if neighbouring == "add_remove" else max(len(column), 1)
    facts = Facts(problem, n, 1, budget.neighbouring)
    if method == "loss":
        plan = choose(facts, budget, "exponential_sampling")
    else:
        width = 1e-4 * (high - low) if widening is None else float(widening)
        plan = Plan(_BY_RANK, facts, budget, _BY_RANK.settings(facts, budget, widening=width))
    source = source_for(random_state)

    def read() -> list[Oracle]:
        return [
            Oracle.over(
                np.ones((len(column), 1)),
                column,
                neighbouring=budget.neighbouring,
                bounds=row_bounds(plan),
                source=source,
                classification=False,
            )
        ]

    account = account_for(ledger, dataset)
    (theta,), certificate = execute(plan, read, source, account=account, key=key)
    return float(theta[0]), certificate


def _column(values: Any) -> np.ndarray:
    column = np.asarray(numbers(values, "values"), dtype=float)
    if column.ndim != 1:
        raise ValueError("values must be one column of numbers: an array with one axis.")
    return column


def _checked(bounds: tuple[float, float]) -> tuple[float, float]:
    low, high = (float(bound) for bound in bounds)
    if not -math.inf < low < high < math.inf:
        raise ValueError(
            f"bounds must be two finite public numbers, the lower one first, got {bounds!r}: "
            "a private quantile is drawn from an interval."
        )
    return low, high


@dataclass(frozen=True)
class RankSettings(Settings):
    """See ``mechanisms.RankQuantile``."""

    noise: str
    noise_multiplier: float
    widening: float


class _ByRank(Solver):
    """A quantile by ranks: not in the catalogue, because it answers this one question.

    Formal guarantee
    ----------------
    Every relation, pure, bounded range; uses nothing but counts. See ``mechanisms.RankQuantile``.
    """

    name: ClassVar[str] = "rank_quantile"
    summary: ClassVar[str] = "one release: a draw from exp(-rank error)"

    def refuse(self, facts: Facts, budget: Budget) -> str | None:
        return None

    def settings(self, facts: Facts, budget: Budget, **choices: Any) -> RankSettings:
        multiplier = (1 + 1e-12) * facts.repeats / budget.epsilon
        # No better bound than the trivial one is proved.
        worst = facts.lipschitz() * facts.diameter()
        return RankSettings(worst, 1.0, "pure", multiplier, float(choices["widening"]))

    def replanned(self, facts: Facts, budget: Budget, settings: Any) -> RankSettings:
        return self.settings(facts, budget, widening=settings.widening)

    def run(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: RankSettings,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        box = problem.domain
        assert isinstance(box, Box)
        low, high = (float(np.ravel(bound)[0]) for bound in (box.lower, box.upper))
        mechanism = RankQuantile(settings.noise_multiplier, low, high, settings.widening)
        theta = gate.release(mechanism, oracle.everything().function(problem.loss))
        tick(1, 1)
        return theta


_BY_RANK = _ByRank()
