"""What linear regressions share: public bounds of the target, and predictions within them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import check_is_fitted

from privopt.estimators.linear_model import LinearModel
from privopt.estimators.parameters import fitted, parameter
from privopt.estimators.shapes import Shape, plain_additive
from privopt.estimators.targets import Targets

EXPECTED_SIZE = 8.0
"""Size to expect of the parameters for rows of norm 1 and targets in [-1, 1]: a constant column of
height 1/3 alone reaches every target with 3. Only accuracy depends on it, and little: between 3 and
8 measured R^2 moves by .02."""


class LinearRegressor(RegressorMixin, LinearModel):
    """A private linear regression. Losses see targets scaled to [-1, 1].

    Parameters
    ----------
    target_bounds : (float, float), default=(-1.0, 1.0)
        Public bounds of y. Targets outside are moved to the nearest bound, and so are predictions.
        They must not be read from the data.
    features : {"linear", "splines"} or list, default="linear"
        Columns whose shape is fitted beside their slope, for an additive model: ``"splines"`` for
        all, or a list of names or positions. Needs ``bounds``, and should name columns of numbers,
        not indicators. Costs 5 % of the budget. Where noise would eat the shapes, which n, epsilon
        and their number decide, the fit is the linear one.
    max_weight : float, optional
        Public bound on ``sample_weight`` in ``fit``, which is taken only with it; a larger weight
        counts as the bound. Noise is that of records which all have the largest weight.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    shapes_ : list of Shape, or None
        What each shaped column adds to the prediction, as a table over 64 bins of its bounds; None
        where the fit is linear.
    """

    _shaping = "standardized_regression"
    __metadata_request__fit: ClassVar = {"sample_weight": None}  # taken with max_weight
    shapes_: list[Shape] | None = fitted()

    target_bounds: tuple[float, float] = parameter(default=(-1.0, 1.0))
    features: Any = parameter(default="linear")
    max_weight: float | None = parameter(default=None)

    def predict(self, X: Any) -> np.ndarray:
        """Predicted target of each row, within the target bounds."""
        check_is_fitted(self, "coef_")
        scores = self._scores(X, self.coef_[None, :], np.array([self.intercept_]))
        return np.clip(scores.ravel(), *self._ends())

    def to_sklearn(self) -> Any:
        plain, shapes = super().to_sklearn(), getattr(self, "shapes_", None)
        return plain if shapes is None else plain_additive(plain, shapes)

    to_sklearn.__doc__ = LinearModel.to_sklearn.__doc__

    def _ends(self) -> tuple[float, float]:
        """Lower and upper end of the targets."""
        try:
            low, high = (float(end) for end in self.target_bounds)
        except (TypeError, ValueError):
            low, high = np.nan, np.nan
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise ValueError(
                "target_bounds must be two finite public numbers, the lower one first, "
                f"got {self.target_bounds!r}."
            )
        return low, high

    def _half(self) -> float:
        """Half the distance of the target bounds: the unit in which losses see targets."""
        low, high = self._ends()
        return (high - low) / 2

    def _unit_of_scores(self) -> float:
        return self._half()

    def _targets(self, y: np.ndarray) -> Targets:
        low, high = self._ends()
        middle = (low + high) / 2
        return Targets(((np.clip(numbers_of(y), low, high) - middle) / self._half(),))

    def _keep(self, coef: np.ndarray, intercept: np.ndarray) -> None:
        low, high = self._ends()
        self.coef_ = coef[0] * self._half()
        self.intercept_ = float(intercept[0] * self._half() + (low + high) / 2)

    def _theta_norm(self, size: float) -> float | None:
        return EXPECTED_SIZE / size

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # With the default target bounds and row bound, which only a person who knows the data
        # can set, some data sets are out of reach.
        tags.regressor_tags.poor_score = True
        return tags


def numbers_of(y: np.ndarray) -> np.ndarray:
    """Finite targets in double precision."""
    found = None
    if y.dtype.kind in "biuf":
        found = y
    elif y.dtype.kind == "O":
        with suppress(Exception):
            found = y.astype(float)
    if found is None:  # raised here, because NumPy's own message quotes the data
        raise ValueError("y must hold real numbers.")
    assert_all_finite(found, input_name="y")
    return found.astype(float)
