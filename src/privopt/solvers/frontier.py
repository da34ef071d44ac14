"""What a budget buys: predicted error against epsilon, and what more delta or records would do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

SPAN = 2.0 ** np.arange(-4, 5)
"""Default epsilons, as multiples of the plan's own."""

Predict = Callable[[float, float, int], tuple[str, float]]
"""From epsilon, delta and n to the solver's name and its predicted error."""


@dataclass(frozen=True, eq=False)
class Frontier:
    """Predicted mean excess risk at several epsilons; everything else as in the plan.

    ``error`` is what the planner predicts from public facts: a proved bound, or a simulation on
    made-up data of the same shape, as ``source`` says. Infinite where no solver applies, or where
    nothing is proved of the one that is taken.
    """

    epsilon: np.ndarray
    error: np.ndarray
    solver: tuple[str, ...]
    notes: tuple[str, ...]
    source: str = "bound"

    def rows(self) -> list[tuple[float, float, str]]:
        """(epsilon, predicted error, solver), smallest epsilon first."""
        return list(zip(self.epsilon.tolist(), self.error.tolist(), self.solver, strict=True))

    def __str__(self) -> str:
        lines = [f"{'epsilon':>10}  {'predicted error':>15}  solver"]
        lines += [
            f"{epsilon:>10.4g}  {_number(error):>15}  {name}"
            for epsilon, error, name in self.rows()
        ]
        return "\n".join([*lines, *self.notes])


def frontier(
    predict: Predict,
    epsilon: float,
    delta: float,
    n: int,
    epsilons: Iterable[float] | None = None,
    source: str = "bound",
) -> Frontier:
    """Ask ``predict`` along epsilon, and once each for a larger delta and for more records."""
    grid = np.unique(epsilon * SPAN if epsilons is None else np.asarray(list(epsilons), float))
    if grid.size == 0 or not np.all((grid > 0) & np.isfinite(grid)):
        raise ValueError("epsilons must be positive and finite numbers, at least one of them.")
    found = [predict(float(value), delta, n) for value in grid]
    here = predict(epsilon, delta, n)[1]
    # The library warns above 1/n; a delta beyond it is never advised.
    more = min(1e-6, 0.01 / n) if delta == 0 else min(100 * delta, 0.1 / n)
    error = np.array([value for _, value in found])
    notes = []
    if found[0][0] and not np.isfinite(error).any():
        notes.append(f"Nothing is proved of the error of {found[0][0]}: try it on public data.")
    else:
        if more > delta:
            there = predict(epsilon, more, n)
            notes.append(_note(f"delta={more:.1g} instead of {delta:g}", here, there))
        notes.append(_note("ten times as many records", here, predict(epsilon, delta, 10 * n)))
    return Frontier(grid, error, tuple(name for name, _ in found), tuple(notes), source)


def _number(error: float) -> str:
    return f"{error:.3g}" if math.isfinite(error) else "not known"


def _note(what: str, here: float, there: tuple[str, float]) -> str:
    name, error = there
    if not math.isfinite(error) or here <= 1.05 * error:
        return f"With {what} the predicted error would stay about the same."
    if not math.isfinite(here):
        return f"With {what} the predicted error would be {error:.3g} ({name})."
    return f"With {what} the predicted error would be {here / error:.1f} times smaller ({name})."
