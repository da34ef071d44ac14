"""What regressions under the log link share: amounts from 0, predictions that are exponentials."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from privopt.estimators.linear_regressor import LinearRegressor, numbers_of
from privopt.estimators.parameters import parameter
from privopt.estimators.targets import Targets

SMALLEST = 1e-300
"""Least prediction: a deviance takes its logarithm."""


class LogLinkRegressor(LinearRegressor):
    """A private regression of the logarithm of the mean. Losses see targets as shares of the upper
    target bound, so that rates lie in [0, 1].

    Parameters
    ----------
    alpha : float, default=0.0
        Ridge penalty on the scale of the mean over records, as in scikit-learn, whose default is 1.
        The noise asks for a penalty of its own.

    Attributes
    ----------
    shapes_ : list of Shape, or None
        What each shaped column adds to the logarithm, as a table over 64 bins of its bounds; None
        where the fit is linear.
    """

    alpha: float = parameter(default=0.0)
    target_bounds: tuple[float, float] = parameter(default=(0.0, 1.0))

    @abstractmethod
    def _deviance(self, y: np.ndarray, mean: np.ndarray) -> float:
        """Mean deviance of targets from predicted means."""

    def predict(self, X: Any) -> np.ndarray:
        """Predicted mean of each row, within the target bounds."""
        check_is_fitted(self, "coef_")
        scores = self._scores(X, self.coef_[None, :], np.array([self.intercept_]))
        low, high = self._ends()
        rates = np.exp(np.minimum(scores.ravel(), math.log(high)))
        return np.clip(rates, max(low, SMALLEST * high), high)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """D^2, the share of the deviance that is explained; 1 is best, 0 is the mean of ``y``.

        Computed from the data that are passed: on private data it is not private.
        """
        if sample_weight is not None:
            raise ValueError("sample_weight is not supported here: leave it out.")
        y = numbers_of(np.asarray(y))
        null = self._deviance(y, np.full(len(y), max(float(np.mean(y)), SMALLEST)))
        own = self._deviance(y, self.predict(X))
        return 1.0 - own / null if null > 0 else (1.0 if own == 0 else 0.0)

    def _plain(self) -> Any:
        plain = super()._plain()
        plain._base_loss = plain._get_loss()
        return plain

    def _ends(self) -> tuple[float, float]:
        low, high = super()._ends()
        if low < 0:
            raise ValueError(
                f"{type(self).__name__} needs target_bounds of at least 0, got "
                f"{self.target_bounds!r}."
            )
        return low, high

    def _half(self) -> float:
        return 1.0  # a logarithm has no unit

    def _targets(self, y: np.ndarray) -> Targets:
        low, high = self._ends()
        return Targets((np.clip(numbers_of(y), low, high) / high,))

    def _keep(self, coef: np.ndarray, intercept: np.ndarray) -> None:
        self.coef_ = coef[0]
        self.intercept_ = float(intercept[0] + math.log(self._ends()[1]))

    def _penalty(self, n: int) -> float:
        if not 0 <= self.alpha < float("inf"):
            raise ValueError(f"alpha must be non-negative and finite, got {self.alpha!r}.")
        return self.alpha / self._unit()

    def _unit(self) -> float:
        """What divides the loss when targets are divided by their upper bound."""
        return 1.0

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags
