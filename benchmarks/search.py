"""A private search over row bounds against fits that need none, at one total budget.

Columns are mapped to [-1, 1] by public bounds; candidates are four bounds of the rows. Beside the
search: the same estimator at its default row bound, and with the column bounds.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.measure import Figure, console, report
from benchmarks.real_data import folder, load
from privopt import LogisticRegression, PrivateSearchCV

DELTA, SEEDS, EPSILONS = 1e-6, 2, (0.5, 2.0)
GRID = {"data_norm": [0.25, 1.0, 4.0, 16.0]}


def searching(epsilon: float, seed: int, refit: bool) -> Any:
    model = LogisticRegression(classes=[0, 1])
    return PrivateSearchCV(
        model, GRID, epsilon=epsilon, delta=DELTA, refit=refit, random_state=seed
    )


def fixed(epsilon: float, seed: int, bounds: Any) -> Any:
    return LogisticRegression(epsilon, DELTA, bounds=bounds, classes=[0, 1], random_state=seed)


KINDS: dict[str, Callable[[float, int], Any]] = {
    "default row bound": lambda epsilon, seed: fixed(epsilon, seed, None),
    "column bounds": lambda epsilon, seed: fixed(epsilon, seed, (-1, 1)),
    "search, then a fit": lambda epsilon, seed: searching(epsilon, seed, True),
    "search alone": lambda epsilon, seed: searching(epsilon, seed, False),
}


def main(names: list[str]) -> None:
    if folder() is None:
        console.print("Skipped: set PRIVOPT_DATA to the folder that holds the data sets.")
        return
    figures = []
    for name in names or ["cod_rna", "electricity", "ijcnn1"]:
        data = load(name)
        low, high = (
            np.broadcast_to(np.asarray(end, float), data.X.shape[1]) for end in data.bounds
        )
        X, X_test = ((Z - (low + high) / 2) / ((high - low) / 2) for Z in (data.X, data.X_test))
        for epsilon in EPSILONS:
            for kind, made in KINDS.items():
                found = [
                    made(epsilon, seed).fit(X, data.y).score(X_test, data.y_test)
                    for seed in range(SEEDS)
                ]
                what = f"{name}, epsilon {epsilon:g}, {kind}"
                figures.append(Figure(what, statistics.mean(found)))
                console.print(f"{what}: {figures[-1].value:.4f}")
    report("search", f"Test accuracy, mean of {SEEDS} runs, delta={DELTA:g}", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
