"""The problems on which the planner is judged: shapes x losses x domains x budgets, made and real.

Made rows differ from those the planner's own simulation draws: features are correlated and of
unequal size, and the solution is partly sparse. Real rows are scaled by public bounds of their
columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.real_data import folder, load
from privopt import Budget, Problem
from privopt.geometry import Box, Domain, L1Ball, L2Ball, LpBall, Simplex, WholeSpace
from privopt.losses import (
    Absolute,
    Hinge,
    Huber,
    Logistic,
    Loss,
    Quantile,
    SmoothedHinge,
    Squared,
)
from privopt.privacy import Neighbouring

DELTA = 1e-6
MOST_ROWS = 20_000


@dataclass(frozen=True)
class Case:
    """A problem, a budget, and where its rows come from (``n`` and ``p`` for made rows)."""

    name: str
    problem: Problem
    budget: Budget
    rows: str | tuple[int, int]

    def data(self) -> tuple[Any, np.ndarray]:
        if isinstance(self.rows, str):
            return real(self.rows, self.problem)
        return made(*self.rows, self.problem)


def cases() -> list[Case]:
    """All of them; the real ones only where their folder is there."""
    return [*made_cases(), *(real_cases() if folder() is not None else ())]


def made_cases() -> Iterator[Case]:
    ball = L2Ball(5.0)
    table: list[tuple[Loss, Domain, tuple[int, int], list[tuple[float, float]]]] = [
        (Logistic(), ball, (1_000, 3), [(0.2, DELTA), (4.0, DELTA), (1.0, 0.0)]),
        (Logistic(), ball, (5_000, 20), [(0.2, DELTA), (1.0, DELTA), (1.0, 0.0)]),
        (Logistic(), ball, (20_000, 50), [(0.2, DELTA), (1.0, DELTA)]),
        (Logistic(), WholeSpace(), (2_000, 10), [(1.0, DELTA), (1.0, 0.0)]),
        (Logistic(), ball, (500, 100), [(1.0, DELTA), (8.0, DELTA)]),
        (Huber(0.5), ball, (1_000, 3), [(0.2, 0.0), (1.0, DELTA)]),
        (Huber(0.5), ball, (5_000, 20), [(0.2, DELTA), (4.0, DELTA)]),
        (Huber(0.2), Box(-1.0, 1.0), (3_000, 8), [(1.0, DELTA), (1.0, 0.0)]),
        (Squared(residual_clip=1.0), ball, (5_000, 20), [(0.5, DELTA), (2.0, DELTA)]),
        (SmoothedHinge(0.5), ball, (2_000, 10), [(0.5, DELTA), (2.0, DELTA)]),
        (Hinge(), ball, (1_000, 3), [(0.2, DELTA), (1.0, 0.0)]),
        (Hinge(), ball, (5_000, 20), [(0.5, DELTA), (4.0, DELTA)]),
        (Absolute(), ball, (1_000, 3), [(1.0, DELTA), (1.0, 0.0)]),
        (Absolute(), ball, (5_000, 20), [(0.5, DELTA)]),
        (Quantile(0.9), Box(-1.0, 1.0), (2_000, 1), [(0.5, 0.0), (1.0, DELTA)]),
        (Logistic(), L1Ball(5.0), (1_000, 200), [(1.0, DELTA), (4.0, DELTA)]),
        (Logistic(), L1Ball(5.0), (5_000, 1_000), [(1.0, DELTA), (1.0, 0.0)]),
        (Squared(residual_clip=1.0), L1Ball(2.0), (2_000, 500), [(1.0, DELTA), (4.0, DELTA)]),
        (Huber(0.5), Simplex(1.0), (2_000, 50), [(0.5, DELTA), (2.0, DELTA)]),
        (Logistic(), LpBall(1.5, 3.0), (2_000, 50), [(1.0, DELTA)]),
    ]
    for loss, domain, (n, p), budgets in table:
        for epsilon, delta in budgets:
            yield _made(Problem(loss, domain), n, p, Budget(epsilon, delta))
    replaced: Neighbouring = "replace_one"
    yield _made(Problem(Logistic(), ball), 5_000, 20, Budget(1.0, DELTA, replaced))
    yield _made(Problem(Absolute(), ball), 2_000, 5, Budget(1.0, DELTA, replaced))


def real_cases() -> Iterator[Case]:
    ball = L2Ball(10.0)
    table: list[tuple[str, Loss, Domain, list[float]]] = [
        ("adult", Logistic(), ball, [0.1, 1.0]),
        ("adult", Hinge(), ball, [1.0]),
        ("cod_rna", Logistic(), ball, [0.1, 1.0]),
        ("electricity", Logistic(), ball, [1.0]),
        ("mushrooms", Logistic(), ball, [0.5, 2.0]),
        ("ijcnn1", SmoothedHinge(0.5), ball, [1.0]),
        ("california", Huber(0.2), ball, [0.5, 2.0]),
        ("bike", Huber(0.2), ball, [1.0]),
        ("bike", Absolute(), ball, [1.0]),
        ("diabetes", Squared(residual_clip=1.0), ball, [1.0, 4.0]),
        ("madelon", Logistic(), L1Ball(5.0), [1.0]),
    ]
    for name, loss, domain, epsilons in table:
        for epsilon in epsilons:
            problem = Problem(loss, domain)
            words = f"{name}, {type(loss).__name__}, {type(domain).__name__}"
            budget = Budget(epsilon, DELTA)
            yield Case(f"{words}, epsilon {epsilon:g}", problem, budget, name)


def _made(problem: Problem, n: int, p: int, budget: Budget) -> Case:
    words = f"{type(problem.loss).__name__}, {type(problem.domain).__name__}, n={n}, p={p}"
    kind = "pure" if budget.pure else "delta 1e-6"
    relation = "" if budget.neighbouring == "zero_out" else f", {budget.neighbouring}"
    return Case(f"{words}, epsilon {budget.epsilon:g}, {kind}{relation}", problem, budget, (n, p))


# ---------------------------------------------------------------- rows
def made(n: int, p: int, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Correlated rows of norm at most 1; labels from a model half of whose weight is sparse."""
    rng = np.random.default_rng(n + p)
    sizes = (1.0 + np.arange(p)) ** -0.25
    X = rng.standard_normal((n, p)) * sizes + 0.3 * rng.standard_normal((n, 1)) * sizes
    X /= 1.25 * np.sqrt(np.mean(np.sum(X**2, axis=1)))
    X /= np.maximum(np.linalg.norm(X, axis=1), 1.0)[:, None]
    theta = rng.standard_normal(p) / np.sqrt(p)
    theta[: max(1, p // 20)] += 1.0
    margins = X @ theta
    margins /= np.sqrt(np.mean(margins**2))
    if problem.loss.classification:
        return X, np.where(rng.random(n) < 1 / (1 + np.exp(-2.0 * margins)), 1.0, -1.0)
    return X, np.clip(0.4 * margins + 0.15 * rng.standard_t(4, n), -1.0, 1.0)


def real(name: str, problem: Problem) -> tuple[Any, np.ndarray]:
    """Rows in the unit ball by the columns' bounds, labels -1 and 1 or targets in [-1, 1]."""
    data = load(name)
    X, y = data.X[:MOST_ROWS], np.asarray(data.y[:MOST_ROWS], float)
    low, high = (np.broadcast_to(np.asarray(end, float), X.shape[1]) for end in data.bounds)
    if sp.issparse(X):
        X = sp.csr_array(X) / np.abs(np.stack([low, high])).max()
        X = X / max(1.0, float(np.quantile(np.sqrt(X.multiply(X).sum(axis=1)), 0.9)))
        X = X.toarray() if X.shape[1] <= 2_000 else X
    else:
        X = (np.clip(X, low, high) - (low + high) / 2) / ((high - low) / 2)
        X = np.column_stack([X, np.ones(len(X))]) / np.sqrt(X.shape[1] + 1)
    if data.target_bounds is None:
        return X, np.where(y > 0, 1.0, -1.0)
    bottom, top = data.target_bounds
    return X, np.clip((y - (bottom + top) / 2) / ((top - bottom) / 2), -1.0, 1.0)
