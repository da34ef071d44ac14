"""What a step of a stream costs: in integers beside floating point, and as streams grow longer.

``python -m benchmarks.stream_speed``. CPU time, by turns in one process. Also the accountant on
many different pure releases, which a ledger makes.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import numpy as np

from benchmarks.measure import Figure, by_turns, ratio, report
from privopt import OnlineLinearRegression, OnlineLogisticRegression, prefix_sums
from privopt.estimators import online_run
from privopt.mechanisms import CorrelatedGaussian
from privopt.privacy import Accountant, charge_of, kinds
from privopt.privacy.factorizations.blt import best_buffers
from privopt.privacy.factorizations.catalogue import named

STEPS, TOGETHER, TURNS = 4000, 20, 15
SHAPES = ((1, 10), (100, 20), (1000, 100), (1, 100_000))
BATCHES = ((20, 5), (200, 20), (1000, 50))
LENGTHS = (1000, 10_000, 100_000)


def several(call: Callable[[], object]) -> Callable[[], object]:
    """Short calls are timed together."""
    return lambda: [call() for _ in range(TOGETHER)]


def sums(rows: int, p: int, whole: bool, steps: int = STEPS) -> Callable[[], object]:
    """The next step of running sums; in floating point as if there were no room for integers."""
    X = np.random.default_rng(0).normal(size=(rows, p))
    stream = prefix_sums(
        itertools.repeat(X), bound=1.0, epsilon=1.0, delta=1e-6, n_steps=steps, noise="blt"
    )
    if not whole:
        stream._mechanism = CorrelatedGaussian(*stream._noise)
        stream._settle = lambda coordinates: None  # type: ignore[method-assign]
    return lambda: next(stream)


def online(kind: type, rows: int, p: int, whole: bool, steps: int = STEPS) -> Callable[[], object]:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(rows, p)), rng.integers(2, size=rows)
    how = {"classes": [0, 1]} if kind is OnlineLogisticRegression else {}
    model = kind(1.0, 1e-6, n_steps=steps, **how)
    honest = online_run.choose_correlated
    if not whole:
        online_run.choose_correlated = lambda *a, **k: False
    try:
        model.partial_fit(X, y)
    finally:
        online_run.choose_correlated = honest
    return lambda: model.partial_fit(X, y)


def hardened() -> list[Figure]:
    figures = []
    for rows, p in SHAPES:
        calls = {str(whole): several(sums(rows, p, whole)) for whole in (True, False)}
        seconds = by_turns(calls, TURNS, rest=0.0)
        what = f"running sums in integers over floating point, {rows} x {p}"
        figures.append(ratio(what, seconds["True"].cpus, seconds["False"].cpus, 1.5))
    for kind in (OnlineLogisticRegression, OnlineLinearRegression):
        for rows, p in BATCHES:
            calls = {str(whole): several(online(kind, rows, p, whole)) for whole in (True, False)}
            seconds = by_turns(calls, TURNS, rest=0.0)
            what = f"{kind.__name__} in integers over floating point, {rows} x {p}"
            figures.append(ratio(what, seconds["True"].cpus, seconds["False"].cpus, 1.5))
    return figures


def growth() -> list[Figure]:
    """A step of a long stream over one of a short one, and the first step with its tuning."""
    figures, made = [], {"running sums": sums, "online": online}
    calls, first = {}, {}
    for steps in LENGTHS:
        named.cache_clear()
        best_buffers.cache_clear()
        start = time.process_time()
        calls[f"online {steps}"] = several(online(OnlineLogisticRegression, 100, 20, True, steps))
        first[steps] = time.process_time() - start
        calls[f"running sums {steps}"] = several(sums(100, 20, True, steps))
    seconds = by_turns(calls, 3 * TURNS, rest=0.0)
    for name in made:
        base = seconds[f"{name} {LENGTHS[0]}"].cpus
        for steps in LENGTHS[1:]:
            what = f"{name}: a step of {steps} over one of {LENGTHS[0]}"
            figures.append(ratio(what, seconds[f"{name} {steps}"].cpus, base, 1.1))
    figures.append(
        Figure("first step of 100,000, with its noise", first[LENGTHS[-1]], 2.0, unit="s")
    )
    return figures


def accounts() -> list[Figure]:
    epsilons = np.random.default_rng(0).uniform(0.01, 0.1, 1000)
    charge = charge_of(*[kinds.Pure(float(epsilon)) for epsilon in epsilons])
    start = time.process_time()
    Accountant().epsilon(charge, 1e-6)
    spent = time.process_time() - start
    return [Figure("epsilon of 1,000 different pure releases", spent, 1.0, unit="s")]


def main() -> None:
    report("stream_speed", "Steps of streams", [*hardened(), *growth(), *accounts()])


if __name__ == "__main__":
    main()
