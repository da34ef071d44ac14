"""Additive models on real data: shapes of columns against straight lines and splines on equal
knots."""

from __future__ import annotations

import statistics
import sys

import numpy as np
from sklearn.metrics import accuracy_score, log_loss
from sklearn.pipeline import make_pipeline

from benchmarks.measure import Figure, console, report
from benchmarks.real_data import DataSet, folder, load
from privopt import LogisticRegression, SplineFeatures

DELTA, SEEDS, EPSILONS = 1e-6, 3, (0.1, 1.0, 8.0)
NUMBERS = {
    "adult": list(range(6)),  # age, weight, years of school, capital gain and loss, hours
    "covtype": list(range(10)),
    "electricity": list(range(6)),
    "cod_rna": list(range(8)),
}
"""Columns of numbers, by their meaning."""
TARGETS = {("adult", 1.0): 0.853, ("covtype", 1.0): 0.765}


def measured(data: DataSet, epsilon: float, kind: str) -> list[tuple[float, float]]:
    """Test accuracy and log loss over seeds of the linear model, shapes, or public splines."""
    columns, found = NUMBERS[data.name], []
    for seed in range(SEEDS):
        given = {"classes": [0, 1], "random_state": seed}
        model = LogisticRegression(
            epsilon,
            DELTA,
            bounds=(-1, 1) if kind == "equal" else data.bounds,
            features=columns if kind == "shapes" else "linear",
            **given,
        )
        if kind == "equal":
            model = make_pipeline(SplineFeatures(data.bounds, columns=columns), model)
        chances = model.fit(data.X, data.y).predict_proba(data.X_test)
        found.append(
            (accuracy_score(data.y_test, chances[:, 1] > 0.5), log_loss(data.y_test, chances))
        )
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
                figures.append(Figure("  log loss", statistics.mean(losses)))
    report("additive", "Additive models: accuracy on the test part", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
