"""Private logistic regression with few non-zero coefficients, for many features."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets

from privopt.estimators.sparse_linear import OverL1Ball
from privopt.estimators.users import refuse_others
from privopt.losses import Logistic


class SparseLogisticRegression(ClassifierMixin, OverL1Ball):
    """Differentially private logistic regression over an l1 ball, for two classes.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy loss of the whole fit.
    delta : float, default=0.0
        0 asks for pure differential privacy; a value well below 1/n allows more steps.
    neighbouring : {"zero_out", "replace_one", "add_remove"}, default="zero_out"
    radius : float, default=10.0
        Bound on the sum over features of bound * |coefficient|, that is on the largest possible
        score. Noise grows with it.
    feature_bounds : float or array of shape (n_features,), default=1.0
        Public bounds: entries of X are clipped to [-bound, bound], in ``fit`` and in ``predict``.
    fit_intercept : bool, default=True
        Adds a constant column, whose coefficient counts in ``radius``.
    classes : array-like, optional
        The public pair of labels. Without it the labels are read from y, and the certificate says
        so.
    n_iter : int, optional
        Number of private choices; the model has at most so many features. Default: from n, the
        number of features and the budget.
    mode : {"dense", "exact", "stale"}, optional
        How choices are drawn. "exact" has the law of "dense" and takes microseconds a choice on a
        sparse matrix; "stale" follows an older gradient, as privately. Default: "exact" for sparse
        matrices with 10,000 columns or more.
    n_public : int, optional
        Public number of records; required under add_remove.
    rows_per_user : int, optional
        Promises privacy for users instead of records: of the rows that one user owns, named by
        ``user_ids`` in ``fit``, the first so many count. Public; noise grows with it.
    random_state : int, optional
        Makes the noise reproducible; the certificate then says that the fit is not private.
    ledger : Ledger or path, optional
        Charges every fit to the budget of ``dataset``, or refuses it before the data is read.
    dataset : str, optional
        Name of the budget in the ledger; may be left out if there is only one.

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

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 0.0,
        *,
        neighbouring: str = "zero_out",
        radius: float = 10.0,
        feature_bounds: Any = 1.0,
        fit_intercept: bool = True,
        classes: Any = None,
        n_iter: int | None = None,
        mode: str | None = None,
        n_public: int | None = None,
        rows_per_user: int | None = None,
        random_state: int | None = None,
        ledger: Any = None,
        dataset: str | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.neighbouring = neighbouring
        self.radius = radius
        self.feature_bounds = feature_bounds
        self.fit_intercept = fit_intercept
        self.classes = classes
        self.n_iter = n_iter
        self.mode = mode
        self.n_public = n_public
        self.rows_per_user = rows_per_user
        self.random_state = random_state
        self.ledger = ledger
        self.dataset = dataset

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
