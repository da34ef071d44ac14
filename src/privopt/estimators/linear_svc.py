"""A private linear support vector classifier with the interface of scikit-learn."""

from __future__ import annotations

from typing import Any

from privopt.estimators.linear_classifier import LinearClassifier
from privopt.losses import Hinge, Loss, SmoothedHinge


class LinearSVC(LinearClassifier):
    """Differentially private linear support vector classification.

    Two classes are one model. With ``delta > 0`` and the smoothed hinge more classes are one model
    too, whose coefficient matrix is released as a whole: the score of a record's class has to lead
    all others by the margin. Otherwise they are fitted one against the rest within one budget.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy loss of the whole fit.
    delta : float, default=0.0
        0 asks for pure differential privacy. A value well below 1/n buys accuracy when there are
        many features.
    loss : {"smoothed_hinge", "hinge"}, default="smoothed_hinge"
        The smoothed hinge is solved by objective perturbation, which usually is more accurate than
        the noisy gradient descent that the hinge itself, with its kink, leaves.
    width : float, default=0.5
        Half-width of the smoothed hinge's parabola around the margin.
    alpha : float, default=0.0
        Least ridge penalty, on the scale of the sum over records.
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
    classes : array-like, optional
        The public list of labels. Without it the labels are read from y, and the certificate says
        so.
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
    max_weight : float, optional
        Public bound on ``sample_weight`` in ``fit``, which is taken only with it; a larger weight
        counts as the bound. Noise is that of records which all have the largest weight.
    class_weight : mapping, optional
        Public weights of the classes, ``{label: weight}``, 1 where none is given. They multiply
        ``sample_weight``, and the largest of them takes part in its bound.

    Attributes
    ----------
    coef_ : ndarray of shape (1 or n_classes, n_features)
    intercept_ : ndarray of shape (1 or n_classes,)
    classes_ : ndarray of shape (n_classes,)
    privacy_ : Certificate
        What was guaranteed, by which events.
    data_norm_ : float or None
        The row bound that was used; None if the rows were standardised instead.
    plan_ : Plan
        The solver and the settings that were chosen before the data was touched.
    n_features_in_ : int
    feature_names_in_ : ndarray, when X has column names

    Examples
    --------
    >>> import numpy as np
    >>> from privopt import LinearSVC
    >>> angle = np.linspace(0, 2 * np.pi, 5000)
    >>> X = np.column_stack([np.cos(angle), np.sin(angle)])
    >>> clf = LinearSVC(epsilon=1.0).fit(X, X[:, 0] > 0)
    >>> bool(clf.score(X, X[:, 0] > 0) > 0.9), clf.privacy_.private
    (True, True)
    """

    _sklearn_class = "svm.LinearSVC"

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 0.0,
        *,
        loss: str = "smoothed_hinge",
        width: float = 0.5,
        alpha: float = 0.0,
        neighbouring: str = "zero_out",
        data_norm: float | str = 1.0,
        bounds: Any = None,
        fit_intercept: bool = True,
        solver: str = "auto",
        classes: Any = None,
        n_public: int | None = None,
        rows_per_user: int | None = None,
        nan_policy: str = "raise",
        random_state: int | None = None,
        ledger: Any = None,
        dataset: str | None = None,
        discrete_noise: bool | str = "auto",
        max_weight: float | None = None,
        class_weight: Any = None,
    ) -> None:
        super().__init__(
            epsilon,
            delta,
            neighbouring,
            data_norm,
            bounds,
            fit_intercept,
            solver,
            classes,
            n_public,
            rows_per_user,
            nan_policy,
            random_state,
            ledger,
            dataset,
            discrete_noise,
        )
        self.max_weight = max_weight
        self.class_weight = class_weight
        self.loss = loss
        self.width = width
        self.alpha = alpha

    def _loss(self) -> Loss:
        if self.loss == "smoothed_hinge":
            return SmoothedHinge(self.width)
        if self.loss == "hinge":
            return Hinge()
        raise ValueError(f'loss must be "smoothed_hinge" or "hinge", got {self.loss!r}.')

    def _ridge(self) -> float:
        if not 0 <= self.alpha < float("inf"):
            raise ValueError(f"alpha must be non-negative and finite, got {self.alpha!r}.")
        return self.alpha
