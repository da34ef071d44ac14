"""What a solver is. One algorithm is one file in this folder, with one class and ``SOLVER``."""

from __future__ import annotations

import html
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import wraps
from typing import Any, ClassVar, Literal

import numpy as np

from privopt.facts import Facts
from privopt.geometry import LpBall
from privopt.geometry.norms import dual_order
from privopt.inference import Coefficients
from privopt.mechanisms import Gate
from privopt.oracle import Oracle, RowBounds, RowMap, ShapeTables
from privopt.ownership import own_type
from privopt.privacy import Budget, Certificate
from privopt.problem import Problem
from privopt.solvers.frontier import Frontier, frontier
from privopt.solvers.prediction import Prediction
from privopt.solvers.specimen import Specimen

Tick = Callable[[int, int], None]
"""Progress: steps done, steps in all. It may show time and steps, nothing computed from data."""


def no_tick(done: int, total: int) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class Settings:
    """Public hyper-parameters of one run, computed from facts and budget alone.

    ``bound`` is the proved bound on what the solver promises to make small, the expected mean
    excess risk or a stationarity gap, and infinite where nothing is proved; ``passes`` the number
    of times the data is read. ``rounded``: the loss has a kink, which is rounded off over this
    half-width (``losses.Smoothed``); 0 if it is taken as it is. The bound is on the loss itself.
    """

    bound: float
    passes: float
    rounded: float = field(default=0.0, kw_only=True)

    def public(self) -> dict[str, Any]:
        """Everything, as plain JSON values for the certificate."""
        found = asdict(self)
        if not self.rounded:
            del found["rounded"]
        return found if math.isfinite(self.bound) else {**found, "bound": None}


@dataclass(frozen=True)
class Answer:
    """Parameters of every model, and what was released about rows: the map they were fitted on, or
    the norm they were clipped to (infinite if the model takes rows as they are). ``clipped``: the
    model takes mapped rows, shortened as in the run; otherwise it is linear in rows as they are.
    With ``tables`` there are coefficients of every bin of the shaped columns before the constant's,
    and noise was in units of ``lipschitz``. ``inference``: what is known of the errors, if that was
    released, as functions of these parameters.
    """

    thetas: list[np.ndarray]
    row_map: RowMap | None = None
    data_norm: float | None = None
    clipped: bool = False
    tables: ShapeTables | None = None
    lipschitz: float = 1.0
    inference: Coefficients | None = None

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter(self.thetas)

    def __len__(self) -> int:
        return len(self.thetas)

    def __getitem__(self, index: int) -> np.ndarray:
        return self.thetas[index]


class Solver(ABC):
    """A private algorithm.

    A solver never sees rows, labels, a batch size or a random generator: it asks the oracle and
    releases through the gate. All it needs to know is in the facts, which are public.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    specimen: ClassVar[Specimen] = Specimen()
    """How the solver is tried by whoever tries all of them."""

    vectors: ClassVar[bool] = False
    """Whether it takes losses of the whole vector theta; others refuse them."""

    chunks: ClassVar[bool] = False
    """Whether it asks for sums alone, over all records or Poisson batches, so that records may lie
    in chunks; others refuse them."""

    weights: ClassVar[bool] = True
    """Whether it takes records with weights; one that reads single columns does not."""

    has_discrete_noise: ClassVar[bool] = False
    """Whether it can release exact integers: it then has a setting ``discrete_noise``."""

    joint: ClassVar[bool] = False
    """Whether it fits all classes together: it gets one oracle, whose labels are class numbers
    0, ..., K - 1, and answers one theta for each class. Others get one oracle for each model."""

    promise: ClassVar[Literal["excess", "stationarity"]] = "excess"
    """What ``Settings.bound`` bounds. A small excess is promised for convex losses only; a solver
    whose privacy does not rest on convexity may take others, without that promise."""

    convexity_free: ClassVar[bool] = False
    """Whether its bound on the excess holds for losses that are not convex, too."""

    def __init_subclass__(cls, **others: Any) -> None:
        """No solver is asked about a kind of loss that it was not written for."""
        super().__init_subclass__(**others)
        own = cls.__dict__.get("refuse")
        if own is None:
            return

        @wraps(own)
        def refuse(self: Solver, facts: Facts, budget: Budget) -> str | None:
            if facts.vector and not self.vectors:
                return (
                    f"{self.name} takes losses of one margin; {facts.loss_name} is one of the "
                    'whole vector: use solver="noisy_gd".'
                )
            if facts.chunked and not self.chunks:
                return (
                    f"{self.name} puts all records in one order or reads whole columns, which data "
                    'in chunks has not: leave solver="auto", or take "noisy_sgd".'
                )
            if facts.problem.weighted and not self.weights:
                instead = "wrap the estimator in privopt.IntervalsByParts"
                instead = instead if facts.problem.intervals else "use another solver"
                return f"{self.name} takes no weights of records: {instead}."
            return own(self, facts, budget)

        cls.refuse = refuse  # type: ignore[method-assign]

    @abstractmethod
    def refuse(self, facts: Facts, budget: Budget) -> str | None:
        """None if the solver applies, else one sentence: what it needs, and what to do."""

    @abstractmethod
    def settings(self, facts: Facts, budget: Budget, **choices: Any) -> Settings:
        """Hyper-parameters and calibrated noise. ``choices`` override them by name."""

    @abstractmethod
    def run(
        self,
        oracle: Oracle,
        gate: Gate,
        problem: Problem,
        settings: Any,
        tick: Tick = no_tick,
    ) -> np.ndarray:
        """The algorithm itself."""

    def run_all(
        self,
        oracles: Sequence[Oracle],
        gate: Gate,
        problem: Problem,
        settings: Any,
        tick: Tick = no_tick,
    ) -> Answer:
        """One model after the other on oracles that share their rows; override to share work."""
        thetas = []
        for index, oracle in enumerate(oracles):

            def shifted(done: int, total: int, index: int = index) -> None:
                tick(index * total + done, len(oracles) * total)

            thetas.append(self.run(oracle, gate, problem, settings, shifted))
        return Answer(thetas)

    def row_bounds(self, problem: Problem) -> RowBounds:
        """Public row bounds that the solver's oracle must enforce."""
        return RowBounds(problem.row_norm, problem.intercept)

    def replanned(self, facts: Facts, budget: Budget, settings: Any) -> Settings:
        """Settings for other facts or another budget, of a plan that had ``settings``."""
        return self.settings(facts, budget)

    def assumptions(self, facts: Facts, settings: Any) -> tuple[str, ...]:
        """Properties that privacy, not only utility, rests on and that nothing enforces."""
        return ()


