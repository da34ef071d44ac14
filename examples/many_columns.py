"""Which of 100,000 words matter? Private models of a wide sparse matrix.

Ten words decide; they are among the more frequent ones. The matrix would take 8 GB if it were
dense, and never is. Bounds are public: a word is there or it is not.

    python examples/many_columns.py
"""

import time

import numpy as np
import scipy.sparse as sp

from privopt import Budget, ElasticNet, Lasso, Problem, SparseLogisticRegression, solve
from privopt.losses import Logistic

DOCUMENTS, WORDS, LENGTH = 10_000, 100_000, 60
TRUE = np.arange(10) * 3  # the words that matter
EFFECTS = np.array([1.0, -1.0] * 5)


def documents(rng: np.random.Generator) -> sp.csr_array:
    """Presence of words, frequent ones first."""
    words = np.minimum(rng.pareto(0.5, size=DOCUMENTS * LENGTH) * 4, WORDS - 1).astype(np.int32)
    edges = np.arange(0, len(words) + 1, LENGTH)
    counts = sp.csr_array((np.ones(len(words)), words, edges), shape=(DOCUMENTS, WORDS))
    counts.sum_duplicates()
    counts.data[:] = 1.0
    return counts


def describe(name: str, chosen: np.ndarray, score: str, start: float) -> None:
    right = len(set(chosen.tolist()) & set(TRUE.tolist()))
    seconds = time.perf_counter() - start
    print(f"{name:32s} {len(chosen):3d} chosen, {right:2d} of 10 right, {score}, {seconds:.1f} s")


def main() -> None:
    rng = np.random.default_rng(0)
    X = documents(rng)
    signal = X[:, TRUE] @ EFFECTS
    sick = np.where(rng.random(DOCUMENTS) < 1 / (1 + np.exp(-2 * signal)), 1, 0)
    cost = np.clip(0.15 * signal + 0.1 * rng.standard_normal(DOCUMENTS), -1, 1)
    train, test = slice(0, 8000), slice(8000, None)
    budget = {"epsilon": 2.0, "delta": 1e-7}

    start = time.perf_counter()
    clf = SparseLogisticRegression(**budget, classes=[0, 1], radius=10.0).fit(X[train], sick[train])
    accuracy = f"accuracy {clf.score(X[test], sick[test]):.2f}"
    describe("SparseLogisticRegression", clf.selected_features_, accuracy, start)

    start = time.perf_counter()
    problem = Problem(Logistic(), column_bounds=1.0)
    found = solve(
        problem, X[train], sick[train], budget=Budget(**budget), solver="greedy_coordinate"
    )
    accuracy = f"accuracy {np.mean((X[test] @ found.theta > 0) == sick[test]):.2f}"
    describe("greedy coordinates, logistic", np.flatnonzero(found.theta), accuracy, start)

    for model in (
        Lasso(**budget, radius=2.0, residual_clip=0.5),
        ElasticNet(**budget, alpha=0.005, l1_ratio=0.9, residual_clip=0.5),
    ):
        start = time.perf_counter()
        model.fit(X[train], cost[train])
        fit = f"R2 {model.score(X[test], cost[test]):.2f}"
        describe(type(model).__name__, model.selected_features_, fit, start)

    print()
    print(clf.privacy_)


if __name__ == "__main__":
    main()
