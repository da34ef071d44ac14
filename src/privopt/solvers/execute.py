"""Run a plan: declare on no data, run through one gate, certify from the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import numpy as np

from privopt.ledger import SEEDED, Dataset, stored
from privopt.ledger.reservation import Reservation
from privopt.mechanisms import HOOK, Gate
from privopt.noise import SilentSource, Source
from privopt.oracle import Oracle
from privopt.oracle.rows import RowBounds
from privopt.privacy import Certificate, Log, Refused, Spend, spend
from privopt.privacy.accountant import Accountant
from privopt.privacy.groups import grouped
from privopt.solvers.solver import Answer, Plan, Tick, no_tick

PROGRESS: ContextVar[Tick] = ContextVar("progress", default=no_tick)
"""Who hears of the steps of a run that names no ``tick``: a progress bar around an estimator."""


def row_bounds(plan: Plan) -> RowBounds:
    """Public row bounds the plan's oracle must enforce."""
    return plan.solver.row_bounds(plan.facts.problem)


def declare(plan: Plan) -> Log:
    """What the plan will release: its events on zero records, drawn with no noise."""
    silent = SilentSource()
    gate = Gate(silent)
    oracle = Oracle.empty(
        plan.facts.p,
        neighbouring=plan.budget.neighbouring,
        bounds=row_bounds(plan),
        source=silent,
    )
    plan.solver.run_all([oracle] * plan.oracles, gate, plan.facts.problem, plan.settings)
    return gate.log


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
    budget, tick = plan.budget, PROGRESS.get() if tick is None else tick
    declared = declare(plan)
    planned = grouped(spend(declared), plan.facts.group)
    if Accountant(budget.neighbouring).epsilon(planned, budget.delta) > budget.epsilon * (1 + 1e-9):
        raise Refused(
            f"{plan.name} plans to spend more than its budget: refused before any data is touched. "
            "Please report this as a privacy bug."
        )

    def run() -> tuple[Answer, Certificate]:
        return _run(plan, oracles, source, assumptions, tick, declared, planned)

    if account is None:
        if key is not None:
            raise ValueError("a key belongs to a ledger: give ledger= as well.")
        return run()
    if not source.private:
        raise Refused(SEEDED)
    reservation = account.reserve(planned, budget, what=plan.name, key=key, touched=True)
    if reservation.answer is not None:
        certificate, thetas = stored(reservation.answer)
        return Answer([_from_hex(theta) for theta in thetas]), certificate
    return settle(reservation, run, None if key is None else _as_hex)


def settle(
    reservation: Reservation,
    run: Callable[[], tuple[Any, Certificate]],
    keep: Callable[[Any], Any] | None = None,
) -> tuple[Any, Certificate]:
    """Run what is paid for and commit it; a run that fails stays paid."""
    try:
        answer, certificate = run()
        certificate = replace(certificate, ledger=reservation.mark)
        reservation.commit(certificate, None if keep is None else keep(answer))
    except BaseException:
        with suppress(Exception):
            reservation.burn()
        raise
    return answer, certificate


def _run(
    plan: Plan,
    oracles: Sequence[Oracle] | Callable[[], Sequence[Oracle]],
    source: Source,
    assumptions: tuple[str, ...],
    tick: Tick,
    declared: Log,
    planned: Spend,
) -> tuple[Answer, Certificate]:
    facts, budget = plan.facts, plan.budget
    if callable(oracles):
        oracles = oracles()
    if len(oracles) != plan.oracles:
        raise ValueError(f"the plan is for {plan.oracles} oracle(s), got {len(oracles)}.")
    for oracle in oracles:
        if oracle.neighbouring != budget.neighbouring or oracle.bounds != row_bounds(plan):
            raise Refused("the oracle's relation or row bounds differ from the plan's.")
    gate = Gate(source, declared=declared, hook=HOOK.get())
    answer = plan.solver.run_all(oracles, gate, facts.problem, plan.settings, tick)
    owned = {} if facts.group == 1 else {"rows_per_unit": facts.group}
    certificate = Certificate.from_log(
        gate.log,
        budget,
        solver=plan.name,
        private=source.private,
        planned=planned,
        assumptions=(*plan.assumptions, *assumptions),
        settings={"n": facts.n, "p": facts.p, **plan.settings.public(), **owned},
        group=facts.group,
    )
    return answer, certificate


def _as_hex(answer: Answer) -> list[list[str]]:
    return [_to_hex(theta) for theta in answer.thetas]


def _to_hex(theta: np.ndarray) -> list[str]:
    """Every bit of a vector, as text."""
    return [float(value).hex() for value in theta]


def _from_hex(text: list[str]) -> np.ndarray:
    return np.array([float.fromhex(value) for value in text])
