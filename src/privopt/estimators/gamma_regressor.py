"""Private Gamma regression with the interface of scikit-learn."""

from __future__ import annotations

import numpy as np
from sklearn.metrics import mean_gamma_deviance

from privopt.estimators.log_link_regressor import LogLinkRegressor
from privopt.losses import Gamma


class GammaRegressor(LogLinkRegressor):
    """Differentially private Gamma regression: positive amounts whose mean has a linear logarithm.

    A record counts by the ratio of its amount to its mean. The slope of its loss is 1 minus this
    ratio, bounded below: an amount of many times its mean pulls no harder than one of five times
    (three to nine times with ``bounds``, more where n epsilon / p is large).

    Parameters
    ----------
    target_bounds : (float, float), default=(0.0, 1.0)
        Public bounds of the amounts, at least 0. Amounts outside, negative ones too, are moved to
        the nearest bound, and so are predictions. They must not be read from the data.

    Examples
    --------
    >>> import numpy as np
    >>> from privopt import GammaRegressor
    >>> x = np.linspace(-1, 1, 20_000)[:, None]
    >>> spread = np.arange(1, 20_001) * 0.618 % 1
    >>> y = 2 * spread * np.exp(x.ravel())
    >>> model = GammaRegressor(1.0, 1e-6, bounds=(-1, 1), target_bounds=(0, 20)).fit(x, y)
    >>> bool(abs(model.coef_[0] - 1) < 0.1), model.privacy_.private
    (True, True)
    """

    _sklearn_class = "linear_model.GammaRegressor"

    def _loss(self) -> Gamma:
        return Gamma()

    def _deviance(self, y: np.ndarray, mean: np.ndarray) -> float:
        return float(mean_gamma_deviance(y, mean))
