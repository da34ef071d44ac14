"""Private Poisson regression with the interface of scikit-learn."""

from __future__ import annotations

import numpy as np
from sklearn.metrics import mean_poisson_deviance

from privopt.estimators.confidence import GivesIntervals
from privopt.estimators.log_link_regressor import LogLinkRegressor
from privopt.losses import Poisson


class PoissonRegressor(GivesIntervals, LogLinkRegressor):
    """Differentially private Poisson regression: counts whose rate has a linear logarithm.

    The slope of a record's loss is its rate minus its count. Counts lie within ``target_bounds``,
    and rates above the upper one go on linearly, so both have a bound, and the curvature too. With
    ``bounds`` the loss is standardised by the released mean and deviation of the counts; slope and
    rate are then bounded in their units, more widely where n epsilon / p is large.

    Parameters
    ----------
    target_bounds : (float, float), default=(0.0, 1.0)
        Public bounds of the counts, at least 0. Counts outside, negative ones too, are moved to the
        nearest bound, and so are predictions. They must not be read from the data.

    Examples
    --------
    >>> import numpy as np
    >>> from privopt import PoissonRegressor
    >>> x = np.linspace(-1, 1, 20_000)[:, None]
    >>> spread = np.arange(20_000) * 0.618 % 1
    >>> y = np.floor(np.exp(0.5 + x.ravel()) + spread)
    >>> model = PoissonRegressor(1.0, 1e-6, bounds=(-1, 1), target_bounds=(0, 20)).fit(x, y)
    >>> bool(abs(model.coef_[0] - 1) < 0.1), model.privacy_.private
    (True, True)
    """

    _sklearn_class = "linear_model.PoissonRegressor"

    def _loss(self) -> Poisson:
        return Poisson()

    def _unit(self) -> float:
        return self._ends()[1]

    def _deviance(self, y: np.ndarray, mean: np.ndarray) -> float:
        return float(mean_poisson_deviance(y, mean))
