"""Private quantile regression with the interface of scikit-learn."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from privopt.estimators.linear_regressor import LinearRegressor
from privopt.estimators.parameters import parameter
from privopt.facts import Facts
from privopt.geometry import Box
from privopt.losses import Loss, Quantile, SmoothedQuantile
from privopt.planner import choose
from privopt.planner.groups import choose_for_group
from privopt.privacy import Budget
from privopt.problem import Problem
from privopt.solvers import Plan


class QuantileRegressor(LinearRegressor):
    """Differentially private quantile regression.

    The quantile loss has a kink. Rounded off over a small width it is solved by objective
    perturbation, which measured far better than the noisy gradient descent that the kink itself
    leaves. A model of the intercept alone is a private quantile of y, and is drawn exactly by the
    exponential mechanism from the loss as it is.

    Parameters
    ----------
    quantile : float, default=0.5
        Level strictly between 0 and 1; 0.5 is the median.
    width : float, optional
        Half-width, in units of y, over which the kink is rounded off; public. Default: between a
        four-hundredth and a twentieth of the distance of ``target_bounds``, the less the larger
        n epsilon / p is. 0 keeps the kink.
    intercept_only : bool, default=False
        Fit one constant and no coefficients; the entries of X are not used.
    bounds : pair or mapping, optional
        Public bounds of the columns: ``(low, high)``, numbers or one per column, or a mapping from
        column names to pairs. Entries outside are moved to the nearest bound. With bounds, an
        intercept and a width the rows are standardised privately, which is usually far more
        accurate; ``data_norm`` is then not used.

    Examples
    --------
    >>> import numpy as np
    >>> from privopt import QuantileRegressor
    >>> y = np.linspace(0, 100, 10_001)
    >>> model = QuantileRegressor(
    ...     epsilon=1.0, quantile=0.9, intercept_only=True, target_bounds=(0, 200)
    ... ).fit(y[:, None], y)
    >>> bool(abs(model.intercept_ - 90) < 5), model.privacy_.private
    (True, True)
    """

    _sklearn_class = "linear_model.QuantileRegressor"

    quantile: float = parameter(default=0.5)
    width: float | None = parameter(default=None)
    intercept_only: bool = parameter(default=False)

    def _loss(self) -> Loss:
        if self.intercept_only and not (
            isinstance(self.features, str) and self.features == "linear"
        ):
            raise ValueError(
                'a model of the intercept alone has no shapes: give features="linear".'
            )
        if self.intercept_only or self.width == 0:
            return Quantile(self.quantile)
        if self.width is None:
            return SmoothedQuantile(self.quantile, WIDEST)
        if not 0 < self.width < float("inf"):
            raise ValueError(f"width must be non-negative and finite, got {self.width!r}.")
        return SmoothedQuantile(self.quantile, self.width / self._half())

    def _problem(self, n: int, features: int) -> Problem:
        if self.intercept_only:
            return Problem(self._loss(), Box(-1.0, 1.0), data_norm=1.0)
        problem = super()._problem(n, features)
        if self.width is not None:
            return problem
        width = SCARCITY * (features + 1) / (n * self.epsilon)
        width = min(max(width, NARROWEST), WIDEST)
        return replace(problem, loss=SmoothedQuantile(self.quantile, width))

    def _plan(self, facts: Facts, budget: Budget) -> Plan:
        # A column of ones needs no bound.
        if self.intercept_only:
            make = partial(choose, discrete_noise=self.discrete_noise)
            return choose_for_group(facts, budget, self.solver, make)
        return super()._plan(facts, budget)

    def _design(self, X: Any) -> Any:
        if not self.intercept_only:
            return super()._design(X)
        ones = np.ones((X.shape[0], 1))
        ones[_broken(X)] = np.nan  # an empty record stays one
        return ones

    def _columns(self, features: int) -> int:
        return 1 if self.intercept_only else features

    def _undesigned(
        self, coef: np.ndarray, intercept: np.ndarray, features: int
    ) -> tuple[np.ndarray, np.ndarray]:
        if not self.intercept_only:
            return super()._undesigned(coef, intercept, features)
        return np.zeros((1, features)), coef[:, 0]


def _broken(X: Any) -> np.ndarray:
    """Rows that hold NaN or infinity."""
    if not sp.issparse(X):
        return ~np.isfinite(X).all(axis=1)
    found = np.zeros(X.shape[0], dtype=bool)
    found[np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))[~np.isfinite(X.data)]] = True
    return found


NARROWEST, WIDEST, SCARCITY = 0.005, 0.1, 25.0
"""Default half-width for targets in [-1, 1]: SCARCITY p / (n epsilon), within these ends. A wide
parabola biases quantiles far from the median where residuals are small; a narrow one is steep, and
its determinant costs privacy that a small n epsilon / p cannot pay. Settled by measurement on three
data sets; all of it is public."""
