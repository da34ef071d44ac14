"""Additive models on real data: shapes of columns against straight lines and splines on equal
knots."""

from __future__ import annotations

import statistics
import sys
from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score, log_loss
from sklearn.pipeline import make_pipeline

from benchmarks.measure import Figure, console, report
from benchmarks.real_data import DataSet, folder, load
from privopt import LinearRegression, LogisticRegression, SplineFeatures

DELTA, SEEDS, EPSILONS = 1e-6, 3, (0.1, 1.0, 8.0)
NUMBERS = {
    "adult": list(range(6)),  # age, weight, years of school, capital gain and loss, hours
    "covtype": list(range(10)),
    "electricity": list(range(6)),
    "cod_rna": list(range(8)),
    "california": list(range(8)),
    "bike_raw": [0, 2, 3, 5, 7, 8, 9, 10, 11],  # not the year, holidays and working days
    "price": list(range(5)),
    "elevation": list(range(9)),
}
"""Columns of numbers, by their meaning."""
TARGETS = {
    ("adult", 1.0): 0.853,
    ("covtype", 1.0): 0.765,
    ("california", 1.0): 0.74,
    ("bike_raw", 1.0): 0.67,
}


def measured(data: DataSet, epsilon: float, kind: str) -> list[tuple[float, float]]:
    """Test accuracy and log loss, or twice R^2, over seeds of the linear model, shapes, or public
    splines."""
    columns, found = NUMBERS[data.name], []
    for seed in range(SEEDS):
        given: dict[str, Any] = {
            "bounds": (-1, 1) if kind == "equal" else data.bounds,
            "features": columns if kind == "shapes" else "linear",
            "random_state": seed,
        }
        if data.target_bounds is None:
            model = LogisticRegression(epsilon, DELTA, classes=[0, 1], **given)
        else:
            model = LinearRegression(epsilon, DELTA, target_bounds=data.target_bounds, **given)
        if kind == "equal":
            model = make_pipeline(SplineFeatures(data.bounds, columns=columns), model)
        model.fit(data.X, data.y)
        if data.target_bounds is None:
            chances = model.predict_proba(data.X_test)
            right = accuracy_score(data.y_test, chances[:, 1] > 0.5)
            found.append((right, log_loss(data.y_test, chances)))
        else:
            found.append((model.score(data.X_test, data.y_test),) * 2)
    return found


def main(names: list[str]) -> None:
    if folder() is None:
        console.print("Skipped: set PRIVOPT_DATA to the folder that holds the data sets.")
        return
    figures = []
    for name in names or list(NUMBERS):
        data = load(name)
        for epsilon in EPSILONS:
            for kind in ("linear", "shapes", "equal"):
                scores, losses = zip(*measured(data, epsilon, kind), strict=True)
                target = TARGETS.get((name, epsilon)) if kind == "shapes" else None
                what = f"{name}, epsilon {epsilon:g}, {kind}"
                figures.append(Figure(what, statistics.mean(scores), target, ">="))
                figures.append(Figure("  spread (std)", float(np.std(scores))))
                if data.target_bounds is None:
                    figures.append(Figure("  log loss", statistics.mean(losses)))
    report("additive", "Additive models: accuracy or R^2 on the test part", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
