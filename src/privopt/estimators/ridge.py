"""Private ridge regression with the interface of scikit-learn."""

from __future__ import annotations

from typing import Any

from privopt.estimators.linear_regression import LinearRegression


class Ridge(LinearRegression):
    """Differentially private ridge regression: least squares with clipped residuals and a penalty.

    Minimises half the sum of squared residuals + alpha/2 ||coef||^2, as scikit-learn does: with
    ``bounds`` the penalty is on the coefficients of the columns as given and not on the intercept,
    beside one of the noise's own; without them it is on rows clipped to ``data_norm`` and on their
    constant column, and only as far as the noise's own is smaller.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy loss of the whole fit.
    delta : float, default=0.0
        0 asks for pure differential privacy. A value well below 1/n buys accuracy when there are
        many features.
    alpha : float, default=1.0
        Ridge penalty, on the scale of the sum over records, as in scikit-learn.
    target_bounds : (float, float), default=(-1.0, 1.0)
        Public bounds of y. Targets outside are moved to the nearest bound, and so are predictions.
        They must not be read from the data.
    residual_clip : float, optional
        Public bound, in units of y, from which on residuals count linearly; at most the distance of
        ``target_bounds``. By default it grows with n epsilon / p, up to that distance, so that what
        is fitted becomes least squares as soon as noise allows. Rows that are standardised take it
        from a private estimate of y's mean and deviation.
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
    discrete_noise : bool or "auto", default="auto"
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
        What each shaped column adds to the prediction, as a table over 64 bins of its bounds; None
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
    >>> from privopt import Ridge
    >>> x = np.linspace(-1, 1, 20_000)[:, None]
    >>> model = Ridge(epsilon=1.0, alpha=10.0).fit(x, 0.5 * x.ravel())
    >>> bool(model.score(x, 0.5 * x.ravel()) > 0.9), model.privacy_.private
    (True, True)
    """

    _sklearn_class = "linear_model.Ridge"

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 0.0,
        *,
        alpha: float = 1.0,
        target_bounds: tuple[float, float] = (-1.0, 1.0),
        residual_clip: float | None = None,
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
            target_bounds=target_bounds,
            residual_clip=residual_clip,
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
            intervals=intervals,
        )
        self.alpha = alpha

    def _ridge(self) -> float:
        if not 0 <= self.alpha < float("inf"):
            raise ValueError(f"alpha must be non-negative and finite, got {self.alpha!r}.")
        return self.alpha