def entry_bounds(problem: Problem) -> RowBounds:
    """Entries clipped to the declared column bounds, rows to their norm in the dual of the
    domain's, or in l2 if neither is declared."""
    entries, domain = problem.column_bounds, problem.domain
    if problem.dual_norm is not None and isinstance(domain, LpBall):
        entries = math.inf if entries is None else entries
        return RowBounds(problem.dual_norm, problem.intercept, entries, dual_order(domain.order))
    if entries is None:
        return RowBounds(problem.row_norm, problem.intercept)
    return RowBounds(math.inf, problem.intercept, entries)


@dataclass(frozen=True)
class Plan:
    """A solver with its settings, ready to run: public, and made before any data is touched.

    ``expectation`` says what it loses on made-up data of the same shape, where the planner can
    simulate it; that takes a moment, and is done when somebody asks. ``refused`` says why
    other solvers do not apply, where it chose among all.
    """

    solver: Solver
    facts: Facts
    budget: Budget
    settings: Settings
    expectation: Callable[[], Prediction | None] | None = field(
        default=None, compare=False, repr=False
    )
    refused: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __str__(self) -> str:
        """The solver, its settings, what they promise, and who does not apply."""
        lines = [f"{self.name}: {self.solver.summary}"]
        chosen = {k: v for k, v in self.settings.public().items() if v is not None}
        lines += [f"  {name} = {value}" for name, value in chosen.items()]
        predicted = self.predicted
        if predicted is not None:
            lines.append(f"  predicted excess of the mean loss: {predicted:.3g}")
        lines += [f"  not {name}: {why}" for name, why in self.refused.items()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return f"<pre>{html.escape(str(self))}</pre>"

    @property
    def name(self) -> str:
        return self.solver.name

    @property
    def oracles(self) -> int:
        """How many oracles a run takes: one for each model, or one for all of them together."""
        return 1 if self.solver.joint else self.facts.repeats

    @property
    def assumptions(self) -> tuple[str, ...]:
        """All that the certificate must name: what is not the library's own, then the solver's."""
        found, solver = self.facts.problem.assumptions, self.solver
        if not own_type(type(solver)):
            name = type(solver).__name__
            text = f"the solver {name} and its questions remember no record: not proved"
            found = (*found, text)
        return (*found, *solver.assumptions(self.facts, self.settings))

    @property
    def prediction(self) -> Prediction | None:
        """What it loses on made-up data of the same shape; None where that cannot be simulated."""
        return None if self.expectation is None else self.expectation()

    @property
    def predicted(self) -> float | None:
        """Predicted excess of the objective, never above what is proved."""
        found = self.prediction
        if found is None:
            return None
        return min(found.error, self.settings.bound if self.promised_excess else math.inf)

    @property
    def outlook(self) -> str | None:
        """What privacy is expected to cost, in units people know; None if nothing is predicted."""
        found, loss = self.prediction, self.facts.problem.loss
        return None if found is None else f"{self.name}: {found.sentence(loss.classification)}"

    @property
    def promised_excess(self) -> bool:
        """Whether the bound holds, and is one on the excess."""
        convex = self.facts.convex or self.solver.convexity_free
        return convex and self.solver.promise == "excess"

    @property
    def promised(self) -> bool:
        """Whether the bound holds: one on the excess is mostly proved for convex losses alone."""
        return self.promised_excess or self.solver.promise == "stationarity"

    def frontier(self, epsilons: Iterable[float] | None = None) -> Frontier:
        """Predicted error of this solver against epsilon, with the settings it chooses for each.

        ``epsilons``: where to look; by default from 1/16 to 16 times the plan's own. Predicted is
        the proved bound, scaled as simulated at the plan's own budget where that was done.
        """

        def predict(epsilon: float, delta: float, n: int) -> tuple[str, float]:
            budget = replace(self.budget, epsilon=epsilon, delta=delta)
            return self.name, self.error_at(replace(self.facts, n=n), budget)

        source = "bound" if self.expectation is None else "simulation"
        at = self.budget
        return frontier(predict, at.epsilon, at.delta, self.facts.n, epsilons, source)

    def error_at(self, facts: Facts, budget: Budget) -> float:
        """Predicted error of the same solver on other facts; infinite where it refuses."""
        if self.solver.refuse(facts, budget) is not None:
            return math.inf
        bound, predicted = self.solver.replanned(facts, budget, self.settings).bound, self.predicted
        return bound if predicted is None else bound * predicted / self.settings.bound


@dataclass(frozen=True)
class Result:
    """What a run returns: the parameters, the certificate, and the plan it followed."""

    theta: np.ndarray
    certificate: Certificate
    plan: Plan
