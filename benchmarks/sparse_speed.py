"""Frank-Wolfe on a sparse matrix with a million columns: choices by columns against all scores.

The plain algorithm computes the gradient and draws a Gumbel variable for each of the two million
vertices. All modes run in one process, by turns, through the same gate and with noise from the
secure source.
"""

from __future__ import annotations

import itertools
import statistics
import time
import tracemalloc
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy import stats

from benchmarks.measure import Figure, console, report
from privopt import Budget, Problem, SparseLogisticRegression
from privopt.facts import Facts
from privopt.geometry import L1Ball
from privopt.losses import Logistic
from privopt.mechanisms import Gate
from privopt.mechanisms.maps import VertexScores
from privopt.noise import SecureSource, SeededSource
from privopt.oracle import CoordinateClippedGradient, Oracle, RowBounds
from privopt.oracle.incremental_gradient import IncrementalGradient
from privopt.oracle.sparse import SparseRows
from privopt.solvers import Plan, execute, row_bounds, solver_named

N, P, EACH, STEPS, RADIUS = 20_000, 1_000_000, 100, 1000, 20.0
TURNS, PLAIN_STEPS = 3, 5
MODES = {"exact": 500.0, "stale": 1500.0}
BUDGET = Budget(1.0, 1e-8)
TASK = Problem(Logistic(), L1Ball(RADIUS), column_bounds=1.0)
RUNS = 40_000


def made_rows(columns: str, seed: int = 0) -> tuple[sp.csr_array, np.ndarray]:
    """Entries in [-1, 1] in uniform or Zipf (exponent 1.05) columns; "signal" adds labels that
    follow the twenty most frequent columns."""
    rng = np.random.default_rng(seed)
    if columns == "uniform":
        places = rng.integers(0, P, size=N * EACH, dtype=np.int32)
    else:
        chances = np.arange(1, P + 1.0) ** -1.05
        edges = np.cumsum(chances / chances.sum())
        places = np.minimum(np.searchsorted(edges, rng.random(N * EACH)), P - 1).astype(np.int32)
    ends = np.arange(0, N * EACH + 1, EACH, dtype=np.int32)
    X = sp.csr_array((rng.uniform(-1, 1, size=N * EACH), places, ends), shape=(N, P))
    X.sum_duplicates()
    np.clip(X.data, -1, 1, out=X.data)
    margins = np.zeros(N)
    if columns.endswith("signal"):
        margins = X[:, :20] @ rng.choice([-3.0, 3.0], size=20)
    return X, np.where(rng.random(N) < 1 / (1 + np.exp(-margins)), 1.0, -1.0)


def planned(mode: str) -> Plan:
    solver = solver_named("frank_wolfe")
    facts = Facts(TASK, N, P, BUDGET.neighbouring, sparse=True)
    return Plan(solver, facts, BUDGET, solver.settings(facts, BUDGET, n_iter=STEPS, mode=mode))


def step_seconds(mode: str, X: Any, y: np.ndarray) -> float:
    """CPU seconds of a step, the first one (with the setup) left out."""
    plan, source, marks = planned(mode), SecureSource(), []
    steps = PLAIN_STEPS + 1 if mode == "dense" else STEPS
    settings = replace(plan.settings, n_iter=steps)  # the noise stays that of all steps
    oracle = Oracle.over(X, y, neighbouring="zero_out", bounds=row_bounds(plan), source=source)
    plan.solver.run(
        oracle, Gate(source), TASK, settings, lambda *_: marks.append(time.process_time())
    )
    return (marks[-1] - marks[0]) / (len(marks) - 1)


def fit_seconds(mode: str, X: Any, y: np.ndarray) -> float:
    """CPU seconds of everything: rows, dry run, all steps, certificate."""
    start, plan, source = time.process_time(), planned(mode), SecureSource()
    oracle = Oracle.over(X, y, neighbouring="zero_out", bounds=row_bounds(plan), source=source)
    execute(plan, [oracle], source)
    return time.process_time() - start


def speed(columns: str) -> Iterable[Figure]:
    X, y = made_rows(columns)
    longest = int(np.bincount(X.indices, minlength=P).max())
    took: dict[str, list[float]] = {mode: [] for mode in ("dense", *MODES)}
    for _, mode in itertools.product(range(TURNS), took):
        took[mode].append(step_seconds(mode, X, y))
    plain = statistics.median(took["dense"])
    note = f"at most {longest:,} records in a column"
    yield Figure(f"{columns}: all scores, a step", 1e3 * plain, unit="ms", note=note)
    for mode, target in MODES.items():
        step, fit = statistics.median(took[mode]), fit_seconds(mode, X, y)
        yield Figure(f"  {mode}, a step", 1e6 * step, unit="µs")
        ratios = [a / b for a, b in zip(took["dense"], took[mode], strict=True)]
        yield Figure(
            "  all scores / " + mode,
            statistics.median(ratios),
            target if columns == "uniform" else None,
            ">=",
            note=f"{min(ratios):,.0f} to {max(ratios):,.0f} in {TURNS} turns",
        )
        yield Figure(f"  {mode}, a fit of {STEPS} steps", fit, unit="s")
        yield Figure(f"  all scores / {mode}, with setup", STEPS * plain / fit)


