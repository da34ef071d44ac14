"""Private logistic regression with the interface of scikit-learn."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from privopt.estimators.bounds import ColumnBounds
from privopt.estimators.frames import concrete
from privopt.facts import Facts
from privopt.losses import CappedLogistic, Logistic
from privopt.noise import source_for
from privopt.oracle import Oracle
from privopt.oracle.queries import clip_factors, tamed
from privopt.planner import choose, public_count
from privopt.privacy import Budget, Neighbouring
from privopt.problem import Problem
from privopt.solvers import execute, row_bounds


class LogisticRegression(ClassifierMixin, BaseEstimator):
    """Differentially private logistic regression.

    Two classes are one model. More classes are fitted one against the rest: every record takes part
    in every model, and the budget is calibrated for all of them together.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy loss of the whole fit.
    delta : float, default=0.0
        0 asks for pure differential privacy. A value well below 1/n buys accuracy when there are
        many features.
    neighbouring : {"zero_out", "replace_one", "add_remove"}, default="zero_out"
        What may change between two neighbouring data sets; see ``Budget``.
    data_norm : float, default=1.0
        Public bound on the l2 norm of a row of X; longer rows are scaled down to it, in ``fit`` and
        in ``predict`` alike. It must not be computed from the data: scale columns by bounds you
        know.
    bounds : pair or mapping, optional
        Public bounds of the columns: ``(low, high)``, numbers or one per column, or a mapping from
        column names to pairs. Entries outside are moved to the nearest bound. With bounds and an
        intercept the rows are standardised privately, which is usually far more accurate than any
        ``data_norm`` one could guess; ``data_norm`` is then not used.
    fit_intercept : bool, default=True
        Adds a constant column of height ``data_norm / 3``; it counts in the row's norm and is
        regularised.
    solver : str, default="auto"
        ``"auto"`` takes the solver with the smallest bound; otherwise a name from the catalogue.
    classes : array-like, optional
        The public list of labels. Without it the labels are read from y, and the certificate says
        so.
    n_public : int, optional
        Public number of records; required under add_remove.
    nan_policy : {"raise", "empty"}, default="raise"
        ``"raise"`` refuses missing values before anything is computed. ``"empty"`` treats a row
        that holds NaN or infinity as an empty record, which contributes nothing.
    random_state : int, optional
        None draws secure noise. An integer makes the result reproducible and not private.

    Attributes
    ----------
    coef_ : ndarray of shape (1 or n_classes, n_features)
    intercept_ : ndarray of shape (1 or n_classes,)
    classes_ : ndarray of shape (n_classes,)
    privacy_ : Certificate
        What was guaranteed, by which events.
    plan_ : Plan
        The solver and the settings that were chosen before the data was touched.
    n_features_in_ : int
    feature_names_in_ : ndarray, when X has column names

    Examples
    --------
    >>> import numpy as np
    >>> from privopt import LogisticRegression
    >>> angle = np.linspace(0, 2 * np.pi, 5000)
    >>> X = np.column_stack([np.cos(angle), np.sin(angle)])
    >>> clf = LogisticRegression(epsilon=1.0).fit(X, X[:, 0] > 0)
    >>> bool(clf.score(X, X[:, 0] > 0) > 0.9), clf.privacy_.private
    (True, True)
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 0.0,
        *,
        neighbouring: str = "zero_out",
        data_norm: float = 1.0,
        bounds: Any = None,
        fit_intercept: bool = True,
        solver: str = "auto",
        classes: Any = None,
        n_public: int | None = None,
        nan_policy: str = "raise",
        random_state: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.neighbouring = neighbouring
        self.data_norm = data_norm
        self.bounds = bounds
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.classes = classes
        self.n_public = n_public
        self.nan_policy = nan_policy
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> LogisticRegression:
        """Fit the model; spends the whole budget.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
        y : array of shape (n_samples,)
        """
        budget = Budget(self.epsilon, self.delta, cast(Neighbouring, self.neighbouring))
        problem = Problem(
            Logistic(),
            data_norm=self.data_norm,
            intercept=self._column(),
            column_bounds=None if self.bounds is None else 1.0,
        )
        source = source_for(self.random_state)
        # A failed fit leaves nothing behind: what is learned about X is kept aside until the end.
        aside = cast(LogisticRegression, clone(self))
        X, y = aside._validated(X, y)
        classes, labels, assumptions = self._labels(y)
        models = 1 if len(classes) == 2 else len(classes)
        n = public_count(X.shape[0], budget, self.n_public)
        facts = Facts(problem, n, problem.dimension(X.shape[1]), budget.neighbouring, models)
        plan = choose(facts, budget, self.solver)
        declared = aside._declared(X.shape[1])
        X = X if declared is None else declared.apply(X)
        first = Oracle.over(
            X,
            np.where(labels == (1 if models == 1 else 0), 1.0, -1.0),
            neighbouring=budget.neighbouring,
            bounds=row_bounds(plan),
            source=source,
        )
        oracles = [first] + [
            first.labelled(np.where(labels == k, 1.0, -1.0)) for k in range(1, models)
        ]
        answer, certificate = execute(plan, oracles, source, assumptions=assumptions)
        theta = np.stack(answer.thetas)
        self.classes_, self.privacy_, self.n_features_in_ = classes, certificate, X.shape[1]
        if hasattr(aside, "feature_names_in_"):
            self.feature_names_in_ = aside.feature_names_in_
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_  # of an earlier fit
        self.coef_ = np.ascontiguousarray(theta[:, : X.shape[1]])
        self.intercept_ = np.zeros(models)
        if self.fit_intercept:
            self.intercept_ = theta[:, -1] * problem.intercept
        if declared is not None:
            self.coef_ /= declared.reach
            self.intercept_ -= self.coef_ @ declared.shift
        self.plan_, self._row_map = plan, answer.row_map
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Signed scores: one per row for two classes, one per row and class for more."""
        check_is_fitted(self, "coef_")
        X = validate_data(
            self,
            concrete(X),
            accept_sparse="csr",
            dtype=_FLOATS,
            reset=False,
            ensure_all_finite=False,
        )
        declared = self._declared(X.shape[1])
        reach, shift = 1.0, 0.0
        if declared is not None:
            X, reach, shift = declared.apply(X), declared.reach, declared.shift
        coef = self.coef_ * reach
        intercept = self.intercept_ + self.coef_ @ np.broadcast_to(shift, X.shape[1])
        X = tamed(self._finite(X))
        scores = np.asarray(X @ coef.T)
        if self._row_map is not None:
            factors = self._row_map.factors(X) * self._row_map.clip_norm
            scores = (scores + intercept) * factors[:, None]
        else:
            scores = scores * clip_factors(X, self.data_norm)[:, None] + intercept
        return scores.ravel() if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> np.ndarray:
        """Most likely class of each row."""
        scores = self.decision_function(X)
        index = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[index]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities; with more than two classes, one-against-rest scores normalised."""
        scores = self.decision_function(X)
        # The inverse link of the loss that was minimised; a cap of 1 is the logistic loss.
        cap = self.plan_.settings.public().get("cap", 1.0)
        positive = CappedLogistic(cap).probability(scores)
        if scores.ndim == 1:
            return np.column_stack([1 - positive, positive])
        return positive / np.maximum(positive.sum(axis=1, keepdims=True), 1e-300)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithm of ``predict_proba``."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    # ------------------------------------------------------------ before the budget is touched
    def _declared(self, features: int) -> ColumnBounds | None:
        if self.bounds is None:
            return None
        return ColumnBounds.declared(
            self.bounds, features, getattr(self, "feature_names_in_", None)
        )

    def _column(self) -> float:
        return self.data_norm / 3 if self.fit_intercept else 0.0

    def _validated(self, X: Any, y: Any) -> tuple[Any, np.ndarray]:
        if self.nan_policy not in ("raise", "empty"):
            raise ValueError(f'nan_policy must be "raise" or "empty", got {self.nan_policy!r}.')
        if y is None:
            raise ValueError("this estimator requires y to be passed, but the target y is None.")
        X = validate_data(
            self,
            concrete(X),
            accept_sparse="csr",
            dtype=_FLOATS,
            ensure_all_finite=False,
        )
        if self.nan_policy == "raise":
            X = self._finite(X)
        y = column_or_1d(np.asarray(concrete(y, "y")), warn=True)
        if y.dtype.kind == "f":
            assert_all_finite(y, input_name="y")
        if len(y) != X.shape[0]:
            raise ValueError(
                f"X has {X.shape[0]} rows and y has {len(y)} labels: they must be the same number."
            )
        return X, y

    def _finite(self, X: Any) -> Any:
        """X without missing values: refused, or an empty record's zeros, as ``nan_policy`` says."""
        entries = X.data if sp.issparse(X) else X
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(entries.sum(dtype=float)) or np.isfinite(entries).all():
                return X
        if self.nan_policy == "raise":
            raise ValueError(
                "X contains NaN or infinity: remove such rows, or take "
                'nan_policy="empty" to count them as empty records.'
            )
        broken = ~np.isfinite(np.asarray(X.sum(axis=1), dtype=float).ravel())
        X = X.copy()
        if sp.issparse(X):
            X.data[np.repeat(broken, np.diff(X.indptr))] = 0.0
        else:
            X[broken] = 0.0
        return X

    def _labels(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
        """The classes, the index of each label in them, and what that assumes."""
        check_classification_targets(y)
        if self.classes is None:
            classes, index = np.unique(y, return_inverse=True)
            assumptions = ("the list of classes was read from y and is taken to be public",)
        else:
            classes = np.unique(np.asarray(self.classes))
            index = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
            if not np.array_equal(classes[index], y):
                raise ValueError(
                    "y holds a label that is not in classes: declare every label, or leave "
                    "classes=None to read them from y."
                )
            assumptions = ()
        if len(classes) < 2:
            raise ValueError(
                "logistic regression needs at least two classes, got one class: "
                "declare all of them with classes=[...]."
            )
        return classes, index, assumptions

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.nan_policy == "empty"
        return tags


_FLOATS = [np.float64, np.float32]
