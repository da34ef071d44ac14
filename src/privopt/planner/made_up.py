"""Made-up records of the same shape as somebody's, from public facts alone.

Nobody knows what rows will look like, so there are several: columns alike or of falling size beside
a constant, of low rank; labels without noise, rare positives, residuals with one long tail.
"""

from __future__ import annotations

import math

import numpy as np

from privopt.facts import Facts
from privopt.geometry import LpBall
from privopt.geometry.norms import dual_order
from privopt.losses import PhaseRetrieval, VectorLoss
from privopt.noise import Generator, SeededSource

SEED = 20140623
LOW = 5
"""Rank of rows of low rank, where none is declared."""
RARE = 0.03
"""Share of positives where they are rare."""


def situations(facts: Facts) -> tuple[str, ...]:
    """What is tried: the plain one first. A declared rank or sparsity holds in all of them."""
    features, loss = facts.features, facts.problem.loss
    labels = ("noiseless", "rare") if loss.classification else ("noiseless", "tail")
    columns = ("unequal",) if features > 1 else ()
    if isinstance(loss, VectorLoss):
        return ("plain", *columns, "tail")
    low = ("low rank",) if features > LOW and facts.problem.rank is None else ()
    few = ("few",) if features > LOW and _entries(facts) else ()
    return ("plain", *low, *few, *columns, *labels)


def made_data(facts: Facts, situation: str = "plain") -> tuple[np.ndarray, np.ndarray]:
    """Rows within the declared bounds, and labels that follow a linear model with noise."""
    problem, coins = facts.problem, SeededSource(SEED).coins
    features, rank = facts.features, facts.problem.rank
    sizes = coins.uniform(0.3, 1.0, features)
    X = coins.standard_normal((facts.n, features)) + 0.4 * coins.standard_normal((facts.n, 1))
    if situation == "low rank" or (rank is not None and rank < features):
        base = min(LOW if rank is None else rank, features)
        X = X[:, :base] @ coins.standard_normal((base, features))
    if situation == "unequal":
        sizes = 2.0 ** (-5.0 * np.arange(features) / features)
    X *= sizes
    if situation == "unequal":  # the last one is constant, and as large as all others together
        X[:, -1] = math.sqrt(float(np.mean(np.sum(X[:, :-1] ** 2, axis=1))))
    X = _bounded(X, facts)
    if isinstance(problem.loss, VectorLoss):
        return _places(X, problem.size, situation, coins), np.zeros(facts.n)
    theta = coins.standard_normal(features) * sizes
    kept = problem.sparsity if problem.sparsity is not None else LOW if situation == "few" else None
    if kept is not None:
        theta[kept:] = 0.0
    margins = X @ theta + 1e-300
    margins /= math.sqrt(float(np.mean(margins**2)))
    return X, _labels(margins, facts, situation, coins)


def _bounded(X: np.ndarray, facts: Facts) -> np.ndarray:
    problem, bound = facts.problem, facts.problem.column_bounds
    if bound is not None and _entries(facts):
        X = np.clip(X * (0.5 * bound / math.sqrt(float(np.mean(X**2)))), -bound, bound)
        return X * np.minimum(1.0, problem.row_norm / np.linalg.norm(X, axis=1))[:, None]
    X = X * (0.8 * problem.row_norm / math.sqrt(float(np.mean(np.sum(X**2, axis=1)))))
    X *= np.minimum(1.0, problem.row_norm / np.linalg.norm(X, axis=1))[:, None]
    if problem.dual_norm is not None and isinstance(problem.domain, LpBall):
        lengths = np.linalg.norm(X, dual_order(problem.domain.order), axis=1)
        X = X * np.minimum(1.0, problem.dual_norm / lengths)[:, None]
    return X


def _entries(facts: Facts) -> bool:
    """Whether rows are held by the bounds of their entries, and not by standardisation."""
    return facts.problem.column_bounds is not None and not facts.problem.intercept


def _labels(margins: np.ndarray, facts: Facts, situation: str, coins: Generator) -> np.ndarray:
    loss, n = facts.problem.loss, len(margins)
    if loss.classification:
        slope = 1e9 if situation == "noiseless" else 1.5
        shift = 0.0
        if situation == "rare":
            shift = float(np.quantile(slope * margins, 1 - RARE)) + 1.0
        chance = 1 / (1 + np.exp(np.clip(shift - slope * margins, -700.0, 700.0)))
        return np.where(coins.random(n) < chance, 1.0, -1.0)
    noise = 0.2 * coins.standard_normal(n)
    if situation == "noiseless":
        noise = np.zeros(n)
    if situation == "tail":
        noise = 0.2 * (coins.exponential(1.0, n) ** 1.5 - 0.5)
    if isinstance(loss, PhaseRetrieval):  # squares, whose signs are lost
        return np.clip((0.6 * margins) ** 2 + noise, 0.0, 1.0)
    return np.clip(0.4 * margins + noise, -1.0, 1.0)


def _places(X: np.ndarray, size: float, situation: str, coins: Generator) -> np.ndarray:
    """Points about a common place, or a tenth of them far from it."""
    middle = coins.standard_normal(X.shape[1])
    middle *= 0.4 * size / np.linalg.norm(middle)
    X = 0.4 * X + middle
    if situation == "tail":
        X[: len(X) // 10] = -2 * middle
    return X * np.minimum(1.0, size / np.maximum(np.linalg.norm(X, axis=1), 1e-300))[:, None]
