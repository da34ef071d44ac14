"""Run a plan: its declaration is a rehearsal on no data."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from privopt.ledger import Dataset
from privopt.mechanisms import Gate, Run, rehearsed
from privopt.noise import Source
from privopt.oracle import Oracle
from privopt.oracle.rows import RowBounds
from privopt.privacy import Budget, Certificate, Log, Refused
from privopt.privacy.events import ROOT, Cell, Event
from privopt.privacy.kinds import Kind
from privopt.solvers.solver import Answer, Plan, Tick, no_tick

PROGRESS: ContextVar[Tick] = ContextVar("progress", default=no_tick)
"""Who hears of the steps of a run that names no ``tick``: a progress bar around an estimator."""


def row_bounds(plan: Plan) -> RowBounds:
    """Public row bounds the plan's oracle must enforce."""
    return plan.solver.row_bounds(plan.facts.problem)


@dataclass
class Blocks:
    """Runs of one stream, each on records that no other takes in: every record pays once.

    Spend is the largest over the blocks (``privacy.spend``). All blocks keep the budget of the
    first, with its relation and unit, and the ledger that paid for it, or none; a ledger is charged
    for the first, and others are held to the same losses. A block that fails has been entered, and
    stays.
    """

    events: list[Event] = field(default_factory=list)
    entered: int = 0
    mark: dict[str, Any] | None = None
    private: bool = True
    first: tuple[tuple[Kind, ...], ...] = ()
    budget: Budget | None = None
    group: int = 1
    payer: tuple[str, str] | None = None

    def begin(self, plan: Plan, source: Source, account: Dataset | None) -> Run:
        """The run of the next block; pays for the first one, and with it for all."""
        payer = None if account is None else (os.path.realpath(account.path), account.name)
        if self.entered:
            self._check(plan, payer)
        declared = declare(plan, (self.entered,))
        group, past = plan.facts.group, tuple(self.events)
        run = Run(plan.budget, declared, source, what=plan.name, group=group, past=past)
        losses = tuple(event.kinds for event in declared)
        if not self.entered:
            run.pay(account)
            self.first, self.budget, self.group = losses, plan.budget, group
            self.payer = payer
        else:
            if account is not None and losses != self.first:
                raise Refused(
                    "the ledger was charged for blocks like the first one, and this one is planned "
                    "for another number of rows: give blocks of one size, or begin with no ledger."
                )
            run.follow(self.mark, paid=True, private=self.private)
        self.entered += 1
        return run

    def _check(self, plan: Plan, payer: tuple[str, str] | None) -> None:
        """Refuse what the first block did not promise, or did not pay for."""
        # What was released before was made for the first block's relation, and for no other.
        if (plan.budget, plan.facts.group) != (self.budget, self.group):
            raise Refused(
                f"all blocks of a stream keep the first one's budget, {self.budget}, and this one "
                f"has {plan.budget}: begin a new stream for another epsilon, delta, neighbouring "
                "relation, unit or number of rows of a user."
            )
        if payer != self.payer:
            paid = "no ledger" if self.payer is None else f"{self.payer[1]!r} in {self.payer[0]}"
            raise Refused(
                f"the first block of this stream was charged to {paid}, and that stands for all "
                "blocks: begin a new stream to have it charged elsewhere."
            )

    def end(self, run: Run) -> None:
        """Remember what was released; view numbers of all blocks differ."""
        new = list(run.log)[len(self.events) :]
        self.events += [replace(one, view=one.view + (self.entered << 32)) for one in new]
        self.mark, self.private = run.mark, run.private


def declare(plan: Plan, cell: Cell = ROOT) -> Log:
    """What the plan will release: its events on zero records, drawn with no noise."""

    def story(gate: Gate, silent: Source) -> None:
        oracle = Oracle.empty(
            plan.facts.p,
            neighbouring=plan.budget.neighbouring,
            bounds=row_bounds(plan),
            source=silent,
            largest=plan.facts.group,
        ).within(cell)
        plan.solver.run_all([oracle] * plan.oracles, gate, plan.facts.problem, plan.settings)

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
    blocks: Blocks | None = None,
) -> tuple[Answer, Certificate]:
    """Run the plan once on each oracle (one per model) and certify all runs together.

    Nothing is opened unless the dry run's events fit the budget, and no release may differ from
    the dry run's. With an ``account`` the declared events are charged to it before anything else
    happens: ``oracles`` may be a function that reads the data, and is called only once the budget
    is paid. A run that fails from there on stays paid. A ``key`` that was committed before returns
    what was stored then, without touching data. With ``blocks`` the records are the next block of
    a stream, and the certificate is that of all blocks so far.
    """
    facts, tick = plan.facts, PROGRESS.get() if tick is None else tick
    cell = ROOT if blocks is None else (blocks.entered,)
    before = None
    if blocks is None:
        run = Run(
            plan.budget,
            declare(plan),
            source,
            what=plan.name,
            group=facts.group,
            kept_together=True,  # _check looks
        )
        before = run.pay(account, key)
    else:
        run = blocks.begin(plan, source, account)
    if before is not None:
        certificate, thetas = before
        return Answer([_from_hex(theta) for theta in thetas]), certificate
    with ExitStack() as stack:
        if blocks is not None:
            stack.callback(blocks.end, run)
        stack.enter_context(run)
        ready = run.read(oracles if callable(oracles) else lambda: oracles)
        ready = [oracle.within(cell) for oracle in ready]
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
    if len(oracles) != plan.oracles:
        raise ValueError(f"the plan is for {plan.oracles} oracle(s), got {len(oracles)}.")
    for oracle in oracles:
        if oracle.neighbouring != plan.budget.neighbouring or oracle.bounds != row_bounds(plan):
            raise Refused("the oracle's relation or row bounds differ from the plan's.")
        if plan.facts.group > 1 and not oracle.knows_users:
            raise Refused("the plan is for users, and the oracle does not know whose its rows are.")


def _as_hex(answer: Answer) -> list[list[str]]:
    return [_to_hex(theta) for theta in answer.thetas]


def _to_hex(theta: np.ndarray) -> list[str]:
    """Every bit of a vector, as text."""
    return [float(value).hex() for value in theta]


def _from_hex(text: list[str]) -> np.ndarray:
    return np.array([float.fromhex(value) for value in text])
