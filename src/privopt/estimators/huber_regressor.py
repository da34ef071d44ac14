"""Private Huber regression with the interface of scikit-learn."""

from __future__ import annotations

from privopt.estimators.linear_regressor import LinearRegressor
from privopt.estimators.parameters import parameter
from privopt.losses import Huber


class HuberRegressor(LinearRegressor):
    """Differentially private Huber regression: squares for small residuals, lines for large ones.

    The width is the same in every row: with ``bounds`` a long row counts less, and its residuals
    are cut where those of others are. A narrower loss needs less noise and resists outliers of y
    more; in the limit it is the median.

    Parameters
    ----------
    width : float, optional
        Public residual, in units of y, from which on the loss is linear. Default: a tenth of the
        distance of ``target_bounds``. (scikit-learn calls its own, in units of an estimated scale,
        ``epsilon``.)
    alpha : float, default=1e-4
        Ridge penalty, on the scale of the sum over records; with ``bounds`` on the coefficients of
        the columns as given.

    Examples
    --------
    >>> import numpy as np
    >>> from privopt import HuberRegressor
    >>> x = np.linspace(-1, 1, 20_000)[:, None]
    >>> y = np.where(np.arange(20_000) % 20, 0.5 * x.ravel(), 1.0)  # one in twenty is off
    >>> model = HuberRegressor(epsilon=1.0, width=0.1).fit(x, y)
    >>> bool(abs(model.coef_[0] - 0.5) < 0.1), model.privacy_.private
    (True, True)
    """

    _sklearn_class = "linear_model.HuberRegressor"

    width: float | None = parameter(default=None)
    alpha: float = parameter(default=1e-4)

    def _loss(self) -> Huber:
        if self.width is None:
            return Huber(0.2)
        if not 0 < self.width < float("inf"):
            raise ValueError(f"width must be positive and finite, got {self.width!r}.")
        return Huber(self.width / self._half())

    def _ridge(self) -> float:
        if not 0 <= self.alpha < float("inf"):
            raise ValueError(f"alpha must be non-negative and finite, got {self.alpha!r}.")
        return self.alpha
