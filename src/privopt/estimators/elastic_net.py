"""Private least squares with an l1 and an l2 penalty, by greedy coordinate descent."""

from __future__ import annotations

import math
from typing import Any

from privopt.estimators.parameters import parameter
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
    alpha : float, default=0.01
        Strength of the penalty.
    l1_ratio : float, default=0.5
        1 is the penalty of the lasso, 0 that of ridge regression.
    residual_clip : float, optional
        Residuals beyond it count linearly. Default: y_bound, which none exceeds at the start.
        Noise grows with it.
    fit_intercept : bool, default=False
        Adds a constant column, whose coefficient is penalised like the others.
    n_iter : int, optional
        Number of private choices. Default: from n, the number of features and the budget.

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

    alpha: float = parameter(default=0.01)
    l1_ratio: float = parameter(default=0.5)

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
