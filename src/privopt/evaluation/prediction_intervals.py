"""Intervals for new targets of a regression, from one private quantile of held-out residuals.

Let R_1, ..., R_n be the sizes of residuals of held-out records and R that of a new one, all
exchangeable. The new one is at most the k-th smallest, k = ceil((n + 1) (level + beta)), with
probability level + beta at least (Vovk, Gammerman and Shafer, 2005). A private quantile by ranks
(``mechanisms.RankQuantile``) returns theta with density proportional to exp(-s epsilon / a), s the
rank error of the best point within w of theta, and a = 2. Points within w of the quantile itself
have s = 0, and fill at least a length of w of the bounds' length D, so

    P(s(theta) > t) <= (D / w) exp(-epsilon t / a) = beta  for  t = (a / epsilon) ln(D / (w beta)).

Otherwise at least q n - t residuals are at most theta + w. With q n - t >= k the interval of
half-width theta + w holds the new target with probability level at least: over the records, the
noise and the new record, whatever their distribution and however bad the model.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from privopt.estimators.frames import column
from privopt.evaluation.numbers import numbers_or_missing
from privopt.ownership import own_type
from privopt.planner import quantile
from privopt.privacy import Certificate, Refused

MISSED = 0.02
"""Share of what may lie outside that is kept for the quantile's noise."""
WIDENING = 1e-3
"""Width within which a quantile is found, of the distance of the targets' bounds."""


@dataclass(frozen=True, eq=False)
class PredictionIntervals:
    """Predictions plus and minus one released number.

    Attributes
    ----------
    model : estimator
    half_width : float
    level : float
        Of the coverage: at least this, for a new record of the same population.
    privacy_ : Certificate
        Of the number that was bought; the model has its own.
    """

    model: Any
    half_width: float
    level: float
    target_bounds: tuple[float, float]
    privacy_: Certificate

    def predict(self, X: Any) -> np.ndarray:
        """Lower and upper ends within the target bounds: an array (n_samples, 2)."""
        return self.around(self.model.predict(X))

    def around(self, predictions: Any) -> np.ndarray:
        """The same, of predictions that were made already."""
        middle = np.asarray(predictions, dtype=float)
        ends = np.column_stack([middle - self.half_width, middle + self.half_width])
        return np.clip(ends, *self.target_bounds)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, with the certificate."""
        return {
            "half_width": self.half_width,
            "level": self.level,
            "target_bounds": list(self.target_bounds),
            "certificate": self.privacy_.to_dict(),
        }

    @classmethod
    def from_dict(cls, model: Any, data: dict[str, Any]) -> PredictionIntervals:
        """For the same model again; refuses a certificate that its own events do not support."""
        certificate = Certificate.from_json(json.dumps(data["certificate"]))
        low, high = map(float, data["target_bounds"])
        half, level = float(data["half_width"]), float(data["level"])
        return cls(model, half, level, (low, high), certificate)

    def __str__(self) -> str:
        return (
            f"prediction +- {self.half_width:.4g} holds the target of a new record with "
            f"probability {self.level:g} at least (targets within their bounds, records from the "
            f"population of the held-out ones); {self.privacy_}"
        )


@np.errstate(all="ignore")  # a warning that one record causes would tell of it
def prediction_intervals(
    model: Any,
    X: Any,
    y: Any,
    *,
    level: float = 0.9,
    epsilon: float = 0.5,
    neighbouring: str = "zero_out",
    random_state: int | None = None,
    ledger: Any = None,
    dataset: str | None = None,
) -> PredictionIntervals:
    """Intervals for new targets, from records that the model was not fitted to.

    Parameters
    ----------
    model : estimator
        A fitted regression of this library, or a pipeline that ends in one.
    X, y : rows and their targets
        Held out: private, and not among the rows of the fit. A record without a finite target is
        empty.
    level : float, default=0.9
        Coverage that is promised, for the population and not for each kind of record.
    epsilon : float, default=0.5
        Of the one number that is bought. A record is in one part, so it pays for that one alone.
    neighbouring : {"zero_out", "replace_one"}, default="zero_out"
        The number of held-out records is public in both.
    random_state, ledger, dataset : optional
        As in ``quantile``.

    Returns
    -------
    PredictionIntervals

    Examples
    --------
    >>> import numpy as np, privopt
    >>> x = np.sin(2.4 * np.arange(20_000))[:, None]
    >>> y = 0.5 * x.ravel() + 0.1 * np.sin(7.1 * np.arange(20_000))
    >>> model = privopt.LinearRegression(1.0, 1e-6, bounds=(-1, 1)).fit(x[:15_000], y[:15_000])
    >>> band = privopt.prediction_intervals(model, x[15_000:], y[15_000:])
    >>> bool(0.05 < band.half_width < 0.2), band.privacy_.private
    (True, True)
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, for example 0.9; got {level!r}.")
    if neighbouring == "add_remove":
        raise ValueError(
            "coverage rests on the number of held-out records, which add_remove keeps private: "
            'use neighbouring="zero_out" or "replace_one".'
        )
    steps = [step for _, step in getattr(model, "steps", [("model", model)])]
    last = getattr(steps[-1], "estimator_", steps[-1])  # of fits to parts, their mean
    bounds = getattr(last, "_ends", None)
    if bounds is None or not all(own_type(type(step)) for step in (*steps, last)):
        raise ValueError(
            "prediction intervals are for regressions of this library, alone or behind its own "
            "encoders: another model may predict a row by looking at others."
        )
    low, high = bounds()
    targets = numbers_or_missing(column(y))
    targets = np.where(np.isfinite(targets), np.clip(targets, low, high), np.nan)
    q = share_asked(level, len(targets), epsilon)
    if q >= 1:
        raise Refused(
            f"{len(targets)} held-out records are too few for level {level:g} at epsilon "
            f"{epsilon:g}: hold out more, or ask for less."
        )
    residuals = np.abs(targets - np.asarray(model.predict(X), dtype=float))
    width = high - low
    found, certificate = quantile(
        residuals,
        q,
        bounds=(0.0, width),
        epsilon=epsilon,
        neighbouring=neighbouring,
        method="rank",
        widening=WIDENING * width,
        random_state=random_state,
        ledger=ledger,
        dataset=dataset,
    )
    # The quantile leaves the middle of one of 2^40 cells: half of one is added.
    half = min(found + (WIDENING + 2.0**-40) * width, width)
    return PredictionIntervals(model, half, level, (low, high), certificate)


def share_asked(level: float, n: int, epsilon: float) -> float:
    """The q of the quantile: see the derivation above."""
    beta = MISSED * (1 - level)
    t = 2 / epsilon * math.log(1 / (WIDENING * beta))
    return (math.ceil((n + 1) * (level + beta)) + t) / max(n, 1)
