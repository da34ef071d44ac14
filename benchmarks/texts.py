"""Texts: noise on the coefficient of every word, or a choice among words.

The most frequent words of short messages, of film reviews and of two newsgroups, or all of them;
frequency is read off the training part, which a benchmark may and a private fit may not.
"""

from __future__ import annotations

import statistics
import sys
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.measure import Figure, console, report
from benchmarks.real_data import folder, load
from privopt import LogisticRegression, SparseLogisticRegression
from privopt.privacy.profiles import gaussian_mu

DELTA, SEEDS, EPSILONS = 1e-6, 2, (1.0, 8.0)
WORDS = (200, 1000, 4000, None)
KINDS: dict[str, Any] = {
    "every word": lambda epsilon, seed: LogisticRegression(
        epsilon, DELTA, bounds=(0, 1), random_state=seed
    ),
    "a choice": lambda epsilon, seed: SparseLogisticRegression(epsilon, DELTA, random_state=seed),
}


def frequent(X: Any, X_test: Any, words: int | None) -> tuple[Any, Any]:
    """The columns of the most frequent words, there or not."""
    X, X_test = sp.csr_array(X).astype(float), sp.csr_array(X_test).astype(float)
    if words is not None:
        often = np.argsort(-np.asarray((X != 0).sum(axis=0)).ravel())[:words]
        X, X_test = (part[:, often].tocsr() for part in (X, X_test))
    X.data[:], X_test.data[:] = 1.0, 1.0
    return X, X_test


def main(names: list[str]) -> None:
    if folder() is None:
        console.print("Skipped: set PRIVOPT_DATA to the folder that holds the data sets.")
        return
    figures = []
    for name in names or ["messages", "movies", "newsgroups"]:
        data = load(name)
        for words in WORDS:
            X, X_test = frequent(data.X, data.X_test, words)
            for epsilon in EPSILONS:
                r = X.shape[0] * gaussian_mu(epsilon, DELTA) / X.shape[1]
                for kind, made in KINDS.items():
                    found = [
                        made(epsilon, seed).fit(X, data.y).score(X_test, data.y_test)
                        for seed in range(SEEDS)
                    ]
                    what = f"{name}, {X.shape[1]} words, epsilon {epsilon:g}, r={r:.2f}: {kind}"
                    figures.append(Figure(what, statistics.mean(found)))
                    console.print(f"{what} {figures[-1].value:.4f}")
    report("texts", f"Test accuracy, mean of {SEEDS} fits, delta={DELTA:g}", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
