"""A private linear support vector classifier with the interface of scikit-learn."""

from __future__ import annotations

from privopt.estimators.linear_classifier import LinearClassifier
from privopt.estimators.parameters import parameter
from privopt.losses import Hinge, Loss, SmoothedHinge


class LinearSVC(LinearClassifier):
    """Differentially private linear support vector classification.

    Two classes are one model. With ``delta > 0`` and the smoothed hinge more classes are one model
    too, whose coefficient matrix is released as a whole: the score of a record's class has to lead
    all others by the margin. Otherwise they are fitted one against the rest within one budget.

    Parameters
    ----------
    loss : {"smoothed_hinge", "hinge"}, default="smoothed_hinge"
        The smoothed hinge is solved by objective perturbation, which usually is more accurate than
        the noisy gradient descent that the hinge itself, with its kink, leaves.
    width : float, default=0.5
        Half-width of the smoothed hinge's parabola around the margin.
    alpha : float, default=0.0
        Least ridge penalty, on the scale of the sum over records.

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

    loss: str = parameter(default="smoothed_hinge")
    width: float = parameter(default=0.5)
    alpha: float = parameter(default=0.0)

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
