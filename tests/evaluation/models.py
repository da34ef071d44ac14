"""Models that an evaluation meets: fixed ones, and some that would break its sensitivity."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin


class Fixed(ClassifierMixin, BaseEstimator):
    """Log-odds that are linear in the rows, whatever their size; the classes are -1 and 1."""

    def __init__(self, slope: float = 1.0, classes: tuple[Any, ...] = (-1.0, 1.0)) -> None:
        self.slope, self.classes = slope, classes

    @property
    def classes_(self) -> np.ndarray:
        return np.array(self.classes)

    def scores(self, X: np.ndarray) -> np.ndarray:
        X = np.asarray(X, dtype=float)
        return self.slope * (X @ (1.0 / (1 + np.arange(X.shape[1]))))

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        p = expit(self.scores(X))
        return np.column_stack([1 - p, p])

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.classes_[(self.scores(X) > 0).astype(int)]


class Centred(Fixed):
    """Mixes rows: scores around the mean of all that are asked together."""

    def scores(self, X: np.ndarray) -> np.ndarray:
        found = super().scores(X)
        return found - found.mean()


class Remembering(Fixed):
    """Mixes calls: scores around the mean of all that were ever asked."""

    def scores(self, X: np.ndarray) -> np.ndarray:
        found = super().scores(X)
        seen = self.__dict__.setdefault("seen", [])
        seen.extend(found.tolist())
        return found - np.mean(seen)


class Writing(Fixed):
    """Writes into the rows that it is given."""

    def scores(self, X: np.ndarray) -> np.ndarray:
        found = super().scores(X)
        X[:] = np.nan
        return found


class Failing(Fixed):
    """Takes no rows above a size, and says so loudly."""

    def scores(self, X: np.ndarray) -> np.ndarray:
        found = super().scores(X)
        if np.any(found > 2):
            raise ValueError(f"too large: {found.max()}")
        return found


class Threshold(Fixed):
    """Says the second class from a probability of 0.2 on."""

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.classes_[(expit(self.scores(X)) > 0.2).astype(int)]


class Line(RegressorMixin, BaseEstimator):
    """A regression that fits nothing."""

    target_bounds = (-4.0, 4.0)

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(X, dtype=float)[:, 0]


def people(n: int, seed: int = 0, p: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels that ``Fixed`` is calibrated for."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, np.where(rng.random(n) < expit(Fixed().scores(X)), 1.0, -1.0)
