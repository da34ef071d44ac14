"""Test accuracy on the Adult census data at several epsilons."""

from __future__ import annotations

import os
import statistics
from pathlib import Path

import numpy as np

from benchmarks.measure import Figure, console, report
from privopt import LogisticRegression

TARGETS = {0.1: 0.822, 0.5: 0.836, 1.0: 0.840}
DELTA, DATA_NORM, FITS = 1e-6, 3.2, 10


def main() -> None:
    folder = os.environ.get("PRIVOPT_DATA")
    path = Path(folder or ".") / "adult" / "adult_onehot.npz"
    if not folder or not path.exists():
        console.print(
            "Skipped: set PRIVOPT_DATA to a folder that holds adult/adult_onehot.npz "
            "(X_train, y_train, X_test, y_test)."
        )
        return
    with np.load(path) as data:
        X, y, X_test, y_test = (data[k] for k in ("X_train", "y_train", "X_test", "y_test"))
    figures = [Figure("non-private, scikit-learn", plain_score(X, y, X_test, y_test))]
    for epsilon, target in TARGETS.items():
        scores = [
            LogisticRegression(
                epsilon,
                DELTA,
                neighbouring="zero_out",
                data_norm=DATA_NORM,
                solver="objective_perturbation",
                classes=[0, 1],
                random_state=seed,
            )
            .fit(X, y)
            .score(X_test, y_test)
            for seed in range(FITS)
        ]
        mean, error = statistics.mean(scores), statistics.stdev(scores) / len(scores) ** 0.5
        note = f"{mean:.4f}, standard error {error:.4f}"
        figures.append(Figure(f"epsilon {epsilon:g}, mean", mean, target, ">=", note=note))
    report(
        "adult_accuracy",
        f"Adult, n={len(X):,}, objective perturbation, delta={DELTA:g}, zero_out, {FITS} fits each",
        figures,
    )


def plain_score(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> float:
    from sklearn.linear_model import LogisticRegression as Plain

    return float(Plain(max_iter=2000).fit(X, y).score(X_test, y_test))


if __name__ == "__main__":
    main()
