"""Run a plan: its declaration is a rehearsal on no data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar

import numpy as np

from privopt.ledger import Dataset
from privopt.mechanisms import Gate, Run, rehearsed
from privopt.noise import Source
from privopt.oracle import Oracle
from privopt.oracle.rows import RowBounds
from privopt.privacy import Certificate, Log, Refused
from privopt.solvers.solver import Answer, Plan, Tick, no_tick

PROGRESS: ContextVar[Tick] = ContextVar("progress", default=no_tick)
"""Who hears of the steps of a run that names no ``tick``: a progress bar around an estimator."""


def row_bounds(plan: Plan) -> RowBounds:
    """Public row bounds the plan's oracle must enforce."""
    return plan.solver.row_bounds(plan.facts.problem)


def declare(plan: Plan) -> Log:
    """What the plan will release: its events on zero records, drawn with no noise."""

    def story(gate: Gate, silent: Source) -> None:
        oracle = Oracle.empty(
            plan.facts.p,
            neighbouring=plan.budget.neighbouring,
            bounds=row_bounds(plan),
            source=silent,
        )
        plan.solver.run_all([oracle] * plan.facts.repeats, gate, plan.facts.problem, plan.settings)

    return rehearsed(story)


def execute(
    plan: Plan,
    oracles: Sequence[Oracle] | Callable[[], Sequence[Oracle]],
    source: Source,
    *,
    assumptions: tuple[str, ...] = (),
    tick: Tick | None = None,
    account: Dataset | None = None,
    key: str | None = None,
) -> tuple[Answer, Certificate]:
    """Run the plan once on each oracle (one per model) and certify all runs together.

    Nothing is opened unless the dry run's events fit the budget, and no release may differ from
    the dry run's. With an ``account`` the declared events are charged to it before anything else
    happens: ``oracles`` may be a function that reads the data, and is called only once the budget
    is paid. A run that fails from there on stays paid. A ``key`` that was committed before returns
    what was stored then, without touching data.
    """
    facts, tick = plan.facts, PROGRESS.get() if tick is None else tick
    run = Run(plan.budget, declare(plan), source, what=plan.name, group=facts.group)
    before = run.pay(account, key)
    if before is not None:
        certificate, thetas = before
        return Answer([_from_hex(theta) for theta in thetas]), certificate
    with run:
        ready = run.read(oracles if callable(oracles) else lambda: oracles)
        _check(plan, ready)
        answer = plan.solver.run_all(ready, run.gate, facts.problem, plan.settings, tick)
        owned = {} if facts.group == 1 else {"rows_per_unit": facts.group}
        certificate = run.certify(
            assumptions=(*plan.assumptions, *assumptions),
            settings={"n": facts.n, "p": facts.p, **plan.settings.public(), **owned},
        )
        run.settle(certificate, None if key is None else _as_hex(answer))
    return answer, certificate


def _check(plan: Plan, oracles: Sequence[Oracle]) -> None:
    if len(oracles) != plan.facts.repeats:
        raise ValueError(
            f"the plan is for {plan.facts.repeats} model(s), got {len(oracles)} oracle(s)."
        )
    for oracle in oracles:
        if oracle.neighbouring != plan.budget.neighbouring or oracle.bounds != row_bounds(plan):
            raise Refused("the oracle's relation or row bounds differ from the plan's.")


def _as_hex(answer: Answer) -> list[list[str]]:
    return [_to_hex(theta) for theta in answer.thetas]


def _to_hex(theta: np.ndarray) -> list[str]:
    """Every bit of a vector, as text."""
    return [float(value).hex() for value in theta]


def _from_hex(text: list[str]) -> np.ndarray:
    return np.array([float.fromhex(value) for value in text])
