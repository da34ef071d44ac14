"""Intervals for any linear estimator, from fits to disjoint parts of the records."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from privopt.estimators.linear_model import LinearModel
from privopt.estimators.resumable import Resumable
from privopt.inference import Summary


def _has(name: str) -> Any:
    return available_if(lambda self: hasattr(getattr(self, "estimator_", self.estimator), name))


class IntervalsByParts(MetaEstimatorMixin, BaseEstimator):
    """Fit an estimator to disjoint parts of the records and take the mean, with Student intervals.

    For estimators and solvers that have no ``intervals=True``: any loss, domain and solver, also
    ``PrivateERM``. Each record is in one part, dealt by a fair coin, so the whole costs what one
    fit costs. What is estimated is what such a fit gives on average on n / parts records, with the
    regularisation that noise asks for there: no interval repairs a bias. Intervals are wider than
    those of ``intervals=True``, which should be preferred where there is a choice.

    Parameters
    ----------
    estimator : estimator
        A linear estimator of this library, not fitted.
    parts : int, default=10
        How many fits. Public.

    Attributes
    ----------
    coef_, intercept_, classes_, plan_, privacy_
        As of the estimator; the coefficients are the means of all fits.
    estimator_ : estimator
        The fitted estimator that holds them.
    standard_errors_ : ndarray of shape (n_features + 1,)

    Examples
    --------
    >>> import numpy as np
    >>> from privopt import HuberRegressor, IntervalsByParts
    >>> x = np.sin(2.4 * np.arange(20_000))[:, None]
    >>> model = IntervalsByParts(HuberRegressor(2.0, 1e-6, bounds=(-1, 1)), parts=8)
    >>> low, high = model.fit(x, 0.5 * x.ravel()).conf_int()[0]
    >>> bool(low < 0.52 and high > 0.48), model.privacy_.private
    (True, True)
    """

    def __init__(self, estimator: Any, parts: int = 10) -> None:
        self.estimator = estimator
        self.parts = parts

    def fit(self, X: Any, y: Any, **others: Any) -> Self:
        """Fit all parts in one run; spends the estimator's whole budget."""
        if not isinstance(self.estimator, LinearModel):
            raise ValueError(
                f"IntervalsByParts is for linear estimators of privopt, not for "
                f"{type(self.estimator).__name__}."
            )
        if isinstance(self.estimator, Resumable):
            raise ValueError(
                "IntervalsByParts is for estimators that are fitted in one go: "
                f"{type(self.estimator).__name__} learns from batches that arrive one by one."
            )
        if getattr(self.estimator, "intervals", False):
            raise ValueError("the estimator gives intervals itself: take intervals=True out.")
        model: Any = clone(self.estimator)
        model._parts = self.parts
        self.estimator_ = model.fit(X, y, **others)
        return self

    def conf_int(self, level: float = 0.95) -> np.ndarray:
        """Intervals of the coefficients, the intercept's last: an array (n_features + 1, 2)."""
        return self._fitted().conf_int(level)

    def summary(self, level: float = 0.95) -> Summary:
        """Coefficients, standard errors and intervals in a table, with what is estimated."""
        return self._fitted().summary(level)

    @property
    def standard_errors_(self) -> np.ndarray:
        return self._fitted().standard_errors_

    @property
    def coef_(self) -> np.ndarray:
        return self._fitted().coef_

    @property
    def intercept_(self) -> Any:
        return self._fitted().intercept_

    @property
    def privacy_(self) -> Any:
        return self._fitted().privacy_

    @property
    def plan_(self) -> Any:
        return self._fitted().plan_

    @property
    def n_features_in_(self) -> int:
        return self._fitted().n_features_in_

    @property
    def classes_(self) -> np.ndarray:
        return self._fitted().classes_

    def predict(self, X: Any) -> np.ndarray:
        """As the estimator."""
        return self._fitted().predict(X)

    @_has("decision_function")
    def decision_function(self, X: Any) -> np.ndarray:
        """As the estimator."""
        return self._fitted().decision_function(X)

    @_has("predict_proba")
    def predict_proba(self, X: Any) -> np.ndarray:
        """As the estimator."""
        return self._fitted().predict_proba(X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """As the estimator."""
        return self._fitted().score(X, y, sample_weight)

    def _fitted(self) -> Any:
        check_is_fitted(self, "estimator_")
        return self.estimator_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        own = self.estimator.__sklearn_tags__()
        tags.estimator_type = own.estimator_type
        tags.classifier_tags, tags.regressor_tags = own.classifier_tags, own.regressor_tags
        tags.target_tags, tags.input_tags = own.target_tags, own.input_tags
        return tags
