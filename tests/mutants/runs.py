"""Planted bugs in the life of a run, and the checks that notice."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from privopt.ledger import Ledger
from privopt.losses import Logistic
from privopt.mechanisms import Gate, Gaussian, Run, Steps
from privopt.mechanisms import gate as gate_module
from privopt.mechanisms import run as run_module
from privopt.noise import SecureSource, SeededSource
from privopt.oracle import ClippedGradient, CountRecords, Oracle, RowBounds
from privopt.oracle import view as oracle_module
from privopt.privacy import Budget, Certificate, Log, Refused, Spend
from privopt.privacy import certificate as certificate_module

from .mutant import Mutant

BUDGET, MULTIPLIER = Budget(1.0, 1e-5), 20.0


def _counted(source: Any) -> Any:
    return _asked(CountRecords(), source)


def _asked(query: Any, source: Any, relation: Any = "zero_out") -> Any:
    oracle = Oracle.over(
        np.zeros((3, 1)),
        np.ones(3),
        neighbouring=relation,
        bounds=RowBounds(1.0),
        source=source,
    )
    return oracle.everything().ask(query)


def _run(times: int = 2, multiplier: float = MULTIPLIER, source: Any = None) -> Run:
    declared = Steps(lambda _: (Gaussian(multiplier), _counted(SeededSource(0)).sensitivity), times)
    return Run(BUDGET, declared, SecureSource() if source is None else source, what="run")


def _refused(call: Any) -> bool:
    try:
        call()
    except Refused:
        return True
    return False


def in_order() -> str | None:
    """Nothing is read or released unpaid, declared above the budget, or undeclared."""
    if not _refused(lambda: _run(multiplier=0.5)):
        return "a declaration above the budget is taken"
    run = _run()
    if not _refused(lambda: run.gate) or not _refused(lambda: run.read(list)):
        return "a run that nobody paid reads and releases"
    run.pay(None)
    for _ in range(2):
        run.gate.release(Gaussian(MULTIPLIER), _counted(SeededSource(0)))
    if not _refused(lambda: run.gate.release(Gaussian(MULTIPLIER), _counted(SeededSource(0)))):
        return "one release more than declared"
    return None


def certified_by_runs() -> str | None:
    """Only a run certifies, and only it has secure noise; a seed is told."""
    log = Log([replace(event) for event in _released().log])
    if not _refused(lambda: Gate(SecureSource())):
        return "a gate of nobody's draws secure noise"
    spent = Spend({})
    if not _refused(
        lambda: Certificate.of_run(None, log, spent, BUDGET, solver="mine", private=True)
    ):
        return "a log of one's own is certified"
    seeded = _run(source=SeededSource(0))
    seeded.pay(None)
    if seeded.certify().private:
        return "seeded noise is certified as private"
    return None


def certified_as_declared() -> str | None:
    """A gate that logs more than was declared gets no certificate."""
    run = _released()
    run._gate._log.append(run.log[0])
    return None if _refused(run.certify) else "more than the declaration is certified"


def charged_as_declared() -> str | None:
    """The ledger pays for every declared step, before the first."""
    with tempfile.TemporaryDirectory() as home:
        ledger = Ledger.create(Path(home) / "ledger", 1.0, 1e-5, composition="basic")
        run = _run(times=20)
        run.pay(ledger.dataset())
        epsilon = ledger.dataset().spent[0]
    needed = run.epsilon(20)
    return None if epsilon >= needed * (1 - 1e-6) else f"{epsilon:.3g} charged, {needed:.3g} due"


def moved_by_two() -> str | None:
    """One record that is replaced by another moves a sum twice as far as one that is emptied."""
    query = ClippedGradient(Logistic(), 0.5)
    moved = _asked(query, SeededSource(0), "replace_one").sensitivity.radius
    return None if moved >= 1.0 else f"moved by {moved:g}"


def _released() -> Run:
    run = _run()
    run.pay(None)
    for _ in range(2):
        run.gate.release(Gaussian(MULTIPLIER), _counted(SeededSource(0)))
    return run


_EVENT, _LOG, _INIT, _PLANNED = Steps.event, Steps.log, Run.__init__, Run._planned


def _one_step_more(self: Steps, index: int, path: Any = None) -> Any:
    return _EVENT(self, min(index, self.releases - 1), path)


def _generous(self: Run, budget: Budget, *arguments: Any, **named: Any) -> None:
    _INIT(self, replace(budget, epsilon=100 * budget.epsilon), *arguments, **named)


def _half(self: Run) -> Spend:
    assert isinstance(self._declared, Steps)
    return _PLANNED(self, self._declared.releases // 2)


def runs() -> Iterator[Mutant]:
    for name, patch in {
        "a declaration above the budget": (Run, "__init__", _generous),
        "nobody asks whether it is paid": (Run, "_check_paid", lambda self: None),
        "one step more than declared": (Steps, "event", _one_step_more),
        "what is released is not compared": (Gate, "_check_declared", lambda self, event: None),
    }.items():
        yield Mutant(f"run: {name}", (patch,), in_order, "dry run")
    for name, patches in {
        "everybody has secure noise": ((gate_module, "RUN", None), (run_module, "RUN", None)),
        "everybody certifies": tuple(
            (one, "RUN", None) for one in (certificate_module, gate_module, run_module)
        ),
        "seeded noise counts as private": ((Run, "private", True),),
    }.items():
        yield Mutant(f"run: {name}", patches, certified_by_runs, "certificate")
    yield Mutant(
        "run: the declaration does not bound the certificate",
        ((Spend, "at_most", lambda self, allowed: True),),
        certified_as_declared,
        "certificate",
    )
    yield Mutant(
        "run: half of the declared steps are charged",
        ((Run, "_own", _half),),
        charged_as_declared,
        "charge",
    )
    yield Mutant(
        "a replaced record moves a sum as far as an emptied one",
        ((oracle_module, "movement", lambda query, relation: query.radius()),),
        moved_by_two,
        "sensitivity",
    )
