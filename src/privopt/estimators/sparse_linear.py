"""Private linear models with few non-zero coefficients, for many features."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Self, cast

import numpy as np
import scipy.sparse as sp
from sklearn.base import RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted

from privopt.estimators.frames import column, validated
from privopt.estimators.linear_regressor import numbers_of
from privopt.estimators.parameters import Declared, parameter
from privopt.estimators.pipelines import learned_before
from privopt.estimators.portable import Portable
from privopt.estimators.users import OWNED, refuse_others, rows_that_count
from privopt.facts import Facts
from privopt.geometry import L1Ball
from privopt.ledger import account_for
from privopt.losses import Loss, Squared
from privopt.noise import source_for
from privopt.oracle import Oracle
from privopt.planner import choose, public_count
from privopt.planner.groups import choose_for_group
from privopt.privacy import Budget, Neighbouring
from privopt.problem import Problem
from privopt.solvers import execute, row_bounds

_FLOATS = [np.float64, np.float32]


class SparseLinear(Declared, Portable):
    """What the models share: entries clipped to public bounds, features chosen one by one.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy loss of the whole fit.
    delta : float, default=0.0
        0 asks for pure differential privacy; a value well below 1/n allows more steps.
    neighbouring : {"zero_out", "replace_one", "add_remove"}, default="zero_out"
    feature_bounds : float or array of shape (n_features,), default=1.0
        Public bounds: entries of X are clipped to [-bound, bound], in ``fit`` and in ``predict``.
    n_iter : int, optional
        Number of private choices; the model has at most so many features. Default: from n, the
        number of features and the budget.
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
    """

    epsilon: float = parameter(default=1.0, kw_only=False)
    delta: float = parameter(default=0.0, kw_only=False)
    neighbouring: str = parameter(default="zero_out")
    feature_bounds: Any = parameter(default=1.0)
    fit_intercept: bool = parameter(default=False)
    n_iter: int | None = parameter(default=None)
    n_public: int | None = parameter(default=None)
    rows_per_user: int | None = parameter(default=None)
    random_state: int | None = parameter(default=None)
    ledger: Any = parameter(default=None)
    dataset: str | None = parameter(default=None)

    def _fit(
        self, X: Any, y: np.ndarray, loss: Loss, assumptions: tuple[str, ...], user_ids: Any
    ) -> None:
        """Everything from a plan to coefficients; ``X`` is validated, ``y`` ready for the loss."""
        unit = "record" if user_ids is None else "user"
        budget = Budget(self.epsilon, self.delta, cast(Neighbouring, self.neighbouring), unit)
        source = source_for(self.random_state)
        account = account_for(self.ledger, self.dataset)
        assumptions = (*assumptions, *learned_before())
        counting = rows_that_count(user_ids, X.shape[0], self.rows_per_user)
        if counting is not None:
            X, y = X[counting.rows], y[counting.rows]
            assumptions = (*assumptions, OWNED)
        n = public_count(X.shape[0], budget, self.n_public)
        bounds = self._bounds(X.shape[1])
        problem, solver, choices = self._task(loss)
        group = self.rows_per_user or 1
        facts = Facts.of_rows(problem, X, n, budget.neighbouring, group=group)
        if self.n_iter is not None:
            choices["n_iter"] = self.n_iter
        plan = choose_for_group(facts, budget, solver, partial(choose, **choices))

        def read() -> list[Oracle]:
            return [
                Oracle.over(
                    _scaled(X, bounds),
                    y,
                    neighbouring=budget.neighbouring,
                    bounds=row_bounds(plan),
                    source=source,
                    classification=loss.classification,
                    owned=None if counting is None else counting.each,
                )
            ]

        (theta,), certificate = execute(
            plan, read, source, assumptions=assumptions, account=account
        )
        features = X.shape[1]
        self._coef = theta[:features] / bounds
        self._offset = float(theta[features]) if self.fit_intercept else 0.0
        self.selected_features_ = np.flatnonzero(theta[:features])
        self.privacy_, self.plan_, self.n_features_in_ = certificate, plan, features

    def _task(self, loss: Loss) -> tuple[Problem, str, dict[str, Any]]:
        """The problem in units of the bounds, the name of its solver, and the solver's settings."""
        raise NotImplementedError

    def _validated(self, X: Any, y: Any) -> tuple[Any, np.ndarray]:
        if y is None:
            raise ValueError("this estimator requires y to be passed, but the target y is None.")
        # A failed fit leaves nothing behind: names of columns are kept on a copy until then.
        aside = cast(Self, clone(self))
        X = validated(aside, X, accept_sparse="csr", dtype=_FLOATS)
        y = column(y)
        if len(y) != X.shape[0]:
            raise ValueError(
                f"X has {X.shape[0]} rows and y has {len(y)} labels: they must be the same number."
            )
        self._bounds(X.shape[1])
        if hasattr(aside, "feature_names_in_"):
            self.feature_names_in_ = aside.feature_names_in_
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return X, y

    def _margins(self, X: Any) -> np.ndarray:
        """Scores of rows whose entries are clipped as in ``fit``."""
        check_is_fitted(self, "selected_features_")
        X = validated(self, X, accept_sparse="csr", dtype=_FLOATS, reset=False)
        bounds, chosen = self._bounds(X.shape[1]), self.selected_features_
        X = _scaled(X[:, chosen], bounds[chosen])
        if sp.issparse(X):
            X = sp.csr_array(X, copy=True)
            X.sum_duplicates()
            X.data = np.clip(X.data, -1.0, 1.0)
        else:
            X = np.clip(X, -1.0, 1.0)
        return np.asarray(X @ (self._coef[chosen] * bounds[chosen])).ravel() + self._offset

    def _bounds(self, features: int) -> np.ndarray:
        bounds = np.asarray(self.feature_bounds, dtype=float)
        if bounds.ndim > 1 or (bounds.ndim == 1 and bounds.size != features):
            raise ValueError(
                f"feature_bounds must be a number or one for each of the {features} columns."
            )
        if not (np.isfinite(bounds).all() and (bounds > 0).all()):
            raise ValueError("feature_bounds must be positive and finite.")
        return np.broadcast_to(bounds, (features,))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class OverL1Ball(SparseLinear):
    """Frank-Wolfe over an l1 ball.

    Parameters
    ----------
    radius : float, default=1.0
        Bound on the sum over features of bound * |coefficient|, that is on the largest possible
        prediction. Noise grows with it.
    fit_intercept : bool, default=False
        Adds a constant column, whose coefficient counts in ``radius``.
    mode : {"dense", "exact", "stale"}, optional
        How choices are drawn. "exact" has the law of "dense" and takes microseconds a choice on a
        sparse matrix; "stale" follows an older gradient, as privately. Default: "exact" for sparse
        matrices with 10,000 columns or more.
    """

    radius: float = parameter(default=1.0)
    mode: str | None = parameter(default=None)

    def _task(self, loss: Loss) -> tuple[Problem, str, dict[str, Any]]:
        domain = L1Ball(self._radius())
        constant = 1.0 if self.fit_intercept else 0.0
        choices = {} if self.mode is None else {"mode": self.mode}
        return Problem(loss, domain, column_bounds=1.0, intercept=constant), "frank_wolfe", choices

    def _radius(self) -> float:
        if not 0 < self.radius < math.inf:
            raise ValueError(f"radius must be positive and finite, got {self.radius!r}.")
        return float(self.radius)


