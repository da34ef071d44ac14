"""Private ridge regression with the interface of scikit-learn."""

from __future__ import annotations

from privopt.estimators.linear_regression import LinearRegression
from privopt.estimators.parameters import parameter


class Ridge(LinearRegression):
    """Differentially private ridge regression: least squares with clipped residuals and a penalty.

    Minimises half the sum of squared residuals + alpha/2 ||coef||^2, as scikit-learn does: with
    ``bounds`` the penalty is on the coefficients of the columns as given and not on the intercept,
    beside one of the noise's own; without them it is on rows clipped to ``data_norm`` and on their
    constant column, and only as far as the noise's own is smaller.

    Parameters
    ----------
    alpha : float, default=1.0
        Ridge penalty, on the scale of the sum over records, as in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from privopt import Ridge
    >>> x = np.linspace(-1, 1, 20_000)[:, None]
    >>> model = Ridge(epsilon=1.0, alpha=10.0).fit(x, 0.5 * x.ravel())
    >>> bool(model.score(x, 0.5 * x.ravel()) > 0.9), model.privacy_.private
    (True, True)
    """

    _sklearn_class = "linear_model.Ridge"

    alpha: float = parameter(default=1.0)

    def _ridge(self) -> float:
        if not 0 <= self.alpha < float("inf"):
            raise ValueError(f"alpha must be non-negative and finite, got {self.alpha!r}.")
        return self.alpha
