"""What a meta-estimator passes on to the model that it has fitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted


def _has(method: str) -> Callable[[Any], bool]:
    return lambda self: hasattr(getattr(self, self._inside, self.estimator), method)


class Delegating(MetaEstimatorMixin, BaseEstimator):
    """Predicts by the model that its attribute ``_inside`` names."""

    _inside: ClassVar[str]
    estimator: Any

    def _fitted(self) -> Any:
        check_is_fitted(self, self._inside)
        return getattr(self, self._inside)

    @property
    def classes_(self) -> np.ndarray:
        """The classes of the fitted model."""
        return self._fitted().classes_

    def predict(self, X: Any) -> np.ndarray:
        """Predictions of the fitted model."""
        return self._fitted().predict(X)

    @available_if(_has("predict_proba"))
    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities of the fitted model."""
        return self._fitted().predict_proba(X)

    @available_if(_has("predict_log_proba"))
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithm of ``predict_proba``."""
        return self._fitted().predict_log_proba(X)

    @available_if(_has("decision_function"))
    def decision_function(self, X: Any) -> np.ndarray:
        """Scores of the fitted model."""
        return self._fitted().decision_function(X)

    def score(self, X: Any, y: Any) -> float:
        """Score of the fitted model on other data."""
        return self._fitted().score(X, y)

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type, tags.input_tags = inner.estimator_type, inner.input_tags
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        for kind in (tags.classifier_tags, tags.regressor_tags):
            if kind is not None:
                kind.poor_score = True  # the model has seen a part of the few records of a check
        tags.target_tags = inner.target_tags
        return tags
