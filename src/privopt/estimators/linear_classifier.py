"""What linear classifiers share: classes, all of them together or one against the rest, scores."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from privopt.estimators.linear_model import LinearModel
from privopt.estimators.parameters import fitted, parameter
from privopt.estimators.targets import Targets


class LinearClassifier(ClassifierMixin, LinearModel):
    """A private linear classifier: one model for two classes, else all classes together where a
    solver can, or one against the rest each.

    Parameters
    ----------
    classes : array-like, optional
        The public list of labels. Without it the labels are read from y, and the certificate says
        so.
    max_weight : float, optional
        Public bound on ``sample_weight`` in ``fit``, which is taken only with it; a larger weight
        counts as the bound. Noise is that of records which all have the largest weight.
    class_weight : mapping, optional
        Public weights of the classes, ``{label: weight}``, 1 where none is given. They multiply
        ``sample_weight``, and the largest of them takes part in its bound.

    Attributes
    ----------
    coef_ : ndarray of shape (1 or n_classes, n_features)
    intercept_ : ndarray of shape (1 or n_classes,)
    classes_ : ndarray of shape (n_classes,)
    """

    classes_: np.ndarray = fitted()
    _classification = True
    __metadata_request__fit: ClassVar = {"sample_weight": None}  # taken with max_weight

    classes: Any = parameter(default=None)
    max_weight: float | None = parameter(default=None)
    class_weight: Any = parameter(default=None)

    def decision_function(self, X: Any) -> np.ndarray:
        """Signed scores: one per row for two classes, one per row and class for more."""
        check_is_fitted(self, "coef_")
        scores = self._scores(X, self.coef_, self.intercept_)
        return scores.ravel() if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> np.ndarray:
        """Most likely class of each row."""
        scores = self.decision_function(X)
        index = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[index]

    def _targets(self, y: np.ndarray) -> Targets:
        return class_targets(y, self.classes, type(self).__name__)

    def _keep(self, coef: np.ndarray, intercept: np.ndarray) -> None:
        self.coef_, self.intercept_ = coef, intercept


def class_targets(y: np.ndarray, declared: Any, name: str) -> Targets:
    """The classes, labels of each model, and what reading the classes from y assumes."""
    check_classification_targets(y)
    if declared is None:
        classes, index = np.unique(y, return_inverse=True)
        assumptions = ("the list of classes was read from y and is taken to be public",)
    else:
        classes = np.unique(np.asarray(declared))
        index = None
        with suppress(Exception):  # a text among numbers has no place in their order
            index = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
        if index is None or not np.array_equal(classes[index], y):
            raise ValueError(
                "y holds a label that is not in classes: declare every label, or leave "
                "classes=None to read them from y."
            )
        assumptions = ()
    if len(classes) < 2:
        raise ValueError(
            f"{name} needs at least two classes, got one class: "
            "declare all of them with classes=[...]."
        )
    positive = (1,) if len(classes) == 2 else range(len(classes))
    labels = tuple(np.where(index == k, 1.0, -1.0) for k in positive)
    return Targets(labels, {"classes_": classes}, assumptions, index.astype(float))
