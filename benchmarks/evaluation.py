"""Private evaluation: how often its intervals hold the truth, and how wide they are.

The truth is the metric on a whole pool of rows, each repetition draws rows from the pool with
replacement. Models are made up (calibrated scores; scores that are too bold, too shy, in one narrow
place, or of few values) and real (linear, naive Bayes, trees on Adult and Electricity; California
housing). ``python -m benchmarks.evaluation 400`` sets the number of repetitions.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import brier_score_loss, confusion_matrix, log_loss, roc_auc_score
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

import privopt
from benchmarks.measure import Figure, console, report
from benchmarks.real_data import folder, load

LIMIT, POOL = 5.0, 100_000
SETTINGS = ((1_000, 0.1), (1_000, 1.0), (10_000, 0.1), (10_000, 0.5))


class Kept(BaseEstimator):
    """Answers that were computed once, by the number of the row."""

    def __init__(self, answers: np.ndarray) -> None:
        self.answers = answers

    def _rows(self, X: np.ndarray) -> np.ndarray:
        return self.answers[np.asarray(X)[:, 0].astype(int)]


class KeptScores(ClassifierMixin, Kept):
    """Two classes, from scores in log-odds."""

    classes_ = np.array([0, 1])

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        p = expit(self._rows(X))
        return np.column_stack([1 - p, p])

    def predict(self, X: np.ndarray) -> np.ndarray:
        return (self._rows(X) > 0).astype(int)


class KeptNumbers(RegressorMixin, Kept):
    """A regression."""

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self._rows(X)


class KeptClasses(ClassifierMixin, Kept):
    """Several classes, from their probabilities."""

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return self._rows(X)

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.classes_[np.argmax(self._rows(X), axis=1)]

    @property
    def classes_(self) -> np.ndarray:
        return np.arange(self.answers.shape[1])


@dataclass(frozen=True)
class Design:
    """Answers and labels of a pool of rows."""

    name: str
    answers: np.ndarray
    y: np.ndarray
    bounds: tuple[float, float] | None = None

    @property
    def model(self) -> Kept:
        if self.bounds is not None:
            return KeptNumbers(self.answers)
        return (KeptScores if self.answers.ndim == 1 else KeptClasses)(self.answers)

    def truth(self) -> dict[str, float]:
        if self.bounds is not None:
            return self._of_numbers(self.bounds)
        if self.answers.ndim == 2:
            return self._of_classes()
        scores = np.clip(self.answers, -LIMIT, LIMIT)
        p = expit(scores)
        (tn, fp), (fn, tp) = confusion_matrix(self.y, scores > 0)
        return {
            "accuracy": (tn + tp) / len(p),
            "precision": tp / (tp + fp) if tp + fp else math.nan,
            "recall": tp / (tp + fn),
            "auc": float(roc_auc_score(self.y, scores)),
            "log_loss": float(log_loss(self.y, p)),
            "brier": float(brier_score_loss(self.y, p)),
        }

    def _of_numbers(self, bounds: tuple[float, float]) -> dict[str, float]:
        y, cut = np.clip(self.y, *bounds), (bounds[1] - bounds[0]) / 4
        residuals = np.minimum(np.abs(y - self.answers), cut)
        mean = float(np.mean(residuals**2))
        return {
            "r2": 1 - mean / float(np.var(y)),
            "rmse": math.sqrt(mean),
            "mae": float(np.mean(residuals)),
        }

    def _of_classes(self) -> dict[str, float]:
        p, rows = self.answers, np.arange(len(self.y))
        least, said = float(expit(-LIMIT)), np.argmax(self.answers, axis=1)
        one = {"accuracy": float(np.mean(said == self.y))}
        one["log_loss"] = float(np.mean(-np.log(np.clip(p[rows, self.y], least, 1))))
        one["brier"] = float(np.mean(np.sum((p - np.eye(p.shape[1])[self.y]) ** 2, axis=1)))
        for k in range(p.shape[1]):
            one[f"recall of {k}"] = float(np.mean(said[self.y == k] == k))
        return one


def made() -> list[Design]:
    """Pools whose labels follow known log-odds, seen through scores of several kinds."""
    rng = np.random.default_rng(0)
    z = 1.5 * rng.normal(size=POOL)
    y = (rng.random(POOL) < expit(z)).astype(int)
    steps = np.round(z)
    rare = (rng.random(POOL) < expit(z - 3)).astype(int)
    logits = rng.normal(size=(POOL, 4)) * 1.5
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    k = (p.cumsum(axis=1) < rng.random((POOL, 1))).sum(axis=1)
    x, noise = rng.normal(size=POOL), rng.standard_t(4, size=POOL)
    return [
        Design("calibrated", z, y),
        Design("too bold, scores times 2.5", 2.5 * z, y),
        Design("too shy, scores times 0.4", 0.4 * z, y),
        Design("narrow, scores times 0.02 above 1", 1 + 0.02 * z, y),
        Design("upside down", -z, y),
        Design("whole numbers", steps, y),
        Design("rare", z - 3, rare),
        Design("four classes", p, k),
        Design("heavy-tailed numbers", x, x + noise, (-8.0, 8.0)),
    ]


def real() -> list[Design]:
    """Real rows, and models that are good and bad at probabilities."""
    found = []
    for name in ("adult", "electricity"):
        data = load(name)
        X, X_test = (
            part.toarray() if hasattr(part, "toarray") else part for part in (data.X, data.X_test)
        )
        y, y_test = (np.asarray(one > 0, dtype=int) for one in (data.y, data.y_test))
        for model in (
            LogisticRegression(max_iter=300),
            GaussianNB(),
            HistGradientBoostingClassifier(random_state=0),
            DecisionTreeClassifier(max_depth=6, random_state=0),
        ):
            p = np.asarray(model.fit(X[:20_000], y[:20_000]).predict_proba(X_test))[:, 1]
            with np.errstate(divide="ignore"):
                scores = np.log(p) - np.log1p(-p)
            found.append(Design(f"{name}, {type(model).__name__}", scores, y_test))
    data = load("california")
    for model in (LinearRegression(), RandomForestRegressor(30, random_state=0)):
        said = model.fit(data.X[:8000], data.y[:8000]).predict(data.X_test)
        name = f"california, {type(model).__name__}"
        found.append(Design(name, said, data.y_test, data.target_bounds))
    return found


def measured(
    design: Design, n: int, epsilon: float, runs: int, seed: int = 0
) -> dict[str, tuple[float, float, float]]:
    """For each metric: coverage of the intervals, half of their mean width, root mean square
    error."""
    rng = np.random.default_rng(seed)
    truth, model = design.truth(), design.model
    seen: dict[str, list[tuple[bool, float, float]]] = defaultdict(list)
    for run in range(runs):
        rows = rng.integers(len(design.y), size=n)
        found = privopt.evaluate(
            model,
            rows[:, None].astype(float),
            design.y[rows],
            epsilon=epsilon,
            target_bounds=design.bounds,
            one_at_a_time=False,
            random_state=1000 * seed + run,
        )
        for name, value in truth.items():
            one = found.metrics[name]
            held = one.low - 1e-9 <= value <= one.high + 1e-9
            seen[name].append((held, (one.high - one.low) / 2, (one.value - value) ** 2))
    kept = {}
    for name, parts in seen.items():
        held, half, square = np.mean(np.array(parts, dtype=float), axis=0)
        kept[name] = float(held), float(half), math.sqrt(float(square))
    return kept


def main(runs: int = 400) -> None:
    designs = made() + (real() if folder() is not None else [])
    figures, worst = [], 1.0
    for n, epsilon in SETTINGS:
        console.rule(f"n={n}, epsilon={epsilon:g}, {runs} repetitions: coverage/half-width/rmse")
        for design in designs:
            found = measured(design, n, epsilon, runs)
            said = "  ".join(f"{k} {c:.3f}/{h:.3g}/{e:.3g}" for k, (c, h, e) in found.items())
            console.print(f"{design.name}: {said}", highlight=False, soft_wrap=True)
            worst = min(worst, *(one[0] for one in found.values()))
            if (n, epsilon, design.name) == (10_000, 0.1, "calibrated"):
                error = found["accuracy"][2]
                figures.append(
                    Figure("error of accuracy, 10,000 rows, epsilon 0.1", error, 0.01, "<=")
                )
    large = measured(designs[0], POOL, 0.1, 20)["auc"]
    figures.append(Figure("error of the AUC, 100,000 rows, epsilon 0.1", large[2], 0.01, "<="))
    figures.append(Figure("least coverage of 95 % intervals", worst, 0.93, ">="))
    report("evaluation", "Private evaluation", figures)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
