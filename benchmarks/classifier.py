"""The default classifier on real data: private standardisation against plain perturbation."""

from __future__ import annotations

import statistics
import sys

import numpy as np

from benchmarks.measure import Figure, console, report
from benchmarks.real_data import LOADERS, DataSet, folder, load
from privopt import LogisticRegression

DELTA, SEEDS = 1e-6, 10
TARGETS = {
    "adult": {0.1: 0.835, 1.0: 0.849},
    "covtype": {0.1: 0.751, 1.0: 0.757},
    "diabetes130": {0.1: 0.617, 1.0: 0.633},
    "w8a": {1.0: 0.983},
    "ijcnn1": {0.1: 0.919, 1.0: 0.923},
    "cod_rna": {0.1: 0.932, 1.0: 0.934},
    "electricity": {0.1: 0.748, 1.0: 0.755},
    "mushrooms": {},
}
NORMS = (0.5, 1.0, 2.0, 3.2)
"""Row bounds a favourable guess may choose from, for the plain solver."""


def accuracy(data: DataSet, epsilon: float, seeds: int = SEEDS, **how: object) -> list[float]:
    """Test accuracies over seeds."""
    return [
        LogisticRegression(
            epsilon, DELTA, bounds=data.bounds, classes=[0, 1], random_state=seed, **how
        )
        .fit(data.X, data.y)
        .score(data.X_test, data.y_test)
        for seed in range(seeds)
    ]


def plain(data: DataSet, epsilon: float) -> float:
    """Mean accuracy of plain objective perturbation at the row bound that suits the test part."""
    solver = "objective_perturbation"
    return max(
        statistics.mean(accuracy(data, epsilon, 5, solver=solver, data_norm=norm)) for norm in NORMS
    )


def main(names: list[str]) -> None:
    if folder() is None:
        console.print("Skipped: set PRIVOPT_DATA to the folder that holds the data sets.")
        return
    figures = []
    for name in names or list(LOADERS):
        data = load(name)
        for epsilon in (0.1, 1.0):
            scores = accuracy(data, epsilon)
            mean, target = statistics.mean(scores), TARGETS[name].get(epsilon)
            figures.append(Figure(f"{name}, epsilon {epsilon:g}", mean, target, ">="))
            figures.append(Figure("  spread (std)", float(np.std(scores))))
            other = plain(data, epsilon)
            figures.append(Figure("  ahead of plain perturbation by", mean - other, 0.0, ">="))
            console.print(f"{name} {epsilon:g}: {mean:.4f}, plain {other:.4f}")
    report(
        "classifier",
        f"Test accuracy, mean of {SEEDS} fits, delta={DELTA:g}, zero_out, declared bounds",
        figures,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
