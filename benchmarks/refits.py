"""Streams of two classes in the order of time: one online model against refits on disjoint blocks.

Every batch is predicted before it is learned from. Accuracy is that of all predictions, and of
those after the first tenth. Without privacy: scikit-learn's SGD with a running standardisation, one
record after the other, and the class that was more frequent so far.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import StandardScaler

from benchmarks.measure import Figure, console, report
from benchmarks.real_data import folder, stream
from privopt import LogisticRegression, OnlineLogisticRegression, RefitStream

DELTA = 1e-6
BATCHES = {"electricity": 48, "covtype": 1000}
BLOCKS = {"electricity": (10, 40, 100), "covtype": (2, 10)}
AVERAGES = (1, 3)
EPSILONS = (1.0, 8.0)


class Plain:
    """SGD on columns that are standardised by what came before."""

    def __init__(self) -> None:
        self.scaler, self.model = StandardScaler(), SGDClassifier(loss="log_loss", random_state=0)

    def partial_fit(self, X: np.ndarray, y: np.ndarray) -> None:
        self.scaler.partial_fit(X)
        self.model.partial_fit(self.scaler.transform(X), y, classes=[0, 1])

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.model.predict(self.scaler.transform(X))


class Frequent:
    """The class that was more frequent so far."""

    def __init__(self) -> None:
        self.ones = self.seen = 0

    def partial_fit(self, X: np.ndarray, y: np.ndarray) -> None:
        self.ones, self.seen = self.ones + int(y.sum()), self.seen + len(y)

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.full(len(X), int(2 * self.ones > self.seen))


def models(name: str, bounds: Any, steps: int) -> Iterator[tuple[str, Any, int]]:
    """What is compared, and the number of batches that each takes at once."""
    yield "the more frequent class", Frequent(), 1
    yield "SGD, not private", Plain(), 1
    for epsilon in (*EPSILONS, 1000.0):
        given = {"bounds": bounds, "classes": [0, 1], "random_state": 0}
        yield (
            f"epsilon {epsilon:g}, online",
            OnlineLogisticRegression(epsilon, DELTA, n_steps=steps, **given),
            1,
        )
        for many in BLOCKS[name] if epsilon in EPSILONS else ():
            for average in AVERAGES:
                model = LogisticRegression(epsilon, DELTA, bounds=bounds, classes=[0, 1])
                what = f"epsilon {epsilon:g}, blocks of {many * BATCHES[name]}, mean of {average}"
                yield what, RefitStream(model, average=average, random_state=0), many


def accuracy(model: Any, X: np.ndarray, y: np.ndarray, rows: int) -> tuple[float, float]:
    """Of predictions before learning: of all, and after the first tenth."""
    right = np.zeros(len(X), dtype=bool)
    for start in range(0, len(X), rows):
        part = slice(start, start + rows)
        right[part] = (model.predict(X[part]) if start else 0) == y[part]
        model.partial_fit(X[part], y[part])
    return float(right.mean()), float(right[len(X) // 10 :].mean())


def main(names: list[str]) -> None:
    if folder() is None:
        console.print("Skipped: set PRIVOPT_DATA to the folder that holds the data sets.")
        return
    figures = []
    for name in names or list(BATCHES):
        X, y, bounds, *_ = stream(name)
        steps = len(X) // BATCHES[name]
        X, y = X[: steps * BATCHES[name]].astype(float), y[: steps * BATCHES[name]]
        for what, model, many in models(name, bounds, steps):
            whole, later = accuracy(model, X, y, many * BATCHES[name])
            figures.append(Figure(f"{name}, {what}", whole))
            figures.append(Figure("  after the first tenth", later))
            console.print(f"{name}, {what}: {whole:.4f} {later:.4f}")
    report("refits", f"Accuracy of predictions before learning, one run, delta={DELTA:g}", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
