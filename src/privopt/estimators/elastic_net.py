"""Private least squares with an l1 and an l2 penalty, by greedy coordinate descent."""

from __future__ import annotations

import math
from typing import Any

from privopt.estimators.sparse_linear import SparseLeastSquares
from privopt.geometry import WholeSpace
from privopt.losses import Loss
from privopt.problem import Problem


class ElasticNet(SparseLeastSquares):
    """Differentially private least squares with an l1 and an l2 penalty.

    Minimises the mean of (y - <x, w>)^2 / 2 + alpha l1_ratio ||b w||_1
    + alpha (1 - l1_ratio) ||b w||_2^2 / 2, with b the bounds of the features (so that scaling a
    feature together with its bound changes nothing), by private greedy coordinate descent: each
    step chooses one feature and moves its coefficient alone. Made for problems in which few
    features matter; at most ``n_iter`` coefficients are not zero.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy loss of the whole fit.
    delta : float, default=0.0
        0 asks for pure differential privacy; a value well below 1/n allows more steps.
    neighbouring : {"zero_out", "replace_one", "add_remove"}, default="zero_out"
    alpha : float, default=0.01
        Strength of the penalty.
    l1_ratio : float, default=0.5
        1 is the penalty of the lasso, 0 that of ridge regression.
    feature_bounds : float or array of shape (n_features,), default=1.0
        Public bounds: entries of X are clipped to [-bound, bound], in ``fit`` and in ``predict``.
    y_bound : float, default=1.0
        Public bound: y is clipped to [-y_bound, y_bound].
    residual_clip : float, optional
        Residuals beyond it count linearly. Default: y_bound, which none exceeds at the start.
        Noise grows with it.
    fit_intercept : bool, default=False
        Adds a constant column, whose coefficient is penalised like the others.
    n_iter : int, optional
        Number of private choices. Default: from n, the number of features and the budget.
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
    coef_ : array of shape (n_features,)
    intercept_ : float
    selected_features_ : array of int
        Columns with a non-zero coefficient.
    privacy_ : Certificate
    plan_ : Plan
    """

    _sklearn_class = "linear_model.ElasticNet"

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 0.0,
        *,
        neighbouring: str = "zero_out",
        alpha: float = 0.01,
        l1_ratio: float = 0.5,
        feature_bounds: Any = 1.0,
        y_bound: float = 1.0,
        residual_clip: float | None = None,
        fit_intercept: bool = False,
        n_iter: int | None = None,
        n_public: int | None = None,
        rows_per_user: int | None = None,
        random_state: int | None = None,
        ledger: Any = None,
        dataset: str | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.neighbouring = neighbouring
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.feature_bounds = feature_bounds
        self.y_bound = y_bound
        self.residual_clip = residual_clip
        self.fit_intercept = fit_intercept
        self.n_iter = n_iter
        self.n_public = n_public
        self.rows_per_user = rows_per_user
        self.random_state = random_state
        self.ledger = ledger
        self.dataset = dataset

    def _task(self, loss: Loss) -> tuple[Problem, str, dict[str, Any]]:
        if not 0 <= self.alpha < math.inf:
            raise ValueError(f"alpha must be non-negative and finite, got {self.alpha!r}.")
        if not 0 <= self.l1_ratio <= 1:
            raise ValueError(f"l1_ratio must lie between 0 and 1, got {self.l1_ratio!r}.")
        problem = Problem(
            loss,
            WholeSpace(),
            column_bounds=1.0,
            l2=self.alpha * (1 - self.l1_ratio),
            intercept=1.0 if self.fit_intercept else 0.0,
        )
        return problem, "greedy_coordinate", {"l1": self.alpha * self.l1_ratio}

    def _largest_residual(self) -> float:
        return self.y_bound