def memory() -> Iterable[Figure]:
    """Peak of a fit, the matrix itself counted, over the size of the matrix."""
    X, y = made_rows("uniform")
    size = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    model = SparseLogisticRegression(1.0, 1e-8, radius=RADIUS, n_iter=STEPS)
    model.fit(X[:100], y[:100])  # imports
    tracemalloc.start()
    model.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1] / size
    tracemalloc.stop()
    yield Figure("peak memory of a fit, matrix included / matrix", 1 + peak, 4.0)


# ---------------------------------------------------------------- the same law
def small_rows() -> tuple[np.ndarray, np.ndarray]:
    """Columns of all sizes, and labels that depend on the first two."""
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, size=(20, 4)) * (rng.random((20, 4)) < [1.0, 0.6, 0.3, 0.1])
    return X, np.where(X[:, 0] + 0.5 * X[:, 1] > 0, 1.0, -1.0)


def plain_fifth_picks(size: float, scale: float, runs: int, seed: int) -> np.ndarray:
    """Frank-Wolfe with Gumbel noise on all vertices, many runs at once, from its definition."""
    (X, y), rng = small_rows(), np.random.default_rng(seed)
    p, chosen, theta = X.shape[1], np.zeros(0), np.zeros((runs, X.shape[1]))
    for t in range(5):
        gradient = (-y / (1 + np.exp(y * (theta @ X.T)))) @ X
        scores = np.hstack([-size * gradient, size * gradient])
        chosen = np.argmax(scores + rng.gumbel(scale=scale, size=scores.shape), axis=1)
        step = 2 / (t + 2)
        theta *= 1 - step
        theta[np.arange(runs), chosen % p] += step * size * np.where(chosen < p, 1, -1)
    return chosen


def fast_fifth_picks(size: float, scale: float, runs: int, stale: bool = False) -> np.ndarray:
    (X, y), source = small_rows(), SeededSource(3)
    p, bounds = X.shape[1], RowBounds(np.inf, 0.0, 1.0)
    rows = SparseRows.build(sp.csr_array(X), y, bounds).columns()
    query = CoordinateClippedGradient(Logistic(), 1.0, bounds, p)
    scores, picks = VertexScores(L1Ball(size), p), []
    for _ in range(runs):
        incremental_gradient = IncrementalGradient(*rows, query, np.zeros(p), stale)
        draw = scores.apply(incremental_gradient)
        for t in range(5):
            picks.append(draw.choose(scale, source))
            incremental_gradient.move(*scores.entry(picks[-1]), 2 / (t + 2))
    return np.array(picks[4::5])


def two_sample(one: np.ndarray, other: np.ndarray) -> float:
    """p-value of two samples of choices having one law."""
    table = np.array([np.bincount(drawn, minlength=8) for drawn in (one, other)])
    return float(stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue)


def same_law() -> Iterable[Figure]:
    """Two-sample chi-square of the fifth choice."""
    plain = plain_fifth_picks(6.0, 18.0, RUNS, seed=1)
    for mode, target in (("exact", 1e-3), ("stale", None)):
        found = two_sample(plain, fast_fifth_picks(6.0, 18.0, RUNS, mode == "stale"))
        note = f"{RUNS:,} runs each"
        yield Figure(
            f"fifth choice, all scores and {mode}: p-value", found, target, ">=", note=note
        )
    loud = two_sample(plain, plain_fifth_picks(6.0, 36.0, RUNS, seed=2))
    yield Figure("fifth choice, noise doubled: p-value", loud, 1e-6)


def main() -> None:
    figures: list[Figure] = []
    parts = [speed(columns) for columns in ("uniform", "zipf", "zipf, signal")]
    for part in (*parts, memory(), same_law()):
        for figure in part:
            figures.append(figure)
            console.print(f"{figure.what}: {figure.value:.4g} {figure.unit}")
    title = f"Frank-Wolfe, n={N:,}, p={P:,}, {EACH} entries a row, {STEPS} steps, CPU time"
    report("sparse_speed", title, figures)


if __name__ == "__main__":
    main()