class SparseLeastSquares(RegressorMixin, SparseLinear):
    """Least squares with labels and residuals clipped to public bounds.

    Parameters
    ----------
    y_bound : float, default=1.0
        Public bound: y is clipped to [-y_bound, y_bound].
    """

    y_bound: float = parameter(default=1.0)
    residual_clip: float | None = parameter(default=None)

    @np.errstate(all="ignore")  # a warning that one record causes would tell of it
    def fit(self, X: Any, y: Any, *, user_ids: Any = None, **others: Any) -> Self:
        """Fit the model; spends the whole budget.

        With ``user_ids``, who owns each row, and ``rows_per_user`` the guarantee is for users.
        """
        refuse_others(others)
        if not 0 < self.y_bound < math.inf:
            raise ValueError(f"y_bound must be positive and finite, got {self.y_bound!r}.")
        clip = self._largest_residual() if self.residual_clip is None else self.residual_clip
        X, y = self._validated(X, y)
        y = np.clip(numbers_of(y), -self.y_bound, self.y_bound)
        self._fit(X, y, Squared(residual_clip=clip), (), user_ids)
        self.coef_, self.intercept_ = self._coef, self._offset
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Predicted values."""
        return self._margins(X)

    def _largest_residual(self) -> float:
        """The residual that is clipped at unless the caller says another."""
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        assert tags.regressor_tags is not None
        tags.regressor_tags.poor_score = True  # on the few records of a check, noise prevails
        return tags


class Lasso(SparseLeastSquares, OverL1Ball):
    """Differentially private least squares over an l1 ball.

    Parameters
    ----------
    residual_clip : float, optional
        Residuals beyond it count linearly. Default: y_bound + radius, which no residual exceeds.
        A smaller one means less noise.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
    intercept_ : float
    selected_features_ : array of int
        Columns with a non-zero coefficient.
    privacy_ : Certificate
    plan_ : Plan
    """

    _sklearn_class = "linear_model.Lasso"

    def _largest_residual(self) -> float:
        return self.y_bound + self._radius()


def _scaled(X: Any, bounds: np.ndarray) -> Any:
    """X in units of the bounds; untouched where all of them are one."""
    if (bounds == 1.0).all():
        return X
    if sp.issparse(X):
        X = sp.csr_array(X, copy=True)
        X.data = X.data / bounds[X.indices]
        return X
    return X / bounds
