"""A user's scorer in a private search: one number for each record, from this record alone.

The noise on the sum of scores pays for one number of each record that reads no other. Both hold by
construction: the scorer is called for one record at a time, and what it returns is one number in
[0, 1] or counts as 0. It cannot fail either, because a refusal would tell of the records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from privopt.estimators.linear_model import LinearModel
from privopt.estimators.linear_regressor import LinearRegressor
from privopt.privacy import Refused

Scoring = Callable[[np.ndarray, np.ndarray], np.ndarray]

MADE_UP = 8
"""Records that a scorer is tried on before anything is paid."""


def each(scoring: Scoring, y: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """The score of each record, computed without the others; 0 where there is none."""
    found = np.zeros(len(y))
    with np.errstate(all="ignore"):
        for i in range(len(y)):
            try:
                found[i] = _number(scoring(y[i : i + 1].copy(), predicted[i : i + 1].copy()))
            except Exception:
                found[i] = 0.0
    return found


def _number(score: Any) -> float:
    one = np.asarray(score)
    if one.shape != (1,) or one.dtype.kind not in "biuf" or not np.isfinite(one[0]):
        return 0.0
    return min(max(float(one[0]), 0.0), 1.0)


def check_scoring(scoring: Scoring, estimator: LinearModel) -> None:
    """Refuse, on made-up records, a scorer that would not do what its author thinks."""
    y = _made_up(estimator)
    predicted = np.roll(y, 1)
    try:
        with np.errstate(all="ignore"):
            found = [np.asarray(scoring(y.copy(), predicted.copy())) for _ in range(2)]
            back = np.asarray(scoring(y[::-1].copy(), predicted[::-1].copy()))
            half = np.asarray(scoring(y[1::2].copy(), predicted[1::2].copy()))
            single = [
                np.asarray(scoring(y[i : i + 1], predicted[i : i + 1])) for i in range(len(y))
            ]
    except Exception:
        raise Refused(
            "scoring failed on made-up records: it takes two arrays, labels and predictions, and "
            "gives one number for each record."
        ) from None
    every = [*found, back, half, *single]
    shapes = [(len(y),)] * 3 + [y[1::2].shape] + [(1,)] * len(y)
    if [one.shape for one in every] != shapes or any(one.dtype.kind not in "biuf" for one in every):
        raise Refused(
            "scoring must give one real number for each record, an array as long as y: a mean or "
            "several numbers a record would need another noise."
        )
    alone = np.concatenate(single)
    others = (found[0], found[1], back[::-1])
    if not all(np.allclose(one, alone, equal_nan=True) for one in others) or not np.allclose(
        half, alone[1::2], equal_nan=True
    ):
        raise Refused(
            "scoring must score each record by itself: on made-up records it gave other numbers "
            "when other records stood beside them."
        )


def _made_up(estimator: LinearModel) -> np.ndarray:
    if isinstance(estimator, LinearRegressor):
        return np.linspace(*estimator._ends(), MADE_UP)
    classes = getattr(estimator, "classes", None)
    known = np.array([0, 1]) if classes is None else np.unique(np.asarray(classes))
    return known[np.arange(MADE_UP) * 3 // 2 % len(known)]


def assumed_of(scoring: Scoring | None) -> tuple[str, ...]:
    """What a certificate says of a scorer of the user's own."""
    if scoring is None:
        return ()
    name = getattr(scoring, "__qualname__", type(scoring).__name__)
    return (f"the scorer {name} keeps nothing of the records that it is called with: not proved",)
