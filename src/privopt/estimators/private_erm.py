"""Any problem as an estimator: loss, domain and regulariser are the user's."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from privopt.estimators.linear_classifier import class_targets
from privopt.estimators.linear_model import LinearModel
from privopt.estimators.linear_regressor import numbers_of
from privopt.estimators.probabilities import probabilities
from privopt.estimators.targets import Targets
from privopt.facts import Facts
from privopt.losses import Logistic, Loss
from privopt.planner import choose
from privopt.planner.groups import choose_for_group
from privopt.privacy import Budget
from privopt.problem import Problem
from privopt.solvers import Plan, row_bounds


def _classifies(model: Any) -> bool:
    return isinstance(model.problem, Problem) and model.problem.loss.classification


def _has_probabilities(model: Any) -> bool:
    return isinstance(model.problem, Problem) and isinstance(model.problem.loss, Logistic)


class PrivateERM(LinearModel):
    """Differentially private minimisation of any problem, with the interface of scikit-learn.

    A classifier if the loss is one for classes (more than two are fitted together where a solver
    can, else one against the rest within one budget), a regression otherwise. Rows are clipped as
    the problem says, in ``fit`` and in ``predict``; targets of a regression are taken as they are,
    because the loss bounds what one can do.

    Parameters
    ----------
    problem : Problem
        Loss, domain, ridge penalty, row bound and intercept, all of them public.
    epsilon : float, default=1.0
        Privacy loss of the whole fit.
    delta : float, default=0.0
        0 asks for pure differential privacy.
    neighbouring : {"zero_out", "replace_one", "add_remove"}, default="zero_out"
        What may change between two neighbouring data sets; see ``Budget``.
    solver : str, default="auto"
        ``"auto"`` takes the solver with the smallest bound; otherwise a name from the catalogue.
    settings : dict, optional
        Settings of the named solver, overriding its own.
    classes : array-like, optional
        The public list of labels. Without it the labels are read from y, and the certificate says
        so.
    n_public : int, optional
        Public number of records; required under add_remove.
    rows_per_user : int, optional
        Promises privacy for users instead of records: of the rows that one user owns, named by
        ``user_ids`` in ``fit``, the first so many count. Public; noise grows with it.
    nan_policy : {"raise", "empty"}, default="raise"
        ``"raise"`` refuses missing values in X. ``"empty"`` treats a row that holds NaN or infinity
        as an empty record, which contributes nothing.
    random_state : int, optional
        None draws secure noise. An integer makes the result reproducible and not private.
    ledger : Ledger or path, optional
        Charges every fit to the budget of ``dataset``, or refuses it before the data is read.
    dataset : str, optional
        Name of the budget in the ledger; may be left out if there is only one.
    discrete_noise : bool or "auto", default="auto"
        Releases in exact integers: "auto" where the solver can, True or refuse, False in floating
        point.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,), or (1 or n_classes, n_features) for classes
    intercept_ : float, or ndarray of shape (1 or n_classes,)
    classes_ : ndarray of shape (n_classes,), for classes
    privacy_ : Certificate
    plan_ : Plan
    n_features_in_ : int
    feature_names_in_ : ndarray, when X has column names

    Examples
    --------
    >>> import numpy as np
    >>> from privopt import PrivateERM, Problem
    >>> from privopt.geometry import L1Ball
    >>> from privopt.losses import Huber
    >>> x = np.sin(2.4 * np.arange(20_000))[:, None]
    >>> model = PrivateERM(Problem(Huber(0.2), L1Ball(0.7))).fit(x, 0.5 * x.ravel())
    >>> bool(abs(model.coef_[0] - 0.5) < 0.1), model.privacy_.private
    (True, True)
    """

    bounds = None
    classes_: np.ndarray
    intercept_: Any

    def __init__(
        self,
        problem: Problem | None = None,
        epsilon: float = 1.0,
        delta: float = 0.0,
        *,
        neighbouring: str = "zero_out",
        solver: str = "auto",
        settings: dict[str, Any] | None = None,
        classes: Any = None,
        n_public: int | None = None,
        rows_per_user: int | None = None,
        nan_policy: str = "raise",
        random_state: int | None = None,
        ledger: Any = None,
        dataset: str | None = None,
        discrete_noise: bool | str = "auto",
    ) -> None:
        self.problem = problem
        self.epsilon = epsilon
        self.delta = delta
        self.neighbouring = neighbouring
        self.solver = solver
        self.settings = settings
        self.classes = classes
        self.n_public = n_public
        self.rows_per_user = rows_per_user
        self.nan_policy = nan_policy
        self.random_state = random_state
        self.ledger = ledger
        self.dataset = dataset
        self.discrete_noise = discrete_noise

    # ------------------------------------------------------------ predict
    def predict(self, X: Any) -> np.ndarray:
        """Most likely class, or predicted number, of each row."""
        if not _classifies(self):
            check_is_fitted(self, "coef_")
            return self._scores(X, self.coef_[None, :], np.array([self.intercept_])).ravel()
        scores = self.decision_function(X)
        index = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[index]

    @available_if(_classifies)
    def decision_function(self, X: Any) -> np.ndarray:
        """Signed scores: one per row for two classes, one per row and class for more."""
        check_is_fitted(self, "coef_")
        scores = self._scores(X, self.coef_, self.intercept_)
        return scores.ravel() if len(self.classes_) == 2 else scores

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities; with more than two classes the softmax of their scores, or
        one-against-rest probabilities normalised, as the plan says."""
        return probabilities(self.decision_function(X), self.plan_)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy of a classifier, coefficient of determination of a regression."""
        mixin: Any = ClassifierMixin if _classifies(self) else RegressorMixin
        return mixin.score(self, X, y, sample_weight)

    # ------------------------------------------------------------ what the problem says
    @property
    def data_norm(self) -> float | None:  # type: ignore[override]
        """The problem's row bound; None where it follows from that of the entries."""
        return self._given().data_norm

    @property
    def _classification(self) -> bool:  # type: ignore[override]
        return _classifies(self)

    @property
    def _sklearn_class(self) -> str:  # type: ignore[override]
        if not _classifies(self):
            return "linear_model.LinearRegression"
        return "linear_model.LogisticRegression" if _has_probabilities(self) else "svm.LinearSVC"

    def _given(self) -> Problem:
        if not isinstance(self.problem, Problem):
            raise ValueError("problem must be a privopt.Problem, for example Problem(Logistic()).")
        return self.problem

    def _loss(self) -> Loss:
        return self._given().loss

    def _problem(self, n: int, features: int) -> Problem:
        return self._given()

    def _plan(self, facts: Facts, budget: Budget) -> Plan:
        make = partial(choose, discrete_noise=self.discrete_noise, **(self.settings or {}))
        return choose_for_group(facts, budget, self.solver, make)

    def _targets(self, y: np.ndarray) -> Targets:
        self._given()
        if _classifies(self):
            return class_targets(y, self.classes, type(self).__name__)
        return Targets((numbers_of(y),))

    def _keep(self, coef: np.ndarray, intercept: np.ndarray) -> None:
        if row_bounds(self.plan_).data_norm == np.inf:
            self.data_norm_ = None
        if _classifies(self):
            self.coef_, self.intercept_ = coef, intercept
        else:
            self.coef_, self.intercept_ = coef[0], float(intercept[0])

    def _finite(self, X: Any) -> Any:
        """Rows without missing values, entries clipped as the plan's oracle does."""
        X = super()._finite(X)
        largest = row_bounds(self.plan_).entries if hasattr(self, "plan_") else np.inf
        if largest == np.inf:
            return X
        if not sp.issparse(X):
            return np.clip(X, -largest, largest)
        X = cast(Any, X).copy()
        X.data = np.clip(X.data, -largest, largest)
        return X

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        if _classifies(self):
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
            tags.classifier_tags.poor_score = True  # whoever wrote the problem decides
        else:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
            tags.regressor_tags.poor_score = True
        return tags
