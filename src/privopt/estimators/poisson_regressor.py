"""Private Poisson regression with the interface of scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import mean_poisson_deviance

from privopt.estimators.log_link_regressor import LogLinkRegressor
from privopt.losses import Poisson


class PoissonRegressor(LogLinkRegressor):
    """Differentially private Poisson regression: counts whose rate has a linear logarithm.

    The slope of a record's loss is its rate minus its count. Counts lie within ``target_bounds``,
    and rates above the upper one go on linearly, so both have a bound, and the curvature too. With
    ``bounds`` the loss is standardised by the released mean and deviation of the counts; slope and
    rate are then bounded in their units, more widely where n epsilon / p is large.


    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy loss of the whole fit.
    delta : float, default=0.0
        0 asks for pure differential privacy. A value well below 1/n buys accuracy when there are
        many features.
    alpha : float, default=0.0
        Ridge penalty on the scale of the mean over records, as in scikit-learn, whose default is 1.
        The noise asks for a penalty of its own.
    target_bounds : (float, float), default=(0.0, 1.0)
        Public bounds of the counts, at least 0. Counts outside, negative ones too, are moved to the
        nearest bound, and so are predictions. They must not be read from the data.
    neighbouring : {"zero_out", "replace_one", "add_remove"}, default="zero_out"
        What may change between two neighbouring data sets; see ``Budget``.
    data_norm : float or "private", default=1.0
        Public bound on the l2 norm of a row of X; longer rows are scaled down to it, in ``fit`` and
        in ``predict`` alike. ``"private"`` chooses it with 5 % of the budget, in the same
        certificate.
    bounds : pair or mapping, optional
        Public bounds of the columns: ``(low, high)``, numbers or one per column, or a mapping from
        column names to pairs. Entries outside are moved to the nearest bound. With bounds and an
        intercept the rows are standardised privately, which is usually far more accurate;
        ``data_norm`` is then not used.
    fit_intercept : bool, default=True
        Adds a constant column of height ``data_norm / 3``; it counts in the row's norm and is
        regularised.
    solver : str, default="auto"
        ``"auto"`` takes the solver with the smallest bound; otherwise a name from the catalogue.
    n_public : int, optional
        Public number of records; required under add_remove.
    rows_per_user : int, optional
        Promises privacy for users instead of records: of the rows that one user owns, named by
        ``user_ids`` in ``fit``, the first so many count. Public; noise grows with it.
    nan_policy : {"raise", "empty"}, default="raise"
        ``"raise"`` refuses missing values in X. ``"empty"`` treats a row that holds NaN or infinity
        as an empty record, which contributes nothing.
    random_state : int, optional
        None draws secure noise. An integer makes the result reproducible and not private.
    ledger : Ledger or path, optional
        Charges every fit to the budget of ``dataset``, or refuses it before the data is read.
    dataset : str, optional
        Name of the budget in the ledger; may be left out if there is only one.
    hardened : bool or "auto", default="auto"
        Releases in exact integers: "auto" where the solver can, True or refuse, False in floating
        point.
    features : {"linear", "splines"} or list, default="linear"
        Columns whose shape is fitted beside their slope, for an additive model: ``"splines"`` for
        all, or a list of names or positions. Needs ``bounds``, and should name columns of numbers,
        not indicators. Costs 5 % of the budget. Where noise would eat the shapes, which n, epsilon
        and their number decide, the fit is the linear one.
    intervals : bool, default=False
        Also releases what standard errors need, within the same budget and certificate: see
        ``summary``, ``conf_int`` and ``standard_errors_``. Long rows then count less instead of
        being shortened, so that slopes are not biased; predictions may be slightly worse.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    privacy_ : Certificate
        What was guaranteed, by which events.
    shapes_ : list of Shape, or None
        What each shaped column adds to the logarithm, as a table over 64 bins of its bounds; None
        where the fit is linear.
    data_norm_ : float or None
        The row bound that was used; None if the rows were standardised instead.
    plan_ : Plan
        The solver and the settings that were chosen before the data was touched.
    n_features_in_ : int
    feature_names_in_ : ndarray, when X has column names

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

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 0.0,
        *,
        alpha: float = 0.0,
        target_bounds: tuple[float, float] = (0.0, 1.0),
        neighbouring: str = "zero_out",
        data_norm: float | str = 1.0,
        bounds: Any = None,
        fit_intercept: bool = True,
        solver: str = "auto",
        n_public: int | None = None,
        rows_per_user: int | None = None,
        nan_policy: str = "raise",
        random_state: int | None = None,
        ledger: Any = None,
        dataset: str | None = None,
        discrete_noise: bool | str = "auto",
        features: Any = "linear",
        intervals: bool = False,
    ) -> None:
        super().__init__(
            epsilon,
            delta,
            alpha=alpha,
            target_bounds=target_bounds,
            neighbouring=neighbouring,
            data_norm=data_norm,
            bounds=bounds,
            fit_intercept=fit_intercept,
            solver=solver,
            n_public=n_public,
            rows_per_user=rows_per_user,
            nan_policy=nan_policy,
            random_state=random_state,
            ledger=ledger,
            dataset=dataset,
            discrete_noise=discrete_noise,
            features=features,
        )
        self.intervals = intervals

    def _loss(self) -> Poisson:
        return Poisson()

    def _unit(self) -> float:
        return self._ends()[1]

    def _deviance(self, y: np.ndarray, mean: np.ndarray) -> float:
        return float(mean_poisson_deviance(y, mean))
