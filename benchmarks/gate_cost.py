"""What a release through the gate costs beyond drawing its noise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.measure import Figure, by_turns, report
from privopt.mechanisms import Gate, Gaussian, Run, Steps, rehearsed
from privopt.noise import SecureSource, gaussian
from privopt.oracle import Oracle, RowBounds
from privopt.oracle.sensitivity import SensitivityNorm
from privopt.privacy import Budget, Log

P, RELEASES, REPEATS = 50, 2000, 31
MULTIPLIER = 2.0


@dataclass(frozen=True)
class Ready:
    """A query whose answer is there already, so that only the gate is timed."""

    answer: np.ndarray = field(default_factory=lambda: np.ones(P))
    norm: SensitivityNorm = "l2"

    def radius(self) -> float:
        return 1.0

    def diameter(self) -> float:
        return 2.0

    def total(self, rows: Any, at: np.ndarray) -> np.ndarray:
        return self.answer


def main() -> None:
    source = SecureSource()
    view = Oracle.empty(
        P, neighbouring="zero_out", bounds=RowBounds(1.0), source=source
    ).everything()
    query, mechanism = Ready(), Gaussian(MULTIPLIER)
    sealed = view.ask(query)

    def story(gate: Gate, *_: object) -> None:
        for _ in range(RELEASES):
            gate.release(mechanism, sealed)

    declared = rehearsed(story)
    budget = Budget(1e6, 1e-6)

    def paid(declaration: Log | Steps) -> Gate:
        run = Run(budget, declaration, source, what="benchmark")
        run.pay(None)
        return run.gate

    def noise() -> None:
        for _ in range(RELEASES):
            gaussian(source, MULTIPLIER, (P,))

    # Made beforehand, for the warming call and for each turn: only releases count.
    steps = Steps(lambda _: (mechanism, sealed.sensitivity), RELEASES)
    dry, lazy = ([paid(found) for _ in range(REPEATS + 1)] for found in (declared, steps))

    def ask() -> None:
        for _ in range(RELEASES):
            view.ask(query)

    calls = {
        "noise": noise,
        "dry": lambda: story(dry.pop()),
        "lazy": lambda: story(lazy.pop()),
        "ask": ask,
    }
    took = by_turns(calls, REPEATS, rest=0.0)
    cost = {name: seconds.cpu / RELEASES * 1e6 for name, seconds in took.items()}
    unit = "µs"
    report(
        "gate_cost",
        f"One release of a vector of length {P}, Gaussian noise from the secure source, CPU time",
        [
            Figure("drawing the noise", cost["noise"], unit=unit),
            Figure("release, checked against a dry run", cost["dry"], unit=unit),
            Figure("release, checked against declared steps", cost["lazy"], unit=unit),
            Figure("beyond the noise, dry run", cost["dry"] - cost["noise"], 10, unit=unit),
            Figure("beyond the noise, steps", cost["lazy"] - cost["noise"], 10, unit=unit),
            Figure("asking a view (no part of the release)", cost["ask"], unit=unit),
        ],
    )


if __name__ == "__main__":
    main()
