"""Private least squares on a stream, with the interface of scikit-learn."""

from __future__ import annotations

import math
from typing import Any, Self

from privopt.estimators.linear_regressor import EXPECTED_SIZE, LinearRegressor
from privopt.estimators.online_model import OnlineModel
from privopt.estimators.online_run import Recipe
from privopt.losses import Squared
from privopt.oracle import LeastSquaresMoments, Query, RowBounds
from privopt.problem import Problem
from privopt.solvers.families.quadratic_leader import QuadraticLeader


class OnlineLinearRegression(OnlineModel, LinearRegressor):
    """Differentially private linear regression, learned batch by batch.

    Each call of ``partial_fit`` is one step of DP-FTRL for least squares: the batch's sums of x x'
    and y x are released with noise that is correlated over the steps, and the model is the ridge
    solution of the running sums. Records may come in any order. All steps together cost one budget;
    the certificate ``privacy_`` and ``epsilon_spent()`` say at every moment what has been spent.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy loss of the whole stream.
    delta : float, default=1e-6
        Positive, and well below 1 / (number of records).
    target_bounds : (float, float), default=(-1.0, 1.0)
        Public bounds of y. Targets outside are moved to the nearest bound, and so are predictions.
    n_steps : int, optional
        Number of batches that will come; a further one is refused. Without it the stream is
        open-ended: the budget holds for ever, for about 2.5 times the noise.
    batch_size : int, optional
        Public number of rows in a batch. Smaller batches are allowed. Default: that of the first.
    max_participations : int, default=1
        In how many steps one record may take part.
    min_separation_steps : int, default=1
        A record that takes part in step t comes back in step t + min_separation_steps at the
        earliest. Both rules are enforced for records that are named by ``record_ids``, and for
        users; otherwise they are your promise, and the certificate says so.
    rows_per_user : int, optional
        Privacy for users: of each user's rows, named by ``user_ids`` in every batch, the first so
        many count in a batch. Noise grows with it, and a batch is one step, however large it is.
    neighbouring : {"zero_out", "replace_one"}, default="zero_out"
        What may change between two neighbouring streams; see ``Budget``.
    data_norm : float, default=1.0
        Public bound on the l2 norm of a row; longer rows are scaled down to it.
    bounds : pair or mapping, optional
        Public bounds of the columns, which are scaled to [-1, 1] before ``data_norm`` applies.
    fit_intercept : bool, default=True
        Adds a constant column of height ``data_norm / 3``; it counts in the row's norm.
    radius : float, optional
        Public radius of the ball that holds the model, for targets scaled to [-1, 1]. Default:
        8 / (norm of a row).
    shrinkage : float, default=2.0
        Ridge penalty in units of the noise's own size. 2 is safe; 0.5 is better where the records
        are many for the number of features and the budget.
    noise : str, default="auto"
        Name of the correlated noise: auto, independent, tree, honaker, sqrt_toeplitz, banded, blt.
    average : bool, default=False
        Whether ``coef_`` is the average of all models so far instead of the last one.
    nan_policy : {"raise", "empty"}, default="raise"
        ``"empty"`` treats a row that holds NaN or infinity as an empty record.
    checkpoint : path, optional
        A folder in which every step is saved before it is published. After a crash, an estimator
        with the same parameters goes on from there.
    random_state : int, optional
        None draws secure noise. An integer makes the result reproducible and not private.
    ledger : Ledger or path, optional
        A ledger whose budget pays for the whole stream before its first step, and for every new
        stream. Needs secure noise.
    dataset : str, optional
        Name of the budget in the ledger, if it holds several.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    steps_ : int
        Steps done.
    batch_size_ : int
    privacy_ : Certificate
        What has been guaranteed so far.
    n_features_in_ : int
    feature_names_in_ : ndarray, when X has column names

    Examples
    --------
    >>> import numpy as np
    >>> from privopt import OnlineLinearRegression
    >>> x = np.sin(2.4 * np.arange(20_000))[:, None]
    >>> model = OnlineLinearRegression(2.0, 1e-6, n_steps=100)
    >>> for batch in np.split(x, 100):
    ...     model = model.partial_fit(batch, 0.5 * batch.ravel())
    >>> bool(model.score(x, 0.5 * x.ravel()) > 0.9), model.steps_
    (True, 100)
    """

    _solver = "dp_ftrl_least_squares"
    _margin = EXPECTED_SIZE

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        target_bounds: tuple[float, float] = (-1.0, 1.0),
        n_steps: int | None = None,
        batch_size: int | None = None,
        max_participations: int = 1,
        min_separation_steps: int = 1,
        rows_per_user: int | None = None,
        neighbouring: str = "zero_out",
        data_norm: float = 1.0,
        bounds: Any = None,
        fit_intercept: bool = True,
        radius: float | None = None,
        shrinkage: float = 2.0,
        noise: str = "auto",
        average: bool = False,
        nan_policy: str = "raise",
        checkpoint: Any = None,
        random_state: int | None = None,
        ledger: Any = None,
        dataset: str | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.target_bounds = target_bounds
        self.n_steps = n_steps
        self.batch_size = batch_size
        self.max_participations = max_participations
        self.min_separation_steps = min_separation_steps
        self.rows_per_user = rows_per_user
        self.neighbouring = neighbouring
        self.data_norm = data_norm
        self.bounds = bounds
        self.fit_intercept = fit_intercept
        self.radius = radius
        self.shrinkage = shrinkage
        self.noise = noise
        self.average = average
        self.nan_policy = nan_policy
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.ledger = ledger
        self.dataset = dataset

    def partial_fit(
        self, X: Any, y: Any, *, record_ids: Any = None, user_ids: Any = None, public: Any = None
    ) -> Self:
        """Take in one batch: one step of the stream.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (rows, n_features)
        y : array of shape (rows,)
        record_ids : array of shape (rows,), optional
            Names of the records, by which participations are counted and refused. When each record
            takes part is public.
        user_ids : array of shape (rows,), optional
            Who owns each row; needs ``rows_per_user``. Participations are then those of users, and
            so is the guarantee.
        public : (X, y), optional
            Public records on which the model is evaluated before the step; see ``regret``.
        """
        return self._step(X, y, record_ids, public, user_ids=user_ids)

    def fit(self, X: Any, y: Any, *, user_ids: Any = None) -> Self:  # type: ignore[override]
        """Begin anew and go once through the rows in their order, in batches; without ``n_steps``
        and ``batch_size`` there are 100 of them."""
        return self._pass(X, y, user_ids)

    # ------------------------------------------------------------ what is learned, and how
    def _loss(self) -> Squared:
        return Squared()

    def _query(self, problem: Problem) -> Query:
        return LeastSquaresMoments(RowBounds(problem.row_norm, problem.intercept), 1.0)

    def _leader(self, recipe: Recipe, kept: dict[str, Any]) -> QuadraticLeader:
        dimension = recipe.problem.dimension(kept["features"])
        if not 0 <= self.shrinkage < math.inf:
            raise ValueError(f"shrinkage must be non-negative, got {self.shrinkage!r}.")
        ball = self._ball()
        return QuadraticLeader(recipe.bounds, 1.0, dimension, ball, shrinkage=self.shrinkage)
