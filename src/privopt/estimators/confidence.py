"""Standard errors and intervals of an estimator whose fit released what they need."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from privopt.estimators.parameters import Declared, parameter
from privopt.inference import Coefficients, Summary
from privopt.inference.coefficients import LONGEST
from privopt.inference.summary import INTERCEPT
from privopt.losses import Logistic, Poisson
from privopt.privacy.certificate import shown

HOW = {
    "sandwich": "one fit; noisy curvature and noisy covariance of the scores at its answer",
    "parts": "the mean of independent fits on disjoint parts of the records; Student's t",
}


class Confident:
    """What a fit with intervals can say about its coefficients.

    Attributes
    ----------
    standard_errors_ : ndarray of shape (n_features + 1,), (n_classes, n_features + 1), or None
        Of the coefficients, the intercept's last, sampling and privacy together; infinite where
        nothing is identified. None for a fit without intervals.
    """

    _inference: Coefficients | None = None
    _width: int
    """How many columns the fitted matrix has."""
    _parts: int | None = None
    """Of how many fits the model is the mean (``IntervalsByParts``)."""

    @property
    def standard_errors_(self) -> np.ndarray | None:
        check_is_fitted(self, "coef_")
        return None if self._inference is None else self._shaped_as_coef(self._inference.std_err)

    def conf_int(self, level: float = 0.95) -> np.ndarray:
        """Intervals of the coefficients, the intercept's last: an array (n_features + 1, 2), or
        (n_classes, n_features + 1, 2) where there are more than two classes.

        They hold sampling and privacy noise, and cost no budget. Where the noise leaves nothing to
        say they are the whole line.
        """
        return self._shaped_as_coef(self._sure().interval(level))

    def _shaped_as_coef(self, found: np.ndarray) -> np.ndarray:
        """One line a coefficient; with more than two classes a block of such lines for each."""
        models = self.plan_.facts.repeats  # type: ignore[attr-defined]
        return found.reshape(models, -1, *found.shape[1:]) if models > 1 else found

    def summary(self, level: float = 0.95) -> Summary:
        """Coefficients, standard errors and intervals in a table, with what is estimated."""
        one = self._sure()
        model: Any = self
        certificate, plan = model.privacy_, model.plan_
        features = model.n_features_in_
        names = getattr(model, "feature_names_in_", [f"x{j}" for j in range(features)])
        one.interval(level)
        budget = f"epsilon = {shown(certificate.epsilon)}, delta = {shown(certificate.delta)}"
        facts = [
            ("records", str(plan.facts.n)),
            ("privacy", f"{budget}, {certificate.neighbouring}, per {certificate.unit}"),
            ("method", HOW[one.kind]),
        ]
        return Summary(
            f"{type(self).__name__}: coefficients",
            _rows([*map(str, names), INTERCEPT], model),
            one,
            level,
            facts,
            _notes(model, one, level),
        )

    def _for_intervals(self: Any) -> str:
        """The solver that gives intervals, from public parameters alone."""
        if self.solver not in ("auto", "with_intervals"):
            raise ValueError(
                f'intervals=True needs solver="auto", got {self.solver!r}: for another solver wrap '
                "the estimator in privopt.IntervalsByParts."
            )
        if self.data_norm == "private":
            raise ValueError("intervals need bounds, or a data_norm that is a public number.")
        return "with_intervals"

    def _coefficients(self: Any, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Slopes and constants for X as it was given, from fitted parameters, one line a model."""
        coef, intercept = np.ascontiguousarray(theta[:, : self._width]), np.zeros(len(theta))
        height = self.plan_.facts.problem.intercept
        if height:
            intercept = theta[:, -1] * height
        return self._undesigned(coef, intercept, self.n_features_in_)

    def _sure(self) -> Coefficients:
        check_is_fitted(self, "coef_")
        if self._inference is None:
            raise ValueError(
                "this fit released nothing to compute standard errors from: fit with "
                "intervals=True, or wrap the estimator in privopt.IntervalsByParts."
            )
        return self._inference


class GivesIntervals(Declared):
    """An estimator that can release what its own standard errors need.

    Parameters
    ----------
    intervals : bool, default=False
        Also releases what standard errors need, within the same budget and certificate: see
        ``summary``, ``conf_int`` and ``standard_errors_``. Long rows then count less instead of
        being shortened, so that slopes are not biased; predictions may be slightly worse.
    """

    intervals: bool = parameter(default=False)


def _rows(names: list[str], model: Any) -> list[str]:
    """Names of all coefficients, class by class where there are more than two."""
    if model.plan_.facts.repeats == 1:
        return names
    return [f"{label}: {name}" for label in model.classes_ for name in names]


def reported(model: Any, found: Coefficients | None, models: int, q: int) -> Coefficients | None:
    """Errors of the parameters that were fitted, as errors of ``coef_`` and ``intercept_``.

    ``_coefficients`` is affine, so its values at the origin and at the unit vectors are the map.
    """
    if found is None:
        return None
    probe = copy(model)

    def at(theta: np.ndarray) -> np.ndarray:
        probe._keep(*probe._coefficients(theta.reshape(models, q)))
        coef, constant = np.reshape(probe.coef_, (models, -1)), np.reshape(probe.intercept_, -1)
        return np.column_stack([coef, constant]).ravel()

    shift = at(np.zeros(models * q))
    matrix = np.array([at(unit) - shift for unit in np.eye(models * q)]).T
    return found.mapped(matrix, shift)


def _notes(model: Any, one: Coefficients, level: float) -> list[str]:
    loss = model.plan_.facts.problem.loss
    if one.kind == "parts":
        what = (
            "What is estimated: the coefficients that such a fit gives on average on one part of "
            "the records, its regularisation included."
        )
    else:
        what = "What is estimated: " + _estimand(model, loss)
    said = [what]
    if one.identified.any():
        said.append(
            f"Intervals ({100 * level:g} %) hold sampling and privacy noise together and cost "
            "nothing beyond the epsilon above."
        )
    if not one.identified.all():
        which = "Some are not" if one.identified.any() else "Not"
        said.append(
            f"{which} identified at this epsilon: noise hides too much of the curvature for an "
            "interval to be trusted. More records, fewer columns, or a larger epsilon would "
            "identify them."
        )
    if one.conditional:
        said.append(
            "Because some are not, the other intervals take for granted that all slopes together, "
            f"per standard deviation of their columns, are no longer than {_longest(loss)}."
        )
    return said


def _longest(loss: Any) -> str:
    squares = not isinstance(loss, Logistic | Poisson)
    return "two standard deviations of the target" if squares else f"{LONGEST:g}"


def _estimand(model: Any, loss: Any) -> str:
    rows = (
        "Long rows count less, by a weight that depends on the row alone, so nothing is shortened."
    )
    if isinstance(loss, Logistic):
        return (
            f"the log-odds of class {model.classes_[-1]}, if they are linear in the columns; "
            f"otherwise the minimiser of a weighted loss with slopes of at most 1/2. {rows}"
        )
    if isinstance(loss, Poisson):
        return (
            "the logarithm of the mean, if it is linear in the columns and few counts are further "
            "from their mean than the slope's cap; otherwise the minimiser of the weighted loss "
            f"with capped slopes. {rows}"
        )
    ridge = ", the penalty alpha included" if model._ridge() else ""
    return (
        f"slopes of a linear mean{ridge}, if errors are independent of the columns, or symmetric "
        "given them, and targets lie within their bounds; otherwise the minimiser of the weighted "
        "Huber loss. With skewed errors the intercept belongs to that loss and not to the mean. "
        + rows
    )
