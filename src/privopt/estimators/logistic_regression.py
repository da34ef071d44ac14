"""Private logistic regression with the interface of scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np

from privopt.estimators.confidence import GivesIntervals
from privopt.estimators.linear_classifier import LinearClassifier
from privopt.estimators.parameters import fitted, parameter
from privopt.estimators.probabilities import probabilities
from privopt.estimators.shapes import Shape, plain_additive
from privopt.losses import CappedLogistic, Logistic, Loss


class LogisticRegression(GivesIntervals, LinearClassifier):
    """Differentially private logistic regression.

    Two classes are one model. With ``delta > 0`` more classes are one model too: a softmax whose
    coefficient matrix is released as a whole, so that the budget is not split between classes.
    Without delta, or with a named solver of single models, they are fitted one against the rest:
    every record takes part in every model, and the models share the budget.

    Parameters
    ----------
    data_norm : float or "private", default=1.0
        Public bound on the l2 norm of a row of X; longer rows are scaled down to it, in ``fit`` and
        in ``predict`` alike. It must not be computed from the data: scale columns by bounds you
        know. ``"private"`` chooses it with 5 % of the budget, in the same certificate.
    bounds : pair or mapping, optional
        Public bounds of the columns: ``(low, high)``, numbers or one per column, or a mapping from
        column names to pairs. Entries outside are moved to the nearest bound. With bounds and an
        intercept the rows are standardised privately, which is usually far more accurate than any
        ``data_norm`` one could guess; ``data_norm`` is then not used.
    link : {"logit", "capped"}, default="logit"
        What scores mean. With ``"logit"`` they are log-odds, linear in the columns. ``"capped"``
        minimises the logistic loss with its slope capped at 1/2 and, with ``bounds``, predicts from
        clipped rows: classes are nearly the same, on some data probabilities are better, but
        coefficients are not log-odds and there is no plain model to export.
    features : {"linear", "splines"} or list, default="linear"
        Columns whose shape is fitted beside their slope, for an additive model: ``"splines"`` for
        all, or a list of names or positions. Needs ``bounds``, and should name columns of numbers,
        not indicators. Costs 5 % of the budget. Where noise would eat the shapes, which n, epsilon
        and their number decide, the fit is the linear one.

    Attributes
    ----------
    shapes_ : list of Shape, or None
        What each shaped column adds to the score, as a table over 64 bins of its bounds; None
        where the fit is linear.

    Examples
    --------
    >>> import numpy as np
    >>> from privopt import LogisticRegression
    >>> angle = np.linspace(0, 2 * np.pi, 5000)
    >>> X = np.column_stack([np.cos(angle), np.sin(angle)])
    >>> clf = LogisticRegression(epsilon=1.0).fit(X, X[:, 0] > 0)
    >>> bool(clf.score(X, X[:, 0] > 0) > 0.9), clf.privacy_.private
    (True, True)
    """

    _sklearn_class = "linear_model.LogisticRegression"

    shapes_: list[Shape] | None = fitted()
    link: str = parameter(default="logit")
    features: Any = parameter(default="linear")

    def _loss(self) -> Loss:
        if self.link not in ("logit", "capped"):
            raise ValueError(f'link must be "logit" or "capped", got {self.link!r}.')
        if self.link == "capped" and not (
            isinstance(self.features, str) and self.features == "linear"
        ):
            raise ValueError('shapes of columns are fitted with link="logit" alone.')
        return Logistic() if self.link == "logit" else CappedLogistic()

    def to_sklearn(self) -> Any:
        if self.link == "capped":
            raise ValueError(
                'a model with link="capped" is not a linear model of log-odds, so scikit-learn has '
                'none like it: fit with link="logit" to export.'
            )
        plain, shapes = super().to_sklearn(), self.shapes_
        return plain if shapes is None else plain_additive(plain, shapes)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities; with more than two classes the softmax of their scores, or
        one-against-rest probabilities normalised, as the plan says."""
        return probabilities(self.decision_function(X), self.plan_)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithm of ``predict_proba``."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))
