"""More than two classes: one against the rest within one budget, on seven kinds of forest."""

from __future__ import annotations

import statistics
import sys

import numpy as np
from sklearn.linear_model import LogisticRegression as PlainClassifier

from benchmarks.measure import Figure, console, report
from benchmarks.real_data import folder, load
from privopt import LogisticRegression

DELTA, SEEDS, EPSILONS = 1e-6, 5, (0.1, 1.0, 4.0)


def main(_: list[str]) -> None:
    if folder() is None:
        console.print("Skipped: set PRIVOPT_DATA to the folder that holds the data sets.")
        return
    data = load("forests")
    low, high = data.bounds
    scale = [2 * (X - low) / (high - low) - 1 for X in (data.X, data.X_test)]
    plain = PlainClassifier(max_iter=200).fit(scale[0], data.y).score(scale[1], data.y_test)
    largest = float(np.bincount(data.y_test).max() / len(data.y_test))
    figures = [Figure("scikit-learn, not private", float(plain))]
    figures.append(Figure("the largest class", largest))
    for epsilon in EPSILONS:
        scores = [
            LogisticRegression(
                epsilon, DELTA, bounds=data.bounds, classes=list(range(1, 8)), random_state=seed
            )
            .fit(data.X, data.y)
            .score(data.X_test, data.y_test)
            for seed in range(SEEDS)
        ]
        figures.append(Figure(f"epsilon {epsilon:g}", statistics.mean(scores), largest, ">="))
        figures.append(Figure("  spread (std)", statistics.stdev(scores)))
        console.print(f"{epsilon:g}: {statistics.mean(scores):.4f}")
    report("many_classes", f"Test accuracy, seven classes, mean of {SEEDS} fits", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
