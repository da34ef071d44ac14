"""Private logistic regression on a stream, with the interface of scikit-learn."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np

from privopt.estimators.linear_classifier import LinearClassifier
from privopt.estimators.online_model import OnlineModel
from privopt.estimators.online_run import Recipe
from privopt.estimators.probabilities import probabilities
from privopt.estimators.stream_leader import StreamLeader
from privopt.estimators.targets import Targets
from privopt.geometry import Domain, L2Ball, WholeSpace
from privopt.losses import Logistic
from privopt.mechanisms.correlated import WIDER
from privopt.oracle import ClippedGradient, Embedded, Query, RowBounds
from privopt.privacy.factorizations.open_ended import OpenEnded
from privopt.problem import Problem
from privopt.solvers.families.leaders import check_leader

ROWS = 50
"""Rows of a step of the noise; larger batches are cut into steps."""
MOST_PARTS = 20
RECENT, LEAST_WINDOW = 200, 10
"""Records for each coordinate whose iterates are averaged, and how many iterates at least."""


class OnlineLogisticRegression(OnlineModel, LinearClassifier):
    """Differentially private logistic regression, learned batch by batch.

    Each call of ``partial_fit`` is one step of DP-FTRL, or several where the batch is large:
    clipped gradients are released with noise that is correlated over the steps, so that records may
    come in any order, and no sampling or shuffling is assumed. With ``bounds`` the first steps
    learn to centre and scale the columns; until then models are constant. All steps together cost
    one budget; the certificate ``privacy_`` and ``epsilon_spent()`` say at every moment what has
    been spent.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy loss of the whole stream.
    delta : float, default=1e-6
        Positive, and well below 1 / (number of records).
    n_steps : int, optional
        Number of batches that will come; a further one is refused. Without it the stream is
        open-ended: the budget holds for ever, for about 2.5 times the noise.
    batch_size : int, optional
        Public number of rows in a batch, by which gradients are divided. Smaller batches are
        allowed. Default: that of the first batch. A larger one is cut into steps of about 50 rows,
        20 steps at most, so that it matters little how a stream is cut into batches.
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
        Public bounds of the columns. With bounds and an intercept the first steps of the stream, a
        twentieth of it at most, learn privately to centre and scale the columns, which is far more
        accurate than any ``data_norm`` one could guess; that is then not used.
    fit_intercept : bool, default=True
        Adds a constant column of height ``data_norm / 3``; it counts in the row's norm.
    radius : float, optional
        Public radius of the ball that holds the models. Default: 5 / (norm of a row), or
        5 sqrt(columns + 1) for standardised rows.
    step_size : float, default=4.0
        Of a step of 50 rows or more, in units of 1 / (smoothness of the mean loss).
    momentum : float, default=0.0
        In [0, 1). Averages the running sums, which smooths the models.
    noise : str, default="auto"
        Name of the correlated noise: auto, independent, tree, honaker, sqrt_toeplitz, banded, blt.
    average : {"recent", "last", "all"}, default="recent"
        Whether ``coef_`` is the mean of the iterates of the last 200 records for each column, the
        last iterate, or the mean of all models so far.
    classes : array-like, optional
        The public list of labels; otherwise given to the first ``partial_fit``.
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
    coef_ : ndarray of shape (1 or n_classes, n_features)
    intercept_ : ndarray of shape (1 or n_classes,)
    classes_ : ndarray of shape (n_classes,)
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
    >>> from privopt import OnlineLogisticRegression
    >>> angle = 2.4 * np.arange(20_000)  # spreads evenly over the circle
    >>> X = np.column_stack([np.cos(angle), np.sin(angle)])
    >>> y = X[:, 0] > 0
    >>> model = OnlineLogisticRegression(1.0, 1e-6, n_steps=100, classes=[False, True])
    >>> for batch in range(50):
    ...     rows = slice(200 * batch, 200 * batch + 200)
    ...     model = model.partial_fit(X[rows], y[rows])
    >>> bool(model.score(X, y) > 0.9), model.steps_
    (True, 50)
    >>> model.epsilon_spent() < model.epsilon_spent(at_end=True) <= 1.0
    True
    """

    _sklearn_class = "linear_model.LogisticRegression"

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
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
        step_size: float = 4.0,
        momentum: float = 0.0,
        noise: str = "auto",
        average: str = "recent",
        classes: Any = None,
        nan_policy: str = "raise",
        checkpoint: Any = None,
        random_state: int | None = None,
        ledger: Any = None,
        dataset: str | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
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
        self.step_size = step_size
        self.momentum = momentum
        self.noise = noise
        self.average = average
        self.classes = classes
        self.nan_policy = nan_policy
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.ledger = ledger
        self.dataset = dataset

    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Any = None,
        *,
        record_ids: Any = None,
        user_ids: Any = None,
        public: Any = None,
    ) -> Self:
        """Take in one batch: one step of the stream.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (rows, n_features)
        y : array of shape (rows,)
        classes : array-like, optional
            The public list of labels, at the first call; not needed if the estimator has it.
        record_ids : array of shape (rows,), optional
            Names of the records, by which participations are counted and refused. When each record
            takes part is public.
        user_ids : array of shape (rows,), optional
            Who owns each row; needs ``rows_per_user``. Participations are then those of users, and
            so is the guarantee.
        public : (X, y), optional
            Public records on which the model is evaluated before the step; see ``regret``.
        """
        return self._step(X, y, record_ids, public, classes, user_ids)

    def fit(self, X: Any, y: Any, *, user_ids: Any = None) -> Self:  # type: ignore[override]
        """Begin anew and go once through the rows in their order, in batches.

        Without ``n_steps`` and ``batch_size`` there are 100 of them. Labels that were not declared
        are read from y, and the certificate says so.
        """
        return self._pass(X, y, user_ids)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities; with more than two classes, one-against-rest scores normalised."""
        return probabilities(self.decision_function(X))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithm of ``predict_proba``."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    # ------------------------------------------------------------ what is learned, and how
    def _loss(self) -> Logistic:
        return Logistic()

    def _labelled(self, y: np.ndarray, classes: Any, read: bool) -> Targets:
        known = [self.classes, getattr(self, "classes_", None), classes]
        declared = [np.unique(np.asarray(one)) for one in known if one is not None]
        if not declared and not read:
            raise ValueError(
                "classes must be passed on the first call to partial_fit, or to the constructor."
            )
        if any(not np.array_equal(one, declared[0]) for one in declared):
            raise ValueError("classes differ from those that were declared before.")
        if declared:
            self.classes = declared[0]
        return self._targets(y)

    # ------------------------------------------------------------ rows
    @property
    def _standardized(self) -> bool:
        """Whether the stream learns to centre and scale its rows."""
        return self.bounds is not None and self.fit_intercept

    def _problem(self, n: int, features: int) -> Problem:
        if not self._standardized:
            return super()._problem(n, features)
        longest = math.sqrt(features) * (1 + 1e-9)  # of entries in [-1, 1]: shortens none
        return Problem(self._loss(), data_norm=longest, intercept=1.0, column_bounds=1.0)

    def _bounds(self, problem: Problem) -> RowBounds:
        if self._standardized:
            return RowBounds(math.inf, problem.intercept)  # clipped by each question
        return super()._bounds(problem)

    def _domain(self) -> Domain:
        return WholeSpace() if self._standardized else super()._domain()

    def _parts(self, batch: int) -> int:
        return min(MOST_PARTS, max(1, round(batch / ROWS)))

    # ------------------------------------------------------------ steps
    def _query(self, problem: Problem) -> Query:
        gradient = self._gradient(problem)
        # A prototype: every question of the stream has its bounds, whatever its place.
        return Embedded(gradient, 0, 1) if self._standardized else gradient

    def _gradient(self, problem: Problem) -> ClippedGradient:
        size = 1.0 if self._standardized else problem.size
        return ClippedGradient(problem.loss, problem.loss.lipschitz * size)

    def _leader(self, recipe: Recipe, kept: dict[str, Any]) -> StreamLeader:
        check_leader(None, self.momentum, 0.0)
        if not 0 < self.step_size < math.inf:
            raise ValueError(f"step_size must be positive and finite, got {self.step_size!r}.")
        if self.average not in ("recent", "last", "all"):
            raise ValueError(f'average must be "recent", "last" or "all", got {self.average!r}.')
        problem, dimension = recipe.problem, recipe.problem.dimension(kept["features"])
        gradient = self._gradient(problem)
        rows = -(-kept["batch_size"] // recipe.parts)
        # Rows that are few move the models by as much each as in a step of many.
        step = self.step_size * min(1.0, rows / ROWS)
        smoothness = problem.loss.smoothness * (gradient.clip_norm / problem.loss.lipschitz) ** 2
        leader = StreamLeader(
            self._ball_of_leader(dimension),
            np.zeros(dimension),
            rows * smoothness / step,
            self.momentum,
            question=gradient,
            rows=rows,
            window=max(LEAST_WINDOW, round(RECENT * dimension / rows))
            if self.average == "recent"
            else 1,
            standardized=self._standardized,
        )
        if not self._standardized:
            return leader
        noise = recipe.factorization()
        scale = recipe.multiplier(noise) * recipe.sensitivity * WIDER
        if recipe.steps is None:
            return leader.begun(lambda t: scale * OpenEnded().row_norm(t), None)
        norms = scale * noise.row_norms()
        return leader.begun(lambda t: float(norms[min(t, len(norms)) - 1]), len(norms))

    def _ball_of_leader(self, dimension: int) -> Domain:
        """Where iterates stay; of standardised rows, entries have about unit variance."""
        if self._standardized and self.radius is None:
            return L2Ball(self._margin * math.sqrt(dimension))
        return L2Ball(self._ball())
