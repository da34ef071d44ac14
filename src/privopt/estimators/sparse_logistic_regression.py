"""Private logistic regression with few non-zero coefficients, for many features."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets

from privopt.estimators.parameters import parameter
from privopt.estimators.sparse_linear import OverL1Ball
from privopt.estimators.users import refuse_others
from privopt.losses import Logistic


class SparseLogisticRegression(ClassifierMixin, OverL1Ball):
    """Differentially private logistic regression over an l1 ball, for two classes.

    Parameters
    ----------
    radius : float, default=10.0
        Bound on the sum over features of bound * |coefficient|, that is on the largest possible
        score. Noise grows with it.
    fit_intercept : bool, default=True
        Adds a constant column, whose coefficient counts in ``radius``.
    classes : array-like, optional
        The public pair of labels. Without it the labels are read from y, and the certificate says
        so.

    Attributes
    ----------
    classes_ : array of shape (2,)
    coef_ : array of shape (1, n_features)
    intercept_ : array of shape (1,)
    selected_features_ : array of int
        Columns with a non-zero coefficient.
    privacy_ : Certificate
    plan_ : Plan
    """

    _sklearn_class = "linear_model.LogisticRegression"

    radius: float = parameter(default=10.0)
    fit_intercept: bool = parameter(default=True)
    classes: Any = parameter(default=None)

    @np.errstate(all="ignore")  # a warning that one record causes would tell of it
    def fit(self, X: Any, y: Any, *, user_ids: Any = None, **others: Any) -> Self:
        """Fit the model; spends the whole budget.

        With ``user_ids``, who owns each row, and ``rows_per_user`` the guarantee is for users.
        """
        refuse_others(others)
        X, y = self._validated(X, y)
        if y.dtype.kind == "f":
            assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        assumptions: tuple[str, ...] = ()
        if self.classes is None:
            classes = np.unique(y)
            assumptions = ("the list of classes was read from y and is taken to be public",)
        else:
            classes = np.unique(np.asarray(self.classes))
            if not np.isin(y, classes).all():
                raise ValueError(
                    "y holds a label that is not in classes: declare every label, or leave "
                    "classes=None to read them from y."
                )
        if len(classes) == 1:
            raise ValueError(
                "logistic regression needs two classes, got one class: declare both with "
                "classes=[...]."
            )
        if len(classes) > 2:
            raise ValueError(
                "Only binary classification is supported. SparseLogisticRegression separates two "
                "classes: fit one model for each class, or use LogisticRegression."
            )
        labels = np.where(y == classes[1], 1.0, -1.0)
        self._fit(X, labels, Logistic(), assumptions, user_ids)
        self.classes_ = classes
        self.coef_, self.intercept_ = self._coef[None, :], np.array([self._offset])
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Signed scores, one per row."""
        return self._margins(X)

    def predict(self, X: Any) -> np.ndarray:
        """Most likely class of each row."""
        positive = self._margins(X) > 0
        return self.classes_[positive.astype(int)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities."""
        positive = 0.5 * (1 + np.tanh(0.5 * self._margins(X)))
        return np.column_stack([1 - positive, positive])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        assert tags.classifier_tags is not None
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True  # on the few records of a check, noise prevails
        return tags
