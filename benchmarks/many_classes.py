"""Many classes: one release of all of them against one model for each, on images, forests, text."""

from __future__ import annotations

import statistics
import sys
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression as PlainClassifier
from sklearn.metrics import log_loss

from benchmarks.measure import Figure, console, report
from benchmarks.real_data import DataSet, folder, load
from privopt import LogisticRegression

DELTA, SEEDS, EPSILONS = 1e-6, 5, (0.1, 1.0, 8.0)
ACCURACY = {
    "fashion_mnist": {0.1: 0.768, 1.0: 0.812, 8.0: 0.823},
    "mnist": {0.1: 0.863, 1.0: 0.909, 8.0: 0.922},
    "forests": {0.1: 0.702, 1.0: 0.715, 8.0: 0.716},
    "newsgroups20": {1.0: 0.33, 8.0: 0.64},
}
LOG_LOSS = {"fashion_mnist": {0.1: 0.67, 1.0: 0.53, 8.0: 0.50}}
BINS = 10


def scores(
    data: DataSet, epsilon: float, seeds: int = SEEDS, **how: Any
) -> list[tuple[float, float, float]]:
    """Test accuracy, log loss and calibration error of each fit."""
    classes, found = np.unique(data.y), []
    for seed in range(seeds):
        model = LogisticRegression(
            epsilon, DELTA, bounds=data.bounds, classes=classes, random_state=seed, **how
        ).fit(data.X, data.y)
        found.append(judged(model.predict_proba(data.X_test), classes, data.y_test))
    return found


def judged(chances: np.ndarray, classes: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    right = classes[chances.argmax(axis=1)] == y
    sure = chances.max(axis=1)
    place = np.minimum((sure * BINS).astype(int), BINS - 1)
    apart = [abs((sure - right)[place == b].mean()) * np.mean(place == b) for b in set(place)]
    return float(right.mean()), float(log_loss(y, chances, labels=classes)), float(sum(apart))


def main(names: list[str]) -> None:
    if folder() is None:
        console.print("Skipped: set PRIVOPT_DATA to the folder that holds the data sets.")
        return
    figures = []
    for name in names or list(ACCURACY):
        data = load(name)
        low, high = data.bounds
        X, X_test = (
            Z if sp.issparse(Z) else (Z - low) / (high - low) for Z in (data.X, data.X_test)
        )
        plain = PlainClassifier(max_iter=200).fit(X, data.y)
        right, loss, _ = judged(plain.predict_proba(X_test), plain.classes_, data.y_test)
        figures += [Figure(f"{name}, not private", right), Figure("  log loss", loss)]
        for epsilon in EPSILONS:
            found = scores(data, epsilon)
            right, loss, apart = (statistics.mean(column) for column in zip(*found, strict=True))
            spread = statistics.stdev(one[0] for one in found)
            wanted, most = ACCURACY.get(name, {}).get(epsilon), LOG_LOSS.get(name, {}).get(epsilon)
            figures.append(Figure(f"{name}, epsilon {epsilon:g}", right, wanted, ">="))
            figures.append(Figure("  spread (std)", spread))
            figures.append(Figure("  log loss", loss, most))
            figures.append(Figure("  calibration error", apart))
            each = scores(data, epsilon, 1, solver="standardized_objective")[0]
            figures.append(Figure("  one model for each class, one fit", each[0]))
            figures.append(Figure("    log loss", each[1]))
            console.print(f"{name} {epsilon:g}: {right:.4f} {loss:.4f} {apart:.3f} +- {spread:.4f}")
    report("many_classes", f"Test accuracy, mean of {SEEDS} fits, delta={DELTA:g}", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
